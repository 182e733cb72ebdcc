"""Tasks of one's own: batches, a loss and a score, or a whole training, of any network.

>>> import torch
>>> from torch import nn
>>> x = torch.randn(64, 3)
>>> pairs = [(x[:32], x[:32].sum(1)), (x[32:], x[32:].sum(1))]
>>> task = Task(pairs, pairs, loss=lambda model, batch: nn.functional.mse_loss(model(batch[0])[:, 0], batch[1]))
>>> task.example_inputs.shape, task.score_metric
(torch.Size([32, 3]), Metric(name='loss of the tests', unit='', more_is_better=False))
"""

from __future__ import annotations

import inspect
import json
import random
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

from syno.base.errors import DataError, SpecError, UserCodeError
from syno.base.files import checksum
from syno.base.identity import rows_of
from syno.base.user_code import kind_of, user_code
from syno.data.contract import WHOLE, Share, generator_of
from syno.model.calls import as_in_training
from syno.model.inputs import first_inputs, len_of_batch, mapped, of_batch
from syno.model.outputs import tensors_in
from syno.train.metric import Metric

Report = Callable[[int, float], None]
LOSS_OF_TESTS = Metric("loss of the tests", more_is_better=False)
SCORE = Metric("score")
OF_IDENTITY = {"fit": "training", "example_inputs": "example inputs"}  # parts in messages, where they are called otherwise
MOST_BATCHES = 100_000  # of a loader without a length: more are a stream without an end
LONG_SECONDS = 10.0  # after which it is said that batches are counted
LEAST_VARIANCE = 1e-12  # of its mean square: an output that is constant


class Task:
    """What networks are trained for: batches, a loss and a score. Give its parts, or write a subclass with them.

    >>> import syno, torch
    >>> from torch import nn
    >>> x = torch.randn(64, 3)
    >>> pairs = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1)), batch_size=32)
    >>> def loss(model, batch): return nn.functional.mse_loss(model(batch[0])[:, 0], batch[1])
    >>> task = syno.Task(pairs, pairs, loss=loss, metric=syno.Metric("error", "mm^2", more_is_better=False))
    >>> task.example_inputs.shape, task.score_metric.key
    (torch.Size([32, 3]), 'error (mm^2, less is better)')

    Attributes:
        train: batches to train on: anything that can be gone through again and again, such as a `torch.utils.data.DataLoader`
            or a list. A batch is a tensor, or a tuple, list or dict with tensors in it.
        test: batches to test on, which `score` goes through by `tests`; () if the score does without.
        metric: of the score: its name, its unit, and whether more of it is better.
        chance: the score of a network that has learnt nothing; None: it is measured, with weights that were drawn anew.
        name: in tables and messages.
        version: anything that differs when the data, the loss or the score has changed: results of other versions are not used.
    """

    train: Iterable[Any] = ()
    test: Iterable[Any] = ()
    metric: Metric | None = None
    chance: float | None = None
    name: str = ""
    version: str = ""
    given: Mapping[str, Any] = {}

    def __init__(
        self,
        train: Iterable[Any] = (),
        test: Iterable[Any] = (),
        *,
        loss: Callable[[nn.Module, Any], torch.Tensor] | None = None,
        score: Callable[[nn.Module], float] | None = None,
        counted: Callable[[Any], float] | None = None,
        metric: Metric | None = None,
        fit: Callable[[nn.Module, Report], object] | None = None,
        example_inputs: Any = None,
        chance: float | None = None,
        name: str = "",
        version: str = "",
    ) -> None:
        """Make a task of its parts.

        Args:
            train, test, metric, chance, name, version: see the class.
            loss: `loss(model, batch)` returns a scalar, the mean over the samples of the batch.
            score: `score(model)` returns a number; the model is in evaluation mode, and no gradients are made. Without one it
                is the mean loss of the batches to test on, of which less is better.
            counted: `counted(batch)` returns how many samples, labels or pixels the loss of the batch is the mean over, where
                some do not count; by default all samples. It is needed for `micro_batch` and `processes` only.
            fit: `fit(model, report)` is your whole training, in place of a loss and batches. It calls `report(step, score)` as
                it goes on, which may end it by an exception.
            example_inputs: what the network is called with: a tensor, a tuple of arguments, or a dict of named arguments. By
                default the first part of the first batch, if that is a pair, or the batch itself if it is a tensor. Where the
                first batch has inputs of this form, their values are used.
        """
        own = {"train": train, "test": test, "metric": metric, "chance": chance, "name": name, "version": version}
        for part, one in own.items():
            if one is not None and not (isinstance(one, tuple | str) and not one):  # else that of the subclass
                setattr(self, part, one)
        parts = {"loss": loss, "score": score, "counted": counted, "fit": fit, "example_inputs": example_inputs}
        self.given = {part: one for part, one in parts.items() if one is not None}

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """Return the loss of a batch, which is on the model's device: a scalar, the mean over its samples."""
        return cast("torch.Tensor", self._part("loss")(model, batch))

    def score(self, model: nn.Module) -> float:
        """Return the score of a model, which is in evaluation mode; by default the mean loss of the batches to test on.

        Where the model returns other things in evaluation mode than the loss was written for, the loss gets those of training
        mode, without dropout.
        """
        if "score" in self.given:
            return cast("float", self.given["score"](model))
        with as_in_training(model):
            losses = [(float(self.loss(model, batch)), float(self.counted(batch))) for batch in self.tests(model)]
        if not losses:
            raise SpecError(f"{self} has neither a score nor batches to test on; give score=..., or test=...")
        return sum(loss * count for loss, count in losses if count) / (sum(count for _, count in losses) or float("nan"))

    def counted(self, batch: Any) -> float:
        """Return how many samples, labels or pixels the loss of a batch is the mean over; by default all its samples."""
        return cast("float", self.given["counted"](batch)) if "counted" in self.given else len_of_batch(batch)

    def difference(self, output: Any, taught: Any) -> torch.Tensor:
        """Return the difference of an output from the trained original's: a scalar that `distill` makes small.

        By default it is the mean of the relative squared errors of their tensors. For logits, `divergence` is the better one.
        Both are what the networks return in training mode, the original without dropout and with its learnt statistics.
        """
        return relative_error(output, taught)

    def fit(self, model: nn.Module, report: Report) -> object:
        """Train the model, in place of the training loop with the loss; call `report(step, score)` as it goes on."""
        return self._part("fit")(model, report)

    @cached_property
    def example_inputs(self) -> Any:
        """What the network is called with, for costs and latencies: a tensor, a tuple of arguments, or a dict of named ones.

        The values are those of the first batch to train on, wherever it has inputs of the example's form: a network may look at
        them. The batch is the same in each process.
        """
        given = self.given.get("example_inputs")
        with user_code(f"making a batch of {self}"):
            batch = None if self.fits and given is not None else _first_batch(self.train)
        if given is not None:
            alike = _inputs_like(given, batch)
            return given if alike is None else of_batch(alike, len_of_batch(given))
        first = batch[0] if isinstance(batch, tuple | list) and batch else batch
        if isinstance(first, torch.Tensor):
            return first
        raise SpecError(
            f"{self}: its batches are {kind_of(batch)}, of which the network's inputs cannot be told; give example_inputs: a "
            "tensor, a tuple of arguments, or a dict of named arguments"
        )

    def tests(self, model: nn.Module) -> Iterator[Any]:
        """Yield copies of the batches to test on, on the device of the model."""
        device = next((one.device for one in model.parameters()), torch.device("cpu"))
        batches = self.test if _length_of(self.test) is not None else _finite(iter(self.test), f"{self}: test")
        for number, batch in enumerate(batches, 1):
            if not all(bool(torch.isfinite(tensor).all()) for tensor in first_inputs(batch)):
                raise UserCodeError(
                    f"{self}: batch {number} to test on has values that are not finite (NaN or infinity); take out or repair "
                    "these"
                )
            yield mapped(lambda tensor: tensor.to(device, copy=True), batch)

    @property
    def counts(self) -> bool:
        """Whether the task defines `counted`, the number of elements that the loss averages over."""
        return "counted" in self.given or type(self).counted is not Task.counted

    @property
    def fits(self) -> bool:
        """Whether it has a training of its own."""
        return "fit" in self.given or type(self).fit is not Task.fit

    @property
    def score_metric(self) -> Metric:
        """The metric of the score; without `metric` it is called "score", and more of it is better."""
        if self.metric is not None:
            return self.metric
        return SCORE if "score" in self.given or type(self).score is not Task.score else LOSS_OF_TESTS

    @property
    def hash(self) -> str:
        """What results are compared by: the name, the settings and the version."""
        return checksum(f"{self.name} {self.version}".encode())

    @property
    def things(self) -> dict[str, Any]:
        """What an identity (`syno.base.identity`) consists of, by its names in messages; rows of the data are made for it."""
        attributes = {key: one for key, one in vars(self).items() if key not in ("train", "test", "given", "example_inputs")}
        return {
            "the task": [type(self), {key: attributes[key] for key in sorted(attributes)}],
            **{f"the {OF_IDENTITY.get(part, part)}": one for part, one in sorted(self.given.items())},
            "the batches to train on": [self.train, rows_of(self.train)],
            "the batches to test on": [self.test, rows_of(self.test)],
        }

    def named(self, name: str, settings: Mapping[str, Any]) -> Task:
        """Give a task that was made by a function with these settings the function's name, unless it has one; return it."""
        self.name = self.name or name
        self.version = f"{self.version} {json.dumps(dict(settings), sort_keys=True, default=str)}" if settings else self.version
        return self

    def _part(self, part: str) -> Callable[..., Any]:
        if part not in self.given:
            raise SpecError(f"{self} has no {part}; give {part}=..., or write a method {part} of your subclass of syno.Task")
        return cast("Callable[..., Any]", self.given[part])

    def __str__(self) -> str:
        return f'the task "{self.name}"' if self.name else f"the task {type(self).__name__}"


def relative_error(output: Any, taught: Any) -> torch.Tensor:
    """Return the mean squared error of an output, divided by the variance of the other: the mean over their tensors.

    Numbers, such as a loss or a scale among the outputs, and tensors that are constant do not count. It is 0 if nothing else is
    there.
    """
    pairs = list(zip(_compared(output), _compared(taught), strict=True))
    if not pairs:
        return torch.zeros(())
    errors, counts = zip(*(error_of(one, target) for one, target in pairs), strict=True)
    return torch.stack(errors).sum() / torch.stack(counts).sum().clamp(min=1)


def check_outputs(output: Any, taught: Any) -> None:
    """Raise SpecError if two outputs cannot be compared: there are numbers only, or tensors of other shapes."""
    shapes, wanted = ([tuple(one.shape) for one in _compared(value)] for value in (output, taught))
    if shapes != wanted or not wanted:
        why = "with numbers only, such as a loss" if not wanted else f"of the shapes {shapes}, and the original's {wanted}"
        raise SpecError(
            f"the output of the network is {kind_of(output)} {why}: there is nothing to learn from the trained original's; "
            "leave out distill (in Python distill=None), or write a method difference(self, output, taught) of your task"
        )


def _compared(output: Any) -> list[torch.Tensor]:
    return [one for one in tensors_in(output) if one.dim() and (one.is_floating_point() or one.is_complex())]


def error_of(made: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the relative squared error of one tensor where the other is finite, and 1; both 0 if that is constant."""
    made, target = ((torch.view_as_real(one) if one.is_complex() else one).float() for one in (made, target))
    finite = target.isfinite()  # masks are not
    count = finite.sum().clamp(min=1)
    target = target.where(finite, 0.0)
    spread = (target - target.sum() / count).where(finite, 0.0).square().sum() / count
    varies = (spread > LEAST_VARIANCE * target.square().sum() / count).float()
    error = (made - target).where(finite, 0.0).square().sum() / count
    return error / spread.where(varies > 0, 1.0) * varies, varies


def divergence(logits: torch.Tensor, taught: torch.Tensor, axis: int, temperature: float = 2.0) -> torch.Tensor:
    """Return the mean Kullback-Leibler divergence of the probabilities of two tensors of logits, times the squared temperature.

    Source: Hinton 2015, Distilling the Knowledge in a Neural Network.
    """
    own, target = (functional.log_softmax(one.float() / temperature, axis) for one in (logits, taught))
    places = max(1, target.numel() // target.shape[axis])
    return functional.kl_div(own, target, reduction="sum", log_target=True) / places * temperature**2


def checked(task: Task) -> Task:
    """Return the task. SpecError if a part of it has the wrong type or is missing."""
    if task.metric is not None and not isinstance(task.metric, Metric):
        raise SpecError(f'{task}: its metric is {task.metric!r}; give a syno.Metric, as in syno.Metric("IoU")')
    for name in ("loss", "score", "counted", "fit"):
        if not callable(getattr(task, name)) or not callable(task.given.get(name, len)):
            raise SpecError(f"{task}: its {name} is {kind_of(getattr(task, name))}; give a function")
    if task.fits:
        return task
    if "loss" not in task.given and type(task).loss is Task.loss:
        raise SpecError(f"{task} has no loss; give loss=..., or write a method loss(self, model, batch), or give fit")
    for part in ("train", "test"):
        given: Any = getattr(task, part)
        if not isinstance(given, Iterable):
            raise SpecError(f"{task}: {part} is {kind_of(given)}; give batches, such as a torch.utils.data.DataLoader")
        if isinstance(given, Iterator):
            raise SpecError(
                f"{task}: {part} is {kind_of(given)}, which can be gone through once only; give a list, or a "
                "torch.utils.data.DataLoader"
            )
    return task


def check_score(task: Task, score: object) -> float:
    """Return a score as a number. UserCodeError if it is none."""
    try:
        value = float(cast("float", score))
    except (TypeError, ValueError, RuntimeError):
        raise UserCodeError(f"the score of {task} is {kind_of(score)}; it must be one number") from None
    return value


def check_loss(task: Task, loss: object) -> torch.Tensor:
    """Return a loss. UserCodeError if it is no scalar with a gradient, while gradients are made."""
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        given = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else kind_of(loss)
        raise UserCodeError(f"the loss of {task} is {given}; it must be a scalar, as with .mean()")
    if torch.is_grad_enabled() and not loss.requires_grad:
        raise UserCodeError(
            f"the loss of {task} does not depend on the network's weights by anything with a gradient; compute it of the "
            "network's outputs, without .item(), .detach() or torch.no_grad()"
        )
    return loss.reshape(())


def check_count(task: Task, count: object) -> torch.Tensor:
    """Return how much counts in a batch. UserCodeError if that is no number of at least 0."""
    try:
        value = float(cast("float", count))
    except (TypeError, ValueError, RuntimeError):
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UserCodeError(f"counted of {task} returned {count!r}; it must be a number of at least 0")
    return torch.tensor(value, dtype=torch.float64)


GIVE_COUNTED = (
    "give the task counted=..., a function that returns how many samples or labels of a batch count, or leave out micro_batch "
    "and processes"
)


class MeansOverSamples(TorchFunctionMode):  # type: ignore[misc]  # mypy does not look into torch
    """A context in which PyTorch's means over labels raise SpecError if not all samples count alike.

    So it is for parts of a batch: where labels are ignored, the losses of the parts do not add up to that of the batch.

    Args:
        task: its name.
    """

    def __init__(self, task: str) -> None:
        super().__init__()
        self.task = task

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if function in LOSSES_OF_LABELS:
            call = inspect.signature(function).bind(*args, **given)
            call.apply_defaults()
            target, ignored = call.arguments["target"], call.arguments["ignore_index"]
            if call.arguments["reduction"] == "mean" and not target.is_floating_point():
                if call.arguments["weight"] is not None:
                    raise SpecError(f"the loss of {self.task} is a mean with weights of the classes; {GIVE_COUNTED}")
                if bool((target == ignored).any()):
                    raise SpecError(
                        f"the loss of {self.task} is a mean over labels, of which those that are {ignored} do not count; "
                        f"{GIVE_COUNTED}"
                    )
        return function(*args, **given)


LOSSES_OF_LABELS = (functional.cross_entropy, functional.nll_loss)


class _Randomness:
    """The states of the random numbers of torch (on the CPU), NumPy and Python."""

    def __init__(self) -> None:
        self.states = torch.get_rng_state(), np.random.get_state(), random.getstate()

    def restore(self) -> None:
        of_torch, of_numpy, of_python = self.states
        torch.set_rng_state(of_torch)
        np.random.set_state(of_numpy)
        random.setstate(of_python)


def _length_of(loader: Iterable[Any]) -> int | None:
    """Return the number of batches of a loader; None if it has none, as that of an IterableDataset."""
    try:
        return len(cast("Any", loader))
    except (TypeError, NotImplementedError):
        return None


def _finite(batches: Iterator[Any], part: str) -> Iterator[Any]:
    """Yield batches of a loader without a length. Raises SpecError after `MOST_BATCHES`; warns if it takes long until then."""
    advice = "if the stream has no end, give the loader a length (__len__), or cut it (itertools.islice in its __iter__)"
    if part.endswith("train"):
        advice += ", or give the training a number of steps (most_steps)"
    begun: float | None = time.monotonic()
    for count, batch in enumerate(batches):
        if count >= MOST_BATCHES:
            raise SpecError(f"{part} has no length, and more than {MOST_BATCHES:,} batches; {advice}")
        yield batch
        if begun is not None and time.monotonic() - begun > LONG_SECONDS:
            warnings.warn(f"{part} has no length, and {count + 1:,} batches so far; {advice}", stacklevel=2)
            begun = None


def _first_batch(loader: Iterable[Any]) -> Any:
    """Return the first batch of a loader, the same in each process; None if there is none. The loader is left as it was."""
    outside, generators = _Randomness(), [(one, one.get_state()) for one in _generators(loader)]
    try:
        batch = next(_seeded(loader, 0, 1), None)
    finally:
        outside.restore()
        for generator, state in generators:
            generator.set_state(state)
        if isinstance(loader, DataLoader):  # its persistent workers would stay
            loader._iterator = None
    return mapped(lambda one: one.detach().to("cpu", copy=True), batch)  # the loader may write the next batch there


def _inputs_like(example: Any, batch: Any) -> Any:
    """Return the inputs in a batch that have the structure, the shapes of samples and the types of an example; None without."""
    candidates = [batch]
    if isinstance(batch, tuple | list) and isinstance(example, Mapping):
        candidates.append(dict(zip(example, batch, strict=False)))
    if isinstance(batch, tuple | list):
        candidates += [*batch[:1], *(tuple(batch[:count]) for count in range(1, len(batch)))]
    if isinstance(batch, Mapping):
        candidates += list(batch.values())
        if isinstance(example, Mapping) and example.keys() <= batch.keys():
            candidates.append({name: batch[name] for name in example})
    form = _form(example)
    return next((one for one in candidates if _form(one) == form), None)


def _form(inputs: Any) -> object:
    """Return the structure of inputs with the shape of a sample and the type of each tensor."""
    whole = len_of_batch(inputs)
    leaves, structure = pytree.tree_flatten(dict(inputs) if isinstance(inputs, Mapping) else inputs)
    return structure, [
        (one.dtype, tuple(one.shape[1:]), one.dim() > 0 and len(one) == whole) if isinstance(one, torch.Tensor) else one
        for one in leaves
    ]


def _generators(loader: object) -> list[torch.Generator]:
    """Return the random generators of a loader and its parts."""
    parts = (loader, *(getattr(loader, name, None) for name in ("sampler", "batch_sampler", "dataset")))
    return [one for part in parts if isinstance(one := getattr(part, "generator", None), torch.Generator)]


def _seeded(loader: Iterable[Any], seed: int, epoch: int) -> Iterator[Any]:
    """Return the iterator of an epoch's batches, after all random numbers got their seeds."""
    chosen = generator_of(seed, epoch).initial_seed()
    # `torch.manual_seed` would also seed the GPUs' numbers, which the network draws.
    torch.default_generator.manual_seed(chosen)
    np.random.seed(chosen % 2**32)
    random.seed(chosen)
    for generator in _generators(loader):
        generator.manual_seed(chosen)
    for part in (loader, *(getattr(loader, name, None) for name in ("sampler", "batch_sampler", "dataset"))):
        if callable(getattr(part, "set_epoch", None)):
            cast("Any", part).set_epoch(epoch)
    if isinstance(loader, DataLoader):  # persistent workers go on with their own random numbers
        loader._iterator = None
    return iter(loader)


class LoaderBatches:
    """The batches of a user's loader, on a device.

    Before each epoch, the random numbers of torch, NumPy and Python get a seed that depends on the training's seed and the
    epoch, and so do a loader's and its sampler's own generators. While a batch is made, these random numbers are used, and at
    other times those of the training. So a batch depends on seed, epoch and place only, and a training that resumes within an
    epoch goes through the batches before without using them.

    Args:
        task: with the loader.
        seed: of the training.
        device: of the batches.
        share: the share of each batch.
        most_steps: of the training: the length of a loader without one that makes as many batches or more.
    """

    def __init__(
        self, task: Task, seed: int, device: torch.device, share: Share = WHOLE, most_steps: int | None = None
    ) -> None:
        self.task, self.loader, self.seed, self.device, self.share = task, task.train, seed, device, share
        self.most_steps = most_steps

    @cached_property
    def _length(self) -> int:
        count = _length_of(self.loader)
        if count is None:
            outside = _Randomness()
            counted = _finite(_seeded(self.loader, self.seed, 1), f"{self.task}: train")
            count = sum(1 for _ in islice(counted, self.most_steps))
            outside.restore()
        if not count:
            raise DataError(f"{self.task} has no batch to train on")
        return count

    def __len__(self) -> int:
        return self._length

    def of_share(self, share: Share) -> LoaderBatches:
        """Return the same batches with only a share of the samples in each."""
        return LoaderBatches(self.task, self.seed, self.device, share, self.most_steps)

    def epoch(self, number: int, first: int = 0) -> Iterator[Any]:
        """Yield the batches of an epoch from the `first` on. UserCodeError if the loader ends before its length."""
        outside = _Randomness()
        batches = _seeded(self.loader, self.seed, number)
        inside = _Randomness()
        outside.restore()
        place = 0
        while place < self._length:
            outside = _Randomness()
            inside.restore()
            try:
                batch = next(batches, None)
            finally:
                inside = _Randomness()
                outside.restore()
            if batch is None:
                raise UserCodeError(
                    f"{self.task}: its loader made {place} batches in epoch {number}, and has the length {self._length}; it "
                    "must make as many in each epoch"
                )
            if place >= first:
                yield mapped(lambda tensor: tensor.to(self.device), self._own_share(batch))
            place += 1

    def _own_share(self, batch: Any) -> Any:
        return batch if self.share.count == 1 else part_of(self.task, batch, self.share.part(0, len_of_batch(batch)))


def part_of(task: Task, batch: Any, place: slice) -> Any:
    """Return some samples of a batch. DataError if its tensors are not of one length."""
    lengths = {len(tensor) for tensor in first_inputs(batch) if tensor.dim()}
    if len(lengths) > 1:
        raise DataError(
            f"{task}: a batch has tensors of the lengths {', '.join(map(str, sorted(lengths)))}, so that it cannot be split by "
            "samples; leave out micro_batch and processes"
        )
    return mapped(lambda tensor: tensor[place] if tensor.dim() else tensor, batch)


def task_from(
    fit: Callable[..., object], score: Callable[..., float], metric: Metric | None, example: Callable[[], Any] | None, name: str
) -> Task:
    """Return the task of functions: `fit(model, report)`, `score(model)`, and one that makes example inputs.

    Raises UserCodeError if a function does not take such arguments.
    """
    for function, what, count in ((fit, "fit", 2), (score, "score", 1), (example, "example_inputs", 0)):
        if function is None:
            continue
        try:
            inspect.signature(function).bind(*range(count))
        except TypeError as error:
            raise UserCodeError(
                f"workload: {what} is called with {('nothing', 'the model', 'the model and report')[count]}, but it takes "
                f"{inspect.signature(function)}: {error}"
            ) from None
        except ValueError:  # written in C
            continue
    with user_code("the function of example_inputs"):
        inputs = None if example is None else example()
    return Task(fit=fit, score=score, metric=metric, example_inputs=inputs, name=name)
