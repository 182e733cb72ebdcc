"""A number with the interval that it lies in: a speedup, a latency, a difference of scores."""

from __future__ import annotations

from math import isfinite, nan
from typing import NamedTuple


class Interval(NamedTuple):
    """A number and the ends of its interval, of 95 % unless its place says otherwise. Ends are not finite where unknown."""

    value: float
    low: float = nan
    high: float = nan

    @property
    def is_certain(self) -> bool:
        """Whether the interval is known: all three are finite, and in their order."""
        return all(map(isfinite, self)) and self.low <= self.high
