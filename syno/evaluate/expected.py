"""What a function has to return for an input, and by how much what it returns may differ.

An element may differ from its exact value by `MOST_DEVIATIONS` standard deviations of the rounding error that an output of this
network has, which grows with the depth of the network and the length of its sums; see `syno.evaluate.rounding`. Elements that
are larger than the root mean square of their tensor may differ by as much more. `SHARE_OF_UNIT` bounds it in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from syno.errors import WrongOutputError

Inputs: TypeAlias = tuple[Any, ...]

MOST_DEVIATIONS = 16.0  # honest compilers stay below 4, small faults are above 100: docs/measured/check.md
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
    """What comes out for an input.

    Attributes:
        inputs: the input.
        exact: the tensors of the output, in double precision, on the host.
        roundings: of each, the relative standard deviation of rounding errors; None where there is a tolerance.
        unit: the unit roundoff.
        tolerance: the largest allowed difference, as a share of the largest value, instead of rounding.
    """

    inputs: Inputs
    exact: tuple[Tensor, ...]
    roundings: tuple[float, ...] | None
    unit: float
    tolerance: float | None

    def deviation(self, output: Any) -> Deviation:
        """By how much an output differs; infinite for other shapes or numbers of tensors, and where only one of two numbers is
        finite."""
        found = [tensor.detach().cpu() for tensor in tensors_in(output)]
        if [tensor.shape for tensor in found] != [tensor.shape for tensor in self.exact] or not found:
            return Deviation(float("inf"), float("inf"), None)
        roundings = self.roundings or (None,) * len(found)
        each = [self._of_tensor(*three) for three in zip(found, self.exact, roundings, strict=True)]
        worst = each[0]
        for deviation in each[1:]:
            worst = worst.worse(deviation)
        return worst

    def _of_tensor(self, found: Tensor, exact: Tensor, rounding: float | None) -> Deviation:
        relative, difference = _difference(found, exact)
        if difference is None:
            return Deviation(relative, relative, rounding)
        if self.tolerance is not None or rounding is None:
            return Deviation(relative / (self.tolerance or MOST_SHARE), relative, None)
        size = exact.abs().nan_to_num_(nan=0.0, posinf=0.0)
        most = min(SHARE_OF_UNIT * self.unit, MOST_SHARE) * float(size.max())
        usual = root_mean_square(size)
        allowed = size.clamp_(min=usual).mul_(MOST_DEVIATIONS * rounding).clamp_(max=most).clamp_(min=SMALLEST)
        return Deviation(float(difference.div_(allowed).max()), relative, rounding)


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
    return Expected((), exact, None, 0.0, 1.0).deviation(output).relative


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
    """Of the finite numbers; 0 where there are none."""
    finite = tensor[tensor.isfinite()] if not bool(tensor.isfinite().all()) else tensor
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0
