"""Timing in turns: several calls are timed alternately in many rounds, so that a drift of the machine's speed cancels out.

>>> from syno.measure.timing import LatencySettings
>>> settings = LatencySettings(warm_up_ms=0, least_repeats=6, least_ms=0)
>>> turns = take_turns([lambda calls, repeats: [4.0] * repeats, lambda calls, repeats: [2.0] * repeats], settings)
>>> turns.speedups[0].value, turns.drift
(2.0, 0.0)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Self, TypeAlias

from pydantic import BaseModel, ConfigDict

from syno.base.record import Amount, Count, PositiveInterval
from syno.measure.timing import (
    Evaluate,
    LatencySettings,
    Stopwatch,
    calls_in_repeat,
    evaluate_of,
    median_interval,
    stopwatch_of,
    warm_up,
)

MOST_DRIFT = 0.1  # relative change of the first call's time over the rounds; above it, the rounds are timed again
MOST_ATTEMPTS = 3
Combine: TypeAlias = Callable[[Sequence[float]], Sequence[float]]
PARTS = 3  # thirds of the rounds are compared to detect a drift


class Turns(BaseModel):
    """The result of timing calls in turns. The first call is the original, with which the others are compared.

    Attributes:
        rounds: milliseconds of each call in each round, [rounds][calls].
        latencies: milliseconds of each call: the median over the rounds, with its 95 % confidence interval.
        speedups: for each call after the first, its speedup over the first: the median of the ratios in each round, with its 95
            % confidence interval.
        drift: the relative change of the first call's time: of the medians of the first, second and third third of the rounds,
            the largest minus the smallest, over the median of all rounds.
        attempts: number of attempts; `rounds` are those of the attempt with the least drift.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    rounds: tuple[tuple[float, ...], ...]
    latencies: tuple[PositiveInterval, ...]
    speedups: tuple[PositiveInterval, ...]
    drift: Amount
    attempts: Count = 1

    @classmethod
    def of(cls, rounds: Sequence[Sequence[float]]) -> Self:
        """Return the statistics of rounds. Raises SpecError for fewer than 6."""
        calls = range(len(rounds[0]))
        return cls(
            rounds=tuple(map(tuple, rounds)),
            latencies=tuple(median_interval([times[call] for times in rounds]) for call in calls),
            speedups=tuple(median_interval([times[0] / times[call] for times in rounds]) for call in calls[1:]),
            drift=drift_of([times[0] for times in rounds]),
        )

    @property
    def is_steady(self) -> bool:
        """Whether the drift is within the limit."""
        return self.drift <= MOST_DRIFT

    @property
    def unsteady(self) -> str:
        """A sentence about the drift if it is above the limit; else ""."""
        if self.is_steady:
            return ""
        return (
            f"the original's own time changed by {100 * self.drift:.0f} % over the rounds, more than {100 * MOST_DRIFT:.0f} %, "
            f"in each of {self.attempts} attempts: something else runs on this machine"
        )


def drift_of(times: Sequence[float]) -> float:
    """Return the drift of the original's times over the rounds; see `Turns.drift`."""
    ends = [len(times) * part // PARTS for part in range(PARTS + 1)]
    medians = [median(times[begin:end]) for begin, end in pairwise(ends)]
    return (max(medians) - min(medians)) / median(times)


def in_turns(calls: Sequence[Callable[[], object]], settings: LatencySettings, stopwatch: Stopwatch | None = None) -> Turns:
    """Warm up each of the calls, time them in turns, and return the statistics.

    Args:
        calls: the functions to time; the original is the first.
        settings: there are `least_repeats` rounds, in which each call takes `least_ms` in total. The rounds are timed again, up
            to 3 times, if the time of the original drifts by more than 10 %.
        stopwatch: times a series of calls; None: the wall clock of this process. For a GPU, `stopwatch_of("cuda")`.
    """
    clock = stopwatch or stopwatch_of("cpu")
    return take_turns([evaluate_of(call, clock) for call in calls], settings)


def take_turns(evaluates: Sequence[Evaluate], settings: LatencySettings, combined: Combine = tuple) -> Turns:
    """Time calls in turns as `in_turns`, with functions that time them, since remote devices have clocks of their own.

    Args:
        evaluates: a timing function for each call.
        settings: numbers of rounds and times, as for `in_turns`.
        combined: computes the times for the statistics from the times of a round, such as sums over layers. `Turns.rounds`
            are the measured times.
    """
    fastest = [warm_up(evaluate, settings) for evaluate in evaluates]
    found: list[Turns] = []
    while len(found) < MOST_ATTEMPTS and not any(turns.is_steady for turns in found):
        rounds = _rounds(evaluates, fastest, settings)
        found.append(Turns.of([combined(times) for times in rounds]).model_copy(update={"rounds": tuple(map(tuple, rounds))}))
    best = min(found, key=lambda turns: turns.drift)
    return best.model_copy(update={"attempts": len(found)})


def _rounds(evaluates: Sequence[Evaluate], fastest: Sequence[float], settings: LatencySettings) -> list[list[float]]:
    """Time the rounds. The order of calls is reversed in every second round, so that a steady drift favours no call."""
    count = min(settings.least_repeats, settings.most_repeats)
    calls = [calls_in_repeat(each) for each in fastest]
    most = max(1, settings.most_repeats // count)
    wanted = [settings.least_ms / count / (each * in_one) for each, in_one in zip(fastest, calls, strict=True)]
    repeats = [max(1, min(math.ceil(each), most)) for each in wanted]
    places, rounds = range(len(evaluates)), []
    for number in range(count):
        times = [0.0] * len(evaluates)
        for place in places if number % 2 == 0 else reversed(places):
            times[place] = median(evaluates[place](calls[place], repeats[place]))
        rounds.append(times)
    return rounds
