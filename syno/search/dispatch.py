"""The choice of the next trial: every worker decides for itself, from what is stored.

A worker reads the trials, tells its policy what is new, and then creates a trial: for an operator whose trial was interrupted,
    or else for one that the policy proposes. If other workers have created trials in between, it reads them again; if the
    ledger gives its trial a purpose, it runs the trial. The policy is told about all trials as they are stored, this worker's
    own included. So a worker that is restarted gets the same policy.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from math import inf

from optuna.trial import FrozenTrial

from syno.base.record import versions
from syno.ir.graph import PGraph
from syno.search.ledger import Claim, Ledger, RunningTrial, is_running
from syno.search.policies.contract import EXHAUSTED, Policy, Proposal
from syno.search.stopping import Stopping
from syno.search.storage.records import Result, Told, attributes, operator_of, worker_of
from syno.search.storage.store import TrialStore, rung_attribute, rung_key
from syno.search.walks import Draws
from syno.search.workers import Worker

PACKAGES = ("optuna", "torch")  # whose versions are stored with trials
FROZEN_AT_ONCE = 100  # trials
CLOSED_AT_ONCE = 1000  # names in one trial, 35 KB: MySQL keeps 64 KiB


class Dispatch:
    """One worker's view of a study."""

    def __init__(
        self,
        store: TrialStore,
        policy: Policy,
        most_attempts: int,
        stopping: Stopping | None = None,
        keep: Mapping[float, float] | None = None,
    ) -> None:
        """Without `stopping`, failures never stop the worker; without `keep`, trials do not pause (`syno.search.halving`)."""
        self.store = store
        self.policy = policy
        self.ledger = Ledger(most_attempts, keep=keep)
        self.stopping = stopping
        self.is_exhausted = False
        self._to_tell: dict[int, Claim] = {}  # claims whose outcomes the policy was not told, by number
        self._unrecorded: list[Told] = []  # what it was told since its last proposal
        self._own: set[int] = set()  # ids of trials of this object that have not ended
        self._salt = ""
        self._is_rebuilding = True
        self._looked_for_stale = -float("inf")
        self._frozen = 0  # how many trials are excluded from garbage collection
        self._versions = versions(PACKAGES)

    # ---- reading --------------------------------------------------------------------------------------------------

    def read(self, trials: Sequence[FrozenTrial] | None = None) -> None:
        """Update ledger and policy with everything that is stored, in an order that follows from what is stored.

        Args:
            trials: all trials, if the caller has just read them.
        """
        for claim in self.ledger.update(self.store.trials() if trials is None else trials):
            self._adopt(claim)
        events: list[Told] = [*self.ledger.waiting.unreported, *self._to_tell]
        for told in events:
            self._tell(told)
        self._is_rebuilding = False

    def _adopt(self, claim: Claim) -> None:
        """Let the policy adopt a new claim."""
        for told in claim.told:
            self._tell(told)
        if self._is_rebuilding:
            self._propose_again(claim)
        self._unrecorded = [told for told in self._unrecorded if told not in claim.told]
        self.policy.hear_closed(claim.closed)
        self.policy.adopt(claim.candidate)
        self._to_tell[claim.number] = claim

    def _propose_again(self, claim: Claim) -> None:
        """Let the policy, and with it the tree, learn what they learnt when this operator was proposed.

        This works as long as the study had one worker: with several, a proposal does not follow from what is stored before it.
        """
        proposal = self.policy.propose()
        self._is_rebuilding = isinstance(proposal, Proposal) and proposal.path == claim.candidate.path

    def _tell(self, told: Told) -> None:
        """Tell the policy the outcome of a claim, or its value at a step, if that is known and was not told yet."""
        if not isinstance(told, int):
            return self._report(told)
        claim = self._to_tell.get(told)
        if claim is not None and claim.outcome is not None:
            del self._to_tell[told]
            self._unrecorded.append(told)
            claim.tell(self.policy, is_stopped=self.ledger.waiting.is_stopped(claim))

    def _report(self, told: tuple[int, float]) -> None:
        claim = self.ledger.waiting.unreported.pop(told, None)
        if claim is not None:
            self._unrecorded.append(told)
            self.policy.measure(claim.candidate, claim.screening or {})
            self.policy.report(claim.candidate, told[1], self.ledger.waiting.rungs.value(claim.rank, told[1]))

    def begin(self, *, alone: bool = False) -> None:
        """Become a worker of the study. For `alone`, see `end_dead`."""
        trials = self.end_dead(alone=alone)
        if self.stopping is not None and not self.ledger.seen:
            self.ledger = self.stopping.begin(trials, self.ledger)

    def end_dead(self, *, alone: bool = False) -> Sequence[FrozenTrial]:
        """End the trials whose workers are gone, so that they are retried. Return all trials as they are stored then.

        With `alone`, the workers of all running trials are taken to be gone.
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
        """End a running trial if its worker is gone. Return whether it was."""
        result, trial_id = Result.of(trial), self.store.id_of(trial)
        if result is not None:  # its worker had stored the result and not yet ended the trial
            self.store.end(trial_id, result.state, result.reward)
        elif alone or trial_id in self._own or worker_of(trial).is_gone():
            self.store.end(trial_id, Result("interrupted").state)
            self.store.leases.forget(trial_id)
        else:
            return False
        return True

    # ---- the next trial -------------------------------------------------------------------------------------------

    def next(self, most: int, most_screened: float = inf) -> RunningTrial | None:
        """Create a trial for this worker and return it; None if none of the first `most` claims needs one.

        Claims that were screened out do not count. After `most_screened` of them, nothing new is proposed.
        None is not the end: while `ledger.is_open`, trials of other workers may still be interrupted.

        Raises SearchStoppedError if evaluations fail for a reason that no operator is to blame for; see `Stopping`.
        """
        trial = self._next(most, most_screened)
        if self.ledger.seen >= self._frozen + FROZEN_AT_ONCE:
            self._frozen = self.ledger.seen
            gc.collect()
            gc.freeze()  # see `syno.search.study`
        return trial

    def _next(self, most: int, most_screened: float) -> RunningTrial | None:
        while True:
            self.read(self.end_dead())
            if self.stopping is not None:
                self.stopping.check(self.ledger)
            waiting = self.ledger.to_retry(most) or self.ledger.to_resume(most)
            if waiting:  # with a salt any of them, because other workers look for one, too
                claim = Draws("retry", self._salt).generator().choice(waiting) if self._salt else waiting[0]
                trial = self._retry(claim)
            elif self.ledger.counted < most and self.ledger.screened.total() < most_screened and not self.is_exhausted:
                proposal = self.policy.propose(self._salt)
                if proposal is EXHAUSTED:
                    self.is_exhausted = True
                    self.store.exhaust(len(self.ledger.withdrawn))
                    return None
                trial = self._begin(proposal, attempt=0)
            else:
                return None
            if self._may_run(trial, most):
                return trial

    def _retry(self, claim: Claim) -> RunningTrial:
        operator = operator_of(self.store.trials()[claim.number])
        return self._begin(Proposal(claim.candidate.path, claim.candidate.fingerprint, operator), len(claim.numbers))

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
        if created.number != self.ledger.seen:  # other workers have created some in between
            self.read()
        elif (claim := self.ledger.enter(created)) is not None:  # reading all trials for one would take most of the time
            self._adopt(claim)
        purpose = self.ledger.purpose(created.number)
        return RunningTrial.of(trial_id, created.number, proposal.operator, None if purpose is None else purpose.claim)

    def _may_run(self, trial: RunningTrial, most: int) -> bool:
        """Return whether the trial just created is needed. If not, end it."""
        purpose = self.ledger.purpose(trial.number)
        if purpose is None:  # from now on, diverge from the workers that ask at the same moments
            self._salt = str(trial.number)
            self.finish(trial, Result("duplicate", message="another worker had begun with this operator a moment before"))
            return False
        if self.ledger.place(purpose.claim.rank) >= most:  # several workers created what they took for the last trial
            reason = f"the study had {most} trials already; more would go on with this"
            self.finish(trial, Result("interrupted", message=reason))
            return False
        return True

    # ---- a trial that runs ----------------------------------------------------------------------------------------

    def goes_on(self, trial: RunningTrial, step: float, value: float) -> bool:
        """Return whether a running trial goes on after a step; if not, it is to pause.

        If the step is a rung that the operator has not passed, the value is stored, and compared with those of all trials.
        """
        rungs = self.ledger.waiting.rungs
        if step not in rungs.keep or step <= trial.passed:
            return True
        if not self.store.annotate(trial.trial_id, rung_key(step), rung_attribute(value)):
            return False  # another worker has ended the trial, because its lease had run out
        self.read()
        purpose = self.ledger.purpose(trial.number)
        return purpose is None or not rungs.has(purpose.claim.rank, step) or rungs.goes_on(purpose.claim.rank, step)

    def stopped_for_good(self) -> list[PGraph]:
        """Return the operators of paused trials that were stopped for good since the last call."""
        claims = self.ledger.waiting.take_stopped()
        trials = self.store.trials() if claims else []
        return [operator_of(trials[claim.number]) for claim in claims]

    def finish(self, trial: RunningTrial, result: Result) -> bool:
        """Store the result of a trial and end it. Return False if another worker ended it, because its lease had run out."""
        kept = self.store.annotate(trial.trial_id, "result", result.stored())
        if kept:
            self.store.end(trial.trial_id, result.state, result.reward)
        self._own.discard(trial.trial_id)
        return kept
