"""Whether what a compiler made computes what it has to: its output is compared, element by element, with double precision.

>>> check = OutputCheck(lambda x: x.relu(), [(torch.randn(4, 8),)])
>>> check.of(lambda x: x.clamp(min=0)).of_allowed
0.0
>>> check.of(lambda x: x.relu() * 1.00001).of_allowed > 1
True

An element may differ from its exact value by `MOST_DEVIATIONS` standard deviations of the rounding error that an output of this
network has, which grows with the depth of the network and the length of its sums; see `syno.evaluate.rounding`. Elements that
are larger than the root mean square of their tensor may differ by as much more. `SHARE_OF_UNIT` bounds it in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from syno.errors import SpecError, WrongOutputError
from syno.evaluate.rounding import SimulatedRounding

Inputs: TypeAlias = tuple[Any, ...]

MOST_DEVIATIONS = 8.0  # honest compilers stay below 2; docs/measured/check.md
SHARE_OF_UNIT = 2.0**14  # no element may differ by more than this many roundoffs of the largest: 1e-3 in float32
MOST_SHARE = 0.1  # of the largest value, however coarse the numbers are
LEAST_SAMPLES, MOST_RUNS = 64, 4  # of rounding errors, from which their deviation is estimated
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
        usual = _root_mean_square(size)
        allowed = size.clamp_(min=usual).mul_(MOST_DEVIATIONS * rounding).clamp_(max=most).clamp_(min=SMALLEST)
        return Deviation(float(difference.div_(allowed).max()), relative, rounding)


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
        """What comes out for each of the inputs; computed when it is first asked for."""
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
            if self._tolerance is not None:
                return Expected(inputs, exact, None, self._unit, self._tolerance)
            if known:
                columns = zip(*(one.roundings for one in known if one.roundings is not None), strict=True)
                return Expected(inputs, exact, tuple(map(max, columns)), self._unit, None)
            runs = [self._rounded(in_double, exact, seed=0)]
            if any(tensor.numel() < LEAST_SAMPLES for tensor in exact):
                runs += [self._rounded(in_double, exact, seed=seed) for seed in range(1, MOST_RUNS)]
        except Exception as error:
            if self._tolerance is None or self._fallback is None:
                raise SpecError(
                    "what is measured cannot be computed in double precision on the CPU, with which its output is compared "
                    f"({type(error).__name__}: {str(error).strip()[:200]}): let its forward take any floating-point type, or "
                    "set a tolerance, and it is compared with itself as PyTorch computes it"
                ) from error
            own = tuple(tensor.detach().cpu().double() for tensor in tensors_in(self._fallback(*inputs)))
            return Expected(inputs, own, None, self._unit, self._tolerance)
        of_tensors = zip(exact, zip(*runs, strict=True), strict=True)
        roundings = (
            (sum(error**2 for error in errors) / len(errors)) ** 0.5 / max(_root_mean_square(tensor), SMALLEST)
            for tensor, errors in of_tensors
        )
        return Expected(inputs, exact, tuple(roundings), self._unit, None)

    def _rounded(self, inputs: Inputs, exact: Sequence[Tensor], seed: int) -> list[float]:
        """The root mean squares of the errors that simulated rounding makes, for each tensor of the output."""
        with SimulatedRounding(self._unit, seed):
            outputs = _computed(self._simulated, map(_copied, inputs))
        return [_root_mean_square((one - other).nan_to_num_(nan=0.0)) for one, other in zip(outputs, exact, strict=True)]


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


def _root_mean_square(tensor: Tensor) -> float:
    finite = tensor[tensor.isfinite()] if not bool(tensor.isfinite().all()) else tensor
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0
