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
from collections.abc import Mapping, Sequence, Set

from optuna.trial import FrozenTrial, TrialState

from syno.search.claims import Claim, Purpose
from syno.search.halving import Step
from syno.search.storage.records import FINGERPRINT, Kind, candidate_of
from syno.search.waiting import Waiting


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
