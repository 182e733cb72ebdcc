"""Comparison of a trained network with the network read back from an exported file: several input shapes, and training mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn

from syno.base.errors import WrongOutputError
from syno.model.inputs import Inputs, call, first_inputs, of_batch
from syno.model.outputs import tensors_in
from syno.model.proof import drawn
from syno.model.shared_memory import copy_of

Run = Callable[..., Any]  # takes the inputs of the network
Shapes: TypeAlias = tuple[Any, ...]  # the shape of one input, or a tuple of the shapes of several inputs

TOLERANCE = 1e-4  # of outputs and gradients, as a share of the largest
SEED = 0  # of inputs, and of the network's random numbers
BATCH = 2  # batch size of the example: exporters tend to take a length of 1 for a constant
BATCHES = (1, 3)  # other batch sizes that are compared
MOST = 5  # input shapes that are compared: the batch sizes, and two other sizes of samples
# Other lengths of a sample: odd lengths show rounding errors in shapes, unequal lengths show exchanged axes.
OTHER_SIZES = (
    lambda length, axis: length + 1 + 2 * axis,
    lambda length, axis: length * 3 // 2,
    lambda length, axis: 2 * length,
)


@dataclass(frozen=True)
class Agreement:
    """The input shapes at which a written network agrees with the trained one, and those at which it does not.

    Attributes:
        error: the largest difference of outputs, as a share of the largest output.
        equal: input shapes at which the outputs of both are equal within `TOLERANCE`.
        refused: input shapes at which the written network raises an error, and the trained network does not.
        wrong: input shapes at which the outputs differ, each with the difference as a share of the largest output.
    """

    error: float
    equal: tuple[Shapes, ...]
    refused: tuple[Shapes, ...]
    wrong: dict[Shapes, float]


@dataclass(frozen=True)
class Calls:
    """The batch size and number of CPU threads with which a network will be called; some formats are optimized for them."""

    batch: int = 1
    threads: int = 1


ONE = Calls()


class Comparison:
    """Inputs of several shapes, and a trained network's outputs for them in evaluation mode: the reference for exported files.

    Args:
        network: the trained network, in evaluation mode.
        example: a batch of its inputs. If the network has several inputs, comparisons vary only the batch size, since it is
            unknown which of their other lengths must be equal.
        symbols: the size of the network's vocabulary; None if its inputs are no tokens.
        calls: the batch size and threads with which the network will be called.
    """

    def __init__(self, network: nn.Module, example: Inputs, symbols: int | None, calls: Calls = ONE) -> None:
        self.network, self.example, self.symbols, self.calls = network, example, symbols, calls
        self.sample = tuple(example.shape[1:]) if isinstance(example, torch.Tensor) else ()
        self.wanted: dict[Shapes, tuple[Inputs, list[torch.Tensor]]] = {}
        self._add(self._of_batch(BATCH))
        others = [self._other(change) for change in OTHER_SIZES if isinstance(example, torch.Tensor)]
        for inputs in [*map(self._of_batch, BATCHES), *map(self._input, others)]:
            if len(self.wanted) < MOST:
                self._try(inputs)

    @property
    def inputs(self) -> Inputs:
        """A batch of the shape that the network was trained with."""
        return self.of_batch(BATCH)

    def compare_at(self, shape: tuple[int, ...]) -> None:
        """Add an input of this shape to the compared inputs, if the network takes it."""
        self._try(self._input(shape))

    def _try(self, inputs: Inputs) -> None:
        with suppress(Exception):  # it is the user's code
            self._add(inputs)

    def of_batch(self, batch: int) -> Inputs:
        """Return inputs with this batch size, and add them to the inputs that are compared."""
        return self.wanted[self._add(self._of_batch(batch))][0]

    @property
    def batch_of_3(self) -> Inputs:
        """A batch of 3 samples of the shape that the network was trained with."""
        return self._of_batch(BATCHES[-1])

    def agreement(self, run: Run, batch: int | None = None) -> Agreement:
        """Return the shapes of inputs at which the outputs of `run` equal the network's, and the shapes at which they do not.

        Args:
            run: the network that was read back from the exported file.
            batch: the only batch size that `run` takes; None if it takes several.

        Raises WrongOutputError if `run` fails on an input of the shape that the network was trained with.
        """
        error, equal, refused, wrong = 0.0, list[Shapes](), list[Shapes](), dict[Shapes, float]()
        needed = shapes_of(self._of_batch(BATCH if batch is None else batch))
        for shape, (x, wanted) in self.wanted.items():
            try:
                found = run_with_seed(run, x)
            except Exception as failed:  # each format has errors of its own
                if shape == needed:
                    raise WrongOutputError(f"it fails on an input of {at([shape])}: {failed}") from failed
                refused.append(shape)
                continue
            difference = _difference(wanted, found)
            if difference <= TOLERANCE:
                equal.append(shape)
                error = max(error, difference)
            else:
                wrong[shape] = difference
        return Agreement(error, tuple(equal), tuple(refused), wrong)

    def _add(self, inputs: Inputs) -> Shapes:
        """Run the network on these inputs, store its outputs for the comparison, and return the shapes of the inputs."""
        shapes = shapes_of(inputs)
        if shapes not in self.wanted:
            self.wanted[shapes] = inputs, run_with_seed(self.network, inputs)
        return shapes

    def _of_batch(self, batch: int) -> Inputs:
        if isinstance(self.example, torch.Tensor):
            return self._input((batch, *self.sample))
        return drawn(of_batch(self.example, batch))

    def _input(self, shape: tuple[int, ...]) -> torch.Tensor:
        generator = torch.Generator().manual_seed(SEED)
        if self.symbols is None:
            return torch.randn(shape, generator=generator)
        return torch.randint(self.symbols, shape, generator=generator)

    def _other(self, change: Callable[[int, int], int]) -> tuple[int, ...]:
        """Return an input shape with other heights and widths of pictures, or another length of a sequence of tokens."""
        first = 0 if self.symbols is not None else 1  # the axis of channels stays
        lengths = [change(length, axis) for axis, length in enumerate(self.sample[first:])]
        if self.symbols is not None:  # shorter only: a language model takes no sequence that is longer than its context
            lengths = [max(1, length - 1) if change is OTHER_SIZES[0] else length // 2 for length in self.sample]
        return (BATCH, *self.sample[:first], *lengths)


def shapes_of(inputs: Inputs) -> Shapes:
    """Return the shape of a network's only input, or the shapes of its several inputs."""
    return tuple(inputs.shape) if isinstance(inputs, torch.Tensor) else tuple(tuple(one.shape) for one in first_inputs(inputs))


def run_with_seed(run: Run, x: Inputs) -> list[torch.Tensor]:
    """Return the tensors of an output, without gradients; random numbers are drawn from one seed."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return list(tensors_in(call(run, x)))


def training_difference(network: nn.Module, written: nn.Module, x: Inputs) -> str:
    """Return in words how the training modes of two networks differ; "" if they do not.

    Copies of both run two forward and backward passes with equal seeds. The comparison covers outputs, norms of gradients, the
    number of parameters with gradients, and the outputs in evaluation mode after that, which depend on running statistics.

    Args:
        network: the trained network.
        written: the network that was read back from the exported file.
        x: a batch of inputs.
    """
    outputs, gradients, counts, states = [], [], [], []
    for each in (network, written):
        copied = copy_of(each)
        try:
            copied.train()
            made = [_step(copied, x, SEED + step) for step in range(2)]
        except Exception as error:  # of the user's code, or of the source generated from it
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return f"{'the network' if each is network else 'what was written'} does not run in training mode: {said}"
        outputs.append([tensor for one in made for tensor in one])
        parameters = [one for one in copied.parameters() if one.requires_grad and one.grad is not None]
        gradients.append(sorted(float(one.grad.double().norm()) for one in parameters))
        counts.append(sum(one.numel() for one in parameters))
        with torch.no_grad():
            states.append(run_with_seed(copied.eval(), x))
    if (found := _difference(*outputs)) > TOLERANCE:
        return f"outputs in training mode differ by {found:.2g} of the largest"
    if counts[0] != counts[1] or len(gradients[0]) != len(gradients[1]):
        return f"{counts[0]} numbers have gradients in the network, and {counts[1]} in what was written"
    if (found := _difference(*([torch.tensor(one)] for one in gradients))) > TOLERANCE:
        return f"gradients differ by {found:.2g} of the largest"
    if (found := _difference(*states)) > TOLERANCE:
        return f"outputs after two steps of training differ by {found:.2g} of the largest"
    return ""


def _step(network: nn.Module, x: Inputs, seed: int) -> list[torch.Tensor]:
    """Run a forward and a backward pass, and return the detached tensors of the output."""
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        found = list(tensors_in(call(network, x)))
        generator = torch.Generator().manual_seed(seed)
        losses = [(tensor * torch.randn(tensor.shape, generator=generator)).sum() for tensor in found if tensor.requires_grad]
        if losses:
            torch.stack(losses).sum().backward()
    return [tensor.detach() for tensor in found]


def _difference(wanted: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> float:
    """Return the largest difference between two lists of tensors as a share of the largest element; inf if shapes differ."""
    if [tensor.shape for tensor in wanted] != [tensor.shape for tensor in outputs]:
        return float("inf")
    largest = 0.0
    for one, other in zip(wanted, outputs, strict=True):
        if not one.numel() or torch.equal(one, other):
            continue
        one, other = one.double(), other.double()
        same = (one == other) | (one.isnan() & other.isnan())
        error = torch.where(same, 0.0, (one - other).abs()).nan_to_num(float("inf")).max()
        scale = one[one.isfinite()].abs().max() if one.isfinite().any() else torch.ones(())
        largest = max(largest, float(error / scale.clamp(min=1e-12)))
    return largest


def at(shapes: Iterable[Shapes]) -> str:
    """Return shapes of inputs in words: "2x3x8x8, 1x3x8x8"; of several inputs "2x3x8x8 and 2x5, 1x3x8x8 and 1x5"."""
    return ", ".join(_in_words(shape) for shape in shapes)


def _in_words(shape: Shapes) -> str:
    if shape and isinstance(shape[0], tuple):
        return " and ".join(map(_in_words, shape))
    return "x".join(map(str, shape))
