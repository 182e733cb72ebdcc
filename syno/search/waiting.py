"""The paused claims of a study: which of them to resume, and which are stopped for good."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from optuna.trial import FrozenTrial

from syno.search.claims import Claim
from syno.search.halving import Rungs, Step
from syno.search.storage.records import PRUNED_REWARD
from syno.search.storage.rungs import values_at_rungs


class Waiting:
    """The claims whose last trial paused, and the values of all trials at their rungs.

    Values are entered in the order of trials, and of steps within a trial. A study with one worker stored them in this order,
    so a worker that is started again comes to the same decisions.

    Attributes:
        rungs: the values, by the rank of the claim.
        stopped: claims that were stopped for good and not yet taken from here; their checkpoints are of no use.
        unreported: the steps of values that the policy was not told, in the order of entry, by the first trial of the claim.
    """

    def __init__(self, keep: Mapping[Step, float]) -> None:
        self.rungs = Rungs(keep)
        self.stopped: list[Claim] = []
        self.unreported: dict[tuple[int, Step], Claim] = {}
        self._paused: dict[int, Claim] = {}  # by rank
        self._overtaken: dict[int, Claim] = {}

    def __len__(self) -> int:
        """Return how many claims have paused, those included that were stopped for good."""
        return len(self._paused) + len(self._overtaken)

    def measure(self, trials: Iterable[tuple[Claim, FrozenTrial]]) -> None:
        """Enter the new values of trials, each with its claim."""
        found = [
            (trial.number, step, claim, value)
            for claim, trial in trials
            for step, value in values_at_rungs(trial).items()
            if step in self.rungs.keep and not self.rungs.has(claim.rank, step)
        ]
        for _, step, claim, value in sorted(found, key=lambda one: one[:2]):
            self.rungs.enter(claim.rank, step, value)
            self.unreported[claim.number, step] = claim

    def is_stopped(self, claim: Claim) -> bool:
        """Return whether a claim was stopped for good, and is not resumed."""
        return claim.rank in self._overtaken

    def add(self, claim: Claim) -> None:
        """Add a claim whose last trial has paused."""
        self._paused[claim.rank] = claim

    def remove(self, claim: Claim) -> bool:
        """Remove a claim that a new trial resumes. Return whether it was here."""
        found = self._paused.pop(claim.rank, None) or self._overtaken.pop(claim.rank, None)
        if found is not None:
            claim.outcome = None
        return found is not None

    def stop_overtaken(self) -> None:
        """Give the claims that are stopped for good their outcome: the reward of a pruned trial."""
        for rank, claim in list(self._paused.items()):
            if self.rungs.has(rank, claim.passed) and self.rungs.is_overtaken(rank, claim.passed):
                claim.outcome = PRUNED_REWARD
                self.stopped.append(claim)
                self._overtaken[rank] = self._paused.pop(rank)

    def best(self) -> list[int]:
        """Return the ranks of the claims to resume, the first one first."""
        return self.rungs.best({rank: claim.passed for rank, claim in self._paused.items()}) if self._paused else []

    def take_stopped(self) -> list[Claim]:
        """Return the claims that were stopped for good since the last call, unless they were resumed elsewhere."""
        taken = [claim for claim in self.stopped if claim.rank in self._overtaken]
        self.stopped.clear()
        return taken
