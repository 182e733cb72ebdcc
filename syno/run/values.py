"""The values of a run: scores, verdicts, latencies, speedups, trials. Figures, pages and sentences are made of them.

An unknown number is None; an unknown end of an interval is NaN, an unknown text empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from syno.base.interval import Interval
from syno.run.measurement import OK
from syno.train.metric import METRICS, Metric

if TYPE_CHECKING:
    from datetime import datetime

State = Literal["meets", "may meet", "misses", "unknown"]
STATES: tuple[State, ...] = ("meets", "may meet", "misses", "unknown")  # the best first
SPEED, SCORE = "speedup", "score"  # requirements of a goal; the others are the costs of `syno.search.goal.COSTS`
Target = tuple[str, str]  # device, compiler
UNKNOWN = Interval(nan)
T = TypeVar("T")
_ID = re.compile(r"^id ([0-9a-f]+)\s*$", re.MULTILINE)  # the last line of an operator's text


class Part(NamedTuple):
    """The part of a verdict on one requirement of a goal: whether, and by how much, a network meets it.

    Attributes:
        name: `SPEED`, `SCORE`, or a cost.
        state: "meets", "may meet", "misses" or "unknown" (`Verdict.state`).
        measured: the speedup, the loss of score, or the cost as a share of the original's; NaN where it was not measured.
        required: the least speedup, or the largest loss or share; None if the goal sets no limit.
        missing: the relative shortfall, by which networks are ordered; 0 if the requirement is met.
    """

    name: str
    state: State
    measured: Interval
    required: float | None = None
    missing: float = 0.0


class Verdict(NamedTuple):
    """The verdict on a network by a goal.

    Attributes:
        parts: the verdict's part on each requirement of the goal.
        metric: the metric of the score.
        seeds: the number of trainings behind the score; None if it is not known.
        among: the number of networks that this one was chosen from; its intervals are simultaneous over them.
    """

    parts: tuple[Part, ...]
    metric: Metric
    seeds: int | None = None
    among: int = 1

    @property
    def state(self) -> State:
        """The worst state of the goal's requirements.

        "meets": the whole interval meets the requirement; "may meet": the interval contains the limit, or there is no interval
        (as with one seed) and the number meets it; "misses": the whole interval, or a number without one, misses it;
        "unknown": the quantity was not measured.
        """
        return max((part.state for part in self.parts), key=STATES.index, default="unknown")

    @property
    def missing(self) -> float:
        """Distance from the goal: the sum of the relative shortfalls of requirements that are not met."""
        return sum(part.missing for part in self.parts)

    @property
    def binding(self) -> tuple[str, ...]:
        """The names of the requirements that are not met."""
        return tuple(part.name for part in self.parts if part.state != "meets")


@dataclass(frozen=True)
class Score:
    """A network's score, its mean over seeds, its costs, and the verdict on it.

    Attributes:
        operator, role, key, operator_id: the operator's name, its part in the experiment, its key in the store, and its id.
        metric: the name of the score's metric.
        score, spread, seeds: the mean, which is infinite after a training that diverged, the standard deviation, and the number
            of seeds.
        difference: the difference from the original's score, with its interval.
        flops, flops_share, parameters, parameters_share: costs, and as shares of the original's.
        verdict: the verdict by the goal of the search; None without a goal.
        speedup, timed: the speedup in the verdict, and how it was timed.
        reward: the reward of the trial, if the score is the search's.
        among: the number of networks that this one was chosen from by these numbers; its intervals are simultaneous over them.
    """

    operator: str
    role: str = ""
    key: str = ""
    metric: str = ""
    score: float | None = None
    spread: float | None = None
    seeds: int | None = None
    difference: Interval = UNKNOWN
    flops: float | None = None
    flops_share: float | None = None
    parameters: float | None = None
    parameters_share: float | None = None
    verdict: Verdict | None = None
    speedup: Interval = UNKNOWN
    timed: str = ""
    reward: float | None = None
    among: int = 1
    operator_id: str | None = None

    @property
    def is_finite(self) -> bool:
        """Whether the score is known, and the training did not diverge."""
        return self.score is not None and isfinite(self.score)

    @property
    def state(self) -> State | None:
        """The state of the network's verdict, such as "meets"; None without a goal."""
        return None if self.verdict is None else self.verdict.state

    @property
    def missing(self) -> float:
        """The network's distance from the goal (`Verdict.missing`); 0 without a goal."""
        return 0.0 if self.verdict is None else self.verdict.missing

    @property
    def lost(self) -> Interval:
        """The loss of score against the original; below 0 for a better score."""
        value, low, high = self.difference
        is_loss = self.metric in METRICS and not METRICS[self.metric].more_is_better
        return self.difference if is_loss else Interval(-value, -high, -low)


@dataclass(frozen=True)
class Latency:
    """The latency of a network, or of one of its layers.

    Attributes:
        operator, role, key, operator_id: as in `Score`.
        layer: the layer; "" for the whole network.
        device, device_name, compiler: the device as the settings name it and as it names itself, and the compiler.
        status, reason: as in a measurement.
        ms: milliseconds of one call; NaN where there is none.
        speedup: the speedup over the original with this compiler and device.
        batch, threads, is_checked: as in a measurement.
        is_suspicious: whether it is faster than the device's own peak allows.
        of_limit: the shortest time that the device's peak allows, as a share of the latency; None if it is not known.
    """

    operator: str
    role: str
    key: str
    layer: str
    device: str
    device_name: str
    compiler: str
    status: str
    reason: str
    ms: Interval
    speedup: float | None
    batch: int | None
    threads: int | None
    is_checked: bool | None
    is_suspicious: bool
    of_limit: float | None = None
    operator_id: str | None = None

    @property
    def target(self) -> Target:
        """The device and the compiler."""
        return self.device, self.compiler

    @property
    def is_ok(self) -> bool:
        """Whether the latency was measured successfully (status "ok"), so that it can be compared."""
        return self.status == OK


@dataclass(frozen=True)
class Speedup:
    """A network's speedup over the original.

    Attributes:
        operator, key, role: as in `Score`.
        device, compiler: the device and the compiler of the measurement.
        ratio: the speedup.
        timed: how it was timed, such as `syno.run.speedups.IN_TURNS`.
        is_suspicious: whether a latency behind it is faster than the device's own peak allows.
    """

    operator: str
    key: str
    role: str
    device: str
    compiler: str
    ratio: Interval
    timed: str
    is_suspicious: bool

    @property
    def target(self) -> Target:
        """The device and the compiler."""
        return self.device, self.compiler


@dataclass(frozen=True)
class TimedPart:
    """The time of a part of a network; `syno.run.breakdown.parts_of_record` defines the parts.

    Attributes:
        operator, key, role, operator_id: as in `Score`.
        device, compiler: the device and the compiler of the measurement.
        part, layer, count, stage: the part, its layer and the number of such layers, and the operator's stage; "" without one.
        ms, speedup: milliseconds, and the speedup over the original; NaN where they are unknown.
        status, reason, source: as in a measurement.
        of_limit: the shortest time that the device's peak allows, as a share of `ms`; None if it is not known.
    """

    operator: str
    key: str
    role: str
    device: str
    compiler: str
    part: str
    layer: str = ""
    count: int = 0
    stage: str = ""
    ms: Interval = UNKNOWN
    speedup: Interval = UNKNOWN
    status: str = OK
    reason: str = ""
    operator_id: str | None = None
    source: str = ""
    of_limit: float | None = None


class Round(NamedTuple):
    """The score of a network after a round of its training with a seed. Rounds count from 1."""

    operator: str
    metric: str
    seed: int | None
    number: int
    score: float


@dataclass(frozen=True)
class Trial:
    """A trial of a search, as `syno.search.storage.records.table` has it.

    Attributes:
        number, outcome, reward: number, outcome and reward of the trial.
        metrics: the measured values by the metric's name.
        name, operator: the operator's name, and its text.
        message: the reason why the trial is not complete.
        started, ended, seconds: when the trial ran, and how long its evaluation took.
        worker: host and process id of the worker.
        path, steps: the kinds and the ids of the trial's steps from the root of the space, separated by spaces.
        versions: versions of the packages.
    """

    number: int
    outcome: str
    reward: float | None
    metrics: Mapping[str, float] = field(default_factory=dict)
    name: str = ""
    operator: str = ""
    message: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    seconds: float | None = None
    worker: str = ""
    path: str = ""
    steps: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_rewarded(self) -> bool:
        """Whether the trial is complete and has a reward."""
        return self.outcome == "complete" and self.reward is not None

    @property
    def operator_id(self) -> str:
        """The id of the operator; "" if its text is not known."""
        return str((_ID.findall(self.operator) or [""])[-1])

    @property
    def last_line(self) -> str:
        """The last line of the message, which is the error at the end of a traceback; "" without a message."""
        return (self.message.strip().splitlines() or [""])[-1]


def best_first(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials with a reward, the highest first, and the earlier trial first among equals."""
    return sorted((trial for trial in trials if trial.is_rewarded), key=lambda trial: (-(trial.reward or 0.0), trial.number))


def last_of_each(values: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """Return the last value of each key, in the order in which these stand: a table may repeat a measurement."""
    kept: dict[Hashable, T] = {}
    for one in values:
        kept.pop(key(one), None)
        kept[key(one)] = one
    return list(kept.values())


def by_target(values: Iterable[T], target: Callable[[T], Target]) -> dict[Target, list[T]]:
    """Return values grouped by (device, compiler), in alphabetical order of these pairs."""
    groups: dict[Target, list[T]] = {}
    for one in values:
        groups.setdefault(target(one), []).append(one)
    return dict(sorted(groups.items()))
