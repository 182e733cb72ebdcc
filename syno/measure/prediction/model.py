"""The model of the time of networks: a sum over the kernels of an operator, each with a factor that is learnt.

    time / time of the original = rest + sum over kernels of (estimate of the kernel * factor(kernel))

The factor is a Gaussian process over descriptions of kernels, so similar kernels have similar factors, and a kernel that is
like none seen before has an uncertain one. A sum of values of such a process is Gaussian, too. So the factors are learnt from
the times of whole networks, by linear algebra, and a few measurements tell about operators that combine the same kernels
otherwise.

The process is approximated by its values at some of the kernels seen (subset of regressors). What that leaves out is added to
the variance (as in FITC).

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapters 2, 5 and 8; additive kernels over parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from syno.measure.prediction.description import Description, Numbers
from syno.measure.prediction.kernels import Kind

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
            covariance: Numbers = np.linalg.inv(precision)
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
