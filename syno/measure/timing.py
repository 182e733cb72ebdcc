"""Statistics of a call's latency over many repeats: the median, its confidence interval, and the minimum.

A stopwatch, which times a piece of work, is an argument, so that tests can check the statistics with given readings.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from syno.base.errors import SpecError
from syno.base.interval import Interval
from syno.base.validation import Settings

Stopwatch: TypeAlias = Callable[[Callable[[], object]], float]  # does the work and returns its milliseconds
# (calls per repeat, number of repeats) -> milliseconds per call of each repeat; there may be fewer repeats.
Evaluate: TypeAlias = Callable[[int, int], list[float]]

REPEAT_MS = 1.0  # minimum duration of a repeat, so that the clock's resolution and overhead are negligible
FEWEST_FOR_INTERVAL = 6  # with fewer repeats not even their range contains the median in 95 % of all cases
LEAST_CALL_MS = 1e-4  # shorter calls count as this long, so that measuring ends even if the clock stands still


class LatencySettings(Settings):
    """Settings of latency measurements. They end after `least_repeats` that took `least_ms`, or after `most_repeats`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    warm_up_ms: float = Field(default=100, ge=0)
    """milliseconds of untimed calls before the timed ones"""
    least_repeats: int = Field(default=20, ge=FEWEST_FOR_INTERVAL)
    """minimum number of timed repeats"""
    most_repeats: int = Field(default=1000, ge=FEWEST_FOR_INTERVAL)
    """maximum number of timed repeats; takes precedence over least_repeats"""
    least_ms: float = Field(default=500, ge=0)
    """minimum of the total time of all timed repeats, in milliseconds"""
    threads: int = Field(default=1, ge=1)
    """number of CPU threads"""
    batch: int = Field(default=1, ge=1)
    """number of samples in one call"""
    tolerance: float | None = Field(default=None, gt=0)
    """largest error of the output, as a share of its largest value; if not given, the estimated rounding error"""
    tf32: bool = False
    """whether GPUs may round float32 to 10 bits of mantissa in products"""


class Timing(BaseModel):
    """The latency of one call in milliseconds, from repeats.

    Attributes:
        median_ms: the median of the repeats, each divided by its number of calls.
        low_ms, high_ms: the median's 95 % confidence interval.
        minimum_ms: the fastest repeat.
        repeats: the number of timed repeats.
        calls_per_repeat: the number of calls in each.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    median_ms: float
    low_ms: float
    high_ms: float
    minimum_ms: float
    repeats: int
    calls_per_repeat: int


def interval_of_median(ordered: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the median, for any distribution: two order statistics.

    The number of samples below the true median is binomial with p = 1/2. The interval excludes at most 2.5 % of this
    distribution at either end, computed exactly. (`scipy.stats` has this, too, but takes two seconds to import in each
    measuring process.)

    Args:
        ordered: the samples, smallest first.

    Raises SpecError for fewer than 6 samples.
    """
    count = len(ordered)
    if count < FEWEST_FOR_INTERVAL:
        raise SpecError(
            f"{count} repeats have no 95 % interval of their median; it takes {FEWEST_FOR_INTERVAL} or more: repeat more often"
        )
    rank, ways, below = 0, 1, 1  # `below`: outcomes with at most `rank` samples below the median
    while 40 * below <= 2**count:
        rank += 1
        ways = ways * (count - rank + 1) // rank
        below += ways
    return ordered[rank - 1], ordered[count - rank]


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median of values with its 95 % confidence interval. Raises SpecError for fewer than 6 values."""
    return Interval(statistics.median(values), *interval_of_median(sorted(values)))


def time_calls(call: Callable[[], object], settings: LatencySettings, stopwatch: Stopwatch) -> Timing:
    """Warm up, time repeats of `call` as `settings` say, and return their statistics."""
    one_by_one = evaluate_of(call, stopwatch)
    return time_repeats(lambda calls, _: one_by_one(calls, 1), settings)


def evaluate_of(call: Callable[[], object], stopwatch: Stopwatch) -> Evaluate:
    """Return a function (calls, repeats) that returns the milliseconds per call of each repeat of `call`."""

    def evaluate(calls: int, repeats: int) -> list[float]:
        def repeat() -> None:
            for _ in range(calls):
                call()

        return [stopwatch(repeat) / calls for _ in range(repeats)]

    return evaluate


def time_repeats(evaluate: Evaluate, settings: LatencySettings) -> Timing:
    """Return the statistics of repeats that `evaluate` times, which may time several repeats in one call.

    Remote devices do, since each request takes long.
    """
    fastest = warm_up(evaluate, settings)
    calls = calls_in_repeat(fastest)
    taken: list[float] = []
    total = 0.0
    while len(taken) < settings.most_repeats and (len(taken) < settings.least_repeats or total < settings.least_ms):
        lacking = max(settings.least_repeats - len(taken), (settings.least_ms - total) / (fastest * calls))
        more = evaluate(calls, _between(1, lacking, settings.most_repeats - len(taken)))
        taken += more
        total += calls * sum(more)
    taken.sort()
    low, high = interval_of_median(taken)
    return Timing(
        median_ms=statistics.median(taken),
        low_ms=low,
        high_ms=high,
        minimum_ms=taken[0],
        repeats=len(taken),
        calls_per_repeat=calls,
    )


def warm_up(evaluate: Evaluate, settings: LatencySettings) -> float:
    """Make untimed warm-up calls for `settings.warm_up_ms`, and return the milliseconds of the fastest call."""
    first, second = evaluate(1, 1)[0], evaluate(1, 1)[0]  # the first call may compile or allocate: it is no estimate
    warm, fastest = first + second, max(second, LEAST_CALL_MS)
    while warm < settings.warm_up_ms:
        more = evaluate(1, _between(1, (settings.warm_up_ms - warm) / fastest, settings.most_repeats))
        warm += sum(max(each, LEAST_CALL_MS) for each in more)
        fastest = max(min(fastest, *more), LEAST_CALL_MS)
    return fastest


def calls_in_repeat(fastest: float) -> int:
    """Return the number of calls in a repeat, if the fastest call takes `fastest` milliseconds."""
    return max(1, math.ceil(REPEAT_MS / fastest))


def _between(least: int, wanted: float, most: int) -> int:
    return max(least, min(math.ceil(wanted), most))


def stopwatch_of(device: str) -> Stopwatch:
    """Return the stopwatch for work on `device`: CUDA events for "cuda", the wall clock of this process for other devices."""
    return _time_events if device.startswith("cuda") else _time_clock


def _time_clock(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start)


def _time_events(work: Callable[[], object]) -> float:
    import torch  # imported here, so that settings are read without torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()  # earlier work is not part of the measurement
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))
