"""Which trial a worker runs next: decided by every worker for itself, from what is stored.

A worker reads the trials, tells its policy what is new, and then creates a trial: of an operator whose trial was interrupted,
else of one that the policy proposes. It reads the trials again if others were created in between; if the ledger gives the
trial a role, it runs it. The policy hears of everything as it is stored, of this worker's own trials too: so a worker that is
started anew gets the same policy.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from platform import python_version

from optuna.trial import FrozenTrial

from syno.ir.graph import PGraph
from syno.search.draws import Draws
from syno.search.garbage import keep
from syno.search.ledger import Claim, Ledger, is_running
from syno.search.policies.contract import EXHAUSTED, Policy, Proposal
from syno.search.stopping import Stopping
from syno.search.storage.records import Result, attributes, operator_of, worker_of
from syno.search.storage.storage import TrialStore
from syno.search.worker import Worker

PACKAGES = ("syno", "optuna", "torch")
KEPT_AT_ONCE = 100  # trials
CLOSED_AT_ONCE = 1000  # names in one trial, 35 KB: MySQL keeps 64 KiB


@dataclass(frozen=True)
class Task:
    """A trial that this worker is to run.

    Attributes:
        trial_id: its id in the storage.
        number: its number in the study.
        operator: what to evaluate.
    """

    trial_id: int
    number: int
    operator: PGraph


class Dispatch:
    """One worker's view of a study."""

    def __init__(self, store: TrialStore, policy: Policy, most_attempts: int, stopping: Stopping | None = None) -> None:
        """Without `stopping` the worker goes on whatever fails."""
        self.store = store
        self.policy = policy
        self.ledger = Ledger(most_attempts)
        self.stopping = stopping
        self.is_exhausted = False
        self._to_tell: dict[int, Claim] = {}  # claims whose outcomes the policy doesn't know, by number
        self._unrecorded: list[int] = []  # numbers of claims whose outcomes it knows, and no trial says it was proposed after
        self._own: set[int] = set()  # ids of trials of this object that have not ended
        self._salt = ""
        self._is_rebuilding = True
        self._looked_for_stale = -float("inf")
        self._kept = 0  # how many trials the garbage collector passes over

    # ---- reading --------------------------------------------------------------------------------------------------

    def read(self, trials: Sequence[FrozenTrial] | None = None) -> None:
        """Take note of everything that is stored, and tell the policy of it, in an order that follows from what is stored.

        Args:
            trials: all of them, by who has just read them.
        """
        for claim in self.ledger.update(self.store.trials() if trials is None else trials):
            self._take_note(claim)
        for number in list(self._to_tell):
            self._tell(number)
        self._is_rebuilding = False

    def _take_note(self, claim: Claim) -> None:
        """Of one that is new."""
        for number in claim.told:
            self._tell(number)
        if self._is_rebuilding:
            self._propose_again(claim)
        self._unrecorded = [number for number in self._unrecorded if number not in claim.told]
        self.policy.hear_closed(claim.closed)
        self.policy.adopt(claim.candidate)
        self._to_tell[claim.number] = claim

    def _propose_again(self, claim: Claim) -> None:
        """Let the policy, and with it the tree, learn what they learnt when this was proposed.

        Only of a study that had one worker so far: with several, no proposal followed from just what is stored before it.
        """
        proposal = self.policy.propose()
        self._is_rebuilding = isinstance(proposal, Proposal) and proposal.path == claim.candidate.path

    def _tell(self, number: int) -> None:
        claim = self._to_tell.get(number)
        if claim is not None and claim.outcome is not None:
            del self._to_tell[number]
            self._unrecorded.append(number)
            self.policy.tell(claim.candidate, claim.outcome)

    def begin(self, *, alone: bool = False) -> None:
        """Be a worker from now on; see `end_dead` for `alone`."""
        trials = self.end_dead(alone=alone)
        if self.stopping is not None and not self.ledger.seen:
            self.ledger = self.stopping.begin(trials, self.ledger.most_attempts)

    def end_dead(self, *, alone: bool = False) -> Sequence[FrozenTrial]:
        """End the trials whose workers are gone, so that they are retried. Returns all trials as they are stored then.

        With `alone`, all running trials are of workers that are gone.
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
        """End a running trial if its worker is gone. Whether it was."""
        result = Result.of(trial)
        if result is not None:  # its worker had all but ended it
            self.store.end(trial._trial_id, result.state, result.reward)
        elif alone or trial._trial_id in self._own or worker_of(trial).is_gone():
            self.store.end(trial._trial_id, Result("interrupted").state)
            self.store.leases.forget(trial._trial_id)
        else:
            return False
        return True

    # ---- the next trial -------------------------------------------------------------------------------------------

    def next(self, most: int) -> Task | None:
        """A trial to run, now running; None if there is nothing to begin with among the first `most` claims.

        None is not the end: while `ledger.is_open`, trials of other workers may yet be interrupted.

        Raises SearchStoppedError if evaluations fail for a reason that no operator is to blame for; see `Stopping`.
        """
        task = self._next(most)
        if self.ledger.seen >= self._kept + KEPT_AT_ONCE:
            self._kept = self.ledger.seen
            keep()
        return task

    def _next(self, most: int) -> Task | None:
        while True:
            self.read(self.end_dead())
            if self.stopping is not None:
                self.stopping.check(self.ledger)
            interrupted = self.ledger.to_retry(most)
            if interrupted:  # with a salt any of them, as others look for one too
                claim = Draws("retry", self._salt).generator().choice(interrupted) if self._salt else interrupted[0]
                task = self._retry(claim)
            elif len(self.ledger.claims) < most and not self.is_exhausted:
                proposal = self.policy.propose(self._salt)
                if proposal is EXHAUSTED:
                    self.is_exhausted = True
                    return None
                task = self._begin(proposal, attempt=0)
            else:
                return None
            if self._may_run(task, most):
                return task

    def _retry(self, claim: Claim) -> Task:
        operator = operator_of(self.store.trials()[claim.number])
        return self._begin(Proposal(claim.candidate.path, claim.candidate.fingerprint, operator), len(claim.numbers))

    def _begin(self, proposal: Proposal, attempt: int) -> Task:
        stored = attributes(
            proposal,
            attempt=attempt,
            told=[] if attempt else list(self._unrecorded),
            closed=[] if attempt else self.policy.found_closed[:CLOSED_AT_ONCE],
            salt=self._salt,
            seed=self.policy.seed,
            worker=Worker.here(),
            versions=versions(),
        )
        trial_id = self.store.create(stored)
        self._own.add(trial_id)
        created = self.store.stored(trial_id)
        if created.number != self.ledger.seen:  # others have created some in between
            self.read()
        elif (claim := self.ledger.enter(created)) is not None:  # reading all to learn of one would take most of the time
            self._take_note(claim)
        return Task(trial_id, created.number, proposal.operator)

    def _may_run(self, task: Task, most: int) -> bool:
        """Whether the trial just created is needed. If not, it is ended."""
        role = self.ledger.role(task.number)
        if role is None:  # from now on ask for other things than those who ask at the same moments
            self._salt = str(task.number)
            self.finish(task, Result("duplicate", message="another worker had begun with this operator a moment before"))
            return False
        if role.claim.rank >= most:  # several workers began with what they took for the last trial
            self.finish(task, Result("interrupted", message=f"the study had {most} trials already; more would go on with this"))
            return False
        return True

    def finish(self, task: Task, result: Result) -> bool:
        """Store the result of a trial and end it. False if somebody else ended it: its lease had run out."""
        kept = self.store.annotate(task.trial_id, "result", result.stored())
        if kept:
            self.store.end(task.trial_id, result.state, result.reward)
        self._own.discard(task.trial_id)
        return kept


@cache
def versions() -> dict[str, str]:
    """Versions of what a result may depend on, as far as it is installed."""
    found = {"python": python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
