"""What networks are trained for: telling pictures apart, and predicting the next token of a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

import torch
from torch import nn
from torch.nn import functional

from syno.errors import ShapeError
from syno.evaluate.datasets.contract import Batches, Pair, PictureData
from syno.evaluate.datasets.tokens import TokenSet
from syno.evaluate.optimization import autocast
from syno.evaluate.settings import Metric, TrainingSettings

TEST_BATCH = 512  # pictures

T = TypeVar("T")


class Task(Protocol):
    """What is trained for, on one device."""

    metric: Metric

    @property
    def batches(self) -> Batches:
        """To train on."""
        ...

    def loss(self, network: nn.Module, batch: Any) -> torch.Tensor:
        """Of a batch: a scalar, in nats."""
        ...

    def score(self, network: nn.Module) -> float:
        """Of the network, put in evaluation mode; NaN if an output is not finite."""
        ...


class PictureTask:
    """Telling pictures apart: the cross-entropy, and the accuracy on the test pictures."""

    metric: Metric = "accuracy"

    def __init__(self, data: PictureData, settings: TrainingSettings, seed: int, device: torch.device) -> None:
        """ShapeError if the batch is larger than the data set."""
        if settings.batch > data.train_count:
            raise ShapeError(
                f"batch is {settings.batch}, but {data.name} has {data.train_count} pictures to train on; give a smaller one"
            )
        layout = torch.channels_last if settings.channels_last else torch.contiguous_format
        self.settings, self.device = settings, device
        self.batches = data.train_batches(settings.batch, seed=seed, device=device, layout=layout)
        count = min(TEST_BATCH, settings.most_tests or TEST_BATCH)
        self.tests = data.test_batches(count, device=device, layout=layout)

    def loss(self, network: nn.Module, batch: Pair) -> torch.Tensor:
        """See `Task`."""
        images, labels = batch
        with autocast(self.settings, self.device):
            return functional.cross_entropy(network(images), labels, label_smoothing=self.settings.label_smoothing)

    def score(self, network: nn.Module) -> float:
        """See `Task`."""
        tests = _first(self.tests, self.settings.most_tests, lambda batch: len(batch[1]))
        with autocast(self.settings, self.device):
            return measure_accuracy(network, tests, flip=self.settings.flip_tests)


class TextTask:
    """Predicting each token from those before it: the mean loss of a token."""

    metric: Metric = "loss"

    def __init__(self, data: TokenSet, settings: TrainingSettings, seed: int, device: torch.device) -> None:
        """ShapeError if there are fewer sequences than the batch has."""
        self.data, self.settings, self.device = data, settings, device
        self.batches = data.train_batches(settings.batch, seed=seed, device=device)

    def loss(self, network: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        """See `Task`."""
        with autocast(self.settings, self.device):
            return _loss_of_tokens(network, batch, self.settings.label_smoothing)

    def score(self, network: nn.Module) -> float:
        """See `Task`."""
        network.eval()
        tests = _first(self.data.test_batches(self.settings.batch, device=self.device), self.settings.most_tests, len)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        count = 0
        with torch.no_grad(), autocast(self.settings, self.device):
            for batch in tests:
                total += _loss_of_tokens(network, batch) * len(batch)
                count += len(batch)
        mean = float(total) / count
        return mean if abs(mean) < float("inf") else float("nan")


def task_of(data: PictureData | TokenSet, settings: TrainingSettings, seed: int, device: torch.device) -> Task:
    """What the data is for. ShapeError if the batch is larger than the data."""
    if isinstance(data, TokenSet):
        return TextTask(data, settings, seed, device)
    return PictureTask(data, settings, seed, device)


def measure_accuracy(network: nn.Module, batches: Iterable[Pair], *, flip: bool = False) -> float:
    """The fraction of pictures whose greatest logit is that of their label; NaN if any logit is not finite.

    With `flip`, logits are the mean over a picture and its mirror image.
    """
    network.eval()
    right, count, finite = None, 0, None
    with torch.no_grad():
        for images, labels in batches:
            logits = network(images)
            if flip:
                logits = (logits + network(images.flip(-1))) / 2
            hits, sound = (logits.argmax(1) == labels).sum(), torch.isfinite(logits).all()
            right = hits if right is None else right + hits  # on the device: nothing waits for it
            finite = sound if finite is None else finite & sound
            count += len(labels)
    return int(right) / count if right is not None and finite else float("nan")


def _loss_of_tokens(network: nn.Module, batch: torch.Tensor, label_smoothing: float = 0.0) -> torch.Tensor:
    """Of [n, length + 1] tokens."""
    logits = network(batch[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), label_smoothing=label_smoothing)


def _first(batches: Iterable[T], most: int | None, count: Callable[[T], int]) -> Iterator[T]:
    """Batches until there are `most` pictures or sequences; all of them for None."""
    seen = 0
    for batch in batches:
        if most is not None and seen >= most:
            return
        seen += count(batch)
        yield batch
