"""Checks of compiled code: its output is compared with double precision, element by element.

>>> check = OutputCheck(lambda x: x.relu(), [(torch.randn(4, 8),)])
>>> check.of(lambda x: x.clamp(min=0)).of_allowed
0.0
>>> check.of(lambda x: x.relu() * 1.00001).of_allowed > 1
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from syno.base.errors import SpecError, WrongOutputError
from syno.measure.expected import Deviation, Expected, Inputs, Samples
from syno.measure.reference import Material, to_double
from syno.measure.rounding import (
    MOST_DEVIATIONS,
    SMALLEST,
    SimulatedRounding,
    allowed_by_ratio,
    allowed_by_rounding,
    allowed_by_tolerance,
    largest_error,
    root_mean_square,
    unit_roundoff,
)
from syno.measure.timing import LatencySettings
from syno.model.outputs import tensors_in

LEAST_SAMPLES = 64  # of rounding errors in one run: outputs of fewer numbers get more runs
FIRST_RUNS, MOST_RUNS = 4, 16  # simulated runs for an output of few numbers, and for one that is in doubt
MOST_SAMPLES = 8  # of a batch that are compared


class OutputCheck:
    """Compares outputs of functions with those of a reference in double precision.

    One simulated run says how much rounding changes most outputs, since it has many errors. Where few of them matter, as behind
    a softmax with two large elements, they may all be small by chance; and an input to which a network is more sensitive than
    to others has larger ones. So an output that differs by more than is allowed is compared again, with what many runs for this
    very input say.

    Args:
        reference: the exact function: it takes tensors in double precision (or integers) on the host.
        inputs: for which functions are compared.
        simulated: the same function as operations of PyTorch, in which rounding is simulated; by default the reference.
        unit: the unit roundoff of the functions.
        tolerance: the largest allowed difference as a share of the largest value, instead of what rounding explains.
        fallback: the function in its own precision. With a tolerance, it replaces a reference that cannot be computed in double
            precision; without one, more than a small share of the largest value is allowed only where it errs so much.
        most_samples: of a batch that are compared, from the first to the last one, if the functions compute each sample of a
            batch by itself: the reference of a large batch takes minutes. None: all.
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
        most_samples: int | None = None,
    ) -> None:
        self._reference, self._inputs, self._simulated = reference, tuple(inputs), simulated or reference
        self._unit, self._tolerance, self._fallback = unit, tolerance, fallback
        self._most_samples = most_samples
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
        for number, expected in enumerate(self.expected):
            found, self._expected[number] = self._compare(function(*expected.inputs), expected)
            worst = worst.worse(found)
        return worst

    def of_output(self, output: Any, inputs: Inputs) -> Deviation:
        """Return the deviation of an output for another input, which usually errs by the same share as those for the inputs."""
        return self._compare(output, self._expect(inputs, self.expected))[0]

    def require(self, deviation: Deviation, what: str = "the output") -> Deviation:
        """Return the deviation. Raises WrongOutputError if it is too large; `what` begins the message."""
        if not deviation.of_allowed <= 1:
            raise wrong_output(deviation, self._tolerance, what)
        return deviation

    def _compare(self, output: Any, expected: Expected) -> tuple[Deviation, Expected]:
        """Return the deviation of an output, and what it was compared with: a closer estimate if it was in doubt."""
        found = expected.deviation(output)
        is_in_doubt = not found.of_allowed <= 1 and isfinite(found.relative)
        if self._tolerance is not None or expected.runs >= MOST_RUNS or not is_in_doubt:
            return found, expected
        closer = self._estimate_again(expected)
        return closer.deviation(output), closer

    def _expect(self, inputs: Inputs, known: Sequence[Expected] = ()) -> Expected:
        samples = Samples.among(inputs, self._most_samples)
        in_double = tuple(to_double(value if samples is None else samples.of(value)) for value in inputs)
        try:
            exact = _computed(self._reference, in_double)
            if self._tolerance is None:
                return replace(self._within_rounding(inputs, in_double, exact, known), samples=samples)
        except Exception as error:
            if self._tolerance is None or self._fallback is None:
                raise SpecError(
                    "what is measured cannot be computed in double precision on the CPU, with which its output is compared "
                    f"({type(error).__name__}: {str(error).strip()[:200]}): let its forward take any floating-point type, or "
                    "set a tolerance, and it is compared with itself as PyTorch computes it"
                ) from error
            found = (tensor.detach() for tensor in tensors_in(self._fallback(*inputs)))
            exact = tuple((tensor if samples is None else samples.of(tensor)).cpu().double() for tensor in found)
        allowed = tuple(allowed_by_tolerance(tensor, self._tolerance) for tensor in exact)
        return Expected(inputs, exact, allowed, samples=samples)

    def _within_rounding(
        self, inputs: Inputs, in_double: Inputs, exact: tuple[Tensor, ...], known: Sequence[Expected]
    ) -> Expected:
        if known:
            roundings = tuple(map(max, zip(*(one.roundings or () for one in known), strict=True)))
            by_ratio = (allowed_by_ratio(*each, self._unit) for each in zip(exact, roundings, strict=True))
            return Expected(inputs, exact, tuple(by_ratio), roundings)
        runs = FIRST_RUNS if any(tensor.numel() < LEAST_SAMPLES for tensor in exact) else 1
        return self._estimate(Expected(inputs, exact, ()), in_double, runs)

    def _estimate_again(self, expected: Expected) -> Expected:
        """Return a closer estimate of the allowed differences for the same input.

        It is of `MOST_RUNS` simulated runs, and of one real run in the function's own precision if there is a fallback.
        """
        samples = expected.samples
        chosen = tuple(value if samples is None else samples.of(value) for value in expected.inputs)
        real_errors: list[float] = []
        if self._fallback is not None:
            with torch.no_grad():
                found = [tensor.detach().cpu().double() for tensor in tensors_in(self._fallback(*chosen))]
            if len(found) == len(expected.exact):
                real_errors = [largest_error(one, other) for one, other in zip(found, expected.exact, strict=True)]
        return self._estimate(expected, tuple(map(to_double, chosen)), MOST_RUNS, real_errors)

    def _estimate(self, expected: Expected, in_double: Inputs, runs: int, real_errors: Sequence[float] = ()) -> Expected:
        """Return what is expected by so many simulated runs; `real_errors`: the largest of each tensor in a real run."""
        exact = expected.exact
        squares = [torch.zeros_like(tensor) for tensor in exact]
        for seed in range(runs):
            for total, each in zip(squares, self._squared_errors(in_double, exact, seed), strict=True):
                total.add_(each, alpha=1 / runs)
        real = real_errors or [0.0] * len(exact)
        allowed = tuple(
            allowed_by_rounding(tensor, each, self._unit, MOST_DEVIATIONS * error)
            for tensor, each, error in zip(exact, squares, real, strict=True)
        )
        roundings = tuple(
            float(each.mean().sqrt()) / max(root_mean_square(tensor), SMALLEST) if each.numel() else 0.0
            for tensor, each in zip(exact, squares, strict=True)
        )
        return replace(expected, allowed=allowed, roundings=roundings, runs=runs)

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
        most_samples=MOST_SAMPLES if material.by_sample else None,
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
