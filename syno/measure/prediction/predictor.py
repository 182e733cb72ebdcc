"""Prediction of a network's speedup by an operator, fitted to the measurements of a search so far.

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
from itertools import product
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from syno.base.errors import LoweringError, SpecError, SynoError
from syno.base.interval import Interval
from syno.ir.graph import PGraph
from syno.measure.network_subject import BackboneSubject
from syno.measure.prediction.kernels import DENSE, Kernel, Kind, kernels, native_kernels
from syno.measure.speedup_record import Conditions, SpeedupRecord
from syno.model.networks import read_replacement

# Features of kernels, and an estimate of their time. They describe a kernel's work, not the operator or network in which it
# occurs, so that the model learns from all kernels of all measured operators.


Numbers = NDArray[np.float64]

# A nominal CPU core. Only ratios matter, and only before there are measurements, since the model learns factors of these
# estimates.
CALL_MS, FLOPS_PER_MS, BYTES_PER_MS, CYCLES_PER_MS = 0.003, 4e7, 8e6, 2.5e6
FLOAT_BYTES = 4
READER_SHARE = 0.3  # share of a reader's time that depends on the tensor's strides; the rest is the same for all operators

MOST_RUN, MOST_GAP = 5.0, 12.0  # logarithms; beyond a cache line and a page it makes no difference

# Features by name: (scale, function). The scale is the distance of two kernels that differ by 1 in the feature; sizes are
# logarithms to base 2.
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
        rows: [kernels, features]: scaled features; distances between rows measure how different kernels are.
        weights: [kernels]: the estimated milliseconds of each kernel, summed over layers.
        kinds: the kind of each kernel.
    """

    rows: Numbers
    weights: Numbers
    kinds: tuple[Kind, ...]


def describe(layers: Sequence[tuple[int, Sequence[Kernel]]]) -> Description:
    """Return the description of an operator from (number of layers of a size, kernels in such a layer) pairs."""
    counts: dict[Kernel, int] = {}
    for count, of_layer in layers:
        for kernel in of_layer:
            counts[kernel] = counts.get(kernel, 0) + count
    rows = np.array([row(kernel) for kernel in counts]).reshape(len(counts), len(COLUMNS))
    weights = np.array([count * estimated_ms(kernel) for kernel, count in counts.items()])
    return Description(rows, weights, tuple(kernel.kind for kernel in counts))


def row(kernel: Kernel) -> list[float]:
    """Return the scaled features of a kernel, in the order of `COLUMNS`."""
    return [scale * float(number(kernel)) for scale, number in COLUMNS.values()]


def estimated_ms(kernel: Kernel) -> float:
    """Return the estimated milliseconds of a kernel on the nominal core: arithmetic, memory traffic, call overhead."""
    moved = (kernel.read + kernel.written) * FLOAT_BYTES / BYTES_PER_MS
    if kernel.kind is Kind.READER:
        return READER_SHARE * moved
    if kernel.kind is Kind.NEST:
        return kernel.cycles / CYCLES_PER_MS
    return CALL_MS + moved + (kernel.flops / FLOPS_PER_MS if kernel.kind in DENSE else 0.0)


# The model of the time of networks: a sum over the kernels of an operator, each with a factor that is learnt.
#
#     time / time of the original = rest + sum over kernels of (estimate of the kernel * factor(kernel))
#
# The factor is a Gaussian process over features of kernels: similar kernels have similar factors, and the factor of a kernel
# unlike all known ones is uncertain. A sum of values of a Gaussian process is Gaussian, so that factors are learnt from times
# of whole networks by linear algebra, and few measurements suffice for operators that combine known kernels in new ways.
#
# The process is approximated by its values at some of the known kernels (subset of regressors). The variance that this neglects
# is added (as in FITC).
#
# Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapters 2, 5 and 8; additive kernels over
# parts.


MOST_CENTRES = 200
# Hyperparameters, chosen by the marginal likelihood.
LENGTHS = (4.0, 6.0)  # length scale: the distance at which the correlation of factors is about one half
DEVIATIONS = (1.0, 2.0)  # standard deviation of factors
NOISES = (0.06, 0.1, 0.15, 0.2, 0.25)  # relative noise
REST, REST_DEVIATION = 0.2, 0.5  # prior of the share of the original's time outside of the replaced layers
COMMON_DEVIATION = 1.0  # prior deviation of the common factor of all kernels, whose prior mean is 1
UNSURE = 3.0  # over the number of measurements: relative deviation for the uncertainty of the hyperparameters
LEAST_TIME = 0.02  # smallest prediction, as a share of the original's time
JITTER = 1e-4
ROUNDS = 3  # iterations of weighting by predicted times
QUANTILE = 1.6449  # of the normal distribution: half the width of the 90 % interval
INSIDE = 0.9


class Estimate(NamedTuple):
    """A prediction of log(time / time of the original): its mean and its standard deviation."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class _Basis:
    """The basis functions of the factors, one for each centre.

    Attributes:
        centres: [centres, features].
        length: the length scale.
        whitening: [centres, centres]: makes the basis functions uncorrelated.
    """

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


def _alike(first: Numbers, second: Numbers, length: float) -> Numbers:
    squares = (first**2).sum(axis=1)[:, None] + (second**2).sum(axis=1) - 2 * first @ second.T
    alike: Numbers = np.exp(-np.maximum(squares, 0) / (2 * length**2))
    return alike


@dataclass
class TimeModel:
    """A fitted model of a network's time: the sum of its kernels' estimated times, each multiplied by a learned factor.

    Attributes:
        unit: factor that scales the sum of a network's estimates to about its share of the original's time.
        count: number of measurements to which the model was fitted.
        calibration: factor on the noise, and on the other deviations if above 1, such that 90 % of times are in their
            intervals.
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
        """Fit a model to networks (as kernels) and their times, as shares of the original's time.

        Equal data give equal models.
        """
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
        """Return the model for these hyperparameters.

        Errors are relative, so each measurement is weighted by its predicted time.
        """
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
        """Return the estimate of the time of a network with these kernels."""
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
        """Return the predicted time of each kind of kernel and of the rest of the network, as shares of the original's time."""
        scales = _scales(2 + len(self.basis.centres), self.deviation)
        factors = 1 + scales[1] * self.mean[1] + self.basis(described.rows) @ (scales[2:] * self.mean[2:])
        times = described.weights * self.unit * factors
        found = {kind.value: 0.0 for kind in Kind} | {"rest": REST + scales[0] * float(self.mean[0])}
        for kind, time in zip(described.kinds, times, strict=True):
            found[kind.value] += float(time)
        return found


def _centres(rows: Numbers) -> Numbers:
    """Return up to `MOST_CENTRES` rows, each the farthest from all previous ones (farthest-point sampling)."""
    chosen = [0]
    distances = ((rows - rows[0]) ** 2).sum(axis=1)
    while len(chosen) < min(MOST_CENTRES, len(rows)):
        chosen.append(int(distances.argmax()))
        distances = np.minimum(distances, ((rows - rows[chosen[-1]]) ** 2).sum(axis=1))
    return rows[chosen]


def _sums(basis: _Basis, described: Sequence[Description], unit: float) -> Numbers:
    """Return the design matrix, a row per network: 1, the sum of its kernels' estimates, and sums of estimates times basis
    values.
    """
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
    """Return the prior standard deviations of the coefficients: of the rest, the common factor, and each basis function."""
    return np.array([REST_DEVIATION, COMMON_DEVIATION, *[deviation] * (count - 2)])


def _prior(sums: Numbers) -> Numbers:
    """Return the prior mean of each network's time, as a share of the original's."""
    expected: Numbers = REST * sums[:, 0] + sums[:, 1]
    return expected


def _calibration(
    rows: Numbers, targets: Numbers, covariance: Numbers, mean: Numbers, noise: float, weights: Numbers, times: Numbers
) -> float:
    """Return the factor on the model's intervals with which 90 % of the left-out times are inside (leave-one-out).

    Leave-one-out errors and deviations are computed from the fit to all rows. The quantile is that of conformal prediction.
    """
    leverage = np.minimum(np.einsum("ij,jk,ik->i", rows, covariance, rows) / noise**2, 0.99)
    errors = (targets - rows @ mean) / (1 - leverage) * weights
    predicted = np.maximum(times - errors, LEAST_TIME)
    deviations = noise / np.sqrt(1 - leverage) * np.maximum(weights / predicted, 1)
    ratios = np.sort(np.abs(np.log(times / predicted)) / deviations)
    place = math.ceil(INSIDE * (len(ratios) + 1))
    return max(float(ratios[min(place, len(ratios)) - 1]) / QUANTILE, 1.0 if place > len(ratios) else 0.0)


LEAST_RECORDS = 8  # least number of measurements for a prediction


class SpeedupPredictor:
    """A predictor of one network's speedups by operators, with one compiler on one device.

    It learns the times (`TimeModel`) of the kernels that operators run in the network's layers: PyTorch's kernels (`kernels`),
    or with the compiler "native" the loop nests of native kernels (`native_kernels`). Equal records give equal predictions, in
    any order. There are no predictions before there are 8 measurements. The less is known about kernels like an operator's, the
    wider is the interval, so that the operator is measured.

    Args:
        layers: the sizes of each replaced layer, with the batch; None: those of the network in the first record.
        constant_weights: whether computations on weights alone are not part of the time, as with all of Syno's compilers.
    """

    def __init__(self, layers: Sequence[Mapping[str, int]] | None = None, *, constant_weights: bool = True) -> None:
        self._layers = None if layers is None else _counts_of_sizes(layers)
        self._constant_weights = constant_weights
        self._conditions: Conditions | None = None
        self._known: dict[str, Description] = {}
        self.model: TimeModel | None = None

    def fit(self, records: Iterable[SpeedupRecord]) -> Self:
        """Fit the model to these records only. Records without a speedup are ignored.

        Raises SpecError for records with different conditions, which need separate predictors.
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
        """Fit the model to these operators and speedups only.

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
        """Return the predicted speedup with its 90 % interval; None before 8 measurements, or if the operator does not fit."""
        described = None if self.model is None else self.described(operator)
        if self.model is None or described is None:
            return None
        mean, deviation = self.model.estimate(described)
        return Interval(*(math.exp(-mean + side * QUANTILE * deviation) for side in (0, -1, 1)))

    def may_meet(self, operator: PGraph, speedup: float) -> bool:
        """Return whether the operator may reach `speedup`: false if the upper end of its interval is below it."""
        predicted = self.predict(operator)
        return predicted is None or predicted.high >= speedup

    def parts(self, operator: PGraph) -> dict[str, float]:
        """Return the predicted time by kind of kernel, and of the rest of the network, as shares of the original's time.

        Raises SpecError if `predict` returns None.
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
    """Return the number of layers of each distinct size."""
    return dict(Counter(tuple(layer.items()) for layer in layers))


def _layers_of(network: BackboneSubject, batch: int) -> dict[tuple[tuple[str, int], ...], int]:
    from syno.model.extraction import replaceable

    found = replaceable(network.backbone(), network.example(batch), network.layers)
    return _counts_of_sizes([layer.values for layer in found])
