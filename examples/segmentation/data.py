"""Pictures of discs, squares and crosses, with a class for each pixel. A program draws them; nothing is downloaded."""

import numpy as np
import torch

from syno.data import DataSet

HEIGHT, WIDTH = 20, 28
SHAPES = 3  # discs, squares and crosses, the classes 1 to 3; the background is the class 0
MOST_SHAPES = 4  # in one picture


def load(*, train: int = 1024, test: int = 256, noise: float = 0.2, seed: int = 0) -> DataSet:
    """Return `train` + `test` pictures, float32 [n, 3, 20, 28], labels [n, 20, 28]. Equal arguments make equal pictures."""
    parts = (np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(2))
    sets = [_pictures(count, noise, random) for count, random in zip((train, test), parts, strict=True)]
    return DataSet("scenes", *sets[0], *sets[1], classes=1 + SHAPES)


def _pictures(count: int, noise: float, random: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    pictures, labels = np.empty((count, 3, HEIGHT, WIDTH)), np.zeros((count, HEIGHT, WIDTH), np.int64)
    for picture, label in zip(pictures, labels, strict=True):
        picture[:] = 0.5 * random.standard_normal((3, 1, 1))
        for _ in range(random.integers(2, MOST_SHAPES + 1)):
            kind = int(random.integers(SHAPES))
            pixels = _shape(kind, random)
            picture[:, pixels] = random.choice((-1, 1), (3, 1)) * random.uniform(0.7, 1.4, (3, 1))
            label[pixels] = 1 + kind
    pictures += noise * random.standard_normal(pictures.shape)
    return torch.from_numpy(np.round(pictures * 64) / 64).float(), torch.from_numpy(labels)


def _shape(kind: int, random: np.random.Generator) -> np.ndarray:
    """Return the pixels of a shape at a random place: a mask [HEIGHT, WIDTH]."""
    radius = random.uniform(4, 7)
    y, x = random.uniform(2, HEIGHT - 2), random.uniform(2, WIDTH - 2)
    rows, columns = np.abs(np.arange(HEIGHT)[:, None] - y), np.abs(np.arange(WIDTH) - x)
    if kind == 0:
        return rows**2 + columns**2 <= radius**2
    inside = (rows <= 0.9 * radius) & (columns <= 0.9 * radius)
    return inside if kind == 1 else inside & ((rows <= 0.3 * radius) | (columns <= 0.3 * radius))
