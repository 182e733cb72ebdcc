"""The ledger of a study: which operators its trials have claimed, in which order, and with which outcome.

An operator is claimed by the trial with the lowest number that has its fingerprint. Numbers are given in the order of creation
and never change, and a worker that creates a trial sees all of lower numbers. So if two workers create trials of one operator
at the same moment, both know which trial holds the claim, and the other worker ends its trial before it evaluates anything. An
operator whose trial was interrupted is claimed again in the same way, by the first trial of its next attempt. Nothing else
coordinates workers, so this works on every storage, and every worker reads the same ledger from it.
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

# Claims: the operators that a study evaluates, each with its trials and its outcome.


@dataclass
class Claim:
    """An operator that the study evaluates, with its trials and its outcome.

    Attributes:
        rank: how many operators were claimed before it.
        candidate: the operator as policies know it.
        told: what the policy was told just before it proposed this operator: the first trial of a claim for its outcome, and
            (first trial, step) for its value at a step.
        closed: names of nodes that were found to have no operators left.
        numbers: its trials, one for each attempt.
        outcome: its reward or failure; None while that is open.
        needs_trial: whether its last trial was interrupted, so that it must be evaluated again.
        passed: the last step after which one of its trials paused; 0 if none did.
        has_died: whether it failed because too many workers died while they evaluated it.
        failure: the result that ended it, if its evaluation failed.
        screened: why it was not evaluated, in a word or two; "" if it was not screened out.
        screening: the metrics of the screening that it passed; None if there was none yet.
        metrics: the metrics of the result that ended it.
    """

    rank: int
    candidate: Candidate
    told: tuple[Told, ...]
    closed: tuple[str, ...]
    numbers: list[int]
    outcome: Outcome | None = None
    needs_trial: bool = False
    passed: float = 0
    has_died: bool = False
    failure: Result | None = None
    screened: str = ""
    screening: Mapping[str, float] | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The number of its first trial."""
        return self.numbers[0]

    def update(self, trials: Sequence[FrozenTrial], most_attempts: int) -> Kind | None:
        """Update the claim with its trials. Return how it ended, "paused" if it may be resumed, or None if it is open."""
        result = Result.of(trials[-1])
        self.needs_trial = False
        self.screening = screening_metrics(trials) if self.screening is None else self.screening
        self.passed = max((step for trial in trials if (step := _paused_after(trial))), default=0)
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
        """Tell a policy the outcome of this claim, which is known, or that it was stopped for good."""
        assert self.outcome is not None
        policy.measure(self.candidate, (self.screening or {}) if is_stopped else self.metrics)
        if is_stopped:
            policy.stop(self.candidate)
        elif self.screened:
            policy.screen_out(self.candidate)
        else:
            policy.tell(self.candidate, self.outcome)


def _paused_after(trial: FrozenTrial) -> float:
    """Return the step after which a trial paused; 0 if it did not."""
    result = Result.of(trial)
    return result.step if result is not None and result.kind == "paused" else 0


class Purpose(NamedTuple):
    """The purpose of a trial: an attempt at a claim."""

    claim: Claim
    attempt: int


@dataclass(frozen=True)
class RunningTrial:
    """A trial that this worker runs.

    Attributes:
        trial_id: its id in the storage.
        number: its number in the study.
        operator: the operator to evaluate.
        passed: the step after which an earlier trial of this operator paused; 0 if none did.
        screening: the metrics of the screening that an earlier trial of this operator passed; None if none did.
    """

    trial_id: int
    number: int
    operator: PGraph
    passed: float = 0
    screening: Mapping[str, float] | None = None

    @classmethod
    def of(cls, trial_id: int, number: int, operator: PGraph, claim: Claim | None) -> RunningTrial:
        """Return a trial of a claim; of None, it is of no use."""
        return (
            cls(trial_id, number, operator) if claim is None else cls(trial_id, number, operator, claim.passed, claim.screening)
        )


# The paused claims of a study: which of them to resume, and which are stopped for good.


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


class Ledger:
    """The claims of a study, kept up to date with its trials.

    Attributes:
        claims: in the order of their ranks, which is that of their first trials.
        ended: how many claims ended in each way.
        best: the highest reward, and the number of its trial.
        seen: how many trials it knows, which is the number of the next one.
        withdrawn: numbers of trials that do not count, as if they were not there; see `syno.search.storage.store.withdrawn`.
        has_blamed_function: whether the user's function, not an operator, was to blame for a failure.
        screened: how many claims were screened out, by the reason in a word or two; they count for nothing else.
        fastest_screened: the highest measured speedup of claims that were screened out; None without one.
        last_success: the highest number of a trial that is complete, pruned or paused; -1 without one.
        died: claims that failed because too many workers died while they evaluated them.
        waiting: the paused claims, and those among them that were stopped for good (`Waiting`).
    """

    def __init__(self, most_attempts: int, withdrawn: Set[int] = frozenset(), keep: Mapping[Step, float] | None = None) -> None:
        """`keep` is the share of all trials that goes on, by step; without it, none pauses."""
        self.most_attempts = most_attempts
        self.keep = keep or {}
        self.waiting = Waiting(self.keep)
        self.withdrawn = withdrawn
        self.has_blamed_function = False
        self.last_success = -1
        self.claims: list[Claim] = []
        self.ended: dict[Kind, int] = {"complete": 0, "pruned": 0, "failed": 0}
        self.died: list[Claim] = []
        self.screened: Counter[str] = Counter()
        self.fastest_screened: float | None = None
        self._screened: list[int] = []  # ranks, sorted
        self.best: tuple[float, int] | None = None
        self.seen = 0
        self._by_fingerprint: dict[str, Claim] = {}
        self._open: dict[int, Claim] = {}  # by rank
        self._purposes: dict[int, Purpose] = {}

    def without(self, withdrawn: Set[int]) -> Ledger:
        """Return an empty ledger of the same settings that leaves out these trials."""
        return Ledger(self.most_attempts, withdrawn, self.keep)

    def update(self, trials: Sequence[FrozenTrial]) -> list[Claim]:
        """Update the ledger with all trials as they are stored now. Return the new claims, in order."""
        new = [claim for trial in trials[self.seen :] if (claim := self.enter(trial)) is not None]
        if self.keep:
            self.waiting.measure([(claim, trials[number]) for claim in self._open.values() for number in claim.numbers])
        for rank, claim in list(self._open.items()):
            kind = claim.update([trials[number] for number in claim.numbers], self.most_attempts)
            if kind is None:
                continue
            del self._open[rank]
            if kind == "screened":
                self.screened[claim.screened] += 1
                if (speedup := claim.metrics.get("speedup")) is not None:
                    self.fastest_screened = max(speedup, self.fastest_screened or 0.0)
                insort(self._screened, rank)
                continue
            if kind == "paused":
                self.waiting.add(claim)
                self.last_success = max(self.last_success, claim.numbers[-1])
                continue
            self.ended[kind] += 1
            if claim.has_died:
                self.died.append(claim)
            if claim.failure is not None and claim.failure.fault == "function":
                self.has_blamed_function = True
            if kind != "failed":
                self.last_success = max(self.last_success, claim.numbers[-1])
            if isinstance(claim.outcome, float) and kind == "complete" and (self.best is None or claim.outcome > self.best[0]):
                self.best = (claim.outcome, claim.numbers[-1])
        self.waiting.stop_overtaken()
        return new

    def enter(self, trial: FrozenTrial) -> Claim | None:
        """Update the ledger with the trial of the number `seen`. Return its claim if that is new."""
        assert trial.number == self.seen, f"trial {trial.number} in place of {self.seen}"
        self.seen += 1
        fingerprint = trial.user_attrs.get(FINGERPRINT)
        if fingerprint is None:  # not a trial of this program: somebody uses the study for something else as well
            return None
        if trial.number in self.withdrawn:
            return None
        attempt, claim = int(trial.user_attrs["attempt"]), self._by_fingerprint.get(fingerprint)
        if claim is None:
            stored = trial.user_attrs
            told = tuple(one if isinstance(one, int) else (one[0], one[1]) for one in stored["told"])
            closed = tuple(stored.get("closed", ()))
            claim = Claim(len(self.claims), candidate_of(trial), told, closed, [trial.number])
            self.claims.append(claim)
            self._by_fingerprint[fingerprint] = self._open[claim.rank] = claim
            self._purposes[trial.number] = Purpose(claim, 0)
            return claim
        if attempt == len(claim.numbers):
            claim.numbers.append(trial.number)
            claim.needs_trial = False
            if self.waiting.remove(claim):
                self._open[claim.rank] = claim
            self._purposes[trial.number] = Purpose(claim, attempt)
        return None

    def purpose(self, number: int) -> Purpose | None:
        """Return the purpose of a trial; None if another trial has the same already."""
        return self._purposes.get(number)

    def place(self, rank: int) -> int:
        """Return how many claims that were not screened out came before the claim of this rank."""
        return rank - bisect_left(self._screened, rank)

    @property
    def counted(self) -> int:
        """The number of claims that were not screened out."""
        return len(self.claims) - len(self._screened)

    def to_retry(self, most: int) -> list[Claim]:
        """Return those of the first `most` claims that were interrupted and that nobody evaluates now, in order."""
        return [claim for rank, claim in self._open.items() if self.place(rank) < most and claim.needs_trial]

    def to_resume(self, most: int) -> list[Claim]:
        """Return those of the first `most` claims that paused and now belong to the best, in the order to resume them."""
        return [self.claims[rank] for rank in self.waiting.best() if self.place(rank) < most]

    def is_open(self, most: int) -> bool:
        """Return whether one of the first `most` claims is being evaluated, or has to be evaluated again."""
        return any(self.place(rank) < most for rank in self._open)

    @property
    def finished(self) -> int:
        """The number of claims that have ended or paused."""
        return sum(self.ended.values()) + len(self.waiting)

    @property
    def running(self) -> int:
        """The number of claims that are being evaluated, as far as is known."""
        return sum(not claim.needs_trial for claim in self._open.values())


def is_running(trial: FrozenTrial) -> bool:
    """Return whether a trial of this program (not one that Optuna added) is running."""
    return trial.state == TrialState.RUNNING and FINGERPRINT in trial.user_attrs
