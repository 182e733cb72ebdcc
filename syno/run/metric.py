"""Comparison of trained networks: differences of mean scores with confidence intervals, and Pareto fronts.

Welch's interval assumes that measurements are independent and about normal, but neither that both samples vary alike nor that
they are of one size: an operator's trainings may well scatter more than the original's.

>>> [round(number, 4) for number in difference([0.944, 0.951, 0.949], [0.957, 0.960, 0.959])]
[-0.0107, -0.0183, -0.003]
>>> front([(3.0, 0.9), (1.0, 0.5), (2.0, 0.4)])
[1, 0]

Source: B. L. Welch, "The generalization of 'Student's' problem when several different population variances are involved",
Biometrika 34 (1947).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import inf, isfinite, nan
from statistics import mean, stdev

from syno.base.interval import Interval
from syno.train.metric import CONFIDENCE

Point = tuple[float, float]  # cost, quality


def difference(sample: Sequence[float], reference: Sequence[float]) -> Interval:
    """Return the mean of `sample` minus that of `reference`, with Welch's 95 % confidence interval of the difference.

    The ends are NaN if a sample has fewer than two numbers or one that is not finite, or if the numbers of both samples are
    all equal: then nothing is known of how they scatter.
    """
    value = mean(sample) - mean(reference)
    unknown = Interval(value)
    if min(len(sample), len(reference)) < 2 or not all(map(isfinite, (*sample, *reference))):
        return unknown
    if len({*sample}) == len({*reference}) == 1:
        return unknown
    from scipy.stats import ttest_ind

    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # it warns if one of the two does not scatter
        low, high = ttest_ind(sample, reference, equal_var=False).confidence_interval(CONFIDENCE)
    return Interval(value, float(low), float(high)) if isfinite(low) and isfinite(high) else unknown


def spread(sample: Sequence[float]) -> float:
    """Return the standard deviation of a sample; NaN if it has fewer than two numbers, or one that is not finite."""
    return stdev(sample) if len(sample) > 1 and all(map(isfinite, sample)) else nan


def front(points: Sequence[Point]) -> list[int]:
    """Return the indices of the points (cost, quality) that no other point dominates, by rising cost.

    One point dominates another if it costs no more and is no worse, and is better in one of the two. Equal points do not
    dominate each other: all of them are on the front or none. Points that are not finite are never on the front.
    """
    finite = [place for place, point in enumerate(points) if all(map(isfinite, point))]
    kept: list[int] = []
    best = (inf, -inf)  # the last point on the front
    for place in sorted(finite, key=lambda place: (points[place][0], -points[place][1], place)):
        if points[place][1] > best[1] or points[place] == best:
            kept.append(place)
            best = points[place]
    return kept


def near_front(points: Sequence[Point], within: Point) -> list[int]:
    """Return the indices of the points on the front, or on it if their cost were lower and their quality higher by `within`."""
    ahead = [points[place] for place in front(points)]
    cheaper, better = within
    return [
        place
        for place, (cost, quality) in enumerate(points)
        if isfinite(cost)
        and isfinite(quality)
        and not any(_dominates(point, (cost - cheaper, quality + better)) for point in ahead)
    ]


def _dominates(one: Point, other: Point) -> bool:
    return one[0] <= other[0] and one[1] >= other[1] and one != other
