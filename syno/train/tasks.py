"""Tasks on a device, as the training loop uses them: classification, next-token prediction, and users' own tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from syno.base.errors import DataError, ShapeError, SpecError
from syno.base.user_code import kind_of, user_code
from syno.data.contract import (
    WHOLE,
    Batches,
    Pair,
    PictureData,
    Share,
    check_batch,
    ignore_index_of,
    label_shape_of,
    shared,
)
from syno.data.language import TokenSet
from syno.data.pictures import RandomBatches, check_images, check_labels
from syno.data.settings import is_picture, samples_in_words
from syno.model.calls import (
    Call,
    Mode,
    as_in_training,
    call_with,
    calls_of,
    calls_through,
    left_as_it_was,
    mode_of_loss,
    own_inputs,
    steady_training_mode,
)
from syno.model.inputs import copied, first_inputs, len_of_batch, mapped
from syno.model.outputs import tensors_in
from syno.train.metric import ACCURACY, LOSS, Metric
from syno.train.numerics import autocast
from syno.train.own_task import (
    GIVE_COUNTED,
    LoaderBatches,
    MeansOverSamples,
    Task,
    check_count,
    check_loss,
    check_outputs,
    check_score,
    checked,
    divergence,
    error_of,
    part_of,
)
from syno.train.settings import DistillSettings, TrainingSettings

TEST_BATCH = 512  # samples per test batch
FEWEST_IN_PARTS = 2  # least samples for which halves are compared with the whole
SAME_LOSS = 1e-3  # relative tolerance: sums of halves are rounded in another order
OF_CLASSES = ("most_tests", "label_smoothing", "flip_tests")  # settings without meaning for a user's own loss and score


class DeviceTask(ABC):
    """A task on one device: batches, a loss and a score.

    Attributes:
        metric: metric of the score.
        batches: the training batches.
        name: name of the data set, or of a user's own task.
        settings, device: settings and device of the training.
        channels_last: whether pictures, and weights of two-dimensional convolutions, have this memory format.
        teacher: the trained network for knowledge distillation, in the mode that `mode_of_loss` determines; None without it.
        counts: whether the number of elements over which the loss averages is known.
        features: pairs of a module of the trained network and the teacher's module with the target outputs, for
            `distill: features`; see `feature_pairs`.
    """

    metric: Metric
    batches: Batches
    channels_last: bool
    teacher: nn.Module | None = None
    features: Sequence[tuple[nn.Module, nn.Module]] = ()
    counts = True  # whether `counted` is known to match the loss
    _mode: Mode | None = None  # of the teacher

    def __init__(self, name: str, settings: TrainingSettings, device: torch.device) -> None:
        self.name, self.settings, self.device, self.channels_last = name, settings, device, settings.channels_last

    @property
    @abstractmethod
    def tests(self) -> Iterable[Any]:
        """All test batches, in order; each iteration begins with the first batch."""

    def prepare(self) -> None:  # noqa: B027  (there may be nothing to compute)
        """Cache values that are the same in all epochs, such as teacher logits. Called before the first step."""

    @abstractmethod
    def check(self, batch: Any) -> None:
        """Raise DataError if a batch has a wrong shape or number format, or labels or tokens that are out of range."""

    @abstractmethod
    def parts(self, batch: Any, most: int) -> list[Any]:
        """Split a batch into parts of `most` samples each; the last part may be smaller."""

    @abstractmethod
    def samples(self, batch: Any) -> int:
        """Return the number of samples of a batch."""

    @abstractmethod
    def counted(self, batch: Any) -> torch.Tensor:
        """Return the number of labels or tokens over which the loss of a batch averages: int64 [], at least 0, on any
        device.
        """

    def check_parts(self, network: nn.Module, batch: Any) -> None:  # noqa: B027  (built-in losses are known means)
        """Raise SpecError if the mean losses of a batch's parts do not average to the loss of the batch."""

    @abstractmethod
    def _loss(self, network: nn.Module, batch: Any, label_smoothing: float) -> torch.Tensor: ...

    @abstractmethod
    def _score(self, network: nn.Module, tests: Iterable[Any]) -> float: ...

    def _taught(self, teacher: nn.Module, batch: Any, call: Call) -> Any:
        """Return the teacher's outputs for a batch, from the same call as the network's."""
        with torch.no_grad(), self.mode(teacher, call)(teacher):
            return call(teacher)

    def mode(self, original: nn.Module, call: Call) -> Mode:
        """Return the mode (training or evaluation) in which the teacher's outputs are computed. It is determined once."""
        if self._mode is None:
            self._mode = mode_of_loss(original, call)
        return self._mode

    def calls(self, network: nn.Module, batch: Any) -> list[Call]:
        """Return the calls of a network in the loss of a batch, so that they can be repeated without the loss.

        The loss is called once in training mode, for which it was written. If it calls only parts of the network, the returned
        call is that of the loss itself.
        """

        def lose(network: nn.Module) -> None:
            with steady_training_mode(network), torch.enable_grad(), self._running():
                self._loss(network, batch, 0.0)

        return calls_of(network, lose) or [lambda network: self._loss(network, batch, 0.0)]

    def run(self, network: nn.Module, call: Call) -> Any:
        """Return the output of a network for a call. Raises UserCodeError if the network fails."""
        with self._running():
            return call(network)

    def difference(self, network: nn.Module, original: nn.Module, call: Call) -> float:
        """Return the difference of the outputs of two networks for a call, both in the mode of distillation."""
        mode = self.mode(original, call)
        with mode(network), mode(original), self._running():
            return float(self._difference(call(network), call(original)))

    @contextmanager
    def _running(self) -> Iterator[None]:
        with user_code(f"the network, run on a batch of {self.name},"), autocast(self.settings, self.device):
            yield

    @abstractmethod
    def _difference(self, output: Any, taught: Any) -> torch.Tensor:
        """Return the difference of an output from the teacher's output, as a non-negative scalar."""

    def loss(self, network: nn.Module, batch: Any, *, is_part: bool = False) -> torch.Tensor:
        """Return the loss of a batch, or of a part of it: a scalar, such as the cross-entropy in nats.

        With a teacher, the loss is the weighted sum with the distillation loss, plus that of the features; see
        `DistillSettings`.

        Raises ShapeError if the network's output does not fit the data, UserCodeError if the network fails, SpecError if the
        losses of parts are known not to average to that of their batch.
        """
        with self._running(), MeansOverSamples(self.name) if is_part and not self.counts else nullcontext():
            if self.teacher is not None:
                return self._loss_beside(self.teacher, network, batch)
            with own_inputs(network):
                return self._loss(network, batch, self.settings.label_smoothing)

    def _loss_beside(self, teacher: nn.Module, network: nn.Module, batch: Any) -> torch.Tensor:
        """Return the loss of a batch plus the distillation loss. The teacher gets the inputs of each call of the network."""
        differences, errors = list[torch.Tensor](), list[torch.Tensor]()
        own_layers, taught_layers = ([pair[side] for pair in self.features] for side in (0, 1))
        with _recorded(own_layers) as own_outputs, _recorded(taught_layers) as taught_outputs:

            def compare(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
                again = call_with(copied(args), copied(kwargs))  # before the network changes them
                self.mode(teacher, again)
                for outputs in (*own_outputs, *taught_outputs):
                    outputs.clear()
                taught, output = self._taught(teacher, batch, again), call(*args, **kwargs)
                differences.append(self._difference(output, taught))
                for made, expected in zip(own_outputs, taught_outputs, strict=True):
                    if [tensor.shape for tensor in made] == [tensor.shape for tensor in expected]:
                        errors.extend(error_of(tensor, target)[0] for tensor, target in zip(made, expected, strict=True))
                return output

            with own_inputs(network), calls_through(network, compare):
                own = self._loss(network, batch, self.settings.label_smoothing)
        if not differences:
            raise SpecError(
                f"the loss of {self.name} calls parts of the network only, not the network itself, as in model(batch[0]), so "
                "that there is nothing to learn from the trained original's output; leave out distill (in Python distill=None)"
            )
        weight = self._distill.weight
        loss = (1 - weight) * own + weight * sum(differences) / len(differences)
        return loss + self._distill.features * sum(errors) / max(1, len(errors)) if errors else loss

    def score(self, network: nn.Module) -> float:
        """Return the score of the network, which is put in evaluation mode; NaN if an output is not finite.

        Raises the errors of `loss`.
        """
        network.eval()
        computing = autocast(self.settings, self.device)
        with user_code(f"testing the network on {self.name}"), torch.no_grad(), computing, own_inputs(network):
            return self._score(network, self._tests())

    @property
    def _distill(self) -> DistillSettings:
        return self.settings.distill or DistillSettings()

    def _tests(self) -> Iterator[Any]:
        """Yield test batches until they have `most_tests` pictures or sequences; all batches without a limit."""
        seen, most = 0, self.settings.most_tests
        for batch in self.tests:
            if most is not None and seen >= most:
                return
            seen += len(batch) if isinstance(batch, torch.Tensor) else len(batch[1])  # sequences, or images and labels
            yield batch


def feature_pairs(network: nn.Module, teacher: nn.Module, layers: Iterable[str]) -> tuple[tuple[nn.Module, nn.Module], ...]:
    """Return pairs of modules, of the network and of the teacher, with the same name, whose outputs are compared.

    For each layer, the pair is the block that contains it, such as a residual block. If that is the whole network, or only a
    list of modules, it is the layer itself. Modules without trainable weights, such as dropped layers, are omitted.
    """
    names = dict.fromkeys(_block_of(teacher, layer) for layer in layers)
    pairs = ((network.get_submodule(name), teacher.get_submodule(name)) for name in names)
    return tuple(pair for pair in pairs if any(weight.requires_grad for weight in pair[0].parameters()))


def _block_of(network: nn.Module, layer: str) -> str:
    block = layer.rpartition(".")[0]
    is_list = isinstance(network.get_submodule(block), nn.Sequential | nn.ModuleList | nn.ModuleDict)
    return layer if is_list or not block else block


@contextmanager
def _recorded(modules: Sequence[nn.Module]) -> Iterator[list[list[torch.Tensor]]]:
    """Yield, for each module, the list of the tensors in its outputs, in the order of its calls within the block.

    A tensor that a later module modifies in place is recorded in its final state, in both networks.
    """
    outputs_of_modules: list[list[torch.Tensor]] = [[] for _ in modules]
    hooks = [
        module.register_forward_hook(
            lambda module, args, output, outputs=outputs: outputs.extend(filter(torch.is_floating_point, tensors_in(output)))
        )
        for module, outputs in zip(modules, outputs_of_modules, strict=True)
    ]
    try:
        yield outputs_of_modules
    finally:
        for hook in hooks:
            hook.remove()


class PictureTask(DeviceTask):
    """Classification of pictures or other samples, or of each of their positions. The score is the accuracy over labels.

    A batch is a pair of samples and labels; after `prepare`, it may also contain the teacher's logits.
    """

    metric = ACCURACY

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
        """The test batches: pairs of samples and labels."""
        return self._all_tests

    def prepare(self) -> None:
        """Cache the teacher's logits for all samples, if they are the same in each of several epochs.

        With a label for each position, logits may need more memory than the samples, so they are computed in each step.
        """
        batches, most = self.batches, self.settings.most_steps
        if not isinstance(batches, RandomBatches) or not batches.is_fixed or batches.targets is not None or self.label_shape:
            return
        has_more_epochs = self.settings.epochs > 1 and (most is None or most > len(batches))
        if self.teacher is None or self.features or not has_more_epochs:
            return
        with user_code(f"the trained network, run on {self.name},"), autocast(self.settings, self.device):
            outputs = torch.cat(
                [self._taught(self.teacher, (), call_with((images,), {})) for images, _ in batches.in_order(TEST_BATCH)]
            )
        self.batches = replace(batches, targets=outputs)

    def check(self, batch: tuple[torch.Tensor, ...]) -> None:
        """Raise DataError if a batch is no pair of samples and labels of this data set."""
        if isinstance(self.batches, RandomBatches):  # may also contain teacher logits
            batch = batch[:2]
        if not (isinstance(batch, tuple | list) and len(batch) == 2 and all(isinstance(part, torch.Tensor) for part in batch)):
            raise DataError(
                f"{self.data.name}: a batch is a {type(batch).__name__}; it must be a pair of tensors: images, labels"
            )
        images, labels = batch
        check_images(f"{self.data.name}: a batch of images", images, tuple(self.data.image_shape))
        source = f"{self.data.name}: a batch of labels"
        check_labels(source, labels, len(images), self.data.classes, self.label_shape, self.ignore_index)

    def parts(self, batch: tuple[torch.Tensor, ...], most: int) -> list[tuple[torch.Tensor, ...]]:
        """Split a batch into parts of `most` samples each; the last part may be smaller."""
        return list(zip(*(tensor.split(most) for tensor in batch), strict=True))

    def samples(self, batch: tuple[torch.Tensor, ...]) -> int:
        """Return the number of samples of a batch."""
        return len(batch[1])

    def counted(self, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Return the number of labels of a batch that are not ignored: int64 []."""
        labels = batch[1]
        return torch.tensor(labels.numel()) if self.ignore_index is None else (labels != self.ignore_index).sum()

    def _loss(self, network: nn.Module, batch: tuple[torch.Tensor, ...], label_smoothing: float) -> torch.Tensor:
        images, labels = batch[:2]
        logits = network(images)
        check_logits(logits, (len(labels),), self.data.classes, self.label_shape)
        return _cross_entropy(self.data.name, logits, labels, label_smoothing, self.ignore_index)

    def calls(self, network: nn.Module, batch: tuple[torch.Tensor, ...]) -> list[Call]:
        """Return the call of the network with the samples of a batch."""
        return [call_with((batch[0],), {})]

    def _taught(self, teacher: nn.Module, batch: Any, call: Call) -> Any:
        return batch[2] if len(batch) > 2 else super()._taught(teacher, batch, call)

    def _difference(self, output: torch.Tensor, taught: torch.Tensor) -> torch.Tensor:
        return divergence(output, taught, 1, self._distill.temperature)

    def _score(self, network: nn.Module, tests: Iterable[Pair]) -> float:
        return measure_accuracy(network, tests, flip=self.settings.flip_tests, ignore_index=self.ignore_index)


class TextTask(DeviceTask):
    """Next-token prediction. The score is the mean cross-entropy per token of the test text, in nats."""

    metric = LOSS

    def __init__(self, data: TokenSet, settings: TrainingSettings, seed: int, device: torch.device) -> None:
        super().__init__(data.name, settings, device)
        self.data = data
        self.batches = data.train_batches(settings.batch, seed=seed, device=device)

    @property
    def tests(self) -> Iterable[torch.Tensor]:
        """The test batches: int64 [n, length + 1]."""
        return self.data.test_batches(self.settings.batch, device=self.device)

    def check(self, batch: torch.Tensor) -> None:
        """Raise DataError if a token of the batch is out of range."""
        least, most = int(batch.min()), int(batch.max())
        if most >= self.data.vocabulary or least < 0:
            raise DataError(
                f"{self.data.name}: tokens are from {least} to {most}; with a vocabulary of {self.data.vocabulary}, they must "
                f"be from 0 to {self.data.vocabulary - 1}"
            )

    def parts(self, batch: torch.Tensor, most: int) -> list[torch.Tensor]:
        """Split a batch into parts of `most` sequences each; the last part may be smaller."""
        return list(batch.split(most))

    def samples(self, batch: torch.Tensor) -> int:
        """Return the number of sequences of a batch."""
        return len(batch)

    def counted(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the number of tokens of a batch that are predicted: int64 []."""
        return torch.tensor(batch[:, 1:].numel())

    def calls(self, network: nn.Module, batch: torch.Tensor) -> list[Call]:
        """Return the call of the network with all tokens except the last of each sequence."""
        return [call_with((batch[:, :-1],), {})]

    def _loss(self, network: nn.Module, batch: torch.Tensor, label_smoothing: float) -> torch.Tensor:
        logits = network(batch[:, :-1])
        check_logits(logits, (len(batch), self.data.length), self.data.vocabulary)
        return _cross_entropy(self.data.name, logits.flatten(0, 1), batch[:, 1:].flatten(), label_smoothing)

    def _difference(self, output: torch.Tensor, taught: torch.Tensor) -> torch.Tensor:
        return divergence(output, taught, -1, self._distill.temperature)

    def _score(self, network: nn.Module, tests: Iterable[torch.Tensor]) -> float:
        total, count = torch.zeros((), dtype=torch.float64, device=self.device), 0
        with as_in_training(network):
            for batch in tests:
                total += self._loss(network, batch, 0.0) * len(batch)
                count += len(batch)
        mean = float(total) / count
        return mean if abs(mean) < float("inf") else float("nan")


class OwnTask(DeviceTask):
    """A user's own task on a device."""

    def __init__(self, task: Task, settings: TrainingSettings, seed: int, device: torch.device) -> None:
        super().__init__(str(task), settings, device)
        if unknown := [name for name in OF_CLASSES if getattr(settings, name) != TrainingSettings.model_fields[name].default]:
            raise SpecError(
                f"training: {unknown[0]} is for classification and text; {task} has a loss and a score of its own, so leave "
                "it out, and let these do it"
            )
        self.task, self.metric, self.channels_last = checked(task), task.score_metric, False
        self.counts = task.counts
        self.batches = LoaderBatches(task, seed, device, most_steps=settings.most_steps)

    @property
    def tests(self) -> Iterable[Any]:
        """A copy of the first test batch on the device; () if there is none, as when the score makes its own batches."""
        return (mapped(lambda tensor: tensor.to(self.device, copy=True), batch) for batch in islice(self.task.test, 1))

    def check(self, batch: Any) -> None:
        """Raise DataError if a batch contains no tensor, or a tensor that is not finite."""
        tensors = first_inputs(batch)
        if not tensors:
            raise DataError(f"{self.name}: a batch is {kind_of(batch)} without a tensor in it; a loader has to make tensors")
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
            raise DataError(f"{self.name}: a batch has values that are not finite (NaN or infinity); take out or repair these")

    def parts(self, batch: Any, most: int) -> list[Any]:
        """Split a batch into parts of `most` samples, with the same structure. DataError if its tensors have different
        lengths.
        """
        count = self.samples(batch)
        if most >= count:
            return [batch]
        return [part_of(self.task, batch, slice(start, start + most)) for start in range(0, count, most)]

    def samples(self, batch: Any) -> int:
        """Return the number of samples of a batch: the length of its first tensor."""
        return len_of_batch(batch)

    def counted(self, batch: Any) -> torch.Tensor:
        """Return the number of samples or labels of a batch over which the loss averages."""
        return check_count(self.task, self.task.counted(batch))

    def check_parts(self, network: nn.Module, batch: Any) -> None:
        """Raise SpecError if the losses of a batch's halves do not average to its loss, unless `counted` weighs them."""
        count = self.samples(batch)
        if self.counts or count < FEWEST_IN_PARTS:
            return
        halves = self.parts(batch, -(-count // 2))
        means = MeansOverSamples(self.name)
        with left_as_it_was(network), steady_training_mode(network), own_inputs(network), self._running(), means:
            whole, again, *each = (float(self._loss(network, part, 0.0).detach()) for part in (batch, batch, *halves))
        mean = sum(loss * self.samples(half) for loss, half in zip(each, halves, strict=True)) / count
        if whole == again and not abs(mean - whole) <= SAME_LOSS * max(abs(mean), abs(whole)):
            raise SpecError(
                f"the loss of {self.name} is {whole:.4g} for {count} samples, and the mean over their halves is {mean:.4g}: "
                f"it is no mean over samples: labels may not count, or samples be compared with each other; {GIVE_COUNTED}"
            )

    def _loss(self, network: nn.Module, batch: Any, label_smoothing: float) -> torch.Tensor:
        if not self.counts or float(self.task.counted(batch)) > 0:
            return check_loss(self.task, self.task.loss(network, copied(batch)))
        outputs: list[torch.Tensor] = []  # a mean over no label is NaN

        def note(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            output = call(*args, **kwargs)
            outputs.extend(tensor.sum() for tensor in tensors_in(output) if tensor.requires_grad)
            return output

        with calls_through(network, note):
            loss = self.task.loss(network, copied(batch))
        return torch.stack(outputs).sum() * 0 if outputs else torch.nan_to_num(loss) * 0

    def _difference(self, output: Any, taught: Any) -> torch.Tensor:
        if getattr(self.task.difference, "__func__", None) is Task.difference:
            check_outputs(output, taught)
        return check_loss(self.task, self.task.difference(output, taught))

    def _score(self, network: nn.Module, tests: Iterable[Any]) -> float:
        return check_score(self.task, self.task.score(network))


def task_of(
    data: PictureData | TokenSet | Task, settings: TrainingSettings, seed: int, device: torch.device, share: Share = WHOLE
) -> DeviceTask:
    """Return the device task of a data set, or of a user's own task, with a share of each batch.

    Raises ShapeError if the batch is larger than the data set, SpecError if a part of the user's task is missing or invalid.
    """
    task: DeviceTask
    if isinstance(data, Task):
        task = OwnTask(data, settings, seed, device)
    elif isinstance(data, TokenSet):
        task = TextTask(data, settings, seed, device)
    else:
        task = PictureTask(data, settings, seed, device)
    task.batches = shared(task.batches, share)
    return task


def measure_accuracy(
    network: nn.Module, batches: Iterable[Pair], *, flip: bool = False, ignore_index: int | None = None
) -> float:
    """Return the accuracy: the fraction of labels with the greatest logit; NaN if any logit is not finite.

    Args:
        network: maps samples to logits [n, classes], or [n, classes, *positions] if there is a label for each position.
        batches: samples [n, ...], and labels [n] or [n, *positions].
        flip: whether to average the logits of a picture and its mirror image.
        ignore_index: label that is ignored; None: all labels count.
    """
    network.eval()
    right, count, finite = None, 0, None
    with torch.no_grad():
        for images, labels in batches:
            logits = _tensor_of(network(images))
            if flip:
                logits = (logits + network(images.flip(-1))) / 2
            hits, sound = (logits.argmax(1) == labels).sum(), torch.isfinite(logits).all()
            if ignore_index is not None:  # the network may predict the ignored label
                hits = ((logits.argmax(1) == labels) & (labels != ignore_index)).sum()
            right = hits if right is None else right + hits  # stays on the device, without synchronization
            finite = sound if finite is None else finite & sound
            count += labels.numel() if ignore_index is None else int((labels != ignore_index).sum())
    return int(right) / count if right is not None and count and finite else float("nan")


def check_logits(logits: object, places: tuple[int, ...], classes: int, positions: tuple[int, ...] = ()) -> None:
    """Raise ShapeError unless these are logits [*places, m, *positions] with m >= classes."""
    shape, axis = list(_tensor_of(logits).shape), len(places)
    if len(shape) <= axis or [*shape[:axis], *shape[axis + 1 :]] != [*places, *positions] or shape[axis] < classes:
        expected, of = ", ".join(map(str, (*places, classes, *positions))), " at each position" if positions else ""
        raise ShapeError(f"the network's output has the shape {shape}; for {classes} classes{of} it must be [{expected}]")


def _tensor_of(logits: object) -> torch.Tensor:
    """Return logits unchanged. ShapeError if the network returned something other than a tensor."""
    if not isinstance(logits, torch.Tensor):
        raise ShapeError(
            f"the network returned {kind_of(logits)}; it must return one tensor of logits{_part_with_logits(logits)}"
        )
    return logits


def _part_with_logits(output: Any) -> str:
    """Return a clause for a message that says how to select a tensor in an output; "" if the output has none."""
    if isinstance(output, tuple | list):
        parts = {f"[{place}]": part for place, part in enumerate(output)}
    elif isinstance(output, Mapping):
        parts = {f"[{name!r}]": part for name, part in output.items()}
    else:
        parts = {f".{name}": part for name, part in getattr(output, "__dict__", {}).items()}
    place_of_tensor = next((place for place, part in parts.items() if isinstance(part, torch.Tensor)), None)
    return (
        ""
        if place_of_tensor is None
        else f", so let a module around the network return that part, such as output{place_of_tensor}"
    )


def _cross_entropy(
    name: str, logits: torch.Tensor, targets: torch.Tensor, label_smoothing: float, ignore_index: int | None = None
) -> torch.Tensor:
    try:
        if ignore_index is not None:  # the mean is undefined for a batch of ignored labels
            options: dict[str, Any] = {"ignore_index": ignore_index, "label_smoothing": label_smoothing, "reduction": "sum"}
            total = functional.cross_entropy(logits, targets, **options)
            return total / (targets != ignore_index).sum().clamp(min=1)
        return functional.cross_entropy(logits, targets, label_smoothing=label_smoothing)
    except IndexError as error:  # raised on a CPU, for a batch after the first, which was checked
        raise DataError(f"{name}: a label or token is out of range: {error}") from error
