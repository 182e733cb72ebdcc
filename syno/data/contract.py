"""The interface of data sets: names, resumable batches, random orders, and hashes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from syno.base.errors import ShapeError
from syno.base.files import checksum
from syno.base.registry import Registry

MOST_SAMPLES = 10_000  # to test on that are read only for their labels
Pair = tuple[torch.Tensor, torch.Tensor]  # float32 samples [n, channels, ...], int64 labels [n] or [n, *positions]


@dataclass(frozen=True)
class Share:
    """One of `count` equal parts of every batch: the part of one process in distributed training.

    Attributes:
        number: number of the part, from 0.
        count: number of parts; it divides the batch size.
    """

    number: int = 0
    count: int = 1

    def size(self, batch: int) -> int:
        """Return the number of samples in the part, for a batch of `batch` samples."""
        return batch // self.count

    def part(self, start: int, batch: int) -> slice:
        """Return the indices of the part's samples in a batch of `batch` samples that begins at index `start`."""
        size = self.size(batch)
        return slice(start + self.number * size, start + (self.number + 1) * size)


WHOLE = Share()


class Batches(Protocol):
    """The batches of a training.

    A batch depends only on the seed, its epoch and its index, not on earlier batches, so that an interrupted training resumes
    with the same batches. (FFCV draws crops and flips without a seed; only its order has this property.)

    Batches may have a method `of_share`, which returns batches with only a share of the samples in each; without it, each
    process of distributed training makes whole batches and takes its share of them.
    """

    def __len__(self) -> int:
        """Return the number of batches in an epoch. A smaller last batch is dropped."""
        ...

    def epoch(self, number: int, first: int = 0) -> Iterator[Any]:
        """Yield the batches of epoch `number` (from 1), beginning with batch `first` (from 0)."""
        ...


def shared(batches: Batches, share: Share) -> Batches:
    """Return batches that contain only this process's share of the samples of each batch."""
    if share.count == 1:
        return batches
    own: Callable[[Share], Batches] | None = getattr(batches, "of_share", None)
    return _Parts(batches, share) if own is None else own(share)


class _Parts:
    """Batches that are made whole, and of which only one process's share is used."""

    def __init__(self, batches: Batches, share: Share) -> None:
        self.batches, self.share = batches, share

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, number: int, first: int = 0) -> Iterator[Any]:
        for batch in self.batches.epoch(number, first):
            if isinstance(batch, torch.Tensor):
                yield batch[self.share.part(0, len(batch))]
            else:
                yield tuple(part[self.share.part(0, len(part))] for part in batch)


class PictureData(Protocol):
    """Pictures or other samples of one shape, in memory or in files, with a class each.

    A data set with a class for each position of a sample (segmentation) also has the attribute `label_shape`: the shape of a
    sample's labels, such as (height, width). If some labels do not count, `ignore_index` is their value. `hash` is a hash of
    the samples before augmentation.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def classes(self) -> int: ...  # noqa: D102
    @property
    def hash(self) -> str: ...  # noqa: D102
    @property
    def image_shape(self) -> tuple[int, ...]:
        """Shape of the network's input: (channels, height, width) for pictures, (channels, length) for sound."""
        ...

    @property
    def train_count(self) -> int: ...  # noqa: D102
    @property
    def test_count(self) -> int: ...  # noqa: D102

    def train_batches(
        self, batch: int, *, seed: int, device: Any = "cpu", layout: torch.memory_format = torch.contiguous_format
    ) -> Batches:
        """Return batches of `batch` pictures and labels on the device, in random order, with augmentation."""
        ...

    def test_batches(
        self, batch: int, *, device: Any = "cpu", layout: torch.memory_format = torch.contiguous_format
    ) -> Iterable[Pair]:
        """Return the test batches, in order; they can be iterated repeatedly. The last batch may be smaller."""
        ...


DATASETS: Registry[Callable[..., Any]] = Registry("data set")  # functions that return PictureData or a TokenSet


def label_shape_of(data: object) -> tuple[int, ...]:
    """Return the shape of the labels of one sample: () for a single label, and for text."""
    return tuple(getattr(data, "label_shape", ()))


def ignore_index_of(data: object) -> int | None:
    """Return the label of positions or samples that the loss and the accuracy ignore, such as 255; None if there is none."""
    index = getattr(data, "ignore_index", None)
    return None if index is None else int(index)


class Majority(NamedTuple):
    """The most frequent test label, and its share: the accuracy of always predicting it."""

    label: int
    share: float


def majority_of(data: object) -> Majority | None:
    """Return the most frequent test label; None for text, without data, and if counting would take long.

    All labels are in the attribute `test_labels`, if the data set has one; otherwise at most `MOST_SAMPLES` samples are read.
    """
    count, classes = int(getattr(data, "test_count", 0)), int(getattr(data, "classes", 0))
    if not count or not hasattr(data, "train_batches") or not hasattr(data, "image_shape"):
        return None
    held = getattr(data, "test_labels", None)
    if held is None and (count > MOST_SAMPLES or hasattr(data, "test_labels")):
        return None
    counts, ignored = torch.zeros(classes, dtype=torch.int64), ignore_index_of(data)
    batches = data.test_batches(min(count, 256)) if held is None else [(None, held)]  # type: ignore[attr-defined]
    for _, labels in batches:
        counts += torch.bincount(labels[labels != ignored].flatten().cpu(), minlength=classes)[:classes]
    total, label = int(counts.sum()), int(counts.argmax())
    return Majority(label, int(counts[label]) / total) if total else None


def repeated_tests(data: object) -> int:
    """Return the number of test samples that are also training samples, for data in memory; 0 for other data."""
    parts: list[Any] = [getattr(data, f"{part}_images", None) for part in ("train", "test")]
    if not all(isinstance(part, torch.Tensor) for part in parts):
        return 0
    train, test = ([checksum(memoryview(sample.contiguous().numpy()).cast("B")) for sample in part.cpu()] for part in parts)
    known = set(train)
    return sum(sample in known for sample in test)


def check_batch(batch: int, name: str, count: int, things: str) -> None:
    """Raise ShapeError if a batch is larger than the number of training samples, `count`. `things` is their plural noun."""
    if batch > count:
        raise ShapeError(f"batch is {batch}, but {name} has {count} {things} to train on; give a smaller one")


class Orders:
    """Random orders of `count` samples, one per epoch: consecutive permutations from one random generator."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed
        self._rewind()

    def _rewind(self) -> None:
        self._drawn, self._generator = 0, torch.Generator().manual_seed(self.seed)

    def of(self, epoch: int) -> torch.Tensor:
        """Return the order of an epoch (from 1): int64 [count]."""
        if epoch < 1:
            raise ValueError(f"the epoch is {epoch}; epochs are counted from 1")
        if epoch <= self._drawn:
            self._rewind()
        for _ in range(self._drawn, epoch):
            order = torch.randperm(self.count, generator=self._generator)
        self._drawn = epoch
        return order


def generator_of(seed: int, *place: int) -> torch.Generator:
    """Return a random generator whose state depends only on `seed` and the numbers `place`, such as an epoch."""
    state = np.random.SeedSequence([seed % 2**63, *place]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))


def content_hash(*tensors: torch.Tensor) -> str:
    """Return a 128-bit hash of the shapes, types and bytes of tensors, as 32 hexadecimal digits."""
    parts: list[bytes | memoryview] = []
    for tensor in tensors:
        array = tensor.detach().cpu().contiguous().numpy()
        parts += [f"{array.dtype}{array.shape}".encode(), memoryview(array).cast("B")]
    return checksum(*parts)


def described(files: Sequence[Path]) -> str:
    """Return the names, sizes and modification times of files as text, which changes when a file changes."""
    stats = [(file.name, file.stat()) for file in files]
    return json.dumps([[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats])
