"""How long a call takes: many repeats, and what they say about the median.

This is the one way in which Syno measures time. A stopwatch times a piece of work; it is given, so that what is computed
from its readings can be tested without any machine's speed.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from syno.base.errors import SpecError

Stopwatch: TypeAlias = Callable[[Callable[[], object]], float]  # does the work; milliseconds from its start to its end

REPEAT_MS = 1.0  # a repeat takes about this long at least, so that a clock's resolution and overhead do not matter
FEWEST_FOR_INTERVAL = 6  # with fewer repeats not even their range contains the median in 95 % of all cases


class LatencySettings(BaseModel):
    """How to measure. Repeats go on until there are `least_repeats` that took `least_ms`, or there are `most_repeats`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    warm_up_ms: float = Field(default=100, ge=0, description="calls that are not timed, for this many milliseconds")
    least_repeats: int = Field(default=20, ge=FEWEST_FOR_INTERVAL, description="least timed repeats")
    most_repeats: int = Field(default=1000, ge=FEWEST_FOR_INTERVAL, description="most timed repeats; wins over least_repeats")
    least_ms: float = Field(default=500, ge=0, description="least milliseconds of all timed repeats together")
    threads: int = Field(default=1, ge=1, description="CPU threads")
    batch: int = Field(default=1, ge=1, description="samples in one call")
    tolerance: float | None = Field(
        default=None,
        gt=0,
        description="largest error of the output, as a share of its largest value; if not given, what rounding explains",
    )
    tf32: bool = Field(default=False, description="whether GPUs may round float32 to 10 bits of mantissa in products")


class Timing(BaseModel):
    """What repeats say about one call, in milliseconds.

    Attributes:
        median_ms: of the repeats, each divided by its number of calls.
        low_ms, high_ms: the median's 95 % confidence interval.
        minimum_ms: the fastest repeat.
        repeats, calls_per_repeat: how much was timed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    median_ms: float
    low_ms: float
    high_ms: float
    minimum_ms: float
    repeats: int
    calls_per_repeat: int


def interval_of_median(ordered: Sequence[float]) -> tuple[float, float]:
    """The 95 % confidence interval of the median, whatever the distribution: two order statistics.

    The number of samples below the true median is binomial with p = 1/2; the interval leaves out at most 2.5 % of it at
    either end, counted exactly.

    Args:
        ordered: the samples, smallest first.

    Raises SpecError for fewer than 6 samples.
    """
    count = len(ordered)
    if count < FEWEST_FOR_INTERVAL:
        raise SpecError(
            f"{count} repeats have no 95 % interval of their median; it takes {FEWEST_FOR_INTERVAL} or more: repeat more often"
        )
    all_outcomes = 2**count
    rank, ways, below = 0, 1, 1  # `below`: outcomes with at most `rank` samples below the median
    while 40 * below <= all_outcomes:
        rank += 1
        ways = ways * (count - rank + 1) // rank
        below += ways
    return ordered[rank - 1], ordered[count - rank]


def time_calls(call: Callable[[], object], settings: LatencySettings, stopwatch: Stopwatch) -> Timing:
    """Time `call`: warm up, then repeat as `settings` say."""
    calls = _calls_per_repeat(_warm_up(call, settings.warm_up_ms, stopwatch))

    def repeat() -> None:
        for _ in range(calls):
            call()

    taken: list[float] = []
    total = 0.0
    while len(taken) < settings.most_repeats and (len(taken) < settings.least_repeats or total < settings.least_ms):
        elapsed = stopwatch(repeat)
        total += elapsed
        taken.append(elapsed / calls)
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


def _warm_up(call: Callable[[], object], least_ms: float, stopwatch: Stopwatch) -> float:
    """Call for `least_ms`, twice at least; the fastest call's milliseconds."""
    first = stopwatch(call)  # may compile or allocate: it is no estimate, and it warms only what it reached
    fastest = stopwatch(call)
    total = first + fastest
    while total < least_ms:
        elapsed = stopwatch(call)
        fastest = min(fastest, elapsed)
        total += max(elapsed, 1e-4)  # a clock that stands still ends, too
    return fastest


def _calls_per_repeat(call_ms: float) -> int:
    return max(1, math.ceil(REPEAT_MS / max(call_ms, 1e-4)))


def stopwatch_of(device: str) -> Stopwatch:
    """The stopwatch for work on `device`: events on the device for "cuda", the clock of the process for others."""
    return _time_events if device.startswith("cuda") else _time_clock


def _time_clock(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start)


def _time_events(work: Callable[[], object]) -> float:
    import torch  # here, so that settings can be read without torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()  # what was asked for before is not part of it
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))
