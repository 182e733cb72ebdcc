"""Intervals of shares."""

from __future__ import annotations

CONFIDENCE = 0.95


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson, 1927); 0 and 1 without trials."""
    from scipy.stats import binomtest

    if not trials:
        return 0.0, 1.0
    interval = binomtest(hits, trials).proportion_ci(CONFIDENCE, "wilson")
    return float(interval.low), float(interval.high)
