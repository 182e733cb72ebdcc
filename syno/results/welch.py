"""How far the mean of some measurements is from the mean of others, and how well that is known.

Welch's interval assumes that measurements are independent and about normal, but neither that both samples vary alike nor that
they are of one size: an operator's trainings may well scatter more than the original's.

>>> [round(number, 4) for number in difference([0.944, 0.951, 0.949], [0.957, 0.960, 0.959])]
[-0.0107, -0.0183, -0.003]

Source: B. L. Welch, "The generalization of 'Student's' problem when several different population variances are involved",
Biometrika 34 (1947); its degrees of freedom: F. E. Satterthwaite, Biometrics Bulletin 2 (1946).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite, nan, sqrt
from statistics import mean, stdev, variance
from typing import NamedTuple

CONFIDENCE = 0.95


class Difference(NamedTuple):
    """Of two means: the estimate, and the ends of its interval of confidence; NaN where they are not known."""

    value: float
    low: float
    high: float


def difference(sample: Sequence[float], reference: Sequence[float]) -> Difference:
    """The mean of `sample` minus that of `reference`, with the interval that holds the true difference in 95 of 100 cases.

    The ends are NaN if a sample has fewer than two numbers or one that is not finite, or if no number differs from the others
    of its sample: then nothing is known of how they scatter, and an interval without width would claim to know all.
    """
    value = mean(sample) - mean(reference)
    if min(len(sample), len(reference)) < 2 or not all(map(isfinite, (*sample, *reference))):
        return Difference(value, nan, nan)
    ours, theirs = (variance(numbers) / len(numbers) for numbers in (sample, reference))
    if not 0 < ours + theirs < inf:
        return Difference(value, nan, nan)
    from scipy.special import stdtrit  # the quantiles of Student's distribution

    part = ours / (ours + theirs)
    freedom = 1 / (part**2 / (len(sample) - 1) + (1 - part) ** 2 / (len(reference) - 1))
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * sqrt(ours + theirs)
    return Difference(value, value - half, value + half)


def spread(sample: Sequence[float]) -> float:
    """The standard deviation of a sample; NaN if it has fewer than two numbers, or one that is not finite."""
    return stdev(sample) if len(sample) > 1 and all(map(isfinite, sample)) else nan
