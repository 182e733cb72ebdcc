"""Claims: the operators that a study evaluates, each with its trials and its outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from optuna.trial import FrozenTrial

from syno.ir.graph import PGraph
from syno.search.policies.contract import Candidate, Policy
from syno.search.reward import Failure, Outcome
from syno.search.storage.records import Kind, Result, Told, deaths_in_words
from syno.search.storage.screenings import screening_metrics


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
