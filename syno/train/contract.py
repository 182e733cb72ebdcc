"""The interface between a search and its evaluations of operators: evaluations, and reports that may stop them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from syno.ir.graph import PGraph

FIT_ERROR = "fit_error"  # metric: mean error of the fit of an operator to its layers, before its training


class Report:
    """Receives intermediate values of an evaluation, at increasing steps such as epochs. Higher values are better.

    This class ignores all values. A search passes a subclass, whose methods raise `syno.train.progress.Paused` to pause the
    evaluation. The evaluation lets this exception propagate, and may store its state under the operator's id. To resume the
    trial, the search calls the evaluation again, which reports the earlier steps again, too. To end a trial for good, the
    report raises `optuna.TrialPruned`.

    Attributes:
        passed: the step after which an earlier evaluation of this operator paused; 0 if none did.
        looks: fractional steps, such as 0.5 epochs, in ascending order, after which the evaluation must call `recent_loss`.
    """

    passed: float = 0.0
    looks: tuple[float, ...] = ()

    def __call__(self, step: int, value: float) -> None:
        """Report the value of a score or another measure after this step; higher is better."""

    def recent_loss(self, step: float, loss: float) -> None:
        """Report the recent training loss: before the report of the value at this step, or at a fractional step in `looks`."""

    def measured(self, metrics: Mapping[str, float]) -> None:
        """Report metrics that are known before the first step, by name, such as FIT_ERROR."""


class FunctionReport(Report):
    """A report that calls a function with each step and value."""

    def __init__(self, function: Callable[[int, float], object]) -> None:
        self.function = function

    def __call__(self, step: int, value: float) -> None:
        """Call the function with the step and the value."""
        self.function(step, value)


@dataclass(frozen=True)
class Screening:
    """The result of screening an operator before its evaluation.

    Attributes:
        metrics: counted, predicted or measured values by name: shares of costs, `predicted_speedup`, `speedup`, each speedup
            with `_low` and `_high`, and `latency_ms`.
        unmet: the reason why the operator cannot meet the goal, such as "too slow: ..."; None if it may.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    unmet: str | None = None

    @property
    def kind(self) -> str:
        """The first words of the reason, by which rejected operators are counted; "" if there is no reason."""
        return (self.unmet or "").partition(":")[0]


class Evaluation(ABC):
    """An evaluation of operators. A search calls `screen`, the evaluation itself, and `forget` if it drops a paused trial."""

    @abstractmethod
    def __call__(self, operator: PGraph, report: Report) -> Mapping[str, float]:
        """Evaluate an operator, and return its metrics by name."""

    def screen(self, operator: PGraph) -> Screening | None:
        """Return the metrics known before an operator's evaluation; None if this evaluation does not screen."""
        return None

    def forget(self, operator: PGraph) -> None:  # noqa: B027  (most evaluations have no checkpoints)
        """Delete the checkpoint of a paused evaluation that will not be resumed."""


Evaluate: TypeAlias = Callable[[PGraph, Report], Mapping[str, float]]


@dataclass(frozen=True)
class FunctionEvaluation(Evaluation):
    """An evaluation by a function of an operator and a report."""

    function: Evaluate

    def __call__(self, operator: PGraph, report: Report) -> Mapping[str, float]:
        """Call the function with the operator and the report, and return its metrics."""
        return self.function(operator, report)


def evaluation_of(evaluation: Evaluation | Evaluate) -> Evaluation:
    """Return an evaluation unchanged; wrap a function in a `FunctionEvaluation`."""
    return evaluation if isinstance(evaluation, Evaluation) else FunctionEvaluation(evaluation)
