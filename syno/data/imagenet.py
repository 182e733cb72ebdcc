"""ImageNet: read in every epoch, by FFCV out of beton files, or by torch out of folders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from syno.base.errors import ShapeError
from syno.data.beton import ffcv, read_record
from syno.data.beton_batches import BetonBatches
from syno.data.contract import DATASETS, Batches, Pair
from syno.data.folder_batches import FolderBatches
from syno.data.image_folder import ImageFolder, check_classes, find_pictures
from syno.data.settings import ImagenetSettings

SPLITS = ("train", "val")
PLAIN = torch.contiguous_format


@dataclass(frozen=True)
class PictureFiles:
    """Pictures that are read when they are needed; see `PictureData`.

    Attributes:
        name: a label.
        train, test: where they are: folders, or beton files.
        train_count, test_count, classes: how many there are.
        hash: of the files: their bytes for beton files, their names and sizes for folders.
        settings: how they are read.
    """

    name: str = field(compare=False)
    train: ImageFolder | Path = field(repr=False)
    test: ImageFolder | Path = field(repr=False)
    train_count: int
    test_count: int
    classes: int
    hash: str
    settings: ImagenetSettings

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width, as the network gets them."""
        return 3, self.settings.size, self.settings.size

    def train_batches(self, batch: int, *, seed: int, device: Any = "cpu", layout: torch.memory_format = PLAIN) -> Batches:
        """See `PictureData`. ShapeError if there are not as many pictures."""
        if batch > self.train_count:
            raise ShapeError(
                f"batch is {batch}, but {self.name} has {self.train_count} pictures to train on; give a smaller one"
            )
        return self._batches(self.train, batch, seed, device, layout)

    def test_batches(self, batch: int, *, device: Any = "cpu", layout: torch.memory_format = PLAIN) -> Iterable[Pair]:
        """See `PictureData`."""
        return self._batches(self.test, batch, None, device, layout)

    def _batches(
        self, source: ImageFolder | Path, batch: int, seed: int | None, device: Any, layout: torch.memory_format
    ) -> FolderBatches | BetonBatches:
        if isinstance(source, ImageFolder):
            return FolderBatches(source, self.settings, batch, seed, device, layout)
        return BetonBatches(source, self.settings, batch, seed, device, layout)


@DATASETS.register("imagenet")
def imagenet(**settings: Any) -> PictureFiles:
    """ImageNet, or other pictures in the same form.

    Args:
        settings: fields of ImagenetSettings.

    Raises:
        SpecError: a setting that there is not.
        DataError: files or folders are missing or damaged. Single pictures are looked at only when they are reached.
        MissingPackageError: the reader is ffcv, and it is not installed.
    """
    chosen = ImagenetSettings.of(**settings)
    return _beton_files(chosen) if chosen.reader == "ffcv" else _folders(chosen)


def _beton_files(settings: ImagenetSettings) -> PictureFiles:
    ffcv("loader")
    files = settings.betons
    train, test = map(read_record, files)
    check_classes(train.names, test.names, files)
    counts = train.count, test.count, len(train.names)
    return PictureFiles("imagenet, beton", files[0], files[1], *counts, _joint(train.hash, test.hash), settings)


def _folders(settings: ImagenetSettings) -> PictureFiles:
    train, test = (find_pictures(settings.folder / split) for split in SPLITS)
    check_classes(train.names, test.names, (train.folder, test.folder))
    counts = len(train.entries), len(test.entries), len(train.names)
    return PictureFiles("imagenet, folders", train, test, *counts, _joint(train.hash, test.hash), settings)


def _joint(*hashes: str) -> str:
    return blake2b(" ".join(hashes).encode(), digest_size=16).hexdigest()
