"""What is stored with each trial, and trials as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from optuna.trial import FrozenTrial, TrialState

from syno.ir.graph import PGraph
from syno.ir.text import parse_stored
from syno.search.faults import FaultKind
from syno.search.policies.contract import Candidate, Proposal
from syno.search.reward import Failure, Outcome
from syno.search.storage.seals import CHECKSUM, sealed
from syno.search.tree import Arc
from syno.search.worker import Worker

if TYPE_CHECKING:
    import pandas

RESULT = "result"  # the attribute that ends a trial; all others are there when it is created
FINGERPRINT = "fingerprint"

Kind: TypeAlias = Literal["complete", "pruned", "failed", "interrupted", "duplicate", "withdrawn"]
STATES: Mapping[Kind, TrialState] = {
    "complete": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "failed": TrialState.FAIL,
    "interrupted": TrialState.FAIL,
    "duplicate": TrialState.FAIL,
    "withdrawn": TrialState.FAIL,
}
PRUNED_REWARD = 0.0  # what policies are told of a trial that was stopped early: it was among the bad ones


@dataclass(frozen=True)
class Result:
    """How a trial ended.

    Attributes:
        kind: "complete"; "pruned": stopped early; "failed": the evaluation broke or measured nothing that can be used;
            "interrupted": the worker was told to stop or its machine failed, and the operator is evaluated by another trial;
            "duplicate": another worker had begun with the same operator a moment before; "withdrawn": it failed, but the
            operator was not to blame, and the trial does not count (tables say so; "failed" is stored).
        reward: in [0, 1], of complete trials.
        metrics: what was measured.
        message: why it is not complete.
        seconds: what the evaluation took.
        fault: whose it is that the evaluation failed, if it is known.
        cause: one line on a failure, equal for failures of equal cause but for numbers and names.
    """

    kind: Kind
    reward: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    message: str = ""
    seconds: float = 0.0
    fault: FaultKind | None = None  # older studies have none
    cause: str = ""

    def stored(self) -> dict[str, Any]:
        """As it is kept with the trial, with a checksum."""
        return sealed(asdict(self))

    @classmethod
    def of(cls, trial: FrozenTrial) -> Result | None:
        """The result that a trial has; None if it has none (yet), or none that is understood."""
        stored = trial.user_attrs.get(RESULT)
        if not isinstance(stored, dict) or stored.get("kind") not in get_args(Kind):
            return None
        return cls(**{name: value for name, value in stored.items() if name != CHECKSUM})

    @property
    def state(self) -> TrialState:
        """The Optuna state of such a trial."""
        return STATES[self.kind]

    @property
    def outcome(self) -> Outcome | None:
        """What policies are told; None if the operator is evaluated by another trial."""
        match self.kind:
            case "complete":
                return self.reward if self.reward is not None else Failure("no reward was stored")
            case "pruned":
                return PRUNED_REWARD
            case "failed":
                return Failure(self.message, self.fault or "operator")
            case _:
                return None


def attributes(
    proposal: Proposal,
    *,
    attempt: int,
    told: list[int],
    closed: list[str],
    salt: str,
    seed: int,
    worker: Worker,
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """What a trial is created with.

    `attempt` counts the trials of one operator from 0; `told` are the numbers of those trials whose outcomes the policy was
    told of after the proposal before this one, in that order: what it takes to rebuild the policy. `closed` are names of nodes
    that were found to have nothing left, for other workers. A checksum of all that is added.
    """
    values = {
        "operator": str(proposal.operator),
        FINGERPRINT: proposal.fingerprint,
        "path": [list(arc) for arc in proposal.path],
        "attempt": attempt,
        "told": told,
        "closed": closed,
        "salt": salt,
        "seed": seed,
        "worker": worker.stored(),
        "versions": dict(versions),
    }
    return sealed(values)


def candidate_of(trial: FrozenTrial) -> Candidate:
    """The path and fingerprint of a trial's operator."""
    path = tuple(Arc(kind, id_) for kind, id_ in trial.user_attrs["path"])
    return Candidate(path, trial.user_attrs[FINGERPRINT])


def operator_of(trial: FrozenTrial) -> PGraph:
    """A trial's operator."""
    return parse_stored(trial.user_attrs["operator"], f"operator of trial {trial.number}")


def worker_of(trial: FrozenTrial) -> Worker:
    """The process that runs, or ran, the trial."""
    return Worker.read(trial.user_attrs["worker"])


@dataclass(frozen=True)
class Record:
    """A finished trial.

    Attributes:
        number: of the trial in its study.
        operator: what was evaluated.
        reward: in [0, 1].
        metrics: what was measured.
    """

    number: int
    operator: PGraph
    reward: float
    metrics: Mapping[str, float]


def best_records(trials: Iterable[FrozenTrial], count: int) -> list[Record]:
    """The complete trials of the highest rewards, best first; the earlier first of equals."""
    complete = [(result, trial) for trial in trials if (result := Result.of(trial)) is not None and result.kind == "complete"]
    complete.sort(key=lambda pair: (-(pair[0].reward or 0.0), pair[1].number))
    return [
        Record(trial.number, operator_of(trial), result.reward or 0.0, dict(result.metrics))
        for result, trial in complete[: max(count, 0)]
    ]


def table(trials: Iterable[FrozenTrial]) -> pandas.DataFrame:
    """One row for each trial, in the order of their numbers.

    Columns: number, outcome (a Result's kind, "running", or "interrupted" if its worker died), reward, a column
    `metric_<name>` for each metric, seconds, message, operator (text), name, fingerprint, path (kinds of steps), steps (their
    ids), attempt, seed, worker, started, ended, and a column `version_<package>` for each package.
    """
    import pandas  # half a second, and most users of this module have no table

    return pandas.DataFrame([_row(trial) for trial in trials if FINGERPRINT in trial.user_attrs])


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
