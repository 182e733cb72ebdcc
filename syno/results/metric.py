"""What the scores of trained networks are: their names and units, which of them are better, and how they are written.

>>> ACCURACY.text(0.95078, 0.00461)
'0.9508 ± 0.0046'
>>> ACCURACY.difference_text(-0.009, -0.016, -0.002)
'-0.9 points (95 %: -1.6 to -0.2)'
>>> LOSS.heading, LOSS.quality(2.5) > LOSS.quality(3.0)
('loss (nats per token)', True)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite, isnan, nan

from syno.results.welch import CONFIDENCE
from syno.train.settings import Metric


@dataclass(frozen=True)
class ScoreMetric:
    """A metric that trained networks are compared by.

    Attributes:
        name: as records, tables and readers have it.
        unit: of scores; "" for a fraction.
        more_is_better: whether a higher score is the better one.
        step: the score that differences are counted in.
        step_name: what that is called, in the plural.
        digits: of a difference, after the decimal point.
    """

    name: Metric
    unit: str
    more_is_better: bool
    step: float
    step_name: str
    digits: int

    @property
    def heading(self) -> str:
        """For a column or an axis, with the unit if there is one."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    @property
    def column(self) -> str:
        """Of a table of trials."""
        return f"metric_{self.name}"

    @property
    def better(self) -> str:
        """Where better scores are on an axis."""
        return "higher" if self.more_is_better else "lower"

    def quality(self, score: float) -> float:
        """A number that is the higher, the better the score is."""
        return score if self.more_is_better else -score

    def text(self, score: float, spread: float = nan) -> str:
        """A score, with its standard deviation if that is known."""
        return f"{score:.4f}" + ("" if isnan(spread) else f" ± {spread:.4f}")

    def difference_text(self, value: float, low: float, high: float) -> str | None:
        """A difference of scores with its interval; None without an interval, for then it says nothing."""
        if not all(map(isfinite, (value, low, high))):
            return None
        found, least, most = (f"{number / self.step:+z.{self.digits}f}" for number in (value, low, high))
        return f"{found} {self.step_name} ({100 * CONFIDENCE:.0f} %: {least} to {most})"


ACCURACY = ScoreMetric("accuracy", unit="", more_is_better=True, step=0.01, step_name="points", digits=1)
LOSS = ScoreMetric("loss", unit="nats per token", more_is_better=False, step=1.0, step_name="nats", digits=3)
METRICS: Mapping[str, ScoreMetric] = {metric.name: metric for metric in (ACCURACY, LOSS)}


def metric_of_trials(columns: Iterable[object]) -> ScoreMetric | None:
    """The metric that a table of trials with these columns has, accuracy if it has both; None if it has neither."""
    known = set(columns)
    return next((metric for metric in METRICS.values() if metric.column in known), None)
