"""Pictures that are held in memory, on the device where they are trained on: no loader stands between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from syno.data.augmentation import Augmentation
from syno.data.contract import Orders, Pair, content_hash, generator_of
from syno.data.picture_checks import check_pictures

PLAIN = torch.contiguous_format


@dataclass(frozen=True)
class DataSet:
    """Pictures with a class each. Two data sets are equal if they hold the same, whatever their names.

    Attributes:
        name: a label.
        train_images, test_images: [n, channels, height, width]; float32 that is zero in the middle of its range, or uint8
            if there is an augmentation, which makes that of it.
        train_labels, test_labels: int64 [n], in range(classes).
        classes: how many there are.
        hash: of all the tensors' shapes and bytes; worked out if it isn't given.
        augmentation: what is done to batches of them.
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
        """DataError if a tensor isn't as described above."""
        check_pictures(self)
        if not self.hash:
            tensors = (self.train_images, self.train_labels, self.test_images, self.test_labels)
            object.__setattr__(self, "hash", content_hash(*tensors))

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width, as the network gets them."""
        channels, height, width = self.train_images.shape[1:]
        side = None if self.augmentation is None else self.augmentation.settings.size
        return (channels, height, width) if side is None else (channels, side, side)

    @property
    def train_count(self) -> int:
        """How many pictures there are to train on."""
        return len(self.train_labels)

    @property
    def test_count(self) -> int:
        """How many pictures there are to test on."""
        return len(self.test_labels)

    def train_batches(
        self, batch: int, *, seed: int, device: Any = "cpu", layout: torch.memory_format = PLAIN
    ) -> RandomBatches:
        """See `PictureData`. All pictures are copied to the device now."""
        images, labels = _on_device(self.train_images, self.train_labels, device, layout)
        return RandomBatches(images, labels, self.augmentation, batch, seed, layout)

    def test_batches(self, batch: int, *, device: Any = "cpu", layout: torch.memory_format = PLAIN) -> OrderedBatches:
        """See `PictureData`. All pictures are copied to the device now."""
        images, labels = _on_device(self.test_images, self.test_labels, device, layout)
        return OrderedBatches(images, labels, self.augmentation, batch, layout)


def _on_device(images: torch.Tensor, labels: torch.Tensor, device: Any, layout: torch.memory_format) -> Pair:
    return images.to(device).contiguous(memory_format=layout), labels.to(device)


class RandomBatches:
    """Random batches, each changed in its own way. What is drawn is drawn on the CPU, so it is the same on every device."""

    def __init__(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        augmentation: Augmentation | None,
        batch: int,
        seed: int,
        layout: torch.memory_format,
    ) -> None:
        self.images, self.labels, self.augmentation = images, labels, augmentation
        self.batch, self.seed, self.layout = batch, seed, layout
        self._orders = Orders(len(labels), seed)

    def __len__(self) -> int:
        return len(self.labels) // self.batch

    def epoch(self, number: int, first: int = 0) -> Iterator[Pair]:
        """See `Batches`."""
        order = self._orders.of(number).to(self.labels.device)
        draws = self._draws(number)
        for start in range(first * self.batch, len(self) * self.batch, self.batch):
            part = slice(start, start + self.batch)
            images, labels = self.images[order[part]], self.labels[order[part]]
            if self.augmentation is not None:
                images = self.augmentation.train(images, draws[part]).contiguous(memory_format=self.layout)
            yield images, labels

    def _draws(self, epoch: int) -> torch.Tensor:
        """What is drawn for each place in the epoch's order."""
        if self.augmentation is None:
            return torch.empty(0)
        drawn = self.augmentation.draw(len(self.labels), self.images.shape[-2:], generator_of(self.seed, epoch))
        return drawn.to(self.labels.device)


class OrderedBatches:
    """The pictures for testing, in their order."""

    def __init__(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        augmentation: Augmentation | None,
        batch: int,
        layout: torch.memory_format,
    ) -> None:
        self.images, self.labels, self.augmentation = images, labels, augmentation
        self.batch, self.layout = batch, layout

    def __iter__(self) -> Iterator[Pair]:
        for images, labels in zip(self.images.split(self.batch), self.labels.split(self.batch), strict=True):
            if self.augmentation is not None:
                images = self.augmentation.test(images).contiguous(memory_format=self.layout)
            yield images, labels
