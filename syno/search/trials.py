"""The operators of a study, the states of their trials, and the assignment of trials to operators.

A trial evaluates one operator, once. It is RUNNING from its creation on, and ends in one of Optuna's states, COMPLETE, PRUNED
or FAIL, with the details in a `storage.records.Result`:

| state of an operator | its last trial | what follows |
| --- | --- | --- |
| evaluating | it is running, and its worker renews the lease | |
| requeued | it was interrupted, or its worker died | the next trial of the operator, up to `most_attempts` deaths |
| paused | it paused at a rung | another trial resumes it if it enters the best share, or it is stopped for good |
| ended | complete, pruned, failed | it counts towards `n_trials` |
| screened out | it cannot meet the goal | it does not count |

Who may change a trial: only the worker that created it stores its result and ends it; when its lease has expired, or its
process is known to be dead, any worker ends it, and the first to do so wins. Trials that have ended do not change. All states
in this module are derived from the stored trials and stored nowhere, so every worker has the same.

Among several trials of one operator, the one with the lowest number evaluates it. Numbers are assigned in the order of
creation, and a worker that creates a trial sees all lower numbers. So if two workers create trials of one operator at the same
moment, both know which of them continues; the other ends its trial as a duplicate, before any evaluation. The same holds for
each retry. Nothing else coordinates workers, so this works with every storage.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from optuna.trial import FrozenTrial, TrialState

from syno.ir.graph import PGraph
from syno.search.halving import Rungs, Step
from syno.search.policies.contract import Candidate, Policy
from syno.search.reward import Failure, Outcome
from syno.search.storage.records import FINGERPRINT, PRUNED_REWARD, Kind, Result, Told, candidate_of, deaths_in_words
from syno.search.storage.store import screening_metrics, values_at_rungs


@dataclass
class OperatorTrials:
    """An operator that the study evaluates, with its trials and its outcome.

    Attributes:
        rank: the number of operators whose first trial is earlier.
        candidate: the operator as policies know it.
        told: events that the policy was told just before it proposed this operator: the number of an operator's first trial for
            its outcome, and (first trial, step) for its value at a step.
        closed: names of nodes that were found to have no operators left.
        numbers: numbers of the operator's trials, one for each attempt.
        outcome: the operator's reward or failure; None while it is open.
        needs_trial: whether the operator's last trial was interrupted, so that the operator is requeued.
        passed: the last step after which one of its trials paused, 0 for its fit; -1 if none did.
        has_died: whether it failed because too many workers died during its evaluation.
        failure: the result that ended it, if its evaluation failed.
        screened: short reason why it was screened out; "" if it was not.
        screening: metrics of the passed screening and of the fit, known before its training; None if there are none yet.
        metrics: the metrics of the result that ended it.
    """

    rank: int
    candidate: Candidate
    told: tuple[Told, ...]
    closed: tuple[str, ...]
    numbers: list[int]
    outcome: Outcome | None = None
    needs_trial: bool = False
    passed: float = -1
    has_died: bool = False
    failure: Result | None = None
    screened: str = ""
    screening: Mapping[str, float] | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The number of the operator's first trial."""
        return self.numbers[0]

    def update(self, trials: Sequence[FrozenTrial], most_attempts: int) -> Kind | None:
        """Update the operator's state from its trials.

        Return how it ended: None if it is open, "paused" if it may be resumed.
        """
        result = Result.of(trials[-1])
        self.needs_trial = False
        self.screening = screening_metrics(trials)
        self.passed = max(map(_paused_after, trials), default=-1)
        if result is None and not trials[-1].state.is_finished():
            return None
        if result is not None and (outcome := result.outcome) is not None:
            self.outcome, self.metrics = outcome, result.metrics
            self.screened = result.cause or "screened" if result.kind == "screened" else ""
            self.failure = result if result.kind == "failed" else None
            return result.kind
        if result is not None and result.kind == "paused":
            return "paused"
        deaths = sum(trial.state.is_finished() and Result.of(trial) is None for trial in trials)
        if deaths >= most_attempts:
            self.outcome = Failure(deaths_in_words(deaths))
            self.has_died = True
            return "failed"
        self.needs_trial = True
        return None

    def tell(self, policy: Policy, *, is_stopped: bool = False) -> None:
        """Tell a policy the outcome of this operator, which must be known, or that it was stopped for good."""
        assert self.outcome is not None
        policy.measure(self.candidate, (self.screening or {}) if is_stopped else self.metrics)
        if is_stopped:
            policy.stop(self.candidate)
        elif self.screened:
            policy.screen_out(self.candidate)
        else:
            policy.tell(self.candidate, self.outcome)


def _paused_after(trial: FrozenTrial) -> float:
    """Return the step after which a trial paused, 0 for the fit; -1 if it did not pause."""
    result = Result.of(trial)
    return result.step if result is not None and result.kind == "paused" else -1


class Assignment(NamedTuple):
    """The purpose of a trial: an operator, and the number of its earlier trials."""

    entry: OperatorTrials
    attempt: int


@dataclass(frozen=True)
class RunningTrial:
    """A trial that this worker runs.

    Attributes:
        trial_id: the trial's id in the storage.
        number: the trial's number in the study.
        operator: the operator to evaluate.
        passed: the step after which an earlier trial of this operator paused, 0 for the fit; -1 if none did.
        screening: metrics that earlier trials of this operator measured before its training; None if none came so far.
    """

    trial_id: int
    number: int
    operator: PGraph
    passed: float = -1
    screening: Mapping[str, float] | None = None

    @classmethod
    def of(cls, trial_id: int, number: int, operator: PGraph, entry: OperatorTrials | None) -> RunningTrial:
        """Return a running trial; `entry` is its operator's state, None if the trial is a duplicate."""
        return (
            cls(trial_id, number, operator) if entry is None else cls(trial_id, number, operator, entry.passed, entry.screening)
        )


class PausedTrials:
    """The paused operators, and the values of all trials at the rungs.

    Values are entered in the order of trials, and of steps within a trial. A study with one worker stored them in this order,
    so a restarted worker makes the same decisions.

    Attributes:
        rungs: the values, by the operator's rank.
        stopped: operators that were stopped for good since the last `take_stopped`; their checkpoints can be deleted.
        unreported: values that the policy was not told yet: operators by (first trial, step), in the order of entry.
    """

    def __init__(self, keep: Mapping[Step, float]) -> None:
        self.rungs = Rungs(keep)
        self.stopped: list[OperatorTrials] = []
        self.unreported: dict[tuple[int, Step], OperatorTrials] = {}
        self._paused: dict[int, OperatorTrials] = {}  # by rank
        self._overtaken: dict[int, OperatorTrials] = {}

    def __len__(self) -> int:
        """Return the number of operators that have paused, including those stopped for good."""
        return len(self._paused) + len(self._overtaken)

    def measure(self, trials: Iterable[tuple[OperatorTrials, FrozenTrial]]) -> None:
        """Enter the new values of trials at rungs; each trial comes with its operator."""
        new_values = [
            (trial.number, step, entry, value)
            for entry, trial in trials
            for step, value in values_at_rungs(trial).items()
            if step in self.rungs.keep and not self.rungs.has(entry.rank, step)
        ]
        for _, step, entry, value in sorted(new_values, key=lambda row: row[:2]):
            self.rungs.enter(entry.rank, step, value)
            self.unreported[entry.number, step] = entry

    def is_stopped(self, entry: OperatorTrials) -> bool:
        """Return whether an operator was stopped for good."""
        return entry.rank in self._overtaken

    def add(self, entry: OperatorTrials) -> None:
        """Add an operator whose last trial has paused."""
        self._paused[entry.rank] = entry

    def remove(self, entry: OperatorTrials) -> bool:
        """Remove an operator because a new trial resumes it. Return whether it was paused."""
        removed = self._paused.pop(entry.rank, None) or self._overtaken.pop(entry.rank, None)
        if removed is not None:
            entry.outcome = None
        return removed is not None

    def stop_overtaken(self) -> None:
        """Set the outcome of operators that are stopped for good: the reward of a pruned trial."""
        for rank, entry in list(self._paused.items()):
            if self.rungs.has(rank, entry.passed) and self.rungs.is_overtaken(rank, entry.passed):
                entry.outcome = PRUNED_REWARD
                self.stopped.append(entry)
                self._overtaken[rank] = self._paused.pop(rank)

    def best(self) -> list[int]:
        """Return the ranks of the paused operators to promote, the first to resume first."""
        return self.rungs.best({rank: entry.passed for rank, entry in self._paused.items()}) if self._paused else []

    def take_stopped(self) -> list[OperatorTrials]:
        """Return the operators that were stopped for good since the last call, except those resumed by another worker."""
        taken = [entry for entry in self.stopped if entry.rank in self._overtaken]
        self.stopped.clear()
        return taken


class StudyState:
    """The state of a study: its operators, kept up to date with the stored trials.

    Attributes:
        entries: the operators in the order of their ranks, that is, of their first trials.
        ended: number of operators by outcome.
        best: the highest reward, and the number of its trial.
        seen: number of known trials, which is the number of the next one.
        withdrawn: numbers of trials that are ignored; see `syno.search.storage.store.withdrawn`.
        has_blamed_function: whether the user's function, not an operator, caused a failure.
        screened: number of screened-out operators, by a short reason.
        fastest_screened: the highest measured speedup of operators that were screened out; None without one.
        last_success: the highest number of a trial that is complete, pruned or paused; -1 without one.
        died: operators that failed because too many workers died during their evaluation.
        paused: the paused operators, and those among them that were stopped for good (`PausedTrials`).
    """

    def __init__(self, most_attempts: int, withdrawn: Set[int] = frozenset(), keep: Mapping[Step, float] | None = None) -> None:
        """Create the state. `keep` is the share of all trials that continues, by step; None: no trial pauses."""
        self.most_attempts = most_attempts
        self.keep = keep or {}
        self.paused = PausedTrials(self.keep)
        self.withdrawn = withdrawn
        self.has_blamed_function = False
        self.last_success = -1
        self.entries: list[OperatorTrials] = []
        self.ended: dict[Kind, int] = {"complete": 0, "pruned": 0, "failed": 0}
        self.died: list[OperatorTrials] = []
        self.screened: Counter[str] = Counter()
        self.fastest_screened: float | None = None
        self._screened: list[int] = []  # ranks, sorted
        self.best: tuple[float, int] | None = None
        self.seen = 0
        self._by_fingerprint: dict[str, OperatorTrials] = {}
        self._open: dict[int, OperatorTrials] = {}  # by rank
        self._assignments: dict[int, Assignment] = {}

    def without(self, withdrawn: Set[int]) -> StudyState:
        """Return an empty state with the same settings, which ignores the `withdrawn` trials."""
        return StudyState(self.most_attempts, withdrawn, self.keep)

    def update(self, trials: Sequence[FrozenTrial]) -> list[OperatorTrials]:
        """Update the state with all stored trials. Return the new operators, in order."""
        new = [entry for trial in trials[self.seen :] if (entry := self.enter(trial)) is not None]
        if self.keep:
            self.paused.measure([(entry, trials[number]) for entry in self._open.values() for number in entry.numbers])
        for rank, entry in list(self._open.items()):
            kind = entry.update([trials[number] for number in entry.numbers], self.most_attempts)
            if kind is None:
                continue
            del self._open[rank]
            if kind == "screened":
                self.screened[entry.screened] += 1
                if (speedup := entry.metrics.get("speedup")) is not None:
                    self.fastest_screened = max(speedup, self.fastest_screened or 0.0)
                insort(self._screened, rank)
                continue
            if kind == "paused":
                self.paused.add(entry)
                self.last_success = max(self.last_success, entry.numbers[-1])
                continue
            self.ended[kind] += 1
            if entry.has_died:
                self.died.append(entry)
            if entry.failure is not None and entry.failure.fault == "function":
                self.has_blamed_function = True
            if kind != "failed":
                self.last_success = max(self.last_success, entry.numbers[-1])
            if isinstance(entry.outcome, float) and kind == "complete" and (self.best is None or entry.outcome > self.best[0]):
                self.best = (entry.outcome, entry.numbers[-1])
        self.paused.stop_overtaken()
        return new

    def enter(self, trial: FrozenTrial) -> OperatorTrials | None:
        """Add the trial whose number is `seen`. Return its operator if this is the operator's first trial."""
        assert trial.number == self.seen, f"trial {trial.number} in place of {self.seen}"
        self.seen += 1
        fingerprint = trial.user_attrs.get(FINGERPRINT)
        if fingerprint is None:  # a trial of another program in the same study
            return None
        if trial.number in self.withdrawn:
            return None
        attempt, entry = int(trial.user_attrs["attempt"]), self._by_fingerprint.get(fingerprint)
        if entry is None:
            stored = trial.user_attrs
            told = tuple(event if isinstance(event, int) else (event[0], event[1]) for event in stored["told"])
            closed = tuple(stored.get("closed", ()))
            entry = OperatorTrials(len(self.entries), candidate_of(trial), told, closed, [trial.number])
            self.entries.append(entry)
            self._by_fingerprint[fingerprint] = self._open[entry.rank] = entry
            self._assignments[trial.number] = Assignment(entry, 0)
            return entry
        if attempt == len(entry.numbers):
            entry.numbers.append(trial.number)
            entry.needs_trial = False
            if self.paused.remove(entry):
                self._open[entry.rank] = entry
            self._assignments[trial.number] = Assignment(entry, attempt)
        return None

    def assignment(self, number: int) -> Assignment | None:
        """Return the assignment of a trial; None if an earlier trial has the same assignment (a duplicate)."""
        return self._assignments.get(number)

    def place(self, rank: int) -> int:
        """Return the number of operators with lower ranks that were not screened out."""
        return rank - bisect_left(self._screened, rank)

    @property
    def counted(self) -> int:
        """The number of operators that count towards `n_trials`: those that were not screened out."""
        return len(self.entries) - len(self._screened)

    def to_retry(self, most: int) -> list[OperatorTrials]:
        """Return the operators to requeue among the first `most`, in order: those whose last trial was interrupted."""
        return [entry for entry in self.unfinished(most) if entry.needs_trial]

    def to_resume(self, most: int) -> list[OperatorTrials]:
        """Return the paused operators to promote among the first `most`, in order."""
        return [self.entries[rank] for rank in self.paused.best() if self.place(rank) < most]

    def unfinished(self, most: int) -> list[OperatorTrials]:
        """Return the unfinished operators among the first `most`, in order: running or requeued."""
        return [entry for rank, entry in self._open.items() if self.place(rank) < most]

    @property
    def finished(self) -> int:
        """The number of operators that have ended or paused."""
        return sum(self.ended.values()) + len(self.paused)

    @property
    def running(self) -> int:
        """The number of operators that are being evaluated, according to the stored trials."""
        return sum(not entry.needs_trial for entry in self._open.values())


def is_running(trial: FrozenTrial) -> bool:
    """Return whether a trial is running and was created by Syno, not by another program."""
    return trial.state == TrialState.RUNNING and FINGERPRINT in trial.user_attrs
