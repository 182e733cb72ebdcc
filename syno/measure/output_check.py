"""Check of compiled code: each element of its output is compared with a reference in double precision.

>>> check = OutputCheck(lambda x: x.relu(), [(torch.randn(4, 8),)])
>>> check.of(lambda x: x.clamp(min=0)).of_allowed
0.0
>>> check.of(lambda x: x.relu() * 1.00001).of_allowed > 1
True
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from syno.base.errors import SpecError, WrongOutputError
from syno.measure.reference import Material, to_double
from syno.measure.timing import LatencySettings
from syno.model.inputs import copied
from syno.model.outputs import tensors_in

# Expected outputs in double precision, and by how much an output differs from them.


Inputs: TypeAlias = tuple[Any, ...]


class Deviation(NamedTuple):
    """The deviation of an output from its reference.

    Attributes:
        of_allowed: the largest ratio of an element's difference to the difference allowed for that element; wrong if above 1.
        relative: the largest difference as a share of the largest value.
        rounding: the standard deviation of rounding errors as a share of the root mean square; None if a tolerance was set.
    """

    of_allowed: float
    relative: float
    rounding: float | None

    def worse(self, other: Deviation) -> Deviation:
        """Return a deviation with the larger value of each number."""
        roundings = [rounding for rounding in (self.rounding, other.rounding) if rounding is not None]
        return Deviation(max(self[0], other[0]), max(self[1], other[1]), max(roundings, default=None))


@dataclass(frozen=True)
class Samples:
    """A selection of samples of a batch; the batch is the first axis of each tensor.

    Attributes:
        batch: the number of samples in the batch.
        chosen: the indices of the selected samples in the batch.
    """

    batch: int
    chosen: tuple[int, ...]

    @classmethod
    def among(cls, inputs: Inputs, most: int | None) -> Samples | None:
        """Return `most` evenly spaced samples (at least 2) from the first to the last; None if the batch has no more."""
        batch = next((len(tensor) for tensor in tensors_in(inputs) if tensor.dim()), 0)
        if most is None or batch <= most:
            return None
        return cls(batch, tuple(round(place * (batch - 1) / (most - 1)) for place in range(most)))

    def of(self, tensor: Tensor) -> Tensor:
        """Return the selected samples of a tensor."""
        return tensor[list(self.chosen)]


@dataclass(frozen=True)
class Expected:
    """The expected output for one input.

    Attributes:
        inputs: the input.
        exact: the tensors of the output, in double precision, on the host.
        allowed: for each tensor, the allowed difference of each element: of the tensor's shape, or one number for all.
        roundings: for each tensor, the standard deviation of rounding errors as a share of the root mean square; None with a
            tolerance.
        samples: the samples of the batch that `exact` and `allowed` contain; None: all.
        runs: number of simulated runs for this input from which `allowed` was estimated; 0 if it was estimated otherwise.
    """

    inputs: Inputs
    exact: tuple[Tensor, ...]
    allowed: tuple[Tensor, ...]
    roundings: tuple[float, ...] | None = None
    samples: Samples | None = None
    runs: int = 0

    def deviation(self, output: Any) -> Deviation:
        """Return the deviation of an output; infinite if a shape differs, or if only one of two elements is finite."""
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


def _difference(output: Tensor, exact: Tensor) -> tuple[float, Tensor | None]:
    """Return the largest difference as a share of the largest value, and the absolute differences of all elements.

    The differences are None if the tensor is empty or the share is infinite.
    """
    if not exact.numel():
        return 0.0, None
    numbers, finite = output.double(), exact.isfinite()
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


# Estimate of the rounding errors of a network's output, which bound its allowed difference from double precision.
#
# The network runs in double precision, with a random error after each operation:
#
# >>> weights = torch.ones(100, 100, dtype=torch.float64)
# >>> exact = weights @ weights
# >>> with SimulatedRounding(2.0**-24, seed=0):
# ...     rounded = weights @ weights
# >>> 1e-8 < float(((rounded - exact) / exact).abs().max()) < 1e-5
# True
#
# The size of an error depends on the operation. Elementwise operations have an error of the unit roundoff u times the value. A
# sequential sum of K terms has an error of u * (sqrt(K)/3 * |sum| + 0.41 * sqrt(K) * root of the sum of squares): its partial
# sums grow like those of terms of one sign, or like a random walk. Better orders of summation have smaller errors, so that the
# simulated error is rarely too small.
#
# An element may differ from its exact value by `MOST_DEVIATIONS` standard deviations of its rounding error, which grows with
# the depth of a network and the length of its sums, but by at most `SHARE_OF_UNIT` roundoffs of the largest value.
#
# Sources: Parker 1997, Monte Carlo arithmetic; Higham and Mary 2019, a new approach to probabilistic rounding error analysis.


aten = torch.ops.aten

MOST_DEVIATIONS = 16.0  # honest compilers stay below 6, small faults are above 200: docs/measured/check.md
SHARE_OF_UNIT = 2.0**14  # no element may differ by more than this many roundoffs of the largest: 1e-3 in float32
MOST_SHARE = 0.1  # largest allowed difference as a share of the largest value, in any precision
SMALLEST = 1e-37  # values below may be zero in float32

TF32_UNIT = 2.0**-11
DRAWN = 1_000_003  # number of random numbers, which are reused: a prime, so that their period is no multiple of an axis
OF_ONE_SIGN, OF_RANDOM_SIGNS = 1 / 3, sqrt(1 / 6)  # of errors uniform in -u..u: sqrt(1/3) times sqrt(1/3), and times sqrt(1/2)
PRODUCTS = (aten.mm, aten.bmm, aten.addmm, aten.baddbmm, aten.addmv, aten.mv, aten.dot)
POOLINGS = (aten.avg_pool2d, aten.avg_pool3d, aten._adaptive_avg_pool2d, aten._adaptive_avg_pool3d)
NORMALIZATIONS = (aten.native_batch_norm, aten.native_group_norm, aten.native_layer_norm, aten._softmax, aten._log_softmax)


class SimulatedRounding(TorchDispatchMode):  # type: ignore[misc]  # mypy does not look into torch
    """A context that adds random errors to PyTorch's operations in double precision, as if they rounded with this unit
    roundoff.

    Args:
        unit: the unit roundoff, such as 2**-24 for single precision.
        seed: seed of the errors.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return false, for PyTorch: nothing is compiled within, and importing the compiler takes seconds."""
        return False

    def __init__(self, unit: float, seed: int) -> None:
        super().__init__()
        self._unit, self._generator = unit, torch.Generator().manual_seed(seed)
        self._attention = sdpa_kernel(SDPBackend.MATH)  # attention as separate products and softmax, each with errors

    def __enter__(self) -> SimulatedRounding:
        self._attention.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._attention.__exit__(*raised)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the operation, and add errors to its results, except to views of existing tensors."""
        returned = function(*args, **(kwargs or {}))
        results = returned if isinstance(returned, tuple | list) else (returned,)
        for result, about in zip(results, function._schema.returns, strict=False):
            is_new = about.alias_info is None or about.alias_info.is_write
            if is_new and isinstance(result, Tensor) and result.dtype == torch.float64:
                self._err(result, _magnitude(function.overloadpacket, args, result))
        return returned

    def _err(self, result: Tensor, magnitude: Tensor) -> None:
        count = result.numel()
        start = int(torch.randint(DRAWN, (), generator=self._generator))
        errors = _random_errors()
        if start + count > DRAWN:
            errors = errors.repeat(-(-(start + count) // DRAWN))
        errors = errors[start : start + count].view(result.shape)
        if not bool(magnitude.sum().isfinite()):  # infinite values, as in attention masks, have no error
            magnitude = magnitude.nan_to_num(nan=0.0, posinf=0.0)
        result.addcmul_(errors, magnitude, value=self._unit)


@functools.cache
def _random_errors() -> Tensor:
    """Return random numbers of standard deviation 1 that serve as errors; each operation takes them from a random offset."""
    generator = torch.Generator().manual_seed(0)
    return torch.empty(DRAWN, dtype=torch.float64).uniform_(-sqrt(3), sqrt(3), generator=generator)


def _magnitude(operation: Any, args: Sequence[Any], result: Tensor) -> Tensor:
    """Return the standard deviation of the errors of an operation's result, in units of roundoff."""
    size = result.abs()
    if operation is aten.convolution:
        x, weight, _, *options, groups = args
        if options[3]:  # transposed: the kernel's axes are the other way round, and few networks have one
            return size + root_mean_square(result) * sqrt(weight[:, 0].numel())
        ones = torch.ones(groups, *weight.shape[1:], dtype=x.dtype)
        patches = aten.convolution(x.square(), ones, None, *options, groups).clamp_min_(0).sqrt_()
        lengths = weight.flatten(1).norm(dim=1).view(-1, *(1,) * (result.dim() - 2))
        norms = patches.repeat_interleave(weight.shape[0] // groups, dim=1).mul_(lengths)
        return size.mul_(OF_ONE_SIGN * sqrt(weight[0].numel())).add_(norms, alpha=OF_RANDOM_SIGNS)
    if operation in PRODUCTS:
        left, right = args[-2:]
        inner = left.shape[-1]
        right_norm = right.norm(dim=-2, keepdim=True) if right.dim() > 1 else right.norm()
        norms = left.norm(dim=-1, keepdim=right.dim() > 1) * right_norm
        return size.mul_(OF_ONE_SIGN * sqrt(inner)) + OF_RANDOM_SIGNS * norms
    if operation in (aten.sum, aten.mean, *POOLINGS):
        terms = args[0].numel() / max(result.numel(), 1)
        of_squares = operation(args[0].square(), *args[1:]).clamp_min_(0).sqrt_()
        random = sqrt(terms) if operation is aten.sum else 1.0  # a mean is divided by their number
        return size.mul_(1 + OF_ONE_SIGN * sqrt(terms)).add_(of_squares, alpha=OF_RANDOM_SIGNS * random)
    if operation in NORMALIZATIONS:  # sums over an axis that are subtracted from each other
        return size.mul_(1 + OF_ONE_SIGN * sqrt(result.shape[-1])) + root_mean_square(result)
    return size


def unit_roundoff(module: nn.Module, *, tf32: bool = False) -> float:
    """Return the unit roundoff of a module: of the least precise dtype of its parameters and buffers, at least float32's.

    `tf32` says whether products are rounded to 10 bits of mantissa.
    """
    lowest = getattr(torch, least_precise_type(module))
    return max(float(torch.finfo(lowest).eps) / 2, TF32_UNIT if tf32 else 0.0)


def least_precise_type(module: nn.Module) -> str:
    """Return the name of the least precise dtype among float32 and those of a module's parameters and buffers."""
    kinds = {tensor.dtype for tensor in (*module.parameters(), *module.buffers()) if tensor.is_floating_point()}
    return str(max((torch.float32, *kinds), key=lambda kind: float(torch.finfo(kind).eps))).removeprefix("torch.")


def allowed_by_tolerance(exact: Tensor, tolerance: float) -> Tensor:
    """Return the allowed difference by a tolerance: a share of the largest value, one number for all elements."""
    return torch.tensor(max(tolerance * _largest(exact), SMALLEST), dtype=torch.float64)


def allowed_by_rounding(exact: Tensor, squared_errors: Tensor, unit: float, by_real_run: float = 0.0) -> Tensor:
    """Return the allowed difference of each element, estimated from the squared errors of simulated rounding.

    It is bounded by a share of the largest value, or by the error of a real run (`by_real_run`) if that is larger: simulations
    exaggerate if large numbers without rounding errors cancel.

    An element's standard deviation is estimated as the largest of: the root mean square error along any of its axes, the root
    mean square of all errors, and its own error. Its own error alone may be small by chance, and errors may be large in a part
    of the output only.
    """
    variance = squared_errors.clamp(min=float(squared_errors.mean()) if squared_errors.numel() else 0.0)
    for axis in range(squared_errors.dim()):
        variance = torch.maximum(variance, squared_errors.mean(axis, keepdim=True))
    return _bounded(variance.sqrt_().mul_(MOST_DEVIATIONS), exact, unit, by_real_run)


def allowed_by_ratio(exact: Tensor, rounding: float, unit: float) -> Tensor:
    """Return the allowed difference of each element if rounding errors are a share `rounding` of the element's magnitude.

    The magnitude is at least the root mean square of all elements.
    """
    size = exact.abs().nan_to_num_(nan=0.0, posinf=0.0)
    return _bounded(size.clamp_(min=root_mean_square(exact)).mul_(MOST_DEVIATIONS * rounding), exact, unit)


def largest_error(output: Tensor, exact: Tensor) -> float:
    """Return the largest difference of two finite elements; 0 if there are none, or the shapes differ."""
    if output.shape != exact.shape:
        return 0.0
    return _largest((output - exact).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0))


def _bounded(allowed: Tensor, exact: Tensor, unit: float, by_real_run: float = 0.0) -> Tensor:
    largest = _largest(exact)
    most = min(max(SHARE_OF_UNIT * unit * largest, by_real_run), MOST_SHARE * largest)
    return allowed.clamp_(max=most).clamp_(min=SMALLEST)


def _largest(exact: Tensor) -> float:
    return float(exact.abs().nan_to_num_(nan=0.0, posinf=0.0).max()) if exact.numel() else 0.0


def root_mean_square(tensor: Tensor) -> float:
    """Return the root mean square of the finite elements; 0 if there are none."""
    finite = tensor if bool(tensor.isfinite().all()) else tensor[tensor.isfinite()]
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0


LEAST_SAMPLES = 64  # outputs with fewer elements get more simulated runs
FIRST_RUNS, MOST_RUNS = 4, 16  # simulated runs for an output of few numbers, and for one that is in doubt
MOST_SAMPLES = 8  # samples of a batch that are compared


class OutputCheck:
    """Compares outputs of functions with those of a reference in double precision.

    One simulated run estimates the rounding errors of most outputs, since it has many of them. It may underestimate if only few
    errors matter, as behind a softmax with two large elements, or if the network is more sensitive to this input than to
    others. So an output that exceeds the allowed difference is compared again, with an estimate from many runs on this input.

    Args:
        reference: the exact function, of tensors in double precision (or integers) on the host.
        inputs: the inputs for which outputs are compared.
        simulated: the same function as PyTorch operations, for simulated rounding; None: the reference.
        unit: the unit roundoff of the checked functions.
        tolerance: the allowed difference as a share of the largest value, instead of the estimate of rounding errors.
        fallback: the function in its own precision. With a tolerance, it replaces a reference that cannot be computed in double
            precision. Without one, its error in a real run can raise the bound on the allowed differences.
        most_samples: number of evenly spaced samples of a batch that are compared, for functions that compute each sample
            independently, since the reference of a large batch takes minutes. None: all.
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
        """Return the largest deviation of the function's output over all inputs."""
        worst = Deviation(0.0, 0.0, None)
        for number, expected in enumerate(self.expected):
            found, self._expected[number] = self._compare(function(*copied(expected.inputs)), expected)
            worst = worst.worse(found)
        return worst

    def of_output(self, output: Any, inputs: Inputs) -> Deviation:
        """Return the deviation of an output for inputs other than those of the check.

        The rounding errors are first estimated from the check's own inputs.
        """
        return self._compare(output, self._expect(inputs, self.expected))[0]

    def require(self, deviation: Deviation, subject: str = "the output") -> Deviation:
        """Return the deviation. Raises WrongOutputError if it is too large; `subject` begins the message."""
        if not deviation.of_allowed <= 1:
            raise wrong_output(deviation, self._tolerance, subject)
        return deviation

    def _compare(self, output: Any, expected: Expected) -> tuple[Deviation, Expected]:
        """Return the deviation of an output from an expectation, and the expectation: a closer estimate if the first was
        exceeded.
        """
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
            found = (tensor.detach() for tensor in tensors_in(self._fallback(*copied(inputs))))
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
        """Return the expectation for the same input with a closer estimate of the allowed differences.

        It uses `MOST_RUNS` simulated runs, and one real run in the function's own precision if there is a fallback.
        """
        samples = expected.samples
        chosen = tuple(value if samples is None else samples.of(value) for value in expected.inputs)
        real_errors: list[float] = []
        if self._fallback is not None:
            with torch.no_grad():
                found = [tensor.detach().cpu().double() for tensor in tensors_in(self._fallback(*copied(chosen)))]
            if len(found) == len(expected.exact):
                real_errors = [largest_error(one, other) for one, other in zip(found, expected.exact, strict=True)]
        return self._estimate(expected, tuple(map(to_double, chosen)), MOST_RUNS, real_errors)

    def _estimate(self, expected: Expected, in_double: Inputs, runs: int, real_errors: Sequence[float] = ()) -> Expected:
        """Return the expectation estimated from `runs` simulated runs.

        `real_errors` has the largest error of each tensor in a real run, if there was one.
        """
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
        """Return the squared errors of one simulated run for each tensor of the output; 0 for infinite values."""
        with SimulatedRounding(self._unit, seed):
            outputs = _computed(self._simulated, inputs)
        return [(one - other).nan_to_num_(0.0, 0.0, 0.0).square_() for one, other in zip(outputs, exact, strict=True)]


def check_of(material: Material, settings: LatencySettings, device: str) -> OutputCheck:
    """Return the check of code that is compiled from a material for a device of this machine.

    With a tolerance, outputs are compared for a typical input, like those that are timed: tolerances are for quantization,
    which is calibrated to such values, and not to the inputs that make small faults visible.
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


def wrong_output(deviation: Deviation, tolerance: float | None, subject: str) -> WrongOutputError:
    """Return the error for an output that exceeds the allowed difference; `subject` begins its message."""
    if tolerance is not None:
        rule, remedy = f"; at most {tolerance:g} is allowed", "raise the tolerance"
    else:
        rounding = "" if deviation.rounding is None else f"; rounding alone changes it by {deviation.rounding:.2g} or so"
        rule = f", and an element by {deviation.of_allowed:.3g} times what is allowed for it{rounding}"
        remedy = "set a tolerance"
    differs = f"{subject} differs from its reference by {deviation.relative:.2g} of the reference's largest value"
    return WrongOutputError(f"{differs}{rule}: mend the compiler's settings, or {remedy} if the error is expected")


def relative_error(output: Any, expected: Any) -> float:
    """Return the largest difference of two corresponding elements, divided by the largest expected value of their tensor.

    Infinite if shapes or numbers of tensors differ, or if only one of two elements is finite.
    """
    exact = tuple(tensor.detach().double().cpu() for tensor in tensors_in(expected))
    return Expected((), exact, tuple(allowed_by_tolerance(tensor, 1.0) for tensor in exact)).deviation(output).relative


def _computed(function: Callable[..., Any], inputs: Iterable[Any]) -> tuple[Tensor, ...]:
    """Return the tensors of the function's output, computed in double precision, which is also the default dtype meanwhile."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            return tuple(tensor.detach().cpu().double() for tensor in tensors_in(function(*copied(tuple(inputs)))))
    finally:
        torch.set_default_dtype(before)
