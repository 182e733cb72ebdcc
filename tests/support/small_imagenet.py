"""ImageNet of a few pictures, whose classes are colours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from syno.data import DATASETS
from syno.data.contract import Pair
from syno.data.image_folder import DEVIATION, MEAN

COLOURS = {"n01": (200, 30, 30), "n02": (30, 200, 30), "n03": (30, 30, 200)}
COUNTS = {"train": 5, "val": 3}  # of each class


def write_folder(folder: Path, count: int) -> Path:
    """JPEG files of several sizes; a class is a colour."""
    random = np.random.default_rng(0)
    for label, (name, colour) in enumerate(COLOURS.items()):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            height, width = 40 + 7 * number + label, 60 - 5 * number
            pixels = np.clip(np.array(colour) + random.integers(-20, 20, (height, width, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{name}_{number}.JPEG", quality=95)
    return folder


def load(folder: Path, **settings: Any) -> Any:
    return DATASETS["imagenet"](**{"folder": folder, "reader": "torch", "size": 24, "workers": 0, **settings})


def colours(images: torch.Tensor) -> list[int]:
    """Which class each picture shows."""
    pixels = images.mean((2, 3)) * torch.tensor(DEVIATION) + torch.tensor(MEAN)
    found: list[int] = pixels.argmax(1).tolist()
    return found


def equal(one: list[Pair], other: list[Pair]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(torch.equal(a, b) and torch.equal(labels, answers) for (a, labels), (b, answers) in pairs)
