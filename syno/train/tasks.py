"""The tasks that networks are trained for: classifying samples or their positions, and predicting the next token of a text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional

from syno.base.errors import DataError, ShapeError
from syno.base.user_code import user_code
from syno.data.contract import Batches, Pair, PictureData, check_batch, ignore_index_of, label_shape_of
from syno.data.pictures import check_images, check_labels
from syno.data.samples import is_picture, samples_in_words
from syno.data.tokens import TokenSet
from syno.model.network_function import kind_of
from syno.train.optimization import autocast
from syno.train.settings import Metric, TrainingSettings

TEST_BATCH = 512  # samples


class Task(ABC):
    """A task on one device: batches, a loss and a score.

    Attributes:
        metric: of the score.
        batches: to train on.
        name: of the data set.
        settings, device: of the training.
    """

    metric: ClassVar[Metric]
    batches: Batches

    def __init__(self, name: str, settings: TrainingSettings, device: torch.device) -> None:
        self.name, self.settings, self.device = name, settings, device

    @property
    @abstractmethod
    def tests(self) -> Iterable[Any]:
        """All batches to test on, from the first one."""

    @abstractmethod
    def check(self, batch: Any) -> None:
        """Raise DataError if a batch has a wrong shape or number format, or labels or tokens that are out of range."""

    @abstractmethod
    def _loss(self, network: nn.Module, batch: Any, label_smoothing: float) -> torch.Tensor: ...

    @abstractmethod
    def _score(self, network: nn.Module, tests: Iterable[Any]) -> float: ...

    def loss(self, network: nn.Module, batch: Any) -> torch.Tensor:
        """Return the cross-entropy of a batch: a scalar, in nats.

        Raises ShapeError if the network's output doesn't fit the data, UserCodeError if the network fails.
        """
        with user_code(f"the network, run on a batch of {self.name},"), autocast(self.settings, self.device):
            return self._loss(network, batch, self.settings.label_smoothing)

    def score(self, network: nn.Module) -> float:
        """Return the score of the network, which is put in evaluation mode; NaN if an output is not finite.

        Raises the errors of `loss`.
        """
        network.eval()
        with user_code(f"testing the network on {self.name}"), torch.no_grad(), autocast(self.settings, self.device):
            return self._score(network, self._tests())

    def _tests(self) -> Iterator[Any]:
        """Yield batches to test on until they have `most_tests` pictures or sequences; all batches if there is no limit."""
        seen, most = 0, self.settings.most_tests
        for batch in self.tests:
            if most is not None and seen >= most:
                return
            seen += len(batch) if isinstance(batch, torch.Tensor) else len(batch[1])  # sequences, or images and labels
            yield batch


class PictureTask(Task):
    """Classifying pictures or other samples, or each of their positions. The score is the fraction of labels that are right."""

    metric = "accuracy"

    def __init__(self, data: PictureData, settings: TrainingSettings, seed: int, device: torch.device) -> None:
        super().__init__(data.name, settings, device)
        are_pictures, self.label_shape = is_picture(data.image_shape), label_shape_of(data)
        self.ignore_index = ignore_index_of(data)
        check_batch(settings.batch, data.name, data.train_count, samples_in_words(data.image_shape))
        if settings.flip_tests and (self.label_shape or not are_pictures):
            raise ShapeError(
                f"{data.name}: flip_tests is for pictures with one label each; samples are {list(data.image_shape)} and their "
                f"labels {list(self.label_shape)}; give training: {{flip_tests: false}}"
            )
        layout = torch.channels_last if settings.channels_last and are_pictures else torch.contiguous_format
        self.data = data
        self.batches = data.train_batches(settings.batch, seed=seed, device=device, layout=layout)
        self._all_tests = data.test_batches(min(TEST_BATCH, settings.most_tests or TEST_BATCH), device=device, layout=layout)

    @property
    def tests(self) -> Iterable[Pair]:
        """The batches to test on: samples and labels."""
        return self._all_tests

    def check(self, batch: Pair) -> None:
        """Raise DataError if a batch is no pair of samples and labels of this data set."""
        if not (isinstance(batch, tuple | list) and len(batch) == 2 and all(isinstance(one, torch.Tensor) for one in batch)):
            raise DataError(
                f"{self.data.name}: a batch is a {type(batch).__name__}; it must be a pair of tensors: images, labels"
            )
        images, labels = batch
        check_images(f"{self.data.name}: a batch of images", images, tuple(self.data.image_shape))
        what = f"{self.data.name}: a batch of labels"
        check_labels(what, labels, len(images), self.data.classes, self.label_shape, self.ignore_index)

    def _loss(self, network: nn.Module, batch: Pair, label_smoothing: float) -> torch.Tensor:
        images, labels = batch
        logits = network(images)
        check_logits(logits, (len(labels),), self.data.classes, self.label_shape)
        return _cross_entropy(self.data.name, logits, labels, label_smoothing, self.ignore_index)

    def _score(self, network: nn.Module, tests: Iterable[Pair]) -> float:
        return measure_accuracy(network, tests, flip=self.settings.flip_tests, ignore_index=self.ignore_index)


class TextTask(Task):
    """Predicting each token from those before it. The score is the mean cross-entropy of a token of the test text, in nats."""

    metric = "loss"

    def __init__(self, data: TokenSet, settings: TrainingSettings, seed: int, device: torch.device) -> None:
        super().__init__(data.name, settings, device)
        self.data = data
        self.batches = data.train_batches(settings.batch, seed=seed, device=device)

    @property
    def tests(self) -> Iterable[torch.Tensor]:
        """The batches to test on: int64 [n, length + 1]."""
        return self.data.test_batches(self.settings.batch, device=self.device)

    def check(self, batch: torch.Tensor) -> None:
        """Raise DataError if a token is out of range."""
        least, most = int(batch.min()), int(batch.max())
        if most >= self.data.vocabulary or least < 0:
            raise DataError(
                f"{self.data.name}: tokens are from {least} to {most}; with a vocabulary of {self.data.vocabulary}, they must "
                f"be from 0 to {self.data.vocabulary - 1}"
            )

    def _loss(self, network: nn.Module, batch: torch.Tensor, label_smoothing: float) -> torch.Tensor:
        logits = network(batch[:, :-1])
        check_logits(logits, (len(batch), self.data.length), self.data.vocabulary)
        return _cross_entropy(self.data.name, logits.flatten(0, 1), batch[:, 1:].flatten(), label_smoothing)

    def _score(self, network: nn.Module, tests: Iterable[torch.Tensor]) -> float:
        total, count = torch.zeros((), dtype=torch.float64, device=self.device), 0
        for batch in tests:
            total += self._loss(network, batch, 0.0) * len(batch)
            count += len(batch)
        mean = float(total) / count
        return mean if abs(mean) < float("inf") else float("nan")


def task_of(data: PictureData | TokenSet, settings: TrainingSettings, seed: int, device: torch.device) -> Task:
    """Return the task of a data set. ShapeError if the batch is larger than the data set."""
    if isinstance(data, TokenSet):
        return TextTask(data, settings, seed, device)
    return PictureTask(data, settings, seed, device)


def measure_accuracy(
    network: nn.Module, batches: Iterable[Pair], *, flip: bool = False, ignore_index: int | None = None
) -> float:
    """Return the fraction of labels whose logit is the greatest one; NaN if any logit is not finite.

    Args:
        network: maps samples to logits [n, classes], or [n, classes, *positions] if there is a label for each position.
        batches: samples [n, ...], and labels [n] or [n, *positions].
        flip: whether logits are the mean over a picture and its mirror image.
        ignore_index: a label that does not count; None: all count.
    """
    network.eval()
    right, count, finite = None, 0, None
    with torch.no_grad():
        for images, labels in batches:
            logits = network(images)
            if flip:
                logits = (logits + network(images.flip(-1))) / 2
            hits, sound = (logits.argmax(1) == labels).sum(), torch.isfinite(logits).all()
            if ignore_index is not None:  # which may be a class that the network answers
                hits = ((logits.argmax(1) == labels) & (labels != ignore_index)).sum()
            right = hits if right is None else right + hits  # stays on the device, so that nothing waits for it
            finite = sound if finite is None else finite & sound
            count += labels.numel() if ignore_index is None else int((labels != ignore_index).sum())
    return int(right) / count if right is not None and count and finite else float("nan")


def check_logits(logits: object, places: tuple[int, ...], classes: int, positions: tuple[int, ...] = ()) -> None:
    """Raise ShapeError if these are not logits [*places, m, *positions] with m of at least the number of classes."""
    if not isinstance(logits, torch.Tensor):
        raise ShapeError(
            f"the network returned {kind_of(logits)}; it must return one tensor of logits{_part_with_logits(logits)}"
        )
    shape, axis = list(logits.shape), len(places)
    if len(shape) <= axis or [*shape[:axis], *shape[axis + 1 :]] != [*places, *positions] or shape[axis] < classes:
        expected, of = ", ".join(map(str, (*places, classes, *positions))), " at each position" if positions else ""
        raise ShapeError(f"the network's output has the shape {shape}; for {classes} classes{of} it must be [{expected}]")


def _part_with_logits(output: Any) -> str:
    """Return, as a clause, how to return one of the tensors in an output; "" if it has none."""
    if isinstance(output, tuple | list):
        parts = {f"[{place}]": part for place, part in enumerate(output)}
    elif isinstance(output, Mapping):
        parts = {f"[{name!r}]": part for name, part in output.items()}
    else:
        parts = {f".{name}": part for name, part in getattr(output, "__dict__", {}).items()}
    found = next((place for place, part in parts.items() if isinstance(part, torch.Tensor)), None)
    return "" if found is None else f", so let a module around the network return that part, such as output{found}"


def _cross_entropy(
    name: str, logits: torch.Tensor, targets: torch.Tensor, label_smoothing: float, ignore_index: int | None = None
) -> torch.Tensor:
    try:
        if ignore_index is not None:  # the mean is not defined for a batch in which nothing counts
            options: dict[str, Any] = {"ignore_index": ignore_index, "label_smoothing": label_smoothing, "reduction": "sum"}
            total = functional.cross_entropy(logits, targets, **options)
            return total / (targets != ignore_index).sum().clamp(min=1)
        return functional.cross_entropy(logits, targets, label_smoothing=label_smoothing)
    except IndexError as error:  # on a CPU; the first batch was checked, this is a later one
        raise DataError(f"{name}: a label or token is out of range: {error}") from error
