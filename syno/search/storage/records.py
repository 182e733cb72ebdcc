"""Attributes and results that are stored with each trial, their checksums, and the table of trials."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from optuna.trial import FrozenTrial, TrialState

from syno.base.addresses import cleaned
from syno.base.files import checksum
from syno.ir.graph import PGraph
from syno.ir.text import parse_stored
from syno.search.faults import FaultKind
from syno.search.policies.contract import STOPPED, Candidate, Proposal
from syno.search.reward import Failure, Outcome
from syno.search.tree import Action
from syno.search.workers import Worker

if TYPE_CHECKING:
    import pandas

RESULT = "result"  # the attribute that ends a trial; all others are set at its creation
FINGERPRINT = "fingerprint"
CHECKSUM = "checksum"

Told: TypeAlias = int | tuple[int, float]  # a trial's outcome, or its value at a step
Kind: TypeAlias = Literal[
    "complete", "pruned", "paused", "screened", "failed", "interrupted", "duplicate", "withdrawn"
]  # fmt: skip
STATES: Mapping[Kind, TrialState] = {  # others: FAIL
    "complete": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "paused": TrialState.PRUNED,
}
PRUNED_REWARD = STOPPED  # for policies: it did worse than others at the same step


@dataclass(frozen=True)
class Result:
    """The result of a trial.

    Attributes:
        kind: "complete"; "pruned": stopped early; "paused": stopped early, and another trial may resume it; "screened": the
            operator cannot meet the goal and was not evaluated, and the trial does not count; "failed": the evaluation failed
            or measured nothing usable; "interrupted": the worker was stopped or its machine failed, and the operator is
            requeued; "duplicate": another worker was evaluating the same operator; "withdrawn": it failed, but the operator was
            not to blame, and the trial does not count (only in tables; "failed" is stored).
        reward: the reward in [0, 1] of a complete trial; None for other trials.
        metrics: measured values by name.
        message: reason why the trial is not complete.
        seconds: duration of the evaluation.
        fault: kind of the failure's cause, if known (`syno.search.faults`).
        cause: the failure in one line (equal failures differ only in numbers and names), or the short reason of screening.
        step: the step after which the evaluation paused.
    """

    kind: Kind
    reward: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    message: str = ""
    seconds: float = 0.0
    fault: FaultKind | None = None
    cause: str = ""
    step: float = 0

    def stored(self) -> dict[str, Any]:
        """Return the result as a JSON object for storage, with a checksum."""
        return with_checksum({name: value for name, value in asdict(self).items() if value or name != "step"})

    @classmethod
    def of(cls, trial: FrozenTrial) -> Result | None:
        """Return the stored result of a trial; None if it has none (yet), or a result of an unknown kind."""
        stored = trial.user_attrs.get(RESULT)
        if not isinstance(stored, dict) or stored.get("kind") not in get_args(Kind):
            return None
        return cls(**{name: value for name, value in stored.items() if name != CHECKSUM})

    @property
    def state(self) -> TrialState:
        """Optuna's state for a trial with this result."""
        return STATES.get(self.kind, TrialState.FAIL)

    @property
    def outcome(self) -> Outcome | None:
        """The outcome to tell policies; None if another trial evaluates the operator."""
        match self.kind:
            case "complete":
                return self.reward if self.reward is not None else Failure("no reward was stored")
            case "pruned" | "screened":
                return PRUNED_REWARD
            case "failed":
                return Failure(self.message, self.fault or "operator")
            case _:
                return None


def deaths_in_words(times: int) -> str:
    """Return the message that an operator failed because `times` workers died during its evaluation."""
    return f"its worker died during the evaluation, {times} times, as where memory runs out (study: most_attempts)"


def attributes(
    proposal: Proposal,
    *,
    attempt: int,
    told: list[Told],
    closed: list[str],
    salt: str,
    seed: int,
    worker: Worker,
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """Return the attributes with which a trial is created, with a checksum of all of them.

    Args:
        proposal: the operator to evaluate.
        attempt: number of earlier trials of this operator.
        told: events that the policy was told since its last proposal, in order: the number of a trial for its outcome, and
            [number, step] for its value at a step. The policy can be rebuilt from them.
        closed: names of the tree's nodes that were found to have no operators left, for other workers.
        salt, seed: salt and seed of the policy at the proposal.
        worker: the process that evaluates the operator.
        versions: versions of installed packages.
    """
    return with_checksum(
        {
            "operator": str(proposal.operator),
            FINGERPRINT: proposal.fingerprint,
            "path": [list(action) for action in proposal.path],
            "attempt": attempt,
            "told": told,
            "closed": closed,
            "salt": salt,
            "seed": seed,
            "worker": worker.stored(),
            "versions": dict(versions),
        }
    )


def with_checksum(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with an entry "checksum": the names and a checksum of the values.

    A database detects a damaged page of its file, but not a changed letter in a value.
    """
    names = sorted(values)
    return {**values, CHECKSUM: {"of": names, "blake2b": _checksum(values, names)}}


def is_intact(stored: Mapping[str, Any]) -> bool:
    """Return whether stored values match their checksum; True if they have none."""
    expected = stored.get(CHECKSUM)
    if expected is None:
        return True
    try:
        return bool(_checksum(stored, expected["of"]) == expected["blake2b"])
    except (LookupError, TypeError):
        return False


def _checksum(values: Mapping[str, Any], names: Iterable[str]) -> str:
    return checksum(json.dumps({name: values[name] for name in names}, sort_keys=True).encode())


def candidate_of(trial: FrozenTrial) -> Candidate:
    """Return a trial's operator as a candidate for policies."""
    path = tuple(Action(kind, id_) for kind, id_ in trial.user_attrs["path"])
    return Candidate(path, trial.user_attrs[FINGERPRINT], text=trial.user_attrs.get("operator"))


def operator_of(trial: FrozenTrial) -> PGraph:
    """Return a trial's operator, parsed from its stored text."""
    return parse_stored(trial.user_attrs["operator"], f"operator of trial {trial.number}")


def worker_of(trial: FrozenTrial) -> Worker:
    """Return the process that runs, or ran, the trial."""
    return Worker.read(trial.user_attrs["worker"])


@dataclass(frozen=True)
class TrialRecord:
    """A finished trial.

    Attributes:
        number: number of the trial in its study.
        operator: the operator that was evaluated.
        reward: the reward in [0, 1].
        metrics: measured values by name.
    """

    number: int
    operator: PGraph
    reward: float
    metrics: Mapping[str, float]


def best_records(trials: Iterable[FrozenTrial], count: int) -> list[TrialRecord]:
    """Return the complete trials with the highest rewards, best first; among equal rewards, the earlier first."""
    complete = [(result, trial) for trial in trials if (result := Result.of(trial)) is not None and result.kind == "complete"]
    complete.sort(key=lambda pair: (-(pair[0].reward or 0.0), pair[1].number))
    return [
        TrialRecord(trial.number, operator_of(trial), result.reward or 0.0, dict(result.metrics))
        for result, trial in complete[: max(count, 0)]
    ]


def table(trials: Iterable[FrozenTrial]) -> pandas.DataFrame:
    """Return a table with one row per trial, in the order of their numbers.

    Columns: number, outcome (a Result's kind, "running", "resumed" for a paused trial that a later trial resumed, or
    "interrupted" if its worker died), reward, a column `metric_<name>` for each metric, seconds, message, operator (text),
    name, fingerprint, path (kinds of steps), steps (their ids), attempt, seed, worker, started, ended, and a column
    `version_<package>` for each package.
    """
    import pandas  # takes half a second, which most callers of this module need not wait

    rows = [cleaned(_row(trial)) for trial in trials if FINGERPRINT in trial.user_attrs]
    last = {row["fingerprint"]: row["number"] for row in rows if row["outcome"] != "duplicate"}
    for row in rows:
        if row["outcome"] == "paused" and last[row["fingerprint"]] != row["number"]:
            row["outcome"] = "resumed"
    return pandas.DataFrame(rows)


def _row(trial: FrozenTrial) -> dict[str, object]:
    stored, result = trial.user_attrs, Result.of(trial)
    ended = "interrupted" if trial.state.is_finished() else "running"
    metrics = dict(result.metrics) if result else {}
    return {
        "number": trial.number,
        "outcome": result.kind if result else ended,
        "reward": result.reward if result else None,
        **{f"metric_{name}": value for name, value in metrics.items()},
        "seconds": result.seconds if result else None,
        "message": result.message if result else "",
        "operator": stored["operator"],
        "name": stored["operator"].split("\n", 1)[0].removeprefix("operator "),
        "fingerprint": stored[FINGERPRINT],
        "path": " ".join(kind for kind, _ in stored["path"]),
        "steps": " ".join(id_ for _, id_ in stored["path"]),
        "attempt": stored["attempt"],
        "seed": stored["seed"],
        "worker": str(worker_of(trial)),
        "started": trial.datetime_start,
        "ended": trial.datetime_complete,
        **{f"version_{name}": version for name, version in stored["versions"].items()},
    }
