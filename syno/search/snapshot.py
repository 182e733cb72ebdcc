"""A snapshot of a search, from its storage: progress, rate, and whether it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from syno.search.halving import Step
from syno.search.storage.records import Kind, table
from syno.search.storage.store import is_exhausted, with_withdrawn, withdrawn
from syno.search.storage.view import Stored
from syno.search.trials import StudyState

if TYPE_CHECKING:
    import pandas

FINISHED = ("complete", "pruned", "paused", "failed")  # outcomes of trials that count
RECENT = timedelta(minutes=10)  # window of `recent`
LONGEST_GAP = timedelta(minutes=10)  # a longer time without a running trial is an interruption
IDLE_SECONDS = 60
LATEST = 30  # most finished trials that a rate is computed from
FEWEST = 3  # least number of finished trials for a rate


class StudyLimits(NamedTuple):
    """The settings of a study that decide when it ends.

    Attributes:
        trials: the study's total number of trials.
        most_screened: number of screened-out operators after which no more are proposed.
        most_attempts: number of workers that die during an operator's evaluation after which the operator counts as failed.
        keep: the share of all trials that continues at a rung, by step; None: no trial pauses.
    """

    trials: int
    most_screened: float = inf
    most_attempts: int = 3
    keep: Mapping[Step, float] | None = None


class Rate(NamedTuple):
    """A rate in trials per second, with the number of trials from which it was computed."""

    per_second: float
    trials: int


@dataclass(frozen=True)
class Snapshot:
    """A search at one moment.

    Attributes:
        now: time of the snapshot, by this machine's clock; comparable with the trials' times if all clocks agree.
        planned: number of trials that the study will have.
        ended: number of operators by outcome: complete, pruned, failed and paused.
        running: number of operators that are being evaluated.
        screened: number of screened-out operators, by a short reason.
        trials: all trials, as in `syno.search.storage.records.table`.
        withdrawn: reasons why equal failures stopped the search, the latest last.
        is_over: whether no operator remains to be evaluated or proposed, within the limits.
        is_exhausted: whether a worker found no operator of the space left to propose.
    """

    now: datetime
    planned: int
    ended: Mapping[Kind, int]
    running: int
    screened: Mapping[str, int]
    trials: pandas.DataFrame
    withdrawn: tuple[str, ...]
    is_over: bool
    is_exhausted: bool = False

    @property
    def finished(self) -> int:
        """The number of operators that count towards the planned number."""
        return sum(self.ended.values())

    @property
    def is_stopped(self) -> bool:
        """Whether failures stopped the search, and it was not started again."""
        return bool(self.withdrawn) and not self.running and str(self.trials["outcome"].iloc[-1]) == "withdrawn"

    def ended_trials(self) -> pandas.DataFrame:
        """Return the trials that count and have ended, in the order of their end times."""
        if self.trials.empty:
            return self.trials
        counts = self.trials["outcome"].isin([*FINISHED, "resumed"]) & self.trials["ended"].notna()
        return self.trials[counts].sort_values("ended", kind="stable")

    @property
    def seconds_since_last(self) -> float | None:
        """Seconds since the last trial ended; None if none has ended."""
        done = self.ended_trials()
        return None if done.empty else max(0.0, (self.now - done["ended"].iloc[-1]).total_seconds())

    @property
    def recent(self) -> int:
        """The number of trials that ended in the last 10 minutes."""
        done = self.ended_trials()
        return 0 if done.empty else int((done["ended"] >= self.now - RECENT).sum())

    @property
    def rate(self) -> Rate | None:
        """The rate at which trials end, over at most the last 30; None if fewer than 3 have ended since the last interruption.

        The time until now counts, so the rate falls while no trial ends. After an interruption of more than 10 minutes without
        a running trial, the measurement starts anew.
        """
        done = self.ended_trials()
        if done.empty:
            return None
        began, ended = list(done["started"]), list(done["ended"])
        first, is_gap = len(done), False
        while first > 0 and len(done) - first < LATEST and not is_gap:
            first -= 1
            is_gap = first == 0 or began[first] - ended[first - 1] > LONGEST_GAP
        since = min(began[first:]) if is_gap else ended[first - 1]
        count, seconds = len(done) - first, (self.now - since).total_seconds()
        return Rate(count / seconds, count) if count >= FEWEST and seconds > 0 else None

    @property
    def is_idle(self) -> bool:
        """Whether no trial is running, and none has ended in the last minute: longer than a worker usually needs for a
        proposal.
        """
        since = self.seconds_since_last
        return not self.running and (since is None or since > IDLE_SECONDS)

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the search ends, at the measured rate; None if nothing runs or the rate is unknown."""
        rate = self.rate
        if rate is None or self.is_idle or self.is_over:
            return None
        return max(0, self.planned - self.finished) / rate.per_second


def snapshot(stored: Stored, limits: StudyLimits, now: datetime) -> Snapshot:
    """Return the snapshot of a search from its stored trials. `now` has no time zone, like the times that Optuna stores."""
    reasons = withdrawn(stored.attributes)
    state = StudyState(limits.most_attempts, frozenset(reasons), limits.keep)
    state.update(stored.trials)
    exhausted = is_exhausted(stored.attributes)
    proposes = not exhausted and state.counted < limits.trials and state.screened.total() < limits.most_screened
    ended: dict[Kind, int] = {**state.ended, "paused": len(state.paused)}
    return Snapshot(
        now=now,
        planned=limits.trials,
        ended=ended,
        running=state.running,
        screened=dict(state.screened),
        trials=table(with_withdrawn(stored.trials, stored.attributes)),
        withdrawn=tuple(dict.fromkeys(reasons[number] for number in sorted(reasons))),
        is_over=not (proposes or state.unfinished(limits.trials) or state.to_resume(limits.trials)),
        is_exhausted=exhausted,
    )
