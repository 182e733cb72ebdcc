"""Pictures in memory: a data set of tensors, its checks, and its batches, which are made on the training's device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from syno.base.errors import DataError
from syno.data.augmentation import Augmentation
from syno.data.contract import Orders, Pair, content_hash, generator_of

PLAIN = torch.contiguous_format
IMAGE_AXES = 4  # [n, channels, height, width]


@dataclass(frozen=True)
class DataSet:
    """Pictures with a class each. Two data sets are equal if they hold the same pictures, whatever their names.

    Attributes:
        name: a label.
        train_images, test_images: [n, channels, height, width]; float32 around zero, or uint8 if there is an augmentation,
            which makes float32 of it.
        train_labels, test_labels: int64 [n], in range(classes).
        classes: number of classes.
        hash: of the shapes and bytes of all tensors; computed if it isn't given.
        augmentation: changes batches of pictures for training.

    Raises DataError if a tensor isn't as described here.
    """

    name: str = field(compare=False)
    train_images: torch.Tensor = field(repr=False, compare=False)
    train_labels: torch.Tensor = field(repr=False, compare=False)
    test_images: torch.Tensor = field(repr=False, compare=False)
    test_labels: torch.Tensor = field(repr=False, compare=False)
    classes: int
    hash: str = ""
    augmentation: Augmentation | None = None

    def __post_init__(self) -> None:
        self._check()
        if not self.hash:
            tensors = (self.train_images, self.train_labels, self.test_images, self.test_labels)
            object.__setattr__(self, "hash", content_hash(*tensors))

    def _check(self) -> None:
        """Raise DataError if a tensor isn't as the class describes it."""
        types = (torch.float32,) if self.augmentation is None else (torch.uint8, torch.float32)
        for part in ("train", "test"):
            images, labels = getattr(self, f"{part}_images"), getattr(self, f"{part}_labels")
            for title, tensor in ((f"{part}_images", images), (f"{part}_labels", labels)):
                if not isinstance(tensor, torch.Tensor):
                    raise DataError(f"{self.name}: {title} is a {type(tensor).__name__}; give a torch.Tensor")
            check_images(f"{self.name}: {part}_images", images, tuple(self.train_images.shape[1:]), types)
            check_labels(f"{self.name}: {part}_labels", labels, len(images), self.classes)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the network's input."""
        channels, height, width = self.train_images.shape[1:]
        side = None if self.augmentation is None else self.augmentation.settings.size
        return (channels, height, width) if side is None else (channels, side, side)

    @property
    def train_count(self) -> int:
        """Number of pictures to train on."""
        return len(self.train_labels)

    @property
    def test_count(self) -> int:
        """Number of pictures to test on."""
        return len(self.test_labels)

    def train_batches(
        self, batch: int, *, seed: int, device: Any = "cpu", layout: torch.memory_format = PLAIN
    ) -> RandomBatches:
        """Return random batches, see `PictureData`. All pictures are copied to the device now."""
        images, labels = self.train_images.to(device).contiguous(memory_format=layout), self.train_labels.to(device)
        return RandomBatches(images, labels, self.augmentation, batch, layout, seed)

    def test_batches(self, batch: int, *, device: Any = "cpu", layout: torch.memory_format = PLAIN) -> OrderedBatches:
        """Return the batches to test on, see `PictureData`. All pictures are copied to the device now."""
        images, labels = self.test_images.to(device).contiguous(memory_format=layout), self.test_labels.to(device)
        return OrderedBatches(images, labels, self.augmentation, batch, layout)


@dataclass(frozen=True, eq=False)
class OrderedBatches:
    """The pictures to test on, in their order. Tensors are on the device of the training."""

    images: torch.Tensor
    labels: torch.Tensor
    augmentation: Augmentation | None
    batch: int
    layout: torch.memory_format

    def __iter__(self) -> Iterator[Pair]:
        for images, labels in zip(self.images.split(self.batch), self.labels.split(self.batch), strict=True):
            if self.augmentation is not None:
                images = self.augmentation.test(images).contiguous(memory_format=self.layout)
            yield images, labels


@dataclass(frozen=True, eq=False)
class RandomBatches:
    """Random batches to train on, each changed in its own way.

    Random numbers are drawn on the CPU, so that they are equal on every device. Tensors are on the device of the training.
    """

    images: torch.Tensor
    labels: torch.Tensor
    augmentation: Augmentation | None
    batch: int
    layout: torch.memory_format
    seed: int

    @cached_property
    def _orders(self) -> Orders:
        return Orders(len(self.labels), self.seed)

    def __len__(self) -> int:
        return len(self.labels) // self.batch

    def epoch(self, number: int, first: int = 0) -> Iterator[Pair]:
        """Yield the batches of an epoch from batch `first` on; see `Batches`."""
        order = self._orders.of(number).to(self.labels.device)
        draws = self._draws(number)
        for start in range(first * self.batch, len(self) * self.batch, self.batch):
            part = slice(start, start + self.batch)
            images, labels = self.images[order[part]], self.labels[order[part]]
            if self.augmentation is not None:
                images = self.augmentation.train(images, draws[part]).contiguous(memory_format=self.layout)
            yield images, labels

    def _draws(self, epoch: int) -> torch.Tensor:
        """Return the random numbers of the augmentation for each place in the epoch's order."""
        if self.augmentation is None:
            return torch.empty(0)
        drawn = self.augmentation.draw(len(self.labels), self.images.shape[-2:], generator_of(self.seed, epoch))
        return drawn.to(self.labels.device)


def check_images(what: str, images: Any, shape: tuple[int, ...], types: tuple[torch.dtype, ...] = (torch.float32,)) -> None:
    """Raise DataError, which begins with `what`, if these are not finite pictures [n, *shape] of one of the types."""
    if images.dim() != IMAGE_AXES or tuple(images.shape[1:]) != shape or not len(images):
        expected = ", ".join(map(str, shape)) if len(shape) == IMAGE_AXES - 1 else "channels, height, width"
        raise DataError(f"{what} has the shape {list(images.shape)}; it must be [n, {expected}]")
    if images.dtype not in types:
        names = " or ".join(map(_type_name, types))
        raise DataError(f"{what} is {_type_name(images.dtype)}; it must be {names}: convert it, as with images.float()")
    if images.is_floating_point() and not bool(torch.isfinite(images).all()):
        raise DataError(f"{what} has values that are not finite (NaN or infinity); take out or repair these pictures")


def check_labels(what: str, labels: Any, count: int, classes: int) -> None:
    """Raise DataError, which begins with `what`, if these are not int64 labels [count], each from 0 to classes - 1."""
    if tuple(labels.shape) != (count,):
        raise DataError(f"{what} has the shape {list(labels.shape)}; it must be [{count}]: one label for each picture")
    if labels.dtype is not torch.int64:
        raise DataError(f"{what} is {_type_name(labels.dtype)}; it must be int64: convert it, as with labels.long()")
    least, most = int(labels.min()), int(labels.max())
    if least < 0 or most >= classes:
        raise DataError(f"{what} is from {least} to {most}; with {classes} classes, labels must be from 0 to {classes - 1}")


def _type_name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
