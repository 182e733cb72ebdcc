"""Predictions of the speedup of a network by an operator, learnt from measurements on the way.

predictor = SpeedupPredictor().fit(speedups.records())
if predictor.may_meet(operator, 1.5):
    record = speedups.of(operator)  # measure it
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from syno.base.errors import LoweringError, SpecError, SynoError
from syno.base.interval import Interval
from syno.ir.graph import PGraph
from syno.measure.native.kernels import Request, expected_nests
from syno.measure.network_subject import BackboneSubject
from syno.measure.speedup_record import Conditions, SpeedupRecord
from syno.model.baselines import read_replacement
from syno.model.module import build

# The kernels that an operator runs in a layer, found without running them.
#
# The operator's module is called on tensors that have a shape and no data. Whatever forms the generator chooses, the calls
# that reach PyTorch's dispatcher then are the ones that are carried out: convolutions, products of matrices, copies, and
# element-wise work.
#
# With the compiler "native", an operator is one function. Its parts are nests of loops, and the cost model that ranks their
# schedules says how many cycles each takes.


class Kind(StrEnum):
    """A kind of kernel."""

    CONVOLUTION = "convolution"
    PRODUCT = "product"
    COPY = "copy"
    ELEMENTWISE = "elementwise"
    READER = "reader"
    NEST = "nest"


@dataclass(frozen=True)
class Kernel:
    """A kernel on tensors of given shapes.

    Attributes:
        kind: see `Kind`; whatever is no convolution, product of matrices or copy counts as element-wise.
        of_weights: whether it works on weights alone, so that a compiler can compute it once.
        flops: multiply-adds of a convolution or product; else the elements that are read or written, whichever are more.
        read: elements of its tensors.
        written: elements of its result.
        groups: of a convolution, or matrices of a product.
        channels: how many elements each element of the result sums, without the taps of a convolution.
        outputs: output channels of a group; rows of a weight or columns of a product.
        taps: positions of a convolution's window.
        positions: how often a group's weight is used: batch times positions; the other side of a product.
        run: elements that lie side by side both in what is read and in the result; small if a copy changes the order of axes.
            Of a convolution, how many channels lie side by side in what is read.
        gap: distance in what is read between neighbours in the result, in elements; 0 if one element is repeated.
        spread: distance in the result between neighbours in what is read.
        row_read, row_written: length of the axis along which elements lie side by side in what is read, and in the result.
        cycles: of a nest, by the cost model.
        share: of the work of a nest that counts; the rest is done in idle lanes, or twice.
    """

    kind: Kind
    of_weights: bool
    flops: int
    read: int
    written: int
    groups: int = 1
    channels: int = 1
    outputs: int = 1
    taps: int = 1
    positions: int = 1
    run: int = 1
    gap: int = 1
    spread: int = 1
    row_read: int = 1
    row_written: int = 1
    cycles: float = 0.0
    share: float = 1.0


def kernels(operator: PGraph, values: Mapping[str, int]) -> tuple[Kernel, ...]:
    """Return the kernels that an operator runs in a layer, in order.

    Args:
        operator: the operator.
        values: of its variables in the layer, with the batch.

    Raises:
        ValuationError, SizeError: a value is missing or does not divide.
        LoweringError: the operator cannot be lowered.
    """
    valuation = operator.valuation(values)
    free = operator.unchanged_variables & {"N"}
    sizes = {name: value for name, value in valuation.items() if name not in free}
    with _WithoutInitialization():
        module = build(operator, sizes, device="meta").eval()
    data = torch.empty([valuation.integer(dim.size) for dim in operator.input], device="meta")
    with torch.no_grad(), _Trace(data) as trace:
        made = module(data)
    return (*trace.kernels, _reader(made))


def native_kernels(operator: PGraph, values: Mapping[str, int], threads: int = 1) -> tuple[Kernel, ...]:
    """Return the nests of an operator's native kernel in a layer, in order. Nothing is compiled.

    Args:
        operator: the operator.
        values: of its variables in the layer, with the batch.
        threads: how many it runs on.

    Raises:
        ValuationError, SizeError: a value is missing or does not divide.
        LoweringError: the operator has no native kernel.
    """
    return tuple(
        Kernel(
            Kind.NEST, False, nest.flops, nest.read, nest.written, channels=nest.summands, cycles=nest.cycles, share=nest.share
        )
        for nest in expected_nests(Request(str(operator), tuple(values.items()), threads=threads))
    )


def _reader(made: torch.Tensor) -> Kernel:
    """Return the kernel that reads an operator's output, such as a normalization: its time depends on how the output lies."""
    plain = torch.empty(made.shape, device="meta")
    size = made.numel()
    return Kernel(Kind.READER, False, size, size, size, **_order(made, plain))


class _WithoutInitialization(TorchFunctionMode):  # type: ignore[misc]  # mypy does not look into torch
    """Leaves weights as they are: a fifth of the time otherwise, for numbers that tensors without data do not hold."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if getattr(function, "__module__", None) == "torch.nn.init":
            return given.get("tensor", args[0] if args else None)
        return function(*args, **given)


class _Trace(TorchDispatchMode):  # type: ignore[misc]
    """Notes the kernels of the calls in its block."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return false, for PyTorch: nothing is compiled within, and importing the compiler takes seconds."""
        return False

    def __init__(self, data: torch.Tensor) -> None:
        super().__init__()
        self.kernels: list[Kernel] = []
        self._data: list[torch.Tensor] = [data]  # whatever depends on the data; held, so that no two have the same id
        self._ids = {id(data)}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        given = list(_tensors(args))
        of_weights = not any(id(one) in self._ids for one in given)
        results = list(_tensors((made,)))
        if not of_weights:
            self._data += results
            self._ids.update(map(id, results))
        if results and given and not _is_view(function, given, results[0]):
            self.kernels.append(_kernel(str(function.overloadpacket), args, given, results[0], of_weights))
        return made


def _tensors(values: Any) -> Any:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _is_view(function: Any, given: list[torch.Tensor], result: torch.Tensor) -> bool:
    """Return whether a call returns a view of its argument: it then moves no element."""
    own = result.untyped_storage()._cdata
    return not function._schema.is_mutable and any(one.untyped_storage()._cdata == own for one in given)


def _kernel(name: str, args: Any, given: list[torch.Tensor], result: torch.Tensor, of_weights: bool) -> Kernel:
    read, written = sum(_elements(one) for one in given), result.numel()
    if name == "aten.convolution":
        weight, groups = given[1], int(args[8])
        outputs, channels, taps = weight.shape[0] // groups, weight.shape[1], math.prod(weight.shape[2:])
        return Kernel(
            Kind.CONVOLUTION, of_weights, written * channels * taps, read, written, groups, channels, outputs, taps,
            written // max(outputs * groups, 1), given[0].shape[1] if given[0].stride(1) == 1 else 1,
        )  # fmt: skip
    if name in ("aten.bmm", "aten.mm"):
        matrices = result.shape[0] if result.dim() == 3 else 1
        rows, columns = result.shape[-2:]
        inner = given[0].shape[-1]
        return Kernel(
            Kind.PRODUCT, of_weights, written * inner, read, written, matrices, inner, min(rows, columns), 1, max(rows, columns)
        )
    kind = Kind.COPY if len(given) == 1 and read == written else Kind.ELEMENTWISE
    largest = max(given, key=_elements)
    return Kernel(kind, of_weights, max(read, written), read, written, **_order(largest, result))


def _elements(one: torch.Tensor) -> int:
    """Return the number of different elements; those along an expanded axis are one."""
    return math.prod(length for length, stride in zip(one.shape, one.stride(), strict=True) if stride)


def _run(read: torch.Tensor, result: torch.Tensor) -> int:
    """Return the number of elements that lie side by side in both tensors."""
    if read.shape != result.shape:
        return 1
    run = 1
    axes = sorted(range(result.dim()), key=lambda axis: result.stride(axis))
    for axis in axes:
        if result.shape[axis] == 1:
            continue
        if result.stride(axis) != run or read.stride(axis) != run:
            break
        run *= result.shape[axis]
    return run


def _order(read: torch.Tensor, result: torch.Tensor) -> dict[str, int]:
    """Return the difference between the orders of axes of two tensors."""
    gap, row_written = _neighbours(result, read)
    spread, row_read = _neighbours(read, result)
    return {"run": _run(read, result), "gap": gap, "spread": spread, "row_read": row_read, "row_written": row_written}


def _neighbours(one: torch.Tensor, other: torch.Tensor) -> tuple[int, int]:
    """Return the distance in the other tensor of neighbours in one, and the length of the axis on which they lie."""
    if one.dim() != other.dim():
        return 1, 1
    axes = [axis for axis in range(one.dim()) if one.shape[axis] > 1 and one.stride(axis)]
    fastest = min(axes, key=one.stride, default=None)
    return (1, 1) if fastest is None else (int(other.stride(fastest)), one.shape[fastest])


# Kernels as rows of numbers, and an estimate of their time.
#
# Both describe a kernel by what it does, not by the operator or the network in which it occurs. So a model learns from all
# kernels of all operators that were measured.


Numbers = NDArray[np.float64]

# A nominal CPU core. Only ratios matter, and only until measurements tell more: models learn factors of these estimates.
CALL_MS, FLOPS_PER_MS, BYTES_PER_MS, CYCLES_PER_MS = 0.003, 4e7, 8e6, 2.5e6
FLOAT_BYTES = 4
READER_SHARE = 0.3  # of the time of a reader that depends on how the tensor lies; the rest every operator's output costs

DENSE = (Kind.CONVOLUTION, Kind.PRODUCT)
OF_PYTORCH = tuple(kind for kind in Kind if kind is not Kind.NEST)
MOST_RUN, MOST_GAP = 5.0, 12.0  # logarithms; beyond a cache line and a page it makes no difference

# The columns: how far apart two kernels are that differ by 1 in it. Sizes are logarithms to base 2.
COLUMNS: Mapping[str, tuple[float, Callable[[Kernel], float]]] = {
    **{kind.value: (4.0, lambda kernel, kind=kind: kernel.kind is kind) for kind in Kind},  # type: ignore[misc]
    "grouped": (3.0, lambda kernel: kernel.kind in DENSE and kernel.groups > 1),
    "depthwise": (3.0, lambda kernel: kernel.kind is Kind.CONVOLUTION and kernel.groups > 1 and kernel.channels == 1),
    "of weights": (4.0, lambda kernel: kernel.of_weights),
    "groups": (1.0, lambda kernel: math.log2(kernel.groups)),
    "channels per group": (2.0, lambda kernel: math.log2(kernel.channels)),
    "outputs per group": (2.0, lambda kernel: math.log2(max(kernel.outputs, 1))),
    "taps": (2.0, lambda kernel: math.log2(kernel.taps)),
    "positions": (0.5, lambda kernel: math.log2(max(kernel.positions, 1))),
    "run": (1.0, lambda kernel: min(math.log2(kernel.run), MOST_RUN)),
    "gap": (0.5, lambda kernel: min(math.log2(max(kernel.gap, 0.5)), MOST_GAP)),
    "spread": (0.5, lambda kernel: min(math.log2(max(kernel.spread, 0.5)), MOST_GAP)),
    "row read": (2.0, lambda kernel: min(math.log2(kernel.row_read), MOST_RUN)),
    "row written": (2.0, lambda kernel: min(math.log2(kernel.row_written), MOST_RUN)),
    "read": (0.5, lambda kernel: math.log2(max(kernel.read, 1))),
    "written": (0.5, lambda kernel: math.log2(max(kernel.written, 1))),
    "cycles of a product": (2.0, lambda kernel: math.log2(max(kernel.cycles / max(kernel.flops, 1), 2**-6)) + 6),
    "share": (1.0, lambda kernel: math.log2(kernel.share)),
}


@dataclass(frozen=True)
class Description:
    """The kernels of an operator in a network.

    Attributes:
        rows: shape [kernels, columns]; distances between rows say how unlike kernels are.
        weights: shape [kernels]: the estimated milliseconds of each kernel in all layers together.
        kinds: shape [kernels].

    """

    rows: Numbers
    weights: Numbers
    kinds: tuple[Kind, ...]


def describe(layers: Sequence[tuple[int, Sequence[Kernel]]]) -> Description:
    """Return the description of an operator from its kernels in each distinct layer, with the number of such layers."""
    counts: dict[Kernel, int] = {}
    for count, kernels in layers:
        for kernel in kernels:
            counts[kernel] = counts.get(kernel, 0) + count
    rows = np.array([row(kernel) for kernel in counts]).reshape(len(counts), len(COLUMNS))
    weights = np.array([count * estimated_ms(kernel) for kernel, count in counts.items()])
    return Description(rows, weights, tuple(kernel.kind for kernel in counts))


def row(kernel: Kernel) -> list[float]:
    """Return the numbers of a kernel, one for each of `COLUMNS`."""
    return [scale * float(number(kernel)) for scale, number in COLUMNS.values()]


def estimated_ms(kernel: Kernel) -> float:
    """Return the time of a kernel on a nominal core: its arithmetic, its traffic, and the call."""
    moved = (kernel.read + kernel.written) * FLOAT_BYTES / BYTES_PER_MS
    if kernel.kind is Kind.READER:
        return READER_SHARE * moved
    if kernel.kind is Kind.NEST:
        return kernel.cycles / CYCLES_PER_MS
    return CALL_MS + moved + (kernel.flops / FLOPS_PER_MS if kernel.kind in DENSE else 0.0)


# An operator's kernels in a network as one row of numbers by name, for models that take rows, and for tables.


MILLION = 1e6
FEW = 8  # elements side by side, below which a copy cannot move whole vectors


def features(operator: PGraph, layers: Sequence[Mapping[str, int]]) -> Mapping[str, float]:
    """Return sums over the kernels that an operator runs in all layers, without those on weights alone.

    In millions: FLOPs of convolutions (plain, with a window of 1, grouped, depthwise) and products of matrices; elements that
    convolutions, products, copies and element-wise kernels move. Copies that change the order of axes count again as scattered.
    Also the numbers of kernels of each kind.

    Args:
        operator: the operator.
        layers: the sizes of each layer, with the batch.

    Raises:
        ValuationError, SizeError, LoweringError: the operator does not fit a layer.
    """
    found = dict.fromkeys(NAMES, 0.0)
    for layer in layers:
        values = {name: value for name, value in layer.items() if name in operator.variables}
        for kernel in kernels(operator, values):
            if not kernel.of_weights:
                for name, number in _parts(kernel):
                    found[name] += number
    return found


def _parts(kernel: Kernel) -> list[tuple[str, float]]:
    moved = (kernel.read + kernel.written) / MILLION
    parts = [(f"{kernel.kind}s", 1.0), (f"moved by {kernel.kind}s", moved)]
    if kernel.kind in DENSE:
        parts.append((_flops(kernel), kernel.flops / MILLION))
    elif kernel.run < FEW:
        parts.append((f"scattered by {kernel.kind}s", moved))
    return parts


def _flops(kernel: Kernel) -> str:
    if kernel.kind is Kind.PRODUCT:
        return "FLOPs of products"
    if kernel.groups > 1:
        return "FLOPs of depthwise convolutions" if kernel.channels == 1 else "FLOPs of grouped convolutions"
    return "FLOPs of convolutions" if kernel.taps > 1 else "FLOPs of 1x1 convolutions"


NAMES = (
    *("FLOPs of convolutions", "FLOPs of 1x1 convolutions", "FLOPs of grouped convolutions", "FLOPs of depthwise convolutions"),
    "FLOPs of products",
    *(f"{kind}s" for kind in OF_PYTORCH),
    *(f"moved by {kind}s" for kind in OF_PYTORCH),
    *(f"scattered by {kind}s" for kind in OF_PYTORCH if kind not in DENSE),
)


# The model of the time of networks: a sum over the kernels of an operator, each with a factor that is learnt.
#
#     time / time of the original = rest + sum over kernels of (estimate of the kernel * factor(kernel))
#
# The factor is a Gaussian process over descriptions of kernels, so similar kernels have similar factors, and a kernel that is
# like none seen before has an uncertain one. A sum of values of such a process is Gaussian, too. So the factors are learnt
# from the times of whole networks, by linear algebra, and a few measurements tell about operators that combine the same
# kernels otherwise.
#
# The process is approximated by its values at some of the kernels seen (subset of regressors). What that leaves out is added
# to the variance (as in FITC).
#
# Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapters 2, 5 and 8; additive kernels over
# parts.


MOST_CENTRES = 200
# Among these, the marginal likelihood chooses.
LENGTHS = (4.0, 6.0)  # distance at which kernels are about half alike
DEVIATIONS = (1.0, 2.0)  # of the factors between unlike kernels
NOISES = (0.06, 0.1, 0.15, 0.2, 0.25)  # relative, of what the model cannot explain
REST, REST_DEVIATION = 0.2, 0.5  # share of the original's time outside of the replaced layers, before anything is known
COMMON_DEVIATION = 1.0  # of the factor that all kernels have in common, whose mean is 1
UNSURE = 3.0  # divided by the number of measurements: relative deviation because the settings above are uncertain, too
LEAST_TIME = 0.02  # of the original's time: predictions are no smaller
JITTER = 1e-4
ROUNDS = 3  # of weighting by predicted times
QUANTILE = 1.6449  # of the normal distribution: half the 90 % interval
INSIDE = 0.9


class Estimate(NamedTuple):
    """The logarithm of time / time of the original: the mean, and the standard deviation."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class _Basis:
    """The functions of which factors are composed: one for each centre."""

    centres: Numbers
    length: float
    whitening: Numbers

    @classmethod
    def of(cls, centres: Numbers, length: float) -> _Basis:
        covariance = _alike(centres, centres, length) + JITTER * np.eye(len(centres))
        return cls(centres, length, np.linalg.inv(np.linalg.cholesky(covariance)).T)

    def __call__(self, rows: Numbers) -> Numbers:
        """Return values of shape [rows, centres]; the inner product of two rows is their covariance."""
        values: Numbers = _alike(rows, self.centres, self.length) @ self.whitening
        return values


def _alike(one: Numbers, other: Numbers, length: float) -> Numbers:
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1) - 2 * one @ other.T
    alike: Numbers = np.exp(-np.maximum(squares, 0) / (2 * length**2))
    return alike


@dataclass
class TimeModel:
    """A fitted model.

    Attributes:
        unit: what the sum of a network's estimates is multiplied with, so that it is about the share of the original's time.
        count: of measurements that it has learnt from.
        calibration: what the noise is multiplied with, and other deviations if it is above 1, so that 90 % of the times are in
            their intervals.
    """

    basis: _Basis
    unit: float
    deviation: float
    noise: float
    mean: Numbers
    covariance: Numbers
    likelihood: float
    count: int
    calibration: float = 1.0

    @classmethod
    def fit(cls, described: Sequence[Description], times: Numbers) -> TimeModel:
        """Learn from networks and their times, as shares of the original's. Equal data give equal models."""
        centres = _centres(np.unique(np.vstack([one.rows for one in described]), axis=0))
        unit = float(np.median(times) / np.median([one.weights.sum() for one in described]))
        best: TimeModel | None = None
        for length in LENGTHS:
            basis = _Basis.of(centres, length)
            sums = _sums(basis, described, unit)
            for deviation, noise in product(DEVIATIONS, NOISES):
                model = cls._solved(basis, unit, deviation, noise, sums, times)
                if best is None or model.likelihood > best.likelihood:
                    best = model
        assert best is not None
        return best

    @classmethod
    def _solved(cls, basis: _Basis, unit: float, deviation: float, noise: float, sums: Numbers, times: Numbers) -> TimeModel:
        """Return the model with these settings. Errors are relative, so each row is weighted with the time it predicts."""
        inputs = sums * _scales(sums.shape[1], deviation)
        prior = _prior(sums)
        weights = np.maximum(times, LEAST_TIME)
        identity = np.eye(inputs.shape[1])
        for _ in range(ROUNDS):
            rows, targets = inputs / weights[:, None], (times - prior) / weights
            precision = rows.T @ rows / noise**2 + identity
            covariance: Numbers = np.linalg.inv(precision).astype(np.float64)
            mean = covariance @ (rows.T @ targets) / noise**2
            used, weights = weights, np.maximum((np.maximum(inputs @ mean + prior, LEAST_TIME) + times) / 2, LEAST_TIME)
        fit = (targets @ targets) / noise**2 - mean @ precision @ mean
        size = np.linalg.slogdet(precision)[1] + 2 * len(times) * math.log(noise) + 2 * np.log(used).sum()
        model = cls(basis, unit, deviation, noise, mean, covariance, float(-(fit + size) / 2), len(times))
        model.calibration = _calibration(rows, targets, covariance, mean, noise, used, times)
        return model

    def estimate(self, described: Description) -> Estimate:
        """Return the estimate for a network."""
        values = self.basis(described.rows)
        weights = described.weights * self.unit
        sums = np.concatenate([[1.0, weights.sum()], weights @ values])
        inputs = sums * _scales(len(sums), self.deviation)
        time = max(float(inputs @ self.mean + _prior(sums[None])[0]), LEAST_TIME)
        unlike = np.maximum(1 - (values**2).sum(axis=1), 0)  # what the centres do not tell about these kernels
        missing = self.deviation * float(weights @ np.sqrt(unlike))
        variance = float(inputs @ self.covariance @ inputs) + missing**2
        unknown = max(self.calibration, 1) * math.sqrt(variance) / time  # small errors so far say nothing about new kernels
        return Estimate(math.log(time), math.hypot(unknown, self.calibration * self.noise, UNSURE / self.count))

    def parts(self, described: Description) -> dict[str, float]:
        """Return the share of the original's time that is spent in each kind of kernel, and outside of the layers."""
        scales = _scales(2 + len(self.basis.centres), self.deviation)
        factors = 1 + scales[1] * self.mean[1] + self.basis(described.rows) @ (scales[2:] * self.mean[2:])
        times = described.weights * self.unit * factors
        found = {kind.value: 0.0 for kind in Kind} | {"rest": REST + scales[0] * float(self.mean[0])}
        for kind, time in zip(described.kinds, times, strict=True):
            found[kind.value] += float(time)
        return found


def _centres(rows: Numbers) -> Numbers:
    """Return up to `MOST_CENTRES` rows, each as far as possible from those before."""
    chosen = [0]
    distances = ((rows - rows[0]) ** 2).sum(axis=1)
    while len(chosen) < min(MOST_CENTRES, len(rows)):
        chosen.append(int(distances.argmax()))
        distances = np.minimum(distances, ((rows - rows[chosen[-1]]) ** 2).sum(axis=1))
    return rows[chosen]


def _sums(basis: _Basis, described: Sequence[Description], unit: float) -> Numbers:
    """Return for each network 1, the sum of its estimates, and the sums of estimates times the functions of the basis."""
    values = basis(np.vstack([one.rows for one in described]))
    ends = np.cumsum([len(one.weights) for one in described])
    parts = np.split(values, ends[:-1])
    return np.array(
        [
            np.concatenate([[1.0, (own := one.weights * unit).sum()], own @ part])
            for one, part in zip(described, parts, strict=True)
        ]
    )


def _scales(count: int, deviation: float) -> Numbers:
    """Return the standard deviations of the rest, the common factor, and the coefficients of the basis."""
    return np.array([REST_DEVIATION, COMMON_DEVIATION, *[deviation] * (count - 2)])


def _prior(sums: Numbers) -> Numbers:
    """Return the times that are expected before anything is known."""
    expected: Numbers = REST * sums[:, 0] + sums[:, 1]
    return expected


def _calibration(
    rows: Numbers, targets: Numbers, covariance: Numbers, mean: Numbers, noise: float, weights: Numbers, times: Numbers
) -> float:
    """Return the factor with which 90 % of the times are in the intervals that the model has without them.

    Errors and deviations without one row each follow from the fit with all of them. The quantile is that of conformal
    prediction, which counts the next time as well.
    """
    leverage = np.minimum(np.einsum("ij,jk,ik->i", rows, covariance, rows) / noise**2, 0.99)
    errors = (targets - rows @ mean) / (1 - leverage) * weights
    predicted = np.maximum(times - errors, LEAST_TIME)
    deviations = noise / np.sqrt(1 - leverage) * np.maximum(weights / predicted, 1)
    ratios = np.sort(np.abs(np.log(times / predicted)) / deviations)
    place = math.ceil(INSIDE * (len(ratios) + 1))
    return max(float(ratios[min(place, len(ratios)) - 1]) / QUANTILE, 1.0 if place > len(ratios) else 0.0)


LEAST_RECORDS = 8  # with fewer, nothing is predicted


class SpeedupPredictor:
    """A predictor of one network's speedups by operators, with one compiler on one device.

    It predicts from the kernels that operators run in the network's layers, whose times it learns (`model`): those of PyTorch
    (`kernels`), or with the compiler "native" the nests of native kernels (`native_kernels`), where there are any. Equal
    records give equal predictions, in any order. It predicts nothing before there are 8 measurements. The less it knows about
    kernels like an operator's, the wider is the interval; then measuring decides.

    Args:
        layers: the sizes of each replaced layer, with the batch; None: those of the network in the first record.
        constant_weights: whether what depends on weights alone was computed once, as all compilers of Syno do now.
    """

    def __init__(self, layers: Sequence[Mapping[str, int]] | None = None, *, constant_weights: bool = True) -> None:
        self._layers = None if layers is None else _counts_of_sizes(layers)
        self._constant_weights = constant_weights
        self._conditions: Conditions | None = None
        self._known: dict[str, Description] = {}
        self.model: TimeModel | None = None

    def fit(self, records: Iterable[SpeedupRecord]) -> Self:
        """Learn from these records, and forget others. Those without a speedup tell nothing.

        Raises SpecError for records that were not measured under the same conditions: they have a predictor each.
        """
        measured = []
        for record in records:
            conditions = record.conditions.model_copy(update={"operator_id": ""})
            if self._conditions is None:
                self._conditions = conditions
                self._layers = self._layers or _layers_of(conditions.network, conditions.settings.batch)
            if conditions != self._conditions:
                raise SpecError(
                    f'records of "{self._conditions.compiler}" and "{conditions.compiler}", or of other networks, devices or '
                    "settings, are not comparable: make a predictor for each"
                )
            operator = read_replacement(record.operator)
            if record.speedup is not None and isinstance(operator, PGraph):
                measured.append((operator, record.speedup))
        return self.learn(measured)

    def learn(self, measured: Iterable[tuple[PGraph, float]]) -> Self:
        """Learn from operators and their speedups, and forget others.

        Raises SpecError for a speedup that is not a positive number.
        """
        speedups = {operator.id: (operator, speedup) for operator, speedup in measured}
        for operator, speedup in speedups.values():
            if not (math.isfinite(speedup) and speedup > 0):
                raise SpecError(f"the speedup of {operator.name} is {speedup}; it must be a positive number")
        described = [
            (one, 1 / speedup) for _, (operator, speedup) in sorted(speedups.items()) if (one := self.described(operator))
        ]
        self.model = None
        if len(described) >= LEAST_RECORDS:
            self.model = TimeModel.fit([one for one, _ in described], np.array([time for _, time in described]))
        return self

    def predict(self, operator: PGraph) -> Interval | None:
        """Return the speedup to expect; None before there are 8 measurements, or if the operator does not fit the layers."""
        described = None if self.model is None else self.described(operator)
        if self.model is None or described is None:
            return None
        mean, deviation = self.model.estimate(described)
        return Interval(*(math.exp(-mean + side * QUANTILE * deviation) for side in (0, -1, 1)))

    def may_meet(self, operator: PGraph, speedup: float) -> bool:
        """Return whether the operator may be so fast: unless the upper end of its interval is below `speedup`."""
        predicted = self.predict(operator)
        return predicted is None or predicted.high >= speedup

    def parts(self, operator: PGraph) -> dict[str, float]:
        """Return where the network's time is expected to go, as shares of the original's: by kind of kernel, and the rest.

        Raises SpecError where `predict` knows nothing.
        """
        described = None if self.model is None else self.described(operator)
        if self.model is None or described is None:
            raise SpecError(f"nothing is known about the time of {operator.name}: give {LEAST_RECORDS} measurements or more")
        return self.model.parts(described)

    def described(self, operator: PGraph) -> Description | None:
        """Return the operator's kernels in the network; None if it does not fit the layers."""
        if operator.id not in self._known:
            assert self._layers is not None, "it has learnt nothing, or has the layers"
            try:
                self._known[operator.id] = self._of_layers(operator)
            except SynoError:
                return None
        return self._known[operator.id]

    def _of_layers(self, operator: PGraph) -> Description:
        found = []
        for sizes, count in (self._layers or {}).items():
            values = {name: value for name, value in sizes if name in operator.variables}
            found.append((count, self._kernels(operator, values)))
        return describe(found)

    def _kernels(self, operator: PGraph, values: Mapping[str, int]) -> Sequence[Kernel]:
        if self._conditions is not None and self._conditions.compiler == "native":
            with suppress(LoweringError):  # PyTorch's code computes it
                return native_kernels(operator, values, self._conditions.settings.threads)
        return [one for one in kernels(operator, values) if not (one.of_weights and self._constant_weights)]


def _counts_of_sizes(layers: Sequence[Mapping[str, int]]) -> dict[tuple[tuple[str, int], ...], int]:
    """Return the distinct sizes of the layers, and how many layers have each."""
    return dict(Counter(tuple(layer.items()) for layer in layers))


def _layers_of(network: BackboneSubject, batch: int) -> dict[tuple[tuple[str, int], ...], int]:
    from syno.model.extraction import replaceable

    found = replaceable(network.backbone(), network.example(batch), network.layers)
    return _counts_of_sizes([layer.values for layer in found])
