"""Words as sound: a program makes them of tones and chirps, and adds noise. Nothing is downloaded."""

import numpy as np
import torch

from syno.data import DataSet

RATE = 4000  # samples in a second
LENGTH = 2048  # samples: half a second
PARTS = 3  # of a word
PART = 480  # samples of a part at the usual speed
SOUNDS = ((400, 400), (700, 700), (1100, 1100), (400, 1100), (1100, 400), (700, 1500))  # hertz at the begin and the end
WORDS = ((0, 1, 2), (2, 1, 0), (0, 3, 1), (4, 0, 3), (3, 4, 1), (1, 5, 0), (5, 2, 4), (2, 3, 5))


def load(*, train: int = 2048, test: int = 512, noise: float = 0.5, seed: int = 0) -> DataSet:
    """Return words of `train` + `test` speakers: float32 [n, 1, 2048], labels [n]. Equal arguments make equal words."""
    parts = (np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(2))
    sets = [_words(count, noise, random) for count, random in zip((train, test), parts, strict=True)]
    return DataSet("words", *sets[0], *sets[1], classes=len(WORDS))


def _words(count: int, noise: float, random: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    labels = np.arange(count) % len(WORDS)
    sounds = np.stack([_word(WORDS[label], random) for label in labels])
    sounds += noise * random.standard_normal(sounds.shape)
    # Rounded, so that machines whose sines differ in the last bit make the same words.
    return torch.from_numpy(np.round(sounds * 64) / 64).float().unsqueeze(1), torch.from_numpy(labels)


def _word(parts: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return a word of one speaker, with a pitch, a speed, a loudness and a begin of its own."""
    pitch, speed, loudness = random.uniform(0.9, 1.1), random.uniform(0.85, 1.15), random.uniform(0.5, 1.0)
    length = int(PART / speed)
    begin = random.integers(0, LENGTH - PARTS * length)
    sound = np.zeros(LENGTH)
    for place, part in enumerate(parts):
        frequencies = pitch * np.linspace(*SOUNDS[part], length)
        phase = 2 * np.pi * (random.uniform() + np.cumsum(frequencies) / RATE)
        here = begin + place * length
        sound[here : here + length] = loudness * np.sin(phase) * np.hanning(length)
    return sound
