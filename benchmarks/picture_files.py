"""Folders of JPEG files as large as ImageNet's, of random colours, to measure how fast files are read."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from syno.base.errors import MissingPackageError
from syno.data import DATASETS
from syno.data.beton import convert
from syno.data.contract import Batches
from syno.data.imagenet import PictureFiles

SIDES = (500, 375)  # the usual size in ImageNet: width, height
DIFFERENT, CLASSES = 64, 10  # pictures; the others are links to them
COARSE = 24  # pixels that are made larger, so that a file has about as many bytes as one of ImageNet


def write(folder: Path, count: int) -> Path:
    """Write `count` pictures to train on, and a few to test on, as ImageNet's folders have them. It takes Pillow."""
    if find_spec("PIL") is None:
        raise MissingPackageError("pictures are written by Pillow, which is not installed: pip install pillow")
    from PIL import Image

    random = np.random.default_rng(0)
    for split, pictures in (("train", count), ("val", CLASSES)):
        made: list[Path] = []
        for number in range(pictures):
            file = folder / split / f"n{number % CLASSES:02}" / f"{number}.JPEG"
            file.parent.mkdir(parents=True, exist_ok=True)
            if number < DIFFERENT:
                coarse = Image.fromarray(random.integers(0, 256, (COARSE, COARSE, 3), dtype=np.uint8))
                fine = np.asarray(coarse.resize(SIDES, Image.Resampling.BICUBIC)).astype(np.int16)
                noisy = (fine + random.integers(-8, 9, fine.shape)).clip(0, 255).astype(np.uint8)
                Image.fromarray(noisy).save(file, quality=90)
                made.append(file)
            else:
                os.link(made[number % DIFFERENT], file)
    return folder


class KeptBatches:
    """Pictures in files whose batches are made once: FFCV's loader compiles for seconds when it is made."""

    def __init__(self, files: PictureFiles) -> None:
        self._files, self._batches = files, {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def train_batches(self, batch: int, *, seed: int, **place: Any) -> Batches:
        key = (batch, *place.values())
        if key not in self._batches:
            self._batches[key] = self._files.train_batches(batch, seed=seed, **place)
        return self._batches[key]


def read(folder: Path, workers: int) -> KeptBatches:
    """The pictures, by FFCV from beton files if it is installed, or by torch."""
    reader = "torch" if find_spec("ffcv") is None else "ffcv"
    if reader == "ffcv":
        for split in ("train", "val"):
            convert(folder / split, folder / f"{split}.beton", compress_probability=0.5, workers=workers)
    return KeptBatches(DATASETS["imagenet"](folder=folder, reader=reader, workers=workers))
