"""A trained network and what was written of it, compared: at several batches and sizes, and in training mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from syno.base.errors import WrongOutputError
from syno.model.outputs import copy_of, tensors_in

Run = Callable[[torch.Tensor], Any]

TOLERANCE = 1e-4  # of outputs and gradients, as a share of the largest
SEED = 0  # of inputs, and of what is random in a network
BATCH = 2  # samples of the example: exporters like to take a length of 1 for a constant
BATCHES = (1, 3)  # others that are compared
MOST = 5  # shapes that are compared: the batches, and two other sizes
# Of the lengths of a sample: odd ones show what is rounded, different ones what takes one axis for another.
OTHER_SIZES = (
    lambda length, axis: length + 1 + 2 * axis,
    lambda length, axis: length * 3 // 2,
    lambda length, axis: 2 * length,
)


@dataclass(frozen=True)
class Agreement:
    """Where what was written computes what the trained network does.

    Attributes:
        error: the largest difference of outputs, as a share of the largest output.
        equal: shapes of inputs at which it computes the same.
        refused: those at which it raises an error, where the trained network does not.
        wrong: those at which it computes something else, each with the difference.
    """

    error: float
    equal: tuple[tuple[int, ...], ...]
    refused: tuple[tuple[int, ...], ...]
    wrong: dict[tuple[int, ...], float]


@dataclass(frozen=True)
class Calls:
    """How a network will be called, for formats that are made for that: the samples of a batch, and CPU threads."""

    batch: int = 1
    threads: int = 1


ONE = Calls()


class Comparison:
    """Inputs of several shapes, and what a trained network makes of them in evaluation mode.

    Args:
        network: in evaluation mode.
        example: a batch of its input.
        symbols: number of tokens that it knows; None if it takes numbers.
        calls: how it will be called.
    """

    def __init__(self, network: nn.Module, example: torch.Tensor, symbols: int | None, calls: Calls = ONE) -> None:
        self.network, self.sample, self.symbols, self.calls = network, tuple(example.shape[1:]), symbols, calls
        self.wanted: dict[tuple[int, ...], tuple[torch.Tensor, list[torch.Tensor]]] = {}
        self._add((BATCH, *self.sample))
        for shape in [(batch, *self.sample) for batch in BATCHES] + [self._other(change) for change in OTHER_SIZES]:
            if len(self.wanted) < MOST:
                self.compare_at(shape)

    @property
    def inputs(self) -> torch.Tensor:
        """A batch of the shape that the network was trained with."""
        return self.wanted[(BATCH, *self.sample)][0]

    def compare_at(self, shape: tuple[int, ...]) -> None:
        """Compare inputs of this shape, too, if the network takes them."""
        if shape not in self.wanted:
            with suppress(Exception):  # it is the user's code
                self._add(shape)

    def of_batch(self, batch: int) -> torch.Tensor:
        """Return a batch of so many samples, which is compared, too."""
        shape = (batch, *self.sample)
        if shape not in self.wanted:
            self._add(shape)
        return self.wanted[shape][0]

    @property
    def batch_of_3(self) -> torch.Tensor:
        """An odd batch of that shape."""
        return self._input((BATCHES[-1], *self.sample))

    def agreement(self, run: Run, batch: int | None = None) -> Agreement:
        """Return the shapes of inputs for which `run` gives the outputs of the network, and those for which it does not.

        Args:
            run: what was written, read again.
            batch: the only batch that it takes, which is compared in place of the usual one; None: it takes several.

        Raises WrongOutputError if it does not run on an input as the network was trained with.
        """
        error, equal, refused, wrong = 0.0, list[tuple[int, ...]](), list[tuple[int, ...]](), dict[tuple[int, ...], float]()
        for shape, (x, wanted) in self.wanted.items():
            try:
                found = run_with_seed(run, x)
            except Exception as failed:  # each format has errors of its own
                if shape == (BATCH if batch is None else batch, *self.sample):
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

    def _add(self, shape: tuple[int, ...]) -> None:
        x = self._input(shape)
        self.wanted[shape] = x, run_with_seed(self.network, x)

    def _input(self, shape: tuple[int, ...]) -> torch.Tensor:
        generator = torch.Generator().manual_seed(SEED)
        if self.symbols is None:
            return torch.randn(shape, generator=generator)
        return torch.randint(self.symbols, shape, generator=generator)

    def _other(self, change: Callable[[int, int], int]) -> tuple[int, ...]:
        """Return another shape: other heights and widths of pictures, another length of a sequence of tokens."""
        first = 0 if self.symbols is not None else 1  # the axis of channels stays
        lengths = [change(length, axis) for axis, length in enumerate(self.sample[first:])]
        if self.symbols is not None:  # longer than the context is more than a network of tokens takes
            lengths = [max(1, length - 1) if change is OTHER_SIZES[0] else length // 2 for length in self.sample]
        return (BATCH, *self.sample[:first], *lengths)


def run_with_seed(run: Run, x: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensors of an output, without gradients, with what is random drawn from one seed."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return list(tensors_in(run(x.clone())))


def training_difference(network: nn.Module, written: nn.Module, x: torch.Tensor) -> str:
    """Return in words how the training modes of two networks differ; "" if they do not.

    Copies of both take a batch forward and backward two times with equal seeds. Outputs, gradients, the parameters that have
    them, and the running statistics are compared.

    Args:
        network: the trained one.
        written: what was written of it, read again.
        x: a batch.
    """
    outputs, gradients, counts, states = [], [], [], []
    for each in (network, written):
        copied = copy_of(each)
        try:
            copied.train()
            made = [_step(copied, x, SEED + step) for step in range(2)]
        except Exception as error:  # the user's code, or what was written of it
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


def _step(network: nn.Module, x: torch.Tensor, seed: int) -> list[torch.Tensor]:
    """Run forward and backward, and return the tensors of the output."""
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        found = list(tensors_in(network(x.clone())))
        generator = torch.Generator().manual_seed(seed)
        losses = [(tensor * torch.randn(tensor.shape, generator=generator)).sum() for tensor in found if tensor.requires_grad]
        if losses:
            torch.stack(losses).sum().backward()
    return [tensor.detach() for tensor in found]


def _difference(wanted: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> float:
    """Return the largest difference, as a share of the largest element of each tensor; infinity if shapes differ."""
    if [tensor.shape for tensor in wanted] != [tensor.shape for tensor in found]:
        return float("inf")
    largest = 0.0
    for one, other in zip(wanted, found, strict=True):
        if not one.numel() or torch.equal(one, other):
            continue
        one, other = one.double(), other.double()
        same = (one == other) | (one.isnan() & other.isnan())
        error = torch.where(same, 0.0, (one - other).abs()).nan_to_num(float("inf")).max()
        scale = one[one.isfinite()].abs().max() if one.isfinite().any() else torch.ones(())
        largest = max(largest, float(error / scale.clamp(min=1e-12)))
    return largest


def at(shapes: Iterable[Sequence[int]]) -> str:
    """Return shapes of inputs in words."""
    return ", ".join("x".join(map(str, shape)) for shape in shapes)
