"""What is known of the networks and the trials of a run, as values. Figures, pages and sentences are made of these.

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
    """One requirement of a goal, and how a network meets it.

    Attributes:
        name: `SPEED`, `SCORE`, or a cost.
        state: as in a verdict.
        measured: the speedup, the loss of score, or the cost as a share of the original's; NaN where it was not measured.
        required: the least speedup, or the largest loss or share; None where any will do.
        missing: by how much it is missed, as a share, by which networks are ordered; 0 if it is met.
    """

    name: str
    state: State
    measured: Interval
    required: float | None = None
    missing: float = 0.0


class Verdict(NamedTuple):
    """The verdict on a network by a goal.

    Attributes:
        parts: by the goal's requirements.
        metric: of the score.
        seeds: the number of trainings behind the score; None if it is not known.
        among: the number of networks that it was chosen from, which the intervals count.
    """

    parts: tuple[Part, ...]
    metric: Metric
    seeds: int | None = None
    among: int = 1

    @property
    def state(self) -> State:
        """The worst state of a requirement.

        "meets": all of it, with the whole intervals; "may meet": an interval contains the goal, or there is none, as with one
        seed, and the number itself meets it; "misses": an interval lies outside, or a number without one; "unknown": something
        was not measured.
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
        operator, role, key, operator_id: of the operator.
        metric: the name of the score's metric.
        score, spread, seeds: the mean, which is infinite after a training that diverged, the standard deviation, and the number
            of seeds.
        difference: from the original's score.
        flops, flops_share, parameters, parameters_share: costs, and as shares of the original's.
        verdict: by the goal of the search; None without a goal.
        speedup, timed: the one that the verdict is about, and how it was timed.
        reward: in the search, where the score is from there.
        among: the number of networks that it was chosen from by these numbers: its intervals count that.
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
        """The state of the verdict; None without a goal."""
        return None if self.verdict is None else self.verdict.state

    @property
    def missing(self) -> float:
        """The distance from the goal; 0 without a goal."""
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
        operator, role, key, operator_id: of the operator.
        layer: the layer; "" for the whole network.
        device, device_name, compiler: where; the device as the settings name it, and as it names itself.
        status, reason: as in a measurement.
        ms: milliseconds of one call; NaN where there is none.
        speedup: over the original there.
        batch, threads, is_checked: as in a measurement.
        is_suspicious: whether it is faster than the device's own peak allows.
        of_limit: the share of the device's limit; None if it is not known.
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
        """Whether it was measured successfully, so that it can be compared."""
        return self.status == OK


@dataclass(frozen=True)
class Speedup:
    """A network's speedup over the original.

    Attributes:
        operator, key, role: of the operator.
        device, compiler: where.
        ratio: the speedup.
        timed: how.
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
    """The time of a part of a network; `syno.run.breakdown.parts_of_record` says what the parts are.

    Attributes:
        operator, key, role, operator_id: of the operator.
        device, compiler: where.
        part, layer, count, stage: the part, its layer and how many the network has, and the stage; "" where there is none.
        ms, speedup: milliseconds, and the speedup over the original; NaN where they are unknown.
        status, reason, source: as in a measurement.
        of_limit: the share of the device's limit; None if it is not known.
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
        number, outcome, reward: of the trial.
        metrics: what was measured, by name.
        name, operator: the operator's name, and its text.
        message: why it is not complete.
        started, ended, seconds: when it ran, and how long the evaluation took.
        worker: who ran it.
        path, steps: the kinds and the ids of its steps, separated by spaces.
        versions: of the packages.
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
        """Whether it is complete and has a reward."""
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
    """Return the last value of each key, in the order of these: a table may repeat a measurement."""
    kept: dict[Hashable, T] = {}
    for one in values:
        kept.pop(key(one), None)
        kept[key(one)] = one
    return list(kept.values())


def by_target(values: Iterable[T], target: Callable[[T], Target]) -> dict[Target, list[T]]:
    """Return values by device and compiler, in the order of these."""
    groups: dict[Target, list[T]] = {}
    for one in values:
        groups.setdefault(target(one), []).append(one)
    return dict(sorted(groups.items()))
