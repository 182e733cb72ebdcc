"""The expected output of a function for an input, and the allowed deviation of each element.

An element may differ from its exact value by `MOST_DEVIATIONS` standard deviations of the rounding error that it has, which
grows with the depth of a network and the length of its sums; see `syno.measure.rounding`. `SHARE_OF_UNIT` bounds it in any
case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from syno.base.errors import WrongOutputError

Inputs: TypeAlias = tuple[Any, ...]

MOST_DEVIATIONS = 16.0  # honest compilers stay below 6, small faults are above 200: docs/measured/check.md
SHARE_OF_UNIT = 2.0**14  # no element may differ by more than this many roundoffs of the largest: 1e-3 in float32
MOST_SHARE = 0.1  # of the largest value, however coarse the numbers are
SMALLEST = 1e-37  # what is below may be zero in float32


class Deviation(NamedTuple):
    """By how much an output differs from what is expected.

    Attributes:
        of_allowed: the largest difference of an element, as a share of what is allowed for that element.
        relative: the largest difference, as a share of the largest value.
        rounding: the standard deviation of rounding errors, as a share of the root mean square; None where a tolerance was set.
    """

    of_allowed: float
    relative: float
    rounding: float | None

    def worse(self, other: Deviation) -> Deviation:
        """The largest of each."""
        roundings = [one for one in (self.rounding, other.rounding) if one is not None]
        return Deviation(max(self[0], other[0]), max(self[1], other[1]), max(roundings, default=None))


@dataclass(frozen=True)
class Expected:
    """The expected output for one input.

    Attributes:
        inputs: the input.
        exact: the tensors of the output, in double precision, on the host.
        allowed: for each tensor, by how much elements may differ; of its shape, or one number for all elements.
        roundings: of each, the standard deviation of rounding errors as a share of the root mean square; None where that does
            not matter, because a tolerance is set.
    """

    inputs: Inputs
    exact: tuple[Tensor, ...]
    allowed: tuple[Tensor, ...]
    roundings: tuple[float, ...] | None = None

    def deviation(self, output: Any) -> Deviation:
        """By how much an output differs; infinite for other shapes or numbers of tensors, and where only one of two numbers is
        finite."""
        found = [tensor.detach().cpu() for tensor in tensors_in(output)]
        rounding = None if self.roundings is None else max(self.roundings, default=None)
        worst = Deviation(0.0, 0.0, rounding)
        if [tensor.shape for tensor in found] != [tensor.shape for tensor in self.exact] or not found:
            return Deviation(float("inf"), float("inf"), rounding)
        for tensor, exact, allowed in zip(found, self.exact, self.allowed, strict=True):
            relative, difference = _difference(tensor, exact)
            of_allowed = relative if difference is None else float(difference.div_(allowed).max())
            worst = worst.worse(Deviation(of_allowed, relative, rounding))
        return worst


def allowed_by_tolerance(exact: Tensor, tolerance: float) -> Tensor:
    """A share of the largest value, for all elements."""
    return torch.tensor(max(tolerance * _largest(exact), SMALLEST), dtype=torch.float64)


def allowed_by_rounding(exact: Tensor, squared_errors: Tensor, unit: float) -> Tensor:
    """By how much elements may differ, where simulated rounding made errors of these squares.

    An element's standard deviation is the largest root mean square of the errors along any one of its axes, of all errors, and
    of its own: one error by itself may be small by chance, and errors may be large in a part of the output only.
    """
    variance = squared_errors.clamp(min=float(squared_errors.mean()) if squared_errors.numel() else 0.0)
    for axis in range(squared_errors.dim()):
        variance = torch.maximum(variance, squared_errors.mean(axis, keepdim=True))
    return _bounded(variance.sqrt_().mul_(MOST_DEVIATIONS), exact, unit)


def allowed_by_ratio(exact: Tensor, rounding: float, unit: float) -> Tensor:
    """By how much elements may differ, where rounding errors are this share of the root mean square, or of larger elements."""
    size = exact.abs().nan_to_num_(nan=0.0, posinf=0.0)
    return _bounded(size.clamp_(min=root_mean_square(exact)).mul_(MOST_DEVIATIONS * rounding), exact, unit)


def _bounded(allowed: Tensor, exact: Tensor, unit: float) -> Tensor:
    return allowed.clamp_(max=min(SHARE_OF_UNIT * unit, MOST_SHARE) * _largest(exact)).clamp_(min=SMALLEST)


def _largest(exact: Tensor) -> float:
    return float(exact.abs().nan_to_num_(nan=0.0, posinf=0.0).max()) if exact.numel() else 0.0


def wrong_output(deviation: Deviation, tolerance: float | None, what: str) -> WrongOutputError:
    """The error for an output that differs by more than is allowed; `what` begins its message."""
    differs = f"{what} differs from its reference by {deviation.relative:.2g} of the reference's largest value"
    if tolerance is not None:
        allowed = f"at most {tolerance:g} is allowed: mend the compiler's settings, or raise the tolerance"
        return WrongOutputError(f"{differs}; {allowed} if the error is expected")
    rounding = "" if deviation.rounding is None else f"; rounding alone changes it by {deviation.rounding:.2g} or so"
    return WrongOutputError(
        f"{differs}, and an element by {deviation.of_allowed:.3g} times what is allowed for it{rounding}: mend the compiler's "
        "settings, or set a tolerance if the error is expected"
    )


def relative_error(output: Any, expected: Any) -> float:
    """The largest difference of any two numbers, over the largest value expected in that tensor; infinite for other shapes
    or numbers of tensors, and where only one of the two is no finite number."""
    exact = tuple(tensor.detach().double().cpu() for tensor in tensors_in(expected))
    return Expected((), exact, tuple(allowed_by_tolerance(tensor, 1.0) for tensor in exact)).deviation(output).relative


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in tuples, lists and mappings, in their order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | Sequence) and not isinstance(value, str):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(part)


def _difference(found: Tensor, exact: Tensor) -> tuple[float, Tensor | None]:
    """The largest as a share of the largest value, and that of each element; None where that is of no use."""
    if not exact.numel():
        return 0.0, None
    numbers, finite = found.double(), exact.isfinite()
    all_finite = bool(finite.all())
    if not all_finite:
        same_elsewhere = torch.equal(numbers[~finite].nan_to_num(nan=0.5), exact[~finite].nan_to_num(nan=0.5))
        if not same_elsewhere:
            return float("inf"), None
        if not finite.any():
            return 0.0, None
    difference = (numbers - exact).abs_()
    if not all_finite:
        difference[~finite] = 0.0
    largest = float(difference.max())
    if not largest < float("inf"):
        return float("inf"), None
    return largest / max(float(exact[finite].abs().max() if not all_finite else exact.abs().max()), 1e-30), difference


def root_mean_square(tensor: Tensor) -> float:
    """Return the root mean square of the finite numbers; 0 if there are none."""
    finite = tensor[tensor.isfinite()] if not bool(tensor.isfinite().all()) else tensor
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0
