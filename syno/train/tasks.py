"""The tasks that networks are trained for: classifying pictures, and predicting the next token of a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

import torch
from torch import nn
from torch.nn import functional

from syno.base.errors import DataError, ShapeError
from syno.data.contract import Batches, Pair, PictureData
from syno.data.pictures import check_images, check_labels
from syno.data.tokens import TokenSet
from syno.train.optimization import autocast
from syno.train.settings import Metric, TrainingSettings

TEST_BATCH = 512  # pictures

T = TypeVar("T")


class Task(Protocol):
    """A task on one device: batches, a loss and a score."""

    metric: Metric

    @property
    def batches(self) -> Batches:
        """The batches to train on."""
        ...

    @property
    def tests(self) -> Iterable[Any]:
        """All batches to test on."""
        ...

    def check(self, batch: Any) -> None:
        """Raise DataError if a batch has a wrong shape or number format, or labels or tokens that are out of range."""
        ...

    def loss(self, network: nn.Module, batch: Any) -> torch.Tensor:
        """Return the loss of a batch: a scalar, in nats. ShapeError if the network's output doesn't fit the data."""
        ...

    def score(self, network: nn.Module) -> float:
        """Return the score of the network, in evaluation mode; NaN if an output is not finite."""
        ...


class PictureTask:
    """Classifying pictures: the loss is the cross-entropy, the score the accuracy on the test pictures."""

    metric: Metric = "accuracy"

    def __init__(self, data: PictureData, settings: TrainingSettings, seed: int, device: torch.device) -> None:
        """Create the task. ShapeError if the batch is larger than the data set."""
        if settings.batch > data.train_count:
            raise ShapeError(
                f"batch is {settings.batch}, but {data.name} has {data.train_count} pictures to train on; give a smaller one"
            )
        layout = torch.channels_last if settings.channels_last else torch.contiguous_format
        self.data, self.settings, self.device = data, settings, device
        self.batches = data.train_batches(settings.batch, seed=seed, device=device, layout=layout)
        count = min(TEST_BATCH, settings.most_tests or TEST_BATCH)
        self.tests = data.test_batches(count, device=device, layout=layout)

    def loss(self, network: nn.Module, batch: Pair) -> torch.Tensor:
        """Return the cross-entropy of a batch, in nats; see `Task`."""
        images, labels = batch
        with autocast(self.settings, self.device):
            logits = network(images)
            check_logits(logits, (len(labels),), self.data.classes)
            return _cross_entropy(self.data.name, logits, labels, self.settings.label_smoothing)

    def check(self, batch: Pair) -> None:
        """Raise DataError if a batch is no pair of pictures and labels of this data set; see `Task`."""
        if not (isinstance(batch, tuple | list) and len(batch) == 2 and all(isinstance(one, torch.Tensor) for one in batch)):
            raise DataError(
                f"{self.data.name}: a batch is a {type(batch).__name__}; it must be a pair of tensors: images, labels"
            )
        images, labels = batch
        check_images(f"{self.data.name}: a batch of images", images, tuple(self.data.image_shape))
        check_labels(f"{self.data.name}: a batch of labels", labels, len(images), self.data.classes)

    def score(self, network: nn.Module) -> float:
        """Return the accuracy on the test pictures; see `Task`."""
        tests = _first(self.tests, self.settings.most_tests, lambda batch: len(batch[1]))
        with autocast(self.settings, self.device):
            return measure_accuracy(network, tests, flip=self.settings.flip_tests)


class TextTask:
    """Predicting each token from those before it: the loss and the score are the mean cross-entropy of a token."""

    metric: Metric = "loss"

    def __init__(self, data: TokenSet, settings: TrainingSettings, seed: int, device: torch.device) -> None:
        """Create the task. ShapeError if the batch is larger than the data set."""
        self.data, self.settings, self.device = data, settings, device
        self.batches = data.train_batches(settings.batch, seed=seed, device=device)

    @property
    def tests(self) -> Iterable[torch.Tensor]:
        """The batches to test on, from the first one."""
        return self.data.test_batches(self.settings.batch, device=self.device)

    def check(self, batch: torch.Tensor) -> None:
        """Raise DataError if a token is out of range; see `Task`."""
        if int(batch.max()) >= self.data.vocabulary or int(batch.min()) < 0:
            raise DataError(
                f"{self.data.name}: tokens are from {int(batch.min())} to {int(batch.max())}; with a vocabulary of "
                f"{self.data.vocabulary}, they must be from 0 to {self.data.vocabulary - 1}"
            )

    def loss(self, network: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        """Return the cross-entropy of a batch, in nats; see `Task`."""
        with autocast(self.settings, self.device):
            return self._loss(network, batch, self.settings.label_smoothing)

    def _loss(self, network: nn.Module, batch: torch.Tensor, label_smoothing: float = 0.0) -> torch.Tensor:
        """Return the mean loss of the tokens in a batch [n, length + 1]."""
        logits = network(batch[:, :-1])
        check_logits(logits, (len(batch), self.data.length), self.data.vocabulary)
        return _cross_entropy(self.data.name, logits.flatten(0, 1), batch[:, 1:].flatten(), label_smoothing)

    def score(self, network: nn.Module) -> float:
        """Return the mean loss of a token of the test text; see `Task`."""
        network.eval()
        tests = _first(self.tests, self.settings.most_tests, len)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        count = 0
        with torch.no_grad(), autocast(self.settings, self.device):
            for batch in tests:
                total += self._loss(network, batch) * len(batch)
                count += len(batch)
        mean = float(total) / count
        return mean if abs(mean) < float("inf") else float("nan")


def task_of(data: PictureData | TokenSet, settings: TrainingSettings, seed: int, device: torch.device) -> Task:
    """Return the task of a data set. ShapeError if the batch is larger than the data set."""
    if isinstance(data, TokenSet):
        return TextTask(data, settings, seed, device)
    return PictureTask(data, settings, seed, device)


def measure_accuracy(network: nn.Module, batches: Iterable[Pair], *, flip: bool = False) -> float:
    """Return the fraction of pictures whose greatest logit is that of their label; NaN if any logit is not finite.

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
            right = hits if right is None else right + hits  # stays on the device, so that nothing waits for it
            finite = sound if finite is None else finite & sound
            count += len(labels)
    return int(right) / count if right is not None and finite else float("nan")


def check_logits(logits: object, places: tuple[int, ...], classes: int) -> None:
    """Raise ShapeError if these are not logits [*places, m] with m of at least the number of classes."""
    if not isinstance(logits, torch.Tensor):
        raise ShapeError(f"the network returned a {type(logits).__name__}; it must return one tensor of logits")
    shape = list(logits.shape)
    if shape[:-1] != list(places) or shape[-1] < classes:
        expected = ", ".join(map(str, (*places, classes)))
        raise ShapeError(f"the network's output has the shape {shape}; for {classes} classes it must be [{expected}]")


def _cross_entropy(name: str, logits: torch.Tensor, targets: torch.Tensor, label_smoothing: float) -> torch.Tensor:
    try:
        return functional.cross_entropy(logits, targets, label_smoothing=label_smoothing)
    except IndexError as error:  # on a CPU; the first batch was checked, this is a later one
        raise DataError(f"{name}: a label or token is out of range: {error}") from error


def _first(batches: Iterable[T], most: int | None, count: Callable[[T], int]) -> Iterator[T]:
    """Yield batches until there are `most` pictures or sequences; all batches if `most` is None."""
    seen = 0
    for batch in batches:
        if most is not None and seen >= most:
            return
        seen += count(batch)
        yield batch
