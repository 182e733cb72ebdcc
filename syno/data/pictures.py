"""Pictures and other samples in memory: a data set of tensors, its checks, and its batches, made on the training's device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from syno.base.errors import DataError
from syno.base.files import checksum
from syno.data.augmentation import Augmentation
from syno.data.contract import Orders, Pair, content_hash, generator_of
from syno.data.samples import is_picture

PLAIN = torch.contiguous_format


@dataclass(frozen=True)
class DataSet:
    """Pictures or other samples, with a class each or one for each position. Equal if they hold the same, whatever their names.

    >>> import syno, torch
    >>> pictures, labels = torch.randn(40, 3, 16, 16), torch.arange(40) % 2
    >>> data = syno.DataSet("mine", pictures[:32], labels[:32], pictures[32:], labels[32:], classes=2)
    >>> data.train_count, data.test_count, data.image_shape
    (32, 8, (3, 16, 16))

    Attributes:
        name: a label.
        train_images, test_images: [n, channels, ...], as [n, channels, height, width] for pictures and [n, channels, length]
            for sound; float32 around zero, or uint8 if there is an augmentation, which makes float32 of it.
        train_labels, test_labels: int64, in range(classes): [n], or `[n, *positions]` with a class for each position, as
            [n, height, width] for pictures whose pixels are classified.
        classes: number of classes.
        hash: of the shapes and bytes of all tensors; computed if it isn't given.
        augmentation: changes batches of pictures for training; only for pictures with one label each.
        ignore_index: a label outside of range(classes), such as 255, of positions or samples that count neither in the loss nor
            in the accuracy; None: there is none.

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
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        self._check()
        if not self.hash:
            tensors = (self.train_images, self.train_labels, self.test_images, self.test_labels)
            found = content_hash(*tensors)
            if self.ignore_index is not None:
                found = checksum(f"{found} {self.ignore_index}".encode())
            object.__setattr__(self, "hash", found)

    def _check(self) -> None:
        """Raise DataError if a tensor isn't as the class describes it."""
        types = (torch.float32,) if self.augmentation is None else (torch.uint8, torch.float32)
        for part in ("train", "test"):
            images, labels = getattr(self, f"{part}_images"), getattr(self, f"{part}_labels")
            for title, tensor in ((f"{part}_images", images), (f"{part}_labels", labels)):
                if not isinstance(tensor, torch.Tensor):
                    raise DataError(f"{self.name}: {title} is a {type(tensor).__name__}; give a torch.Tensor")
            check_images(f"{self.name}: {part}_images", images, tuple(self.train_images.shape[1:]), types)
            check_labels(f"{self.name}: {part}_labels", labels, len(images), self.classes, self.label_shape, self.ignore_index)
        if self.augmentation is not None and (not is_picture(self.train_images.shape[1:]) or self.label_shape):
            raise DataError(
                f"{self.name}: the augmentation is for pictures [n, channels, height, width] with labels [n]; train_images "
                f"has the shape {list(self.train_images.shape)} and train_labels {list(self.train_labels.shape)}; leave it out"
            )

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Channels and lengths of the network's input."""
        shape = tuple(self.train_images.shape[1:])
        side = None if self.augmentation is None else self.augmentation.settings.size
        return shape if side is None else (shape[0], *(side for _ in shape[1:]))

    @property
    def label_shape(self) -> tuple[int, ...]:
        """The shape of the labels of one sample: () if it has one."""
        return tuple(self.train_labels.shape[1:])

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
    """Raise DataError, which begins with `what`, if these are not finite samples [n, *shape] of one of the types."""
    if not shape or tuple(images.shape[1:]) != shape or not images.numel():
        expected = ", ".join(map(str, shape)) if shape and 0 not in shape else "channels, ...], as [n, channels, height, width"
        raise DataError(f"{what} has the shape {list(images.shape)}; it must be [n, {expected}] with n of at least 1")
    if images.dtype not in types:
        names = " or ".join(map(_type_name, types))
        raise DataError(f"{what} is {_type_name(images.dtype)}; it must be {names}: convert it, as with images.float()")
    if images.is_floating_point() and not bool(torch.isfinite(images).all()):
        raise DataError(f"{what} has values that are not finite (NaN or infinity); take out or repair these samples")


def check_labels(
    what: str,
    labels: Any,
    count: int,
    classes: int,
    label_shape: tuple[int, ...] = (),
    ignore_index: int | None = None,
) -> None:
    """Raise DataError, which begins with `what`, if these are not int64 labels [count, *label_shape] from 0 to classes - 1.

    Labels `ignore_index` are allowed, too, but not alone.
    """
    if labels.is_floating_point() and not bool((labels == labels.round()).all()):
        raise DataError(
            f"{what} is {_type_name(labels.dtype)} with values such as {_no_whole_number(labels):g}, no whole numbers: "
            "a regression, and networks are trained here to tell classes apart, or to predict tokens; make classes of the "
            "values, as with torch.bucketize, or train and score operators in a function of your own (evaluate: "
            '"package.module:function"; in Python: syno.Study(space, function))'
        )
    if label_shape in ((1,), (classes,)) and (hint := _hint_on_shape(labels, classes, label_shape)):
        raise DataError(f"{what} has the shape {list(labels.shape)}: one label for each position{hint}")
    if tuple(labels.shape) != (count, *label_shape) or not labels.numel():
        expected = ", ".join(map(str, (count, *label_shape)))
        each = "each position of each sample" if label_shape else "each sample"
        hint = _hint_on_shape(labels, classes, label_shape)
        raise DataError(f"{what} has the shape {list(labels.shape)}; it must be [{expected}]: one label for {each}{hint}")
    if labels.dtype is not torch.int64:
        raise DataError(f"{what} is {_type_name(labels.dtype)}; it must be int64: convert it, as with labels.long()")
    counted = labels if ignore_index is None else labels[labels != ignore_index]
    if not counted.numel():
        raise DataError(f"{what} is {ignore_index} everywhere, which is the ignore_index; at least one label must count")
    least, most = int(counted.min()), int(counted.max())
    if least < 0 or most >= classes:
        outside = counted[(counted < 0) | (counted >= classes)].unique()
        hint = "; count classes from 0, as with labels - 1" if (least, most) == (1, classes) else ""
        if len(outside) == 1 and not hint:
            hint = (
                f"; if {int(outside)} means that there is no label, say so: DataSet(..., ignore_index={int(outside)}), or an "
                "attribute ignore_index of a data set of your own"
            )
        raise DataError(
            f"{what} is from {least} to {most}; with {classes} classes, labels must be from 0 to {classes - 1}{hint}"
        )


def _no_whole_number(labels: torch.Tensor) -> float:
    return float(labels[labels != labels.round()][0])


def _hint_on_shape(labels: torch.Tensor, classes: int, label_shape: tuple[int, ...]) -> str:
    """Return advice for labels of a wrong shape, as the end of an error message; "" if there is none."""
    if labels.dim() < 2:
        return ""
    if labels.shape[1:] == (1,):
        return "; leave out the last axis, as with labels.squeeze(1)"
    if labels.shape[1:] == (classes,) and bool(((labels == 0) | (labels == 1)).all()):
        if bool((labels.sum(1) == 1).all()):
            return "; these are one-hot: labels.argmax(1) is the class"
        if label_shape and not labels.is_floating_point():  # two classes of as many positions as there are classes
            return ""
        return (
            "; several labels for one sample are a task that networks are not trained for here: score operators in a function "
            'of your own (evaluate: "package.module:function")'
        )
    return "" if label_shape else "; a data set with labels of positions has the attribute label_shape"


def _type_name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
