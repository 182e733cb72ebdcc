"""A number with an interval around it: a speedup, a latency, a difference of scores; and how a speedup is worded."""

from __future__ import annotations

from math import isfinite, nan
from typing import NamedTuple

AS_THE_ORIGINAL = " times as fast as the original"
NONE_FASTER = "none is faster than the original"  # said first, before any number that might be taken for good news


class Interval(NamedTuple):
    """A number with the ends of its 95 % confidence interval (another level where documented). Unknown ends are not finite."""

    value: float
    low: float = nan
    high: float = nan

    @property
    def is_certain(self) -> bool:
        """Whether the interval is known: all three numbers are finite and in ascending order."""
        return all(map(isfinite, self)) and self.low <= self.high


def times_as_fast(
    speedup: Interval | float, unit: str = " times as fast", form: str = ".2f", level: str = "", doubt: str = ""
) -> str:
    """Return a speedup in words, with its interval if that is known. All words for speedups are made here.

    Args:
        speedup: the speedup.
        unit: text behind the number; "x" in tables.
        form: format specification of the numbers.
        level: text before the ends of the interval, as "95 %: ".
        doubt: text behind the ends of the interval.

    >>> times_as_fast(Interval(1.73, 1.70, 1.76)), times_as_fast(1.73, "x")
    ('1.73 times as fast (1.70 to 1.76)', '1.73x')
    """
    value, low, high = known = speedup if isinstance(speedup, Interval) else Interval(speedup)
    ends = f" ({level}{low:{form}} to {high:{form}}{doubt})" if known.is_certain else ""
    return f"{value:{form}}{unit}{ends}"
