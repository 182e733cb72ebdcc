"""Checks of compiled code: its output is compared with double precision, element by element.

>>> check = OutputCheck(lambda x: x.relu(), [(torch.randn(4, 8),)])
>>> check.of(lambda x: x.clamp(min=0)).of_allowed
0.0
>>> check.of(lambda x: x.relu() * 1.00001).of_allowed > 1
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from syno.base.errors import SpecError, WrongOutputError
from syno.measure.reference import Material, to_double
from syno.measure.rounding import (
    SMALLEST,
    SimulatedRounding,
    allowed_by_ratio,
    allowed_by_rounding,
    allowed_by_tolerance,
    root_mean_square,
    unit_roundoff,
)
from syno.measure.timing import LatencySettings

Inputs: TypeAlias = tuple[Any, ...]

LEAST_SAMPLES, MOST_RUNS = 64, 4  # of rounding errors, from which their deviation is estimated


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
class Expected:
    """The expected output for one input.

    Attributes:
        inputs: the input.
        exact: the tensors of the output, in double precision, on the host.
        allowed: for each tensor, by how much elements may differ; of its shape, or one number for all elements.
        roundings: for each tensor, the standard deviation of rounding errors as a share of the root mean square; None with a
            tolerance.
    """

    inputs: Inputs
    exact: tuple[Tensor, ...]
    allowed: tuple[Tensor, ...]
    roundings: tuple[float, ...] | None = None

    def deviation(self, output: Any) -> Deviation:
        """Return by how much an output differs; infinite for other shapes, and where only one of two numbers is finite."""
        found = [tensor.detach().cpu() for tensor in tensors_in(output)]
        rounding = None if self.roundings is None else max(self.roundings, default=None)
        if [tensor.shape for tensor in found] != [tensor.shape for tensor in self.exact] or not found:
            return Deviation(float("inf"), float("inf"), rounding)
        worst = Deviation(0.0, 0.0, rounding)
        for tensor, exact, allowed in zip(found, self.exact, self.allowed, strict=True):
            relative, difference = _difference(tensor, exact)
            of_allowed = relative if difference is None else float(difference.div_(allowed).max())
            worst = worst.worse(Deviation(of_allowed, relative, rounding))
        return worst


class OutputCheck:
    """Compares outputs of functions with those of a reference in double precision.

    Args:
        reference: the exact function: it takes tensors in double precision (or integers) on the host.
        inputs: for which functions are compared.
        simulated: the same function as operations of PyTorch, in which rounding is simulated; by default the reference.
        unit: the unit roundoff of the functions.
        tolerance: the largest allowed difference as a share of the largest value, instead of what rounding explains.
        fallback: with a tolerance, replaces a reference that cannot be computed in double precision.
    """

    def __init__(
        self,
        reference: Callable[..., Any],
        inputs: Sequence[Inputs] = (),
        *,
        simulated: Callable[..., Any] | None = None,
        unit: float = 2.0**-24,
        tolerance: float | None = None,
        fallback: Callable[..., Any] | None = None,
    ) -> None:
        self._reference, self._inputs, self._simulated = reference, tuple(inputs), simulated or reference
        self._unit, self._tolerance, self._fallback = unit, tolerance, fallback
        self._expected: list[Expected] = []

    @property
    def expected(self) -> Sequence[Expected]:
        """The expected output for each of the inputs, computed on first use."""
        if not self._expected:
            self._expected = [self._expect(inputs) for inputs in self._inputs]
        return self._expected

    def of(self, function: Callable[..., Any]) -> Deviation:
        """Return the largest deviation of the function's output, for any of the inputs."""
        worst = Deviation(0.0, 0.0, None)
        for expected in self.expected:
            worst = worst.worse(expected.deviation(function(*expected.inputs)))
        return worst

    def of_output(self, output: Any, inputs: Inputs) -> Deviation:
        """Return the deviation of an output for another input, assuming the same relative rounding errors as for the inputs."""
        return self._expect(inputs, self.expected).deviation(output)

    def require(self, deviation: Deviation, what: str = "the output") -> Deviation:
        """Return the deviation. Raises WrongOutputError if it is too large; `what` begins the message."""
        if not deviation.of_allowed <= 1:
            raise wrong_output(deviation, self._tolerance, what)
        return deviation

    def _expect(self, inputs: Inputs, known: Sequence[Expected] = ()) -> Expected:
        in_double = tuple(map(to_double, inputs))
        try:
            exact = _computed(self._reference, in_double)
            if self._tolerance is None:
                return self._within_rounding(inputs, in_double, exact, known)
        except Exception as error:
            if self._tolerance is None or self._fallback is None:
                raise SpecError(
                    "what is measured cannot be computed in double precision on the CPU, with which its output is compared "
                    f"({type(error).__name__}: {str(error).strip()[:200]}): let its forward take any floating-point type, or "
                    "set a tolerance, and it is compared with itself as PyTorch computes it"
                ) from error
            exact = tuple(tensor.detach().cpu().double() for tensor in tensors_in(self._fallback(*inputs)))
        return Expected(inputs, exact, tuple(allowed_by_tolerance(tensor, self._tolerance) for tensor in exact))

    def _within_rounding(
        self, inputs: Inputs, in_double: Inputs, exact: tuple[Tensor, ...], known: Sequence[Expected]
    ) -> Expected:
        if known:
            roundings = tuple(map(max, zip(*(one.roundings or () for one in known), strict=True)))
            by_ratio = (allowed_by_ratio(*each, self._unit) for each in zip(exact, roundings, strict=True))
            return Expected(inputs, exact, tuple(by_ratio), roundings)
        runs = MOST_RUNS if any(tensor.numel() < LEAST_SAMPLES for tensor in exact) else 1
        errors = [self._squared_errors(in_double, exact, seed) for seed in range(runs)]
        squares = [sum(each) / runs for each in zip(*errors, strict=True)]
        allowed = tuple(allowed_by_rounding(*each, self._unit) for each in zip(exact, squares, strict=True))
        roundings = tuple(
            float(each.mean().sqrt()) / max(root_mean_square(tensor), SMALLEST) if each.numel() else 0.0
            for tensor, each in zip(exact, squares, strict=True)
        )
        return Expected(inputs, exact, allowed, roundings)

    def _squared_errors(self, inputs: Inputs, exact: Sequence[Tensor], seed: int) -> list[Tensor]:
        """Return the squares of the errors by simulated rounding, for each tensor of the output; 0 for infinite numbers."""
        with SimulatedRounding(self._unit, seed):
            outputs = _computed(self._simulated, inputs)
        return [(one - other).nan_to_num_(0.0, 0.0, 0.0).square_() for one, other in zip(outputs, exact, strict=True)]


def check_of(material: Material, settings: LatencySettings, device: str) -> OutputCheck:
    """Return the check of what is compiled from a material for a device of this machine.

    With a tolerance, outputs are compared for an input of the kind that is timed: quantization, which is what tolerances are
    for, is fitted to such values, and not to those that make small faults visible.
    """
    return OutputCheck(
        material.reference,
        material.make_check_inputs() if settings.tolerance is None else [material.make_inputs()],
        simulated=material.simulated,
        unit=unit_roundoff(material.module, tf32=settings.tf32 and device.startswith("cuda")),
        tolerance=settings.tolerance,
        fallback=material.module,
    )


def wrong_output(deviation: Deviation, tolerance: float | None, what: str) -> WrongOutputError:
    """Return the error for an output that differs by more than is allowed; `what` begins its message."""
    if tolerance is not None:
        rule, remedy = f"; at most {tolerance:g} is allowed", "raise the tolerance"
    else:
        rounding = "" if deviation.rounding is None else f"; rounding alone changes it by {deviation.rounding:.2g} or so"
        rule = f", and an element by {deviation.of_allowed:.3g} times what is allowed for it{rounding}"
        remedy = "set a tolerance"
    differs = f"{what} differs from its reference by {deviation.relative:.2g} of the reference's largest value"
    return WrongOutputError(f"{differs}{rule}: mend the compiler's settings, or {remedy} if the error is expected")


def relative_error(output: Any, expected: Any) -> float:
    """Return the largest difference of any two numbers, over the largest value expected in that tensor; infinite for other
    shapes or numbers of tensors, and where only one of the two is a finite number."""
    exact = tuple(tensor.detach().double().cpu() for tensor in tensors_in(expected))
    return Expected((), exact, tuple(allowed_by_tolerance(tensor, 1.0) for tensor in exact)).deviation(output).relative


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in tuples, lists and mappings, in their order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | Sequence) and not isinstance(value, str):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(part)


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


def _computed(function: Callable[..., Any], inputs: Iterable[Any]) -> tuple[Tensor, ...]:
    """Return the function's tensors for copies of the inputs; those that it makes itself are in double precision, too."""
    copies = (value.clone() if isinstance(value, Tensor) else value for value in inputs)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            return tuple(tensor.detach().cpu().double() for tensor in tensors_in(function(*copies)))
    finally:
        torch.set_default_dtype(before)
