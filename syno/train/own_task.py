"""Users' own tasks: batches with a loss and a score, or a whole training, for any network.

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
OF_IDENTITY = {"fit": "training", "example_inputs": "example inputs"}  # names of parts in messages, if they differ
MOST_BATCHES = 100_000  # limit for a loader without a length, which may be endless
LONG_SECONDS = 10.0  # after which a warning says that batches are still being counted
LEAST_VARIANCE = 1e-12  # variance relative to the mean square below which an output is constant


class Task:
    """A task for which networks are trained: batches, a loss and a score. Pass its parts, or write a subclass with them.

    >>> import syno, torch
    >>> from torch import nn
    >>> x = torch.randn(64, 3)
    >>> pairs = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1)), batch_size=32)
    >>> def loss(model, batch): return nn.functional.mse_loss(model(batch[0])[:, 0], batch[1])
    >>> task = syno.Task(pairs, pairs, loss=loss, metric=syno.Metric("error", "mm^2", more_is_better=False))
    >>> task.example_inputs.shape, task.score_metric.key
    (torch.Size([32, 3]), 'error (mm^2, less is better)')

    Attributes:
        train: training batches: an iterable that can be iterated repeatedly, such as a `torch.utils.data.DataLoader` or a list.
            A batch is a tensor, or a tuple, list or dict that contains tensors.
        test: test batches, which `score` iterates by `tests`; () if the score needs none.
        metric: the score's name, unit and direction.
        chance: the score of a network that has learnt nothing; None: it is measured with newly initialized weights.
        name: the task's name in tables and messages.
        version: a value that you change whenever the data, the loss or the score changes, so that results of other versions are
            not reused.
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
        """Create a task from its parts.

        Args:
            train, test, metric, chance, name, version: see the class.
            loss: `loss(model, batch)` returns a scalar, the mean over the samples of the batch.
            score: `score(model)` returns a number; the model is in evaluation mode, without gradients. Default: the mean loss
                of the test batches, of which less is better.
            counted: `counted(batch)` returns the number of samples, labels or pixels over which the loss averages, if some are
                ignored; default: all samples. Only needed for `micro_batch` and `processes`.
            fit: `fit(model, report)` is your whole training, instead of a loss and batches. It calls `report(step, score)` from
                time to time, which may end it by an exception.
            example_inputs: inputs of the network: a tensor, a tuple of arguments, or a dict of named arguments. Default: the
                first element of the first batch, or the batch itself if it is a tensor. If the first batch contains inputs of
                this form, their values are used.
        """
        own = {"train": train, "test": test, "metric": metric, "chance": chance, "name": name, "version": version}
        for part, value in own.items():
            if value is not None and not (isinstance(value, tuple | str) and not value):  # otherwise the subclass's own
                setattr(self, part, value)
        parts = {"loss": loss, "score": score, "counted": counted, "fit": fit, "example_inputs": example_inputs}
        self.given = {part: value for part, value in parts.items() if value is not None}

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """Return the loss of a batch on the model's device: a scalar, the mean over the batch's samples."""
        return cast("torch.Tensor", self._part("loss")(model, batch))

    def score(self, model: nn.Module) -> float:
        """Return the score of a model in evaluation mode; by default the mean loss of the test batches.

        If the model's outputs in evaluation mode differ from those for which the loss was written, the loss gets the outputs of
        training mode, without dropout.
        """
        if "score" in self.given:
            return cast("float", self.given["score"](model))
        with as_in_training(model):
            losses = [(float(self.loss(model, batch)), float(self.counted(batch))) for batch in self.tests(model)]
        if not losses:
            raise SpecError(f"{self} has neither a score nor batches to test on; give score=..., or test=...")
        return sum(loss * count for loss, count in losses if count) / (sum(count for _, count in losses) or float("nan"))

    def counted(self, batch: Any) -> float:
        """Return the number of samples, labels or pixels over which the loss of a batch averages; by default all samples."""
        return cast("float", self.given["counted"](batch)) if "counted" in self.given else len_of_batch(batch)

    def difference(self, output: Any, taught: Any) -> torch.Tensor:
        """Return the difference of an output from the teacher's (the trained original's): the scalar that `distill` minimizes.

        By default it is the mean relative squared error over their tensors. For logits, `divergence` is better. Both are
        outputs in training mode, the teacher's without dropout and with its running statistics.
        """
        return relative_error(output, taught)

    def fit(self, model: nn.Module, report: Report) -> object:
        """Train the model, instead of the training loop with the loss; call `report(step, score)` from time to time."""
        return self._part("fit")(model, report)

    @cached_property
    def example_inputs(self) -> Any:
        """Example inputs of the network, for costs and latencies: a tensor, a tuple of arguments, or a dict of named arguments.

        The values are those of the first training batch if it has inputs of the example's form, since a network's execution
        path may depend on values. The batch is the same in all processes.
        """
        example = self.given.get("example_inputs")
        with user_code(f"making a batch of {self}"):
            batch = None if self.fits and example is not None else _first_batch(self.train)
        if example is not None:
            alike = _inputs_like(example, batch)
            return example if alike is None else of_batch(alike, len_of_batch(example))
        first = batch[0] if isinstance(batch, tuple | list) and batch else batch
        if isinstance(first, torch.Tensor):
            return first
        raise SpecError(
            f"{self}: its batches are {kind_of(batch)}, of which the network's inputs cannot be told; give example_inputs: a "
            "tensor, a tuple of arguments, or a dict of named arguments"
        )

    def tests(self, model: nn.Module) -> Iterator[Any]:
        """Yield copies of the test batches on the model's device."""
        device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
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
        """Whether the task has a function `counted`, the number of elements over which its loss averages."""
        return "counted" in self.given or type(self).counted is not Task.counted

    @property
    def fits(self) -> bool:
        """Whether the task has its own training (`fit`)."""
        return "fit" in self.given or type(self).fit is not Task.fit

    @property
    def score_metric(self) -> Metric:
        """The metric of the score; without `metric`, it is called "score", and more is better."""
        if self.metric is not None:
            return self.metric
        return SCORE if "score" in self.given or type(self).score is not Task.score else LOSS_OF_TESTS

    @property
    def hash(self) -> str:
        """Cache key of results: a hash of the name, the settings and the version."""
        return checksum(f"{self.name} {self.version}".encode())

    @property
    def things(self) -> dict[str, Any]:
        """The objects that determine the task's identity (`syno.base.identity`), by their names in messages; includes sampled
        rows.
        """
        attributes = {
            key: value for key, value in vars(self).items() if key not in ("train", "test", "given", "example_inputs")
        }
        return {
            "the task": [type(self), {key: attributes[key] for key in sorted(attributes)}],
            **{f"the {OF_IDENTITY.get(part, part)}": value for part, value in sorted(self.given.items())},
            "the batches to train on": [self.train, rows_of(self.train)],
            "the batches to test on": [self.test, rows_of(self.test)],
        }

    def named(self, name: str, settings: Mapping[str, Any]) -> Task:
        """Name a task after the function and settings that made it, unless it has a name; return it."""
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
    """Return the relative squared error of an output: mean squared error over the variance of the teacher's output.

    It is averaged over tensors. Single numbers, such as a loss among the outputs, and constant tensors are ignored; 0 if
    nothing else remains.
    """
    pairs = list(zip(_compared(output), _compared(taught), strict=True))
    if not pairs:
        return torch.zeros(())
    errors, counts = zip(*(error_of(tensor, target) for tensor, target in pairs), strict=True)
    return torch.stack(errors).sum() / torch.stack(counts).sum().clamp(min=1)


def check_outputs(output: Any, taught: Any) -> None:
    """Raise SpecError if two outputs cannot be compared: only single numbers, or tensors of different shapes."""
    shapes, wanted = ([tuple(tensor.shape) for tensor in _compared(value)] for value in (output, taught))
    if shapes != wanted or not wanted:
        why = "with numbers only, such as a loss" if not wanted else f"of the shapes {shapes}, and the original's {wanted}"
        raise SpecError(
            f"the output of the network is {kind_of(output)} {why}: there is nothing to learn from the trained original's; "
            "leave out distill (in Python distill=None), or write a method difference(self, output, taught) of your task"
        )


def _compared(output: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tensors_in(output) if tensor.dim() and (tensor.is_floating_point() or tensor.is_complex())]


def error_of(made: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (relative squared error of `made` over the finite elements of `target`, 1); (0, 0) if the target is constant."""
    made, target = ((torch.view_as_real(tensor) if tensor.is_complex() else tensor).float() for tensor in (made, target))
    finite = target.isfinite()  # masked logits are infinite
    count = finite.sum().clamp(min=1)
    target = target.where(finite, 0.0)
    spread = (target - target.sum() / count).where(finite, 0.0).square().sum() / count
    varies = (spread > LEAST_VARIANCE * target.square().sum() / count).float()
    error = (made - target).where(finite, 0.0).square().sum() / count
    return error / spread.where(varies > 0, 1.0) * varies, varies


def divergence(logits: torch.Tensor, taught: torch.Tensor, axis: int, temperature: float = 2.0) -> torch.Tensor:
    """Return the mean Kullback-Leibler divergence between the softmax of two tensors of logits, times the squared temperature.

    Classes are along `axis`.

    Source: Hinton 2015, Distilling the Knowledge in a Neural Network.
    """
    own, target = (functional.log_softmax(tensor.float() / temperature, axis) for tensor in (logits, taught))
    places = max(1, target.numel() // target.shape[axis])
    return functional.kl_div(own, target, reduction="sum", log_target=True) / places * temperature**2


def checked(task: Task) -> Task:
    """Return a task after validating its parts. SpecError if a part has the wrong type or is missing."""
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
        batches: Any = getattr(task, part)
        if not isinstance(batches, Iterable):
            raise SpecError(f"{task}: {part} is {kind_of(batches)}; give batches, such as a torch.utils.data.DataLoader")
        if isinstance(batches, Iterator):
            raise SpecError(
                f"{task}: {part} is {kind_of(batches)}, which can be gone through once only; give a list, or a "
                "torch.utils.data.DataLoader"
            )
    return task


def check_score(task: Task, score: object) -> float:
    """Return a score as a float. UserCodeError if the user's function returned no number."""
    try:
        value = float(cast("float", score))
    except (TypeError, ValueError, RuntimeError):
        raise UserCodeError(f"the score of {task} is {kind_of(score)}; it must be one number") from None
    return value


def check_loss(task: Task, loss: object) -> torch.Tensor:
    """Return a loss. UserCodeError if it is not a scalar, or has no gradient although gradients are enabled."""
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        kind = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else kind_of(loss)
        raise UserCodeError(f"the loss of {task} is {kind}; it must be a scalar, as with .mean()")
    if torch.is_grad_enabled() and not loss.requires_grad:
        raise UserCodeError(
            f"the loss of {task} does not depend on the network's weights by anything with a gradient; compute it of the "
            "network's outputs, without .item(), .detach() or torch.no_grad()"
        )
    return loss.reshape(())


def check_count(task: Task, count: object) -> torch.Tensor:
    """Return the count of a batch, float64 []. UserCodeError if it is not a number of at least 0."""
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
    """A context that raises SpecError if PyTorch averages a loss over labels of which some are ignored.

    For parts of a batch: with ignored labels, the mean losses of the parts do not average to that of the batch.

    Args:
        task: name of the task.
    """

    def __init__(self, task: str) -> None:
        super().__init__()
        self.task = task

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        arguments = kwargs or {}
        if function in LOSSES_OF_LABELS:
            call = inspect.signature(function).bind(*args, **arguments)
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
        return function(*args, **arguments)


LOSSES_OF_LABELS = (functional.cross_entropy, functional.nll_loss)


class _Randomness:
    """The random states of torch (on the CPU), NumPy and Python, which can be saved and restored."""

    def __init__(self) -> None:
        self.states = torch.get_rng_state(), np.random.get_state(), random.getstate()

    def restore(self) -> None:
        of_torch, of_numpy, of_python = self.states
        torch.set_rng_state(of_torch)
        np.random.set_state(of_numpy)
        random.setstate(of_python)


def _length_of(loader: Iterable[Any]) -> int | None:
    """Return the number of batches of a loader; None if it has no length, as with an IterableDataset."""
    try:
        return len(cast("Any", loader))
    except (TypeError, NotImplementedError):
        return None


def _finite(batches: Iterator[Any], part: str) -> Iterator[Any]:
    """Yield batches of a loader without a length. Raises SpecError after `MOST_BATCHES`; warns if it takes long."""
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
    """Return the first batch of a loader, the same in all processes; None if it is empty. The loader's state is restored."""
    outside, generators = _Randomness(), [(generator, generator.get_state()) for generator in _generators(loader)]
    try:
        batch = next(_seeded(loader, 0, 1), None)
    finally:
        outside.restore()
        for generator, state in generators:
            generator.set_state(state)
        if isinstance(loader, DataLoader):  # otherwise its persistent workers would stay alive
            loader._iterator = None
    return mapped(lambda tensor: tensor.detach().to("cpu", copy=True), batch)  # a copy, since the loader may reuse the memory


def _inputs_like(example: Any, batch: Any) -> Any:
    """Return the inputs in a batch with the structure, sample shapes and types of an example; None if there are none."""
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
    return next((candidate for candidate in candidates if _form(candidate) == form), None)


def _form(inputs: Any) -> object:
    """Return the structure of inputs, with each tensor's shape without the batch, and its dtype."""
    whole = len_of_batch(inputs)
    leaves, structure = pytree.tree_flatten(dict(inputs) if isinstance(inputs, Mapping) else inputs)
    return structure, [
        (leaf.dtype, tuple(leaf.shape[1:]), leaf.dim() > 0 and len(leaf) == whole) if isinstance(leaf, torch.Tensor) else leaf
        for leaf in leaves
    ]


def _generators(loader: object) -> list[torch.Generator]:
    """Return the random generators of a loader, its sampler and its other parts."""
    parts = (loader, *(getattr(loader, name, None) for name in ("sampler", "batch_sampler", "dataset")))
    return [generator for part in parts if isinstance(generator := getattr(part, "generator", None), torch.Generator)]


def _seeded(loader: Iterable[Any], seed: int, epoch: int) -> Iterator[Any]:
    """Seed all random generators from seed and epoch, and return the iterator of the loader's batches in that epoch."""
    chosen = generator_of(seed, epoch).initial_seed()
    # `torch.manual_seed` would also seed the GPUs' generators, which the network uses.
    torch.default_generator.manual_seed(chosen)
    np.random.seed(chosen % 2**32)
    random.seed(chosen)
    for generator in _generators(loader):
        generator.manual_seed(chosen)
    for part in (loader, *(getattr(loader, name, None) for name in ("sampler", "batch_sampler", "dataset"))):
        if callable(getattr(part, "set_epoch", None)):
            cast("Any", part).set_epoch(epoch)
    if isinstance(loader, DataLoader):  # persistent workers would continue their own random states
        loader._iterator = None
    return iter(loader)


class LoaderBatches:
    """The batches of a user's loader, on a device.

    Before each epoch, the global random states of torch, NumPy and Python, and the generators of the loader and its sampler,
    are seeded from the training's seed and the epoch. These states are only active while a batch is made; otherwise, those of
    the training are. So a batch depends only on seed, epoch and index, and a training that resumes within an epoch skips the
    earlier batches.

    Args:
        task: the task with the loader.
        seed: seed of the training.
        device: device of the batches.
        share: this process's share of each batch.
        most_steps: number of steps of the training, which is the epoch length if the loader has no length and at least so many
            batches.
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
        """Return batches with only this process's share of the samples of each batch."""
        return LoaderBatches(self.task, self.seed, self.device, share, self.most_steps)

    def epoch(self, number: int, first: int = 0) -> Iterator[Any]:
        """Yield the batches of an epoch, from batch `first` on. UserCodeError if the loader ends before its length."""
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
    """Return a slice of the samples of a batch. DataError if its tensors have different lengths."""
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
    """Return a task from functions: `fit(model, report)`, `score(model)`, and `example()`, which returns example inputs.

    Raises UserCodeError if a function does not take these arguments.
    """
    for function, part, count in ((fit, "fit", 2), (score, "score", 1), (example, "example_inputs", 0)):
        if function is None:
            continue
        try:
            inspect.signature(function).bind(*range(count))
        except TypeError as error:
            raise UserCodeError(
                f"workload: {part} is called with {('nothing', 'the model', 'the model and report')[count]}, but it takes "
                f"{inspect.signature(function)}: {error}"
            ) from None
        except ValueError:  # written in C
            continue
    with user_code("the function of example_inputs"):
        inputs = None if example is None else example()
    return Task(fit=fit, score=score, metric=metric, example_inputs=inputs, name=name)
