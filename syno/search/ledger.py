"""What the trials of a study say, whoever reads them: which operators were claimed, in which order, and what became of them.

An operator is claimed by the trial of the lowest number that has its fingerprint. Numbers are given in the order of creation
and never change, and whoever creates a trial sees all of lower numbers; so if two workers create trials of one operator at
the same moment, both know which of them holds the claim, and the other one gives way before it evaluates anything. An
operator whose trial was interrupted is claimed again in the same way, by the first trial of its next attempt. Nothing else
coordinates workers, so it works on every storage.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from optuna.trial import FrozenTrial, TrialState

from syno.search.policies.contract import Candidate
from syno.search.reward import Failure, Outcome
from syno.search.storage.records import FINGERPRINT, Kind, Result, candidate_of


@dataclass
class Claim:
    """An operator's way through a study.

    Attributes:
        rank: how many operators were claimed before it.
        candidate: the operator, as policies know it.
        told: numbers of the first trials of claims whose outcomes the policy was told of just before it proposed this one.
        closed: names of nodes that were found to have nothing left.
        numbers: its trials, one for each attempt.
        outcome: what became of it; None while that is open.
        needs_trial: whether its last trial was interrupted, so that it is to be evaluated again.
        failure: the result that ended it, if its evaluation failed.
    """

    rank: int
    candidate: Candidate
    told: tuple[int, ...]
    closed: tuple[str, ...]
    numbers: list[int]
    outcome: Outcome | None = None
    needs_trial: bool = False
    failure: Result | None = None

    @property
    def number(self) -> int:
        """Its first trial."""
        return self.numbers[0]

    def update(self, trials: Sequence[FrozenTrial], most_attempts: int) -> Kind | None:
        """Take note of its trials. Returns how the claim ended, if it did."""
        result = Result.of(trials[-1])
        self.needs_trial = False
        if result is None and not trials[-1].state.is_finished():
            return None
        if result is not None and (outcome := result.outcome) is not None:
            self.outcome = outcome
            self.failure = result if result.kind == "failed" else None
            return result.kind
        deaths = sum(trial.state.is_finished() and Result.of(trial) is None for trial in trials)
        if deaths >= most_attempts:
            self.outcome = Failure(f"its worker died during the evaluation, {deaths} times")
            return "failed"
        self.needs_trial = True
        return None


class Role(NamedTuple):
    """What a trial is for: which attempt at which claim."""

    claim: Claim
    attempt: int


class Ledger:
    """The claims of a study, kept up to date with its trials.

    Attributes:
        claims: in the order of their ranks, which is that of their first trials.
        ended: how many claims ended in each way.
        best: the highest reward, and the number of the trial that has it.
        seen: how many trials it knows, which is the number of the next one.
        withdrawn: numbers of trials that do not count, as if they were not there; see `syno.search.storage.withdrawal`.
        has_blamed_function: whether the user's function, not an operator, was to blame for a failure.
        last_success: the highest number of a trial that is complete or pruned; -1 without one.
    """

    def __init__(self, most_attempts: int, withdrawn: Set[int] = frozenset()) -> None:
        self.most_attempts = most_attempts
        self.withdrawn = withdrawn
        self.has_blamed_function = False
        self.last_success = -1
        self.claims: list[Claim] = []
        self.ended: dict[Kind, int] = {"complete": 0, "pruned": 0, "failed": 0}
        self.best: tuple[float, int] | None = None
        self.seen = 0
        self._by_fingerprint: dict[str, Claim] = {}
        self._by_number: dict[int, Claim] = {}
        self._open: dict[int, Claim] = {}  # by rank
        self._roles: dict[int, Role] = {}

    def update(self, trials: Sequence[FrozenTrial]) -> list[Claim]:
        """Take note of all trials as they are stored now. Returns the claims that are new, in order."""
        new = [claim for trial in trials[self.seen :] if (claim := self.enter(trial)) is not None]
        for rank, claim in list(self._open.items()):
            kind = claim.update([trials[number] for number in claim.numbers], self.most_attempts)
            if kind is None:
                continue
            del self._open[rank]
            self.ended[kind] += 1
            if claim.failure is not None and claim.failure.fault == "function":
                self.has_blamed_function = True
            if kind != "failed":
                self.last_success = max(self.last_success, claim.numbers[-1])
            if isinstance(claim.outcome, float) and kind == "complete" and (self.best is None or claim.outcome > self.best[0]):
                self.best = (claim.outcome, claim.numbers[-1])
        return new

    def enter(self, trial: FrozenTrial) -> Claim | None:
        """Take note of the trial with the number `seen`. Returns its claim if that is new."""
        assert trial.number == self.seen, f"trial {trial.number} in place of {self.seen}"
        self.seen += 1
        fingerprint = trial.user_attrs.get(FINGERPRINT)
        if fingerprint is None:  # not one of ours: somebody uses the study for something else as well
            return None
        if trial.number in self.withdrawn:
            return None
        attempt, claim = int(trial.user_attrs["attempt"]), self._by_fingerprint.get(fingerprint)
        if claim is None:
            stored = trial.user_attrs
            told, closed = tuple(stored["told"]), tuple(stored.get("closed", ()))  # older studies don't have it
            claim = Claim(len(self.claims), candidate_of(trial), told, closed, [trial.number])
            self.claims.append(claim)
            self._by_fingerprint[fingerprint] = self._by_number[trial.number] = self._open[claim.rank] = claim
            self._roles[trial.number] = Role(claim, 0)
            return claim
        if attempt == len(claim.numbers):
            claim.numbers.append(trial.number)
            claim.needs_trial = False
            self._roles[trial.number] = Role(claim, attempt)
        return None

    def role(self, number: int) -> Role | None:
        """What the trial is for; None if another one does the same already."""
        return self._roles.get(number)

    def claim_of(self, number: int) -> Claim | None:
        """The claim whose first trial this is."""
        return self._by_number.get(number)

    def to_retry(self, most: int) -> list[Claim]:
        """Those of the first `most` claims that were interrupted and that nobody evaluates now, in order."""
        return [claim for rank, claim in self._open.items() if rank < most and claim.needs_trial]

    def is_open(self, most: int) -> bool:
        """Whether one of the first `most` claims has not ended."""
        return any(rank < most for rank in self._open)

    @property
    def finished(self) -> int:
        """How many claims have ended."""
        return sum(self.ended.values())

    @property
    def running(self) -> int:
        """How many claims are being evaluated, as far as is known."""
        return sum(not claim.needs_trial for claim in self._open.values())


def is_running(trial: FrozenTrial) -> bool:
    """Whether a trial of ours has not ended."""
    return trial.state == TrialState.RUNNING and FINGERPRINT in trial.user_attrs
