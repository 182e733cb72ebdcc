"""Metrics of scores: name, unit and direction of the number by which trained networks are judged.

Records and tables name a metric by its key, which contains all of this, so that readers need no code of the task.

>>> Metric("SI-SDR", "dB").key
'SI-SDR (dB, more is better)'
>>> METRICS["error (mm, less is better)"]
Metric(name='error', unit='mm', more_is_better=False)
>>> METRICS["accuracy"].text(0.95078, 0.00461), METRICS["accuracy"].difference_text(-0.009, -0.016, -0.002)
('0.9508 ± 0.0046', '-0.9 points (95 %: -1.6 to -0.2)')
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, isnan, nan
from typing import Annotated

from pydantic import AfterValidator

from syno.base.errors import SpecError

CONFIDENCE = 0.95
OF_ORIGINAL, CHANCE = "original_", "chance_"  # prefixes of the scores of the original network, and of one that learnt nothing
NAME = re.compile(r"[^()\r\n]+")
KEY = re.compile(r"(?P<name>[^()\r\n]+) \((?:(?P<unit>[^()\r\n]+), )?(?P<way>more|less) is better\)")
DIGITS = 4  # significant digits of a score whose range is unknown


@dataclass(frozen=True)
class Metric:
    """A metric by which trained networks are compared.

    >>> Metric("IoU"), Metric("error", "m", more_is_better=False)
    (Metric(name='IoU', unit='', more_is_better=True), Metric(name='error', unit='m', more_is_better=False))

    Attributes:
        name: The name, as tables and figures show it.
        unit: The unit of scores; "" for a fraction, or another number without a unit.
        more_is_better: Whether a higher score is the better one.
        step: The size of the unit in which differences are printed, such as 0.01 for points of accuracy.
        step_name: The name of this unit in the plural; "" if it is the unit of scores.
        digits: The number of decimal places of a difference; None: as many as needed.
        lowest, highest: The range of scores; confidence intervals may exceed it.
        broken: The score of a training that diverged; None: the worst possible.
        margin: The allowed loss without a goal; None: 1 % of the original's score.
    """

    name: str
    unit: str = ""
    more_is_better: bool = True
    step: float = field(default=1.0, repr=False, kw_only=True)
    step_name: str = field(default="", repr=False, kw_only=True)
    digits: int | None = field(default=None, repr=False, kw_only=True)
    lowest: float = field(default=-inf, repr=False, kw_only=True)
    highest: float = field(default=inf, repr=False, kw_only=True)
    broken: float | None = field(default=None, repr=False, kw_only=True)
    margin: float | None = field(default=None, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name) or self.name.startswith((OF_ORIGINAL, CHANCE)):
            raise SpecError(
                f'the metric is called "{self.name}"; a name has no brackets, and does not begin with {OF_ORIGINAL} or {CHANCE}'
            )
        if self.unit and not NAME.fullmatch(self.unit):
            raise SpecError(f'the unit of {self.name} is "{self.unit}"; a unit has no brackets, as in "m/s^2"')

    @property
    def key(self) -> str:
        """The metric's name in records and tables: for accuracy and loss the name alone, for others with unit and direction."""
        if BUILT_IN.get(self.name) == self:
            return self.name
        return f"{self.name} ({f'{self.unit}, ' if self.unit else ''}{'more' if self.more_is_better else 'less'} is better)"

    @property
    def heading(self) -> str:
        """The metric's name for a column or an axis, with the unit if there is one."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    @property
    def title(self) -> str:
        """The metric's name at the beginning of a sentence or a heading."""
        return self.name[0].upper() + self.name[1:]

    @property
    def column(self) -> str:
        """The name of the metric's column in a table of trials."""
        return f"metric_{self.key}"

    @property
    def better(self) -> str:
        """The direction of better scores on an axis: "higher" or "lower"."""
        return "higher" if self.more_is_better else "lower"

    @property
    def of_broken(self) -> float:
        """The score of a training that diverged."""
        return (-inf if self.more_is_better else inf) if self.broken is None else self.broken

    def quality(self, score: float) -> float:
        """Return a number that is higher for a better score."""
        return score if self.more_is_better else -score

    def check(self, score: float) -> None:
        """Raise ValueError for an impossible score. Only trainings that diverged may have an infinite score."""
        if self.lowest <= score <= self.highest:
            return
        if self == ACCURACY:
            raise ValueError(f"an accuracy is a fraction, from 0 to 1; given: {score}")
        raise ValueError(
            f"a loss is 0 or more; given: {score}" if self == LOSS else f"{self.name} is {score}, which is no score"
        )

    def number(self, score: float) -> str:
        """Return a score as text, without its unit."""
        return f"{score:.4f}" if self.digits is not None else f"{score:.{DIGITS}g}"

    def text(self, score: float, spread: float = nan) -> str:
        """Return a score as text, with its standard deviation if that is known."""
        return self.number(score) + ("" if isnan(spread) else f" ± {self.number(spread)}")

    def steps_text(self, difference: float, sign: str = "") -> str:
        """Return a difference of scores as text, in multiples of `step` (such as points); `sign` is a format's "+" or "+z"."""
        return format(difference / self.step, f"{sign}.{self.digits}f" if self.digits is not None else f"{sign}.{DIGITS - 1}g")

    def with_unit(self, number: str) -> str:
        """Return a number of steps (as text) followed by the name of their unit, such as "points"."""
        unit = self.step_name or self.unit
        return f"{number} {unit}" if unit else number

    def amount(self, difference: float) -> str:
        """Return a difference of scores in words, such as `1 point` or `0.5 dB`."""
        steps = difference / self.step
        name = self.step_name.removesuffix("s") if steps == 1 else self.step_name
        return f"{steps:g} {name or self.unit}".rstrip()

    def difference_text(self, value: float, low: float, high: float) -> str | None:
        """Return a difference of scores with its interval, as "-0.9 points (95 %: -1.6 to -0.2)"; None if unknown."""
        if not all(map(isfinite, (value, low, high))):
            return None
        steps, least, most = (self.steps_text(number, "+z") for number in (value, low, high))
        return f"{self.with_unit(steps)} ({100 * CONFIDENCE:.0f} %: {least} to {most})"


ACCURACY = Metric(
    "accuracy", step=0.01, step_name="points", digits=1, lowest=0.0, highest=1.0, broken=0.0, margin=0.01
)  # a fraction of the labels
LOSS = Metric("loss", "nats per token", more_is_better=False, step_name="nats", digits=3, lowest=0.0, margin=0.05)
BUILT_IN: Mapping[str, Metric] = {metric.name: metric for metric in (ACCURACY, LOSS)}


class _Metrics(Mapping[str, Metric]):
    """Metrics by key: the built-in metrics of classification and text, and any other, whose key contains its name and unit."""

    def __getitem__(self, key: str) -> Metric:
        if key in BUILT_IN:
            return BUILT_IN[key]
        match = KEY.fullmatch(key)
        if match is None or key.startswith((OF_ORIGINAL, CHANCE)):
            raise KeyError(key)
        return Metric(match["name"], match["unit"] or "", match["way"] == "more")

    def __iter__(self) -> Iterator[str]:
        return iter(BUILT_IN)

    def __len__(self) -> int:
        return len(BUILT_IN)


METRICS: Mapping[str, Metric] = _Metrics()


def check_key(key: str) -> str:
    """Return the key of a metric. Raises ValueError if it is not a valid key."""
    if key not in METRICS:
        raise ValueError(
            f'"{key}" is no metric of scores; there are {", ".join(METRICS)}, and those such as "{Metric("IoU").key}"'
        )
    return key


MetricKey = Annotated[str, AfterValidator(check_key)]


def score_of(names: Iterable[str]) -> str | None:
    """Return the first of `names` that is the key of a score, accuracy and loss before others; None if none is."""
    known = list(names)
    return next((name for name in (*BUILT_IN, *known) if name in known and name in METRICS), None)
