"""Pictures and other samples in memory: data sets of tensors, their checks, and batches, made on the training device."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch.nn import functional

from syno.base.errors import DataError, ShapeError
from syno.base.files import checksum, replaced
from syno.data.contract import WHOLE, Orders, Pair, Share, content_hash, generator_of
from syno.data.settings import AugmentationSettings, is_picture

DOWN, RIGHT, FLIP, TOP, LEFT = range(5)  # columns of the random numbers


@dataclass(frozen=True)
class Augmentation:
    """A recipe of augmentation, with the colour statistics of the pictures.

    Attributes:
        settings: the recipe.
        mean, deviation: mean and standard deviation of each channel over all training pictures, for pixel values 0 to 255.
    """

    settings: AugmentationSettings
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, settings: AugmentationSettings, images: torch.Tensor) -> Self:
        """Return the augmentation for pictures, uint8 [n, channels, height, width]. ShapeError if the recipe does not fit."""
        check_fits(settings, images.shape[-2:])
        return cls(settings, *colours(images))

    @property
    def is_random(self) -> bool:
        """Whether training pictures are changed at random, not only rescaled."""
        return bool(self.settings.pad or self.settings.flip or self.settings.cutout)

    def draw(self, count: int, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
        """Return random numbers for `count` pictures of this height and width: int64 [count, 5], on the CPU.

        The columns: vertical and horizontal offset of the crop in the padded picture (0 to 2 * pad, uniform), flip (0 or 1),
        and the top left corner of the square that is cut out, which lies inside the picture.
        """
        height, width = shape
        # The published code draws crops from 4 of the 5 offsets only; here all 5 are drawn.
        shifts, hole = 2 * self.settings.pad + 1, self.settings.cutout
        ends = (shifts, shifts, 2 if self.settings.flip else 1, height - hole + 1, width - hole + 1)
        return torch.stack([torch.randint(end, (count,), generator=generator) for end in ends], 1)

    def train(self, images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Augment training pictures.

        Args:
            images: uint8 [n, channels, height, width].
            draws: [n, 5], see `draw`, on the same device.

        Returns float32 [n, channels, size, size].
        """
        count, channels, height, width = images.shape
        rows = _mirror_places(draws[:, DOWN], self.settings.pad, height)
        columns = _mirror_places(draws[:, RIGHT], self.settings.pad, width)
        columns = torch.where(draws[:, FLIP, None] == 1, columns.flip(1), columns)
        each, channel = (torch.arange(size, device=images.device) for size in (count, channels))
        moved = images[each[:, None, None, None], channel[:, None, None], rows[:, None, :, None], columns[:, None, None, :]]
        made = self._normalize(moved)
        if self.settings.cutout:
            down = self._in_hole(draws[:, TOP], height)
            across = self._in_hole(draws[:, LEFT], width)
            made = made.masked_fill((down[:, :, None] & across[:, None, :])[:, None], 0.0)
        return self._resize(made)

    def test(self, images: torch.Tensor) -> torch.Tensor:
        """Prepare test pictures: normalize and resize, uint8 [n, c, h, w] -> float32 [n, c, size, size]."""
        return self._resize(self._normalize(images))

    def _in_hole(self, corner: torch.Tensor, size: int) -> torch.Tensor:
        """Return the mask of positions along an axis inside the cut-out square: [n] -> bool [n, size]."""
        place = torch.arange(size, device=corner.device) - corner[:, None]
        return (place >= 0) & (place < self.settings.cutout)

    def _normalize(self, images: torch.Tensor) -> torch.Tensor:
        mean, deviation = (_by_channel(values, images.device) for values in (self.mean, self.deviation))
        return images.float().sub_(mean).div_(deviation)

    def _resize(self, images: torch.Tensor) -> torch.Tensor:
        size = self.settings.size
        if size is None or images.shape[-2:] == (size, size):
            return images
        return functional.interpolate(images, (size, size), mode="bilinear", align_corners=False)


def check_fits(settings: AugmentationSettings, shape: Sequence[int]) -> None:
    """Raise ShapeError if pictures of this height and width are too small for the recipe."""
    least = min(shape)
    if settings.pad >= least or settings.cutout > least:
        raise ShapeError(
            f"augmentation: pad is {settings.pad} and cutout is {settings.cutout}, but the pictures are "
            f"{' x '.join(map(str, shape))}; pad must be less than a side, and cutout no more"
        )


def colours(images: torch.Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel of uint8 [n, channels, height, width], correctly rounded."""
    means, deviations = [], []
    value = torch.arange(256, dtype=torch.float64)
    for channel in images.unbind(1):
        share = torch.bincount(channel.reshape(-1), minlength=256).double() / channel.numel()
        mean = (share * value).sum()
        means.append(float(mean))
        deviations.append(float((share * (value - mean).square()).sum().sqrt()) or 1.0)  # 1 where all pixels are equal
    return tuple(means), tuple(deviations)


@lru_cache(maxsize=16)
def _by_channel(values: tuple[float, ...], device: torch.device) -> torch.Tensor:
    """Return a number for each channel: float32 [channels, 1, 1]. Cached, as a copy to a GPU would wait for its queue."""
    return torch.tensor(values, device=device).reshape(-1, 1, 1)


def _mirror_places(offset: torch.Tensor, pad: int, size: int) -> torch.Tensor:
    """Return the source pixel of each position of a crop along an axis: offsets [n] -> pixels [n, size].

    The padding is a mirror image, reflected at the outermost pixel.
    """
    place = torch.arange(size, device=offset.device) + offset[:, None] - pad
    return size - 1 - (size - 1 - place.abs()).abs()


PLAIN = torch.contiguous_format


@dataclass(frozen=True)
class DataSet:
    """Pictures or other samples, with one class each or one for each position. Equal by content, independent of the name.

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
        hash: hash of the shapes and bytes of all tensors; computed if it isn't given.
        augmentation: changes batches of pictures for training; only for pictures with one label each.
        ignore_index: label of positions or samples that count neither in the loss nor in the accuracy, outside of
            range(classes), such as 255; None if there is none.

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
            digest = content_hash(*tensors)
            if self.ignore_index is not None:
                digest = checksum(f"{digest} {self.ignore_index}".encode())
            object.__setattr__(self, "hash", digest)

    def _check(self) -> None:
        """Raise DataError if a tensor does not match the description of the class."""
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
        """Shape of the network's input: channels, then lengths, as (3, 32, 32)."""
        shape = tuple(self.train_images.shape[1:])
        side = None if self.augmentation is None else self.augmentation.settings.size
        return shape if side is None else (shape[0], *(side for _ in shape[1:]))

    @property
    def label_shape(self) -> tuple[int, ...]:
        """The shape of the labels of one sample: () for a single label."""
        return tuple(self.train_labels.shape[1:])

    @property
    def train_count(self) -> int:
        """Number of training samples."""
        return len(self.train_labels)

    @property
    def test_count(self) -> int:
        """Number of test samples."""
        return len(self.test_labels)

    def train_batches(
        self, batch: int, *, seed: int, device: Any = "cpu", layout: torch.memory_format = PLAIN
    ) -> RandomBatches:
        """Return random training batches, see `PictureData`. All pictures are copied to the device now."""
        images, labels = self.train_images.to(device).contiguous(memory_format=layout), self.train_labels.to(device)
        return RandomBatches(images, labels, self.augmentation, batch, layout, seed)

    def test_batches(self, batch: int, *, device: Any = "cpu", layout: torch.memory_format = PLAIN) -> OrderedBatches:
        """Return the test batches, see `PictureData`. All pictures are copied to the device now."""
        images, labels = self.test_images.to(device).contiguous(memory_format=layout), self.test_labels.to(device)
        return OrderedBatches(images, labels, self.augmentation, batch, layout)


@dataclass(frozen=True, eq=False)
class OrderedBatches:
    """The test pictures, in order. Tensors are on the training device."""

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
    """Random training batches with augmentation.

    Random numbers are drawn on the CPU, so that they are equal for every device. Tensors are on the training device.

    Attributes:
        targets: further targets besides the labels, [samples, ...], such as teacher logits; batches then have three tensors.
    """

    images: torch.Tensor
    labels: torch.Tensor
    augmentation: Augmentation | None
    batch: int
    layout: torch.memory_format
    seed: int
    share: Share = WHOLE
    targets: torch.Tensor | None = None

    def of_share(self, share: Share) -> RandomBatches:
        """Return batches with only this process's share of the samples of each batch."""
        return replace(self, share=share)

    @property
    def is_fixed(self) -> bool:
        """Whether the samples are the same in each epoch (no random augmentation)."""
        return self.augmentation is None or not self.augmentation.is_random

    def in_order(self, batch: int) -> OrderedBatches:
        """Return batches of all training samples in order, prepared as for a test."""
        return OrderedBatches(self.images, self.labels, self.augmentation, batch, self.layout)

    @cached_property
    def _orders(self) -> Orders:
        return Orders(len(self.labels), self.seed)

    def __len__(self) -> int:
        return len(self.labels) // self.batch

    def epoch(self, number: int, first: int = 0) -> Iterator[tuple[torch.Tensor, ...]]:
        """Yield the batches of an epoch from batch `first` on; see `Batches`."""
        order = self._orders.of(number).to(self.labels.device)
        draws = self._draws(number)
        for start in range(first * self.batch, len(self) * self.batch, self.batch):
            part = self.share.part(start, self.batch)
            images, labels = self.images[order[part]], self.labels[order[part]]
            if self.augmentation is not None:
                images = self.augmentation.train(images, draws[part]).contiguous(memory_format=self.layout)
            yield (images, labels) if self.targets is None else (images, labels, self.targets[order[part]])

    def _draws(self, epoch: int) -> torch.Tensor:
        """Return the random numbers of the augmentation for each position in the epoch's order: int64 [samples, 5]."""
        if self.augmentation is None:
            return torch.empty(0)
        drawn = self.augmentation.draw(len(self.labels), self.images.shape[-2:], generator_of(self.seed, epoch))
        return drawn.to(self.labels.device)


TENSORS = ("train_images", "train_labels", "test_images", "test_labels")


def write_arrays(file: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to a cache file, from which trainings load them in a fraction of a second."""
    with replaced(file) as temporary, temporary.open("wb") as opened:
        np.savez(opened, allow_pickle=False, **arrays)


def read_arrays(file: Path) -> dict[str, Any]:
    """Return the arrays that `write_arrays` wrote. Raises any exception for a damaged file."""
    with zipfile.ZipFile(file) as opened:
        parts = opened.infolist()
    # `write_arrays` compresses nothing; a compressed part could expand without limit.
    if any(part.compress_type != zipfile.ZIP_STORED or part.file_size != part.compress_size for part in parts):
        raise ValueError("it is compressed")
    if sum(part.file_size for part in parts) > file.stat().st_size:
        raise ValueError("its parts are larger than the file")
    with np.load(file, allow_pickle=False) as arrays:  # checks each array's CRC
        return {name: arrays[name] for name in arrays.files}


def check_images(source: str, images: Any, shape: tuple[int, ...], types: tuple[torch.dtype, ...] = (torch.float32,)) -> None:
    """Raise DataError, which begins with `source`, unless these are finite samples [n, *shape] of one of the types."""
    if not shape or tuple(images.shape[1:]) != shape or not images.numel():
        expected = ", ".join(map(str, shape)) if shape and 0 not in shape else "channels, ...], as [n, channels, height, width"
        raise DataError(f"{source} has the shape {list(images.shape)}; it must be [n, {expected}] with n of at least 1")
    if images.dtype not in types:
        names = " or ".join(map(_type_name, types))
        raise DataError(f"{source} is {_type_name(images.dtype)}; it must be {names}: convert it, as with images.float()")
    if images.is_floating_point() and not bool(torch.isfinite(images).all()):
        raise DataError(f"{source} has values that are not finite (NaN or infinity); take out or repair these samples")


def check_labels(
    source: str,
    labels: Any,
    count: int,
    classes: int,
    label_shape: tuple[int, ...] = (),
    ignore_index: int | None = None,
) -> None:
    """Raise DataError, which begins with `source`, unless these are int64 labels [count, *label_shape] in range(classes).

    Labels equal to `ignore_index` are allowed, but not all may be ignored.
    """
    if labels.is_floating_point() and not bool((labels == labels.round()).all()):
        raise DataError(
            f"{source} is {_type_name(labels.dtype)} with values such as {_no_whole_number(labels):g}, no whole numbers: "
            "a regression, and on a data set networks are trained to tell classes apart; give a task with a loss and a score "
            'of your own (workload: {task: "package.module:function"}, in Python a syno.Task: docs/tasks.md), or make classes '
            "of the values, as with torch.bucketize"
        )
    if label_shape in ((1,), (classes,)) and (hint := _hint_on_shape(labels, classes, label_shape)):
        raise DataError(f"{source} has the shape {list(labels.shape)}: one label for each position{hint}")
    if tuple(labels.shape) != (count, *label_shape) or not labels.numel():
        expected = ", ".join(map(str, (count, *label_shape)))
        each = "each position of each sample" if label_shape else "each sample"
        hint = _hint_on_shape(labels, classes, label_shape)
        raise DataError(f"{source} has the shape {list(labels.shape)}; it must be [{expected}]: one label for {each}{hint}")
    if labels.dtype is not torch.int64:
        task = (
            "; if these are no classes, give a task with a loss of your own (docs/tasks.md)"
            if labels.is_floating_point()
            else ""
        )
        raise DataError(f"{source} is {_type_name(labels.dtype)}; it must be int64: convert it, as with labels.long(){task}")
    counted = labels if ignore_index is None else labels[labels != ignore_index]
    if not counted.numel():
        raise DataError(f"{source} is {ignore_index} everywhere, which is the ignore_index; at least one label must count")
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
            f"{source} is from {least} to {most}; with {classes} classes, labels must be from 0 to {classes - 1}{hint}"
        )


def _no_whole_number(labels: torch.Tensor) -> float:
    return float(labels[labels != labels.round()][0])


def _hint_on_shape(labels: torch.Tensor, classes: int, label_shape: tuple[int, ...]) -> str:
    """Return advice for labels of a wrong shape, to be appended to an error message; "" if there is none."""
    if labels.dim() < 2:
        return ""
    if labels.shape[1:] == (1,):
        return "; leave out the last axis, as with labels.squeeze(1)"
    if labels.shape[1:] == (classes,) and bool(((labels == 0) | (labels == 1)).all()):
        if bool((labels.sum(1) == 1).all()):
            return "; these are one-hot: labels.argmax(1) is the class"
        if label_shape and not labels.is_floating_point():  # labels of two classes with as many positions as classes
            return ""
        return (
            "; several labels for one sample need a loss and a score of your own, as in the example of several labels in "
            'docs/tasks.md (workload: {task: "package.module:function"}, in Python a syno.Task)'
        )
    return "" if label_shape else "; a data set with labels of positions has the attribute label_shape"


def _type_name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
