"""ImageNet, read anew in every epoch: by FFCV from beton files, or by torch from folders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from syno.base.files import checksum
from syno.data.beton import ffcv, read_record
from syno.data.contract import DATASETS, WHOLE, Batches, Pair, Share, check_batch
from syno.data.image_folder import FolderBatches, ImageFolder, check_classes, find_pictures, normalized
from syno.data.settings import ImagenetSettings

SPLITS = ("train", "val")
PLAIN = torch.contiguous_format
LARGEST_SEED = 2**31


@DATASETS.register("imagenet")
def imagenet(**settings: Any) -> PictureFiles:
    """Return ImageNet, or other pictures in the same format.

    Args:
        settings: fields of ImagenetSettings.

    Raises:
        SpecError: an unknown setting.
        DataError: files or folders are missing or damaged. Single pictures are checked only when they are read.
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
    return PictureFiles("imagenet, beton", *files, *counts, _joint(train.hash, test.hash), settings)


def _folders(settings: ImagenetSettings) -> PictureFiles:
    train, test = (find_pictures(settings.folder / split) for split in SPLITS)
    check_classes(train.names, test.names, (train.folder, test.folder))
    counts = len(train.entries), len(test.entries), len(train.names)
    return PictureFiles("imagenet, folders", train, test, *counts, _joint(train.hash, test.hash), settings)


def _joint(*hashes: str) -> str:
    return checksum(" ".join(hashes).encode())


@dataclass(frozen=True)
class PictureFiles:
    """Pictures that are read on demand; see `PictureData`.

    Attributes:
        name: a label.
        train, test: folders of pictures, or beton files.
        train_count, test_count, classes: numbers of pictures and classes.
        hash: hash of the bytes of beton files, or of the file names and sizes of folders.
        settings: settings of reading and augmentation.
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
        """Channels, height and width of the network's input."""
        return 3, self.settings.size, self.settings.size

    @cached_property
    def test_labels(self) -> torch.Tensor | None:
        """The test labels, if they are known without reading pictures: int64 [test_count]."""
        return torch.tensor([entry.label for entry in self.test.entries]) if isinstance(self.test, ImageFolder) else None

    def train_batches(self, batch: int, *, seed: int, device: Any = "cpu", layout: torch.memory_format = PLAIN) -> Batches:
        """Return random training batches, see `PictureData`. ShapeError if there are fewer pictures than `batch`."""
        check_batch(batch, self.name, self.train_count, "pictures")
        return self._batches(self.train, batch, seed, device, layout)

    def test_batches(self, batch: int, *, device: Any = "cpu", layout: torch.memory_format = PLAIN) -> Iterable[Pair]:
        """Return the test batches, see `PictureData`."""
        return self._batches(self.test, batch, None, device, layout)

    def _batches(
        self, source: ImageFolder | Path, batch: int, seed: int | None, device: Any, layout: torch.memory_format
    ) -> FolderBatches | BetonBatches:
        if isinstance(source, ImageFolder):
            return FolderBatches(source, self.settings, batch, seed, device, layout)
        return BetonBatches(source, self.settings, batch, seed, device, layout)


@dataclass(frozen=True)
class BetonBatches:
    """Batches of a beton file, decoded by FFCV's threads. Float32, normalized, on the device.

    Random training batches; if `seed` is None, all pictures in order. The order depends on the seed and the epoch; FFCV draws
    crops and flips without a seed.
    """

    file: Path
    settings: ImagenetSettings
    batch: int
    seed: int | None
    device: Any
    layout: torch.memory_format
    share: Share = WHOLE

    def of_share(self, share: Share) -> BetonBatches:
        """Return batches with only this process's share of the pictures of each batch; only these are decoded."""
        return replace(self, share=share)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Pair]:
        return self.epoch(1)

    def epoch(self, number: int, first: int = 0) -> Iterator[Pair]:
        """Yield the batches of an epoch, see `Batches`. The batches before `first` are decoded, too."""
        self._loader.next_epoch = number - 1
        for images, labels in islice(self._loader, first, None):
            # FFCV reuses its buffers for later batches, so both tensors are copied
            yield normalized(images, self.layout), labels.reshape(-1).to(torch.int64, copy=True)

    @cached_property
    def _loader(self) -> Any:
        """FFCV's loader of the file. Creating it compiles code for some seconds, and reads only the file's beginning and end.

        Pictures are normalized by torch: `NormalizeImage` of ffcv 1.0.2 never returns on a CPU.
        """
        decoders, transforms, loader = ffcv("fields.decoders"), ffcv("transforms"), ffcv("loader")
        device, size = torch.device(self.device), self.settings.size
        training = self.seed is not None
        if training:
            decoder = decoders.RandomResizedCropRGBImageDecoder((size, size), scale=(self.settings.least_area, 1.0))
        else:
            decoder = decoders.CenterCropRGBImageDecoder((size, size), ratio=self.settings.test_ratio)
        moved = [transforms.ToTensor(), transforms.ToDevice(device, non_blocking=device.type == "cuda")]
        flip = [transforms.RandomHorizontalFlip()] if training else []
        made = loader.Loader(
            str(self.file),
            batch_size=self.share.size(self.batch),
            num_workers=max(1, self.settings.workers),
            order=loader.OrderOption.RANDOM if training else loader.OrderOption.SEQUENTIAL,
            os_cache=True,
            seed=(self.seed or 0) % LARGEST_SEED,
            drop_last=training,
            pipelines={
                "image": [decoder, *flip, *moved, transforms.ToTorchImage()],
                "label": [decoders.IntDecoder(), *moved],
            },
        )
        if self.share.count > 1:  # FFCV's own `distributed` makes other batches than one process does
            made.traversal_order = _OrderOfShare(made.traversal_order, self.batch, self.share)
        return made


class _OrderOfShare:
    """FFCV's order of an epoch, reduced to one process's share of each batch."""

    def __init__(self, order: Any, batch: int, share: Share) -> None:
        self.order, self.batch, self.share = order, batch, share

    def sample_order(self, epoch: int) -> NDArray[Any]:
        """Return the indices of the pictures of an epoch; the interface of FFCV."""
        order = np.asarray(self.order.sample_order(epoch))
        batches = order[: len(order) // self.batch * self.batch].reshape(-1, self.batch)
        return batches[:, self.share.part(0, self.batch)].reshape(-1)
