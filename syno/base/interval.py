"""A number with an interval around it: a speedup, a latency, a difference of scores."""

from __future__ import annotations

from math import isfinite, nan
from typing import NamedTuple


class Interval(NamedTuple):
    """A number with the ends of its 95 % confidence interval (another level where documented). Unknown ends are not finite."""

    value: float
    low: float = nan
    high: float = nan

    @property
    def is_certain(self) -> bool:
        """Whether the interval is known: all three numbers are finite and in ascending order."""
        return all(map(isfinite, self)) and self.low <= self.high
