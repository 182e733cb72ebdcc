"""The scheduler of trials: chooses a worker's next trial, and decides whether its study goes on.

Every worker decides for itself, from the stored trials alone; so no server is needed, and all workers decide alike.

A worker reads the trials, tells its policy the new outcomes, and then creates a trial: for an operator whose trial was
interrupted (a retry) or paused (a promotion to the next rung), or else for an operator that the policy proposes. If other
workers have created trials in between, it reads them again, and runs its trial only if no earlier one has the same assignment
(`StudyState`). The policy learns all trials from the storage, including those of this worker. So a restarted worker rebuilds
the same policy.

A study stops early if the set-up, not an operator, is broken: see `Terminator`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from optuna.trial import FrozenTrial

from syno.base.errors import SearchStoppedError
from syno.base.record import versions
from syno.ir.graph import PGraph
from syno.search.faults import Fault, alike
from syno.search.policies.contract import EXHAUSTED, Policy, Proposal
from syno.search.reward import Failure
from syno.search.settings import differences
from syno.search.storage.records import Result, Told, attributes, operator_of, worker_of
from syno.search.storage.store import SETTINGS, TrialStore, rung_attribute, rung_key, withdrawn
from syno.search.trials import OperatorTrials, RunningTrial, StudyState, is_running
from syno.search.walks import Draws
from syno.search.workers import Worker

PACKAGES = ("optuna", "torch")  # packages whose versions are stored with trials
FROZEN_AT_ONCE = 100  # new trials between two calls of gc.freeze
CLOSED_AT_ONCE = 1000  # names in one trial, 35 KB: MySQL stores at most 64 KiB
EQUAL_AT_START = 2  # equal failures in a row that stop a study in which nothing has succeeded
EQUAL_LATER = 10  # after a success: operators that fail alike may come one after another by chance
MACHINE_ATTEMPTS = 2  # failures of the machine in a row that stop a worker
AGAIN = "Mend it and run the same command again: these trials are evaluated again, and n_trials is not spent on them"


class Scheduler:
    """One worker's view of a study: its state, its policy, and the choice of trials."""

    def __init__(
        self,
        store: TrialStore,
        policy: Policy,
        most_attempts: int,
        terminator: Terminator | None = None,
        keep: Mapping[float, float] | None = None,
    ) -> None:
        """Create the scheduler. Without `terminator`, failures never stop the worker; without `keep`, trials do not pause."""
        self.store = store
        self.policy = policy
        self.state = StudyState(most_attempts, keep=keep)
        self.terminator = terminator
        self.is_exhausted = False
        self._to_tell: dict[int, OperatorTrials] = {}  # operators whose outcomes the policy was not told yet, by number
        self._unrecorded: list[Told] = []  # events that the policy was told since its last proposal
        self._own: set[int] = set()  # ids of trials of this object that have not ended
        self._salt = ""
        self._is_rebuilding = True
        self._looked_for_stale = -float("inf")
        self._frozen = 0  # number of trials excluded from garbage collection
        self._versions = versions(PACKAGES)

    def read(self, trials: Sequence[FrozenTrial] | None = None) -> None:
        """Update state and policy with all stored trials, in an order that depends only on the storage.

        Args:
            trials: all trials, if the caller has just read them; None: they are read here.
        """
        for entry in self.state.update(self.store.trials() if trials is None else trials):
            self._adopt(entry)
        events: list[Told] = [*self.state.paused.unreported, *self._to_tell]
        for told in events:
            self._tell(told)
        self._is_rebuilding = False

    def _adopt(self, entry: OperatorTrials) -> None:
        """Replay the events before a new operator's proposal, and let the policy adopt the operator."""
        for told in entry.told:
            self._tell(told)
        if self._is_rebuilding:
            self._propose_again(entry)
        self._unrecorded = [told for told in self._unrecorded if told not in entry.told]
        self.policy.hear_closed(entry.closed)
        self.policy.adopt(entry.candidate)
        self._to_tell[entry.number] = entry

    def _propose_again(self, entry: OperatorTrials) -> None:
        """Repeat the proposal of this operator, so that policy and tree cache the same dead ends as when it was made.

        This works as long as the study had one worker: with several, a proposal does not follow from the trials before it.
        """
        proposal = self.policy.propose()
        self._is_rebuilding = isinstance(proposal, Proposal) and proposal.path == entry.candidate.path

    def _tell(self, told: Told) -> None:
        """Tell the policy the outcome of an operator, or its value at a step, if that is known and new."""
        if not isinstance(told, int):
            return self._report(told)
        entry = self._to_tell.get(told)
        if entry is not None and entry.outcome is not None:
            del self._to_tell[told]
            self._unrecorded.append(told)
            entry.tell(self.policy, is_stopped=self.state.paused.is_stopped(entry))

    def _report(self, told: tuple[int, float]) -> None:
        entry = self.state.paused.unreported.pop(told, None)
        if entry is not None:
            self._unrecorded.append(told)
            self.policy.measure(entry.candidate, entry.screening or {})
            self.policy.report(entry.candidate, told[1], self.state.paused.rungs.value(entry.rank, told[1]))

    def begin(self, *, alone: bool = False) -> None:
        """Start as a worker of the study. With `alone`, the workers of all running trials count as dead (`end_dead`)."""
        trials = self.end_dead(alone=alone)
        if self.terminator is not None and not self.state.seen:
            self.state = self.terminator.begin(trials, self.state)

    def end_dead(self, *, alone: bool = False) -> Sequence[FrozenTrial]:
        """End the trials of dead workers, so that they are retried. Returns all trials as stored afterwards.

        With `alone`, the workers of all running trials count as dead.
        """
        now, trials = time.monotonic(), self.store.trials()
        ended = [self._end_gone(trial, alone) for trial in trials if is_running(trial)]
        self._own.clear()
        if any(ended):
            trials = self.store.trials()
        if now - self._looked_for_stale >= self.store.leases.interval / 2:
            self._looked_for_stale = now
            if self.store.end_stale([trial for trial in trials if is_running(trial)]):
                trials = self.store.trials()
        return trials

    def _end_gone(self, trial: FrozenTrial, alone: bool) -> bool:
        """End a running trial if its worker is dead. Return whether it was ended."""
        result, trial_id = Result.of(trial), self.store.id_of(trial)
        if result is not None:  # its worker died between storing the result and ending the trial
            self.store.end(trial_id, result.state, result.reward)
        elif alone or trial_id in self._own or worker_of(trial).is_gone():
            self.store.end(trial_id, Result("interrupted").state)
            self.store.leases.forget(trial_id)
        else:
            return False
        return True

    def next(self, most: int, most_screened: float = inf) -> RunningTrial | None:
        """Create the next trial for this worker and return it; None if none of the first `most` operators needs a trial.

        Operators that were screened out do not count. After `most_screened` of them, nothing new is proposed. None is not
        final: while `has_unfinished`, trials of other workers may still be interrupted and requeued.

        Raises SearchStoppedError if evaluations fail for reasons other than the operators; see `Terminator`.
        """
        trial = self._next(most, most_screened)
        if self.state.seen >= self._frozen + FROZEN_AT_ONCE:
            self._frozen = self.state.seen
            gc.collect()
            gc.freeze()  # see `syno.search.study`
        return trial

    def has_unfinished(self, most: int, *, seen: bool = True) -> bool:
        """Return whether one of the first `most` operators was unfinished at the last call of `next`.

        Args:
            most: number of operators.
            seen: whether operators count whose worker is visibly running. False: only those that need a trial, and those whose
                worker may have died unseen, on another machine.
        """
        entries = self.state.unfinished(most)
        if seen:
            return bool(entries)
        trials = self.store.trials()
        return any(entry.needs_trial or not worker_of(trials[entry.numbers[-1]]).is_running() for entry in entries)

    def _next(self, most: int, most_screened: float) -> RunningTrial | None:
        while True:
            self.read(self.end_dead())
            if self.terminator is not None:
                self.terminator.check(self.state)
            paused = self.state.to_retry(most) or self.state.to_resume(most)
            if paused:  # with a salt, a random one, since other workers choose at the same time
                entry = Draws("retry", self._salt).generator().choice(paused) if self._salt else paused[0]
                trial = self._retry(entry)
            elif self.state.counted < most and self.state.screened.total() < most_screened and not self.is_exhausted:
                proposal = self.policy.propose(self._salt)
                if proposal is EXHAUSTED:
                    self.is_exhausted = True
                    self.store.exhaust(len(self.state.withdrawn))
                    return None
                trial = self._begin(proposal, attempt=0)
            else:
                return None
            if self._may_run(trial, most):
                return trial

    def _retry(self, entry: OperatorTrials) -> RunningTrial:
        operator = operator_of(self.store.trials()[entry.number])
        return self._begin(Proposal(entry.candidate.path, entry.candidate.fingerprint, operator), len(entry.numbers))

    def _begin(self, proposal: Proposal, attempt: int) -> RunningTrial:
        stored = attributes(
            proposal,
            attempt=attempt,
            told=[] if attempt else list(self._unrecorded),
            closed=[] if attempt else self.policy.found_closed[:CLOSED_AT_ONCE],
            salt=self._salt,
            seed=self.policy.seed,
            worker=Worker.here(),
            versions=self._versions,
        )
        trial_id = self.store.create(stored)
        self._own.add(trial_id)
        created = self.store.stored(trial_id)
        if created.number != self.state.seen:  # other workers have created trials in between
            self.read()
        elif (entry := self.state.enter(created)) is not None:  # saves reading all trials for a single new one
            self._adopt(entry)
        assignment = self.state.assignment(created.number)
        return RunningTrial.of(trial_id, created.number, proposal.operator, None if assignment is None else assignment.entry)

    def _may_run(self, trial: RunningTrial, most: int) -> bool:
        """Return whether the trial that this worker has just created is needed. If not, end it."""
        assignment = self.state.assignment(trial.number)
        if assignment is None:  # from now on, diverge from workers that propose at the same time
            self._salt = str(trial.number)
            self.finish(trial, Result("duplicate", message="another worker had begun with this operator a moment before"))
            return False
        if self.state.place(assignment.entry.rank) >= most:  # several workers created the last trial at the same time
            reason = f"the study had {most} trials already; more would go on with this"
            self.finish(trial, Result("interrupted", message=reason))
            return False
        return True

    def goes_on(self, trial: RunningTrial, step: float, value: float) -> bool:
        """Return whether a running trial continues after a step; False: it must pause.

        If the step is a rung that the operator has not passed, the value is stored and compared with those of all trials.
        """
        rungs = self.state.paused.rungs
        if step not in rungs.keep or step <= trial.passed:
            return True
        if not self.store.annotate(trial.trial_id, rung_key(step), rung_attribute(value)):
            return False  # another worker has ended the trial, because its lease had expired
        self.read()
        assignment = self.state.assignment(trial.number)
        return assignment is None or not rungs.has(assignment.entry.rank, step) or rungs.goes_on(assignment.entry.rank, step)

    def stopped_for_good(self) -> list[PGraph]:
        """Return the operators of paused trials that were stopped for good since the last call, to delete their checkpoints."""
        entries = self.state.paused.take_stopped()
        trials = self.store.trials() if entries else []
        return [operator_of(trials[entry.number]) for entry in entries]

    def finish(self, trial: RunningTrial, result: Result) -> bool:
        """Store the result of a trial and end it. Return False if another worker ended it because its lease had expired."""
        kept = self.store.annotate(trial.trial_id, "result", result.stored())
        if kept:
            self.store.end(trial.trial_id, result.state, result.reward)
        self._own.discard(trial.trial_id)
        return kept


class Terminator:
    """Decides for one worker whether its study goes on: it stops if the set-up is broken.

    Attributes:
        withdrawn: numbers of trials that did not count when the worker began; see `syno.search.storage.store.withdrawn`.
    """

    def __init__(self, store: TrialStore, settings: Mapping[str, Any]) -> None:
        self._store = store
        self._settings = settings
        self.withdrawn: frozenset[int] = frozenset()

    @property
    def is_outdated(self) -> bool:
        """Whether another worker has withdrawn trials since this worker began."""
        return withdrawn(self._store.attributes).keys() != self.withdrawn

    def begin(self, trials: Sequence[FrozenTrial], empty: StudyState) -> StudyState:
        """Return an empty state with the settings of `empty`, without the withdrawn trials, for a worker that begins.

        If an earlier worker was killed just before it withdrew the last failures, they are withdrawn now.
        """
        while True:
            self.withdrawn = frozenset(withdrawn(self._store.attributes))
            state = empty.without(self.withdrawn)
            state.update(trials)
            equal = equal_failures(state)
            if not self._are_enough(equal, state):
                return empty.without(self.withdrawn)
            self._withdraw(equal, _cause(equal[-1]))

    def check(self, state: StudyState) -> None:
        """Raise SearchStoppedError if evaluations of any worker fail alike, or if the study's settings have changed."""
        if (
            state.last_success < 0 or state.has_blamed_function
        ):  # otherwise no worker can have stopped the study, and a query is saved
            self._check_others()
        equal = equal_failures(state)
        if self._are_enough(equal, state):
            count, place = len(equal), "" if state.last_success >= 0 else ", and none has succeeded"
            reason = f"{count} trials in a row failed alike{place}; the last: {_cause(equal[-1])}"
            self._withdraw(equal, reason)
            raise self._stopped(reason)

    def check_end(self, state: StudyState, n_trials: int) -> None:
        """Raise SearchStoppedError if a study has ended and all of its trials failed.

        Not if operators were screened out and the user's function is not to blame: it is a result that no operator meets the
        goal.
        """
        if not n_trials or not state.finished or state.last_success >= 0 or state.unfinished(n_trials):
            return
        blamed = [entry for entry in state.entries if _blames_function(entry)]
        count, last = state.finished, next(filter(None, map(_cause, reversed(state.entries))), "no reason was stored")
        reason = f"all {count} trials failed; the last: {last}" if count > 1 else f"its only trial failed: {last}"
        if blamed:
            self._withdraw(blamed, reason)
            raise self._stopped(reason)
        if state.screened:
            return
        raise SearchStoppedError(
            f'study "{self._name}": {reason}. Change the settings and run the same command again: as no trial has succeeded, '
            "the study begins anew with them"
        )

    @property
    def _name(self) -> str:
        return self._store.study.study_name

    def _check_others(self) -> None:
        attributes = self._store.attributes
        changed = differences(attributes.get(SETTINGS), self._settings)
        if changed:
            raise SearchStoppedError(
                f'study "{self._name}" was given other settings by another worker: {"; ".join(changed)} ("there" is the study)'
            )
        known = withdrawn(attributes)
        new = known.keys() - self.withdrawn
        if new:
            raise self._stopped(known[max(new)])

    def _are_enough(self, equal: Sequence[OperatorTrials], state: StudyState) -> bool:
        is_start = state.last_success <= max(
            self.withdrawn, default=-1
        )  # no success since the study began, or since its set-up was repaired
        return len(equal) >= (EQUAL_AT_START if is_start else EQUAL_LATER)

    def _withdraw(self, entries: Iterable[OperatorTrials], reason: str) -> None:
        self._store.withdraw([entry.numbers[-1] for entry in entries], reason)

    def _stopped(self, reason: str) -> SearchStoppedError:
        return SearchStoppedError(
            f'study "{self._name}" stopped: {reason}. {AGAIN}. Where operators are to blame, let the function raise '
            "syno.base.errors.TrainingError"
        )


def stopped_by_machine(name: str, fault: Fault) -> SearchStoppedError:
    """Return the error of a worker that stops because its machine failed."""
    error = SearchStoppedError(
        f'a worker of study "{name}" stopped, because its machine failed: {fault.cause}. Its trial was given back: other '
        "workers go on with it, as the same command does when the machine is mended"
    )
    error.may_pass = fault.may_pass
    return error


def equal_failures(state: StudyState) -> list[OperatorTrials]:
    """Return the last operators whose evaluation ended, if the user's function failed alike in all of them, in their order."""
    equal: list[OperatorTrials] = []
    for entry in reversed(state.entries):
        if entry.outcome is None or entry.screened:
            continue
        if not _blames_function(entry) or (equal and alike(_cause(entry)) != alike(_cause(equal[0]))):
            break
        equal.append(entry)
    return equal[::-1]


def _blames_function(entry: OperatorTrials) -> bool:
    return entry.failure is not None and entry.failure.fault == "function"


def _cause(entry: OperatorTrials) -> str:
    """Return the cause of an operator's failure in one line; "" if it did not fail."""
    if entry.failure is not None and entry.failure.cause:
        return entry.failure.cause
    return entry.outcome.reason.splitlines()[-1] if isinstance(entry.outcome, Failure) else ""  # the last line of a traceback
