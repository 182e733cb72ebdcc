"""Pictures in folders, one folder for each class, as ImageNet comes: found, and read with Pillow."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syno.base.errors import DataError
from syno.data.parquet import one_line

ENDINGS = frozenset({".jpeg", ".jpg", ".png"})
RATIOS = (3 / 4, 4 / 3)  # of width to height, of the parts that are cut out
FORMATS = ("JPEG", "PNG", "WEBP")  # whatever a file's name ends with; for others, Pillow may start programs
MOST_PIXELS = 100_000_000  # of a picture; ImageNet's largest has 17 million
TRIES = 10  # to draw a part that fits, before the whole picture is taken


class Entry(NamedTuple):
    """A picture: its file, its class's number, its size in bytes."""

    file: str
    label: int
    size: int


@dataclass(frozen=True)
class ImageFolder:
    """The pictures of a folder, sorted by class and name.

    Attributes:
        folder: where they are.
        names: of the classes, which are the names of the folders in it, sorted.
        entries: one for each picture.
    """

    folder: Path
    names: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def hash(self) -> str:
        """Of classes, names and sizes; the pictures themselves would take an hour to read."""
        state = blake2b(digest_size=16)
        for entry in self.entries:
            state.update(f"{self.names[entry.label]}/{Path(entry.file).name} {entry.size}\n".encode())
        return state.hexdigest()


def find_pictures(folder: Path) -> ImageFolder:
    """The pictures in a folder. DataError if it is not there, has no folders, or one of them has no pictures."""
    if not folder.is_dir():
        raise DataError(
            f"there is no folder {folder}; it must hold a folder of JPEG files for each class, as the ILSVRC 2012 archives of "
            "https://image-net.org do when they are unpacked"
        )
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
        if not names:
            raise DataError(f"the folder {folder} holds no folders; it must have one for each class, with its pictures")
        entries = [entry for label, name in enumerate(names) for entry in _pictures_of_class(folder, name, label)]
    except OSError as error:  # such as a link to itself, or what may not be read
        raise DataError(
            f"{error.filename or folder} cannot be read: {error.strerror or error}; copy it again, or remove it"
        ) from error
    return ImageFolder(folder, tuple(names), tuple(entries))


def _pictures_of_class(folder: Path, name: str, label: int) -> list[Entry]:
    """Return the pictures of a class, sorted. DataError if there are none, or one is no file, such as a pipe or a lost link."""
    found = []
    for entry in os.scandir(folder / name):
        if Path(entry.name).suffix.lower() not in ENDINGS:
            continue
        if not (name + entry.name).isprintable():
            raise DataError(f"the name of the picture {entry.path!r} has characters that cannot be printed; rename it")
        if not entry.is_file():
            raise DataError(f"{entry.path} is no file, nor a link to one; pictures are files; copy it again, or remove it")
        found.append(Entry(entry.path, label, entry.stat().st_size))
    if not found:
        raise DataError(
            f"the folder {folder / name} holds no pictures ({', '.join(sorted(ENDINGS))}); it is a class, as all folders in "
            f"{folder} are; fill it or remove it"
        )
    return sorted(found)


def read_picture(file: str) -> Any:
    """Return a picture of Pillow's, in RGB. DataError, with the file's name, if it is damaged or too large."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit here is the one that counts
            with Image.open(file, formats=FORMATS) as opened:
                if opened.width * opened.height > MOST_PIXELS:
                    raise ValueError(f"it has {opened.width} x {opened.height} pixels, of which {MOST_PIXELS:,} are allowed")
                return opened.convert("RGB")
    except Exception as error:  # a damaged file raises anything
        raise DataError(f"{file}: the picture is damaged: {one_line(error)}; copy it again, or remove it") from error


Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels


def random_box(width: int, height: int, least_area: float, random: np.random.Generator) -> Box:
    """A part of a picture, of a random share of its area and a random ratio of its sides, at a random place."""
    for _ in range(TRIES):
        area = width * height * random.uniform(least_area, 1.0)
        ratio = np.exp(random.uniform(*np.log(RATIOS)))
        across, down = round(float(np.sqrt(area * ratio))), round(float(np.sqrt(area / ratio)))
        if 0 < across <= width and 0 < down <= height:
            left, top = int(random.integers(width - across + 1)), int(random.integers(height - down + 1))
            return left, top, left + across, top + down
    return central_box(width, height, 1.0)


def central_box(width: int, height: int, ratio: float) -> Box:
    """The square in the middle, whose side is this share of the shorter side."""
    side = max(1, round(ratio * min(width, height)))
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def cut_out(picture: Any, box: Box, size: int) -> NDArray[np.uint8]:
    """That part of a picture, resized with a bilinear filter: [3, size, size]."""
    from PIL import Image

    resized = picture.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.ascontiguousarray(np.asarray(resized).transpose(2, 0, 1))


def check_classes(train: Sequence[str], test: Sequence[str], places: tuple[Path, Path]) -> None:
    """DataError if the classes for training and testing are not the same."""
    different = sorted(set(train) ^ set(test))
    if different:
        raise DataError(
            f"{places[0]} and {places[1]} have different classes: {len(different)} are in one of them only, such as "
            f'"{different[0]}"'
        )
