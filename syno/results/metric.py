"""The comparison of trained networks: metrics, differences of scores with their intervals, and Pareto fronts.

Welch's interval assumes that measurements are independent and about normal, but neither that both samples vary alike nor that
they are of one size: an operator's trainings may well scatter more than the original's.

>>> ACCURACY.text(0.95078, 0.00461)
'0.9508 ± 0.0046'
>>> ACCURACY.difference_text(-0.009, -0.016, -0.002)
'-0.9 points (95 %: -1.6 to -0.2)'
>>> LOSS.heading, LOSS.quality(2.5) > LOSS.quality(3.0)
('loss (nats per token)', True)
>>> [round(number, 4) for number in difference([0.944, 0.951, 0.949], [0.957, 0.960, 0.959])]
[-0.0107, -0.0183, -0.003]
>>> front([(3.0, 0.9), (1.0, 0.5), (2.0, 0.4)])
[1, 0]

Source: B. L. Welch, "The generalization of 'Student's' problem when several different population variances are involved",
Biometrika 34 (1947).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan, nan
from statistics import mean, stdev

from syno.base.interval import Interval

CONFIDENCE = 0.95
Point = tuple[float, float]  # cost, quality


@dataclass(frozen=True)
class ScoreMetric:
    """A metric that trained networks are compared by.

    Attributes:
        name: The name in records and tables.
        unit: The unit of scores; "" for a fraction.
        more_is_better: Whether a higher score is the better one.
        step: The unit that differences are printed in, as a score.
        step_name: The name of that unit, in the plural.
        digits: The number of digits of a difference after the decimal point.
        lowest, highest: The ends of the range of scores, which intervals of them may exceed.
    """

    name: str
    unit: str
    more_is_better: bool
    step: float
    step_name: str
    digits: int
    lowest: float = -inf
    highest: float = inf

    @property
    def heading(self) -> str:
        """The name for a column or an axis, with the unit if there is one."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    @property
    def column(self) -> str:
        """The name of its column in a table of trials."""
        return f"metric_{self.name}"

    @property
    def better(self) -> str:
        """The direction of better scores on an axis."""
        return "higher" if self.more_is_better else "lower"

    def quality(self, score: float) -> float:
        """Return a number that is higher for better scores."""
        return score if self.more_is_better else -score

    def text(self, score: float, spread: float = nan) -> str:
        """Return a score as text, with its standard deviation if that is known."""
        return f"{score:.4f}" + ("" if isnan(spread) else f" ± {spread:.4f}")

    def difference_text(self, value: float, low: float, high: float) -> str | None:
        """Return a difference of scores with its interval as text; None if the interval is unknown."""
        if not all(map(isfinite, (value, low, high))):
            return None
        found, least, most = (f"{number / self.step:+z.{self.digits}f}" for number in (value, low, high))
        return f"{found} {self.step_name} ({100 * CONFIDENCE:.0f} %: {least} to {most})"


ACCURACY = ScoreMetric(
    "accuracy", unit="", more_is_better=True, step=0.01, step_name="points", digits=1, lowest=0.0, highest=1.0
)
LOSS = ScoreMetric("loss", unit="nats per token", more_is_better=False, step=1.0, step_name="nats", digits=3, lowest=0.0)
METRICS: Mapping[str, ScoreMetric] = {metric.name: metric for metric in (ACCURACY, LOSS)}


def metric_of_trials(columns: Iterable[object]) -> ScoreMetric | None:
    """Return the metric of a table of trials with these columns: accuracy if it has both, None if it has neither."""
    known = set(columns)
    return next((metric for metric in METRICS.values() if metric.column in known), None)


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


# ---- Pareto fronts --------------------------------------------------------------------------------------------------


def front(points: Sequence[Point]) -> list[int]:
    """Return the indices of the points that no other point dominates, by rising cost.

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
    """Return the indices of the points that are on the front, or would be if they cost less and were better by `within`."""
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
