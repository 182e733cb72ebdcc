"""Expected outputs in double precision, and by how much an output differs from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from syno.model.outputs import tensors_in

Inputs: TypeAlias = tuple[Any, ...]


class Deviation(NamedTuple):
    """By how much an output differs from its reference.

    Attributes:
        of_allowed: the largest difference of an element, as a share of what is allowed for that element.
        relative: the largest difference, as a share of the largest value.
        rounding: the standard deviation of rounding errors, as a share of the root mean square; None where a tolerance was set.
    """

    of_allowed: float
    relative: float
    rounding: float | None

    def worse(self, other: Deviation) -> Deviation:
        """Return the larger of each of the numbers."""
        roundings = [one for one in (self.rounding, other.rounding) if one is not None]
        return Deviation(max(self[0], other[0]), max(self[1], other[1]), max(roundings, default=None))


@dataclass(frozen=True)
class Samples:
    """Some samples of a batch, which is the first axis of each tensor."""

    batch: int
    chosen: tuple[int, ...]

    @classmethod
    def among(cls, inputs: Inputs, most: int | None) -> Samples | None:
        """Return `most` samples of the inputs (2 or more), evenly from the first to the last; None if there are no more."""
        batch = next((len(tensor) for tensor in tensors_in(inputs) if tensor.dim()), 0)
        if most is None or batch <= most:
            return None
        return cls(batch, tuple(round(place * (batch - 1) / (most - 1)) for place in range(most)))

    def of(self, tensor: Tensor) -> Tensor:
        """Return these samples of a tensor."""
        return tensor[list(self.chosen)]


@dataclass(frozen=True)
class Expected:
    """The expected output for one input.

    Attributes:
        inputs: the input.
        exact: the tensors of the output, in double precision, on the host.
        allowed: for each tensor, by how much elements may differ; of its shape, or one number for all elements.
        roundings: for each tensor, the standard deviation of rounding errors as a share of the root mean square; None with a
            tolerance.
        samples: the samples of the batch that `exact` and `allowed` have; None: all.
        runs: simulated runs for this input, by which `allowed` was estimated; 0 if it was estimated otherwise.
    """

    inputs: Inputs
    exact: tuple[Tensor, ...]
    allowed: tuple[Tensor, ...]
    roundings: tuple[float, ...] | None = None
    samples: Samples | None = None
    runs: int = 0

    def deviation(self, output: Any) -> Deviation:
        """Return by how much an output differs; infinite for other shapes, and where only one of two numbers is finite."""
        outputs = [tensor.detach() for tensor in tensors_in(output)]
        if self.samples is not None:
            if any(tensor.shape[:1] != (self.samples.batch,) for tensor in outputs):
                return Deviation(float("inf"), float("inf"), None)
            outputs = [self.samples.of(tensor) for tensor in outputs]
        found = [tensor.cpu() for tensor in outputs]
        rounding = None if self.roundings is None else max(self.roundings, default=None)
        if [tensor.shape for tensor in found] != [tensor.shape for tensor in self.exact] or not found:
            return Deviation(float("inf"), float("inf"), rounding)
        worst = Deviation(0.0, 0.0, rounding)
        for tensor, exact, allowed in zip(found, self.exact, self.allowed, strict=True):
            relative, difference = _difference(tensor, exact)
            of_allowed = relative if difference is None else float(difference.div_(allowed).max())
            worst = worst.worse(Deviation(of_allowed, relative, rounding))
        return worst


def _difference(found: Tensor, exact: Tensor) -> tuple[float, Tensor | None]:
    """Return the largest difference as a share of the largest value, and that of each element; None if there is no use."""
    if not exact.numel():
        return 0.0, None
    numbers, finite = found.double(), exact.isfinite()
    if not torch.equal(numbers[~finite].nan_to_num(nan=0.5), exact[~finite].nan_to_num(nan=0.5)):
        return float("inf"), None
    if not finite.any():
        return 0.0, None
    difference = (numbers - exact).abs_()
    difference[~finite] = 0.0
    largest = float(difference.max())
    if not largest < float("inf"):
        return float("inf"), None
    return largest / max(float(exact[finite].abs().max()), 1e-30), difference
