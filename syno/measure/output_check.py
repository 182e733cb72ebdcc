"""Checks of compiled code: its output is compared with double precision, element by element.

>>> check = OutputCheck(lambda x: x.relu(), [(torch.randn(4, 8),)])
>>> check.of(lambda x: x.clamp(min=0)).of_allowed
0.0
>>> check.of(lambda x: x.relu() * 1.00001).of_allowed > 1
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from syno.base.errors import SpecError
from syno.measure.expected import (
    SMALLEST,
    Deviation,
    Expected,
    Inputs,
    allowed_by_ratio,
    allowed_by_rounding,
    allowed_by_tolerance,
    root_mean_square,
    tensors_in,
    wrong_output,
)
from syno.measure.rounding import SimulatedRounding, unit_roundoff
from syno.measure.timing import LatencySettings

if TYPE_CHECKING:
    from syno.measure.subjects import Material

LEAST_SAMPLES, MOST_RUNS = 64, 4  # of rounding errors, from which their deviation is estimated


class OutputCheck:
    """Compares what functions return for given inputs with what they have to return.

    Args:
        reference: the exact function: it takes tensors in double precision (or integers) on the host.
        inputs: for which functions are compared.
        simulated: the same function as operations of PyTorch, which rounding is simulated in; by default the reference.
        unit: the unit roundoff of the functions.
        tolerance: the largest allowed difference as a share of the largest value, instead of what rounding explains.
        fallback: with a tolerance, stands for a reference that cannot be computed in double precision.
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
        """The largest deviation of the function from what is expected, for any of the inputs."""
        worst = Deviation(0.0, 0.0, None)
        for expected in self.expected:
            worst = worst.worse(expected.deviation(function(*expected.inputs)))
        return worst

    def of_output(self, output: Any, inputs: Inputs) -> Deviation:
        """The deviation of an output for another input, whose rounding errors are taken to be those of the inputs."""
        return self._expect(inputs, self.expected).deviation(output)

    def require(self, deviation: Deviation, what: str = "the output") -> Deviation:
        """The deviation. WrongOutputError if it is too large; `what` begins the message."""
        if not deviation.of_allowed <= 1:
            raise wrong_output(deviation, self._tolerance, what)
        return deviation

    def _expect(self, inputs: Inputs, known: Sequence[Expected] = ()) -> Expected:
        in_double = tuple(map(_in_double, inputs))
        try:
            exact = _computed(self._reference, map(_copied, in_double))
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
            columns = zip(*(one.roundings for one in known if one.roundings is not None), strict=True)
            roundings = tuple(map(max, columns))
            by_ratio = (allowed_by_ratio(*each, self._unit) for each in zip(exact, roundings, strict=True))
            return Expected(inputs, exact, tuple(by_ratio), roundings)
        squares = self._squared_errors(in_double, exact, seed=0)
        if any(tensor.numel() < LEAST_SAMPLES for tensor in exact):
            for seed in range(1, MOST_RUNS):
                for total, more in zip(squares, self._squared_errors(in_double, exact, seed), strict=True):
                    total += more
            squares = [total.div_(MOST_RUNS) for total in squares]
        allowed = tuple(allowed_by_rounding(*each, self._unit) for each in zip(exact, squares, strict=True))
        roundings = tuple(
            float(each.mean().sqrt()) / max(root_mean_square(tensor), SMALLEST) if each.numel() else 0.0
            for tensor, each in zip(exact, squares, strict=True)
        )
        return Expected(inputs, exact, allowed, roundings)

    def _squared_errors(self, inputs: Inputs, exact: Sequence[Tensor], seed: int) -> list[Tensor]:
        """The squares of the errors that simulated rounding makes, for each tensor of the output; 0 for infinite numbers."""
        with SimulatedRounding(self._unit, seed):
            outputs = _computed(self._simulated, map(_copied, inputs))
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


def _computed(function: Callable[..., Any], inputs: Iterable[Any]) -> tuple[Tensor, ...]:
    """The tensors that it returns, in double precision on the host. What it makes itself is in double precision, too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            return tuple(tensor.detach().cpu().double() for tensor in tensors_in(function(*inputs)))
    finally:
        torch.set_default_dtype(before)


def _in_double(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.detach().cpu().double() if value.is_floating_point() else value.detach().cpu()


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
