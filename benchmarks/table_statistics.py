"""Rank correlations with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray
from scipy.stats import rankdata

SAMPLES = 2000
SEED = 0
Values = NDArray[numpy.float64]


@dataclass(frozen=True)
class Correlation:
    """A rank correlation with the 95 % interval of bootstrap samples of the operators; NaN where it is not defined."""

    value: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return "–" if numpy.isnan(self.value) else f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def spearman(one: Sequence[float], other: Sequence[float], beyond: Sequence[Sequence[float]] = ()) -> Correlation:
    """The rank correlation of two quantities; with `beyond`, of what these others do not explain (partial rank correlation)."""
    columns = numpy.array([one, other, *beyond], dtype=float)
    columns = columns[:, numpy.isfinite(columns).all(axis=0)]
    count = columns.shape[1]
    if count < 10:
        return Correlation(numpy.nan, numpy.nan, numpy.nan, count)
    random = numpy.random.default_rng(SEED)
    found = [_of(columns[:, random.integers(count, size=count)]) for _ in range(SAMPLES)]
    low, high = numpy.nanquantile(found, (0.025, 0.975))
    return Correlation(_of(columns), float(low), float(high), count)


def _of(columns: Values) -> float:
    ranks = rankdata(columns, axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    pair, others = ranks[:2], ranks[2:]
    if len(others):
        pair = pair - numpy.linalg.lstsq(others.T, pair.T, rcond=None)[0].T @ others
    scale = numpy.sqrt((pair**2).sum(axis=1).prod())
    return float(pair[0] @ pair[1] / scale) if scale > 0 else numpy.nan
