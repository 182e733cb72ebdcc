"""The contract between a search and what evaluates its operators: evaluations, and reports that may stop them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from syno.ir.graph import PGraph

FIT_ERROR = "fit_error"  # the metric: how far an operator was from the layers that it was fitted to, before its training


class Report:
    """Reports how an evaluation is going, at increasing steps such as epochs. Higher values are better.

    This class ignores what is reported. A search gives a subclass, whose methods raise `syno.train.progress.Paused` to
    pause the evaluation, which lets it pass, and may keep its state by the operator's id. When the trial is resumed, the
    evaluation is called again, and reports earlier steps, too. To end a trial for good, it raises `optuna.TrialPruned`.

    Attributes:
        passed: the step after which the evaluation of this operator paused before; 0 if it did not.
        looks: parts of steps, such as 0.5 epochs, after which `recent_loss` is to be called, ascending.
    """

    passed: float = 0.0
    looks: tuple[float, ...] = ()

    def __call__(self, step: int, value: float) -> None:
        """Report a value at a step."""

    def recent_loss(self, step: float, loss: float) -> None:
        """Report the recent loss of a training: before the value at this step is reported, or at one of `looks`."""

    def measured(self, metrics: Mapping[str, float]) -> None:
        """Report metrics known before the first step, by name, such as FIT_ERROR."""


class FunctionReport(Report):
    """A report that calls a function with each step and value."""

    def __init__(self, function: Callable[[int, float], object]) -> None:
        self.function = function

    def __call__(self, step: int, value: float) -> None:
        """Call the function."""
        self.function(step, value)


@dataclass(frozen=True)
class Screening:
    """The findings about an operator before its evaluation.

    Attributes:
        metrics: what was counted, predicted or measured, by name: shares of costs, `predicted_speedup`, `speedup`, each speedup
            with `_low` and `_high`, and `latency_ms`.
        unmet: why it cannot meet the goal, as in "too slow: ..."; None if it can.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    unmet: str | None = None

    @property
    def kind(self) -> str:
        """The reason in a word or two, by which screened operators are counted; "" if there is none."""
        return (self.unmet or "").partition(":")[0]


class Evaluation(ABC):
    """An evaluation of operators. A search calls `screen`, the evaluation itself, and `forget` if it drops a paused trial."""

    @abstractmethod
    def __call__(self, operator: PGraph, report: Report) -> Mapping[str, float]:
        """Return metrics by name."""

    def screen(self, operator: PGraph) -> Screening | None:
        """Return the costs and predictions known before an operator is evaluated; None if this evaluation does not screen."""
        return None

    def forget(self, operator: PGraph) -> None:  # noqa: B027  (most evaluations keep nothing)
        """Delete the checkpoint of a paused evaluation that will not be resumed."""


Evaluate: TypeAlias = Callable[[PGraph, Report], Mapping[str, float]]


@dataclass(frozen=True)
class FunctionEvaluation(Evaluation):
    """An evaluation by a function of an operator and a report."""

    function: Evaluate

    def __call__(self, operator: PGraph, report: Report) -> Mapping[str, float]:
        """Call the function."""
        return self.function(operator, report)


def evaluation_of(evaluation: Evaluation | Evaluate) -> Evaluation:
    """Return an evaluation; a function becomes one."""
    return evaluation if isinstance(evaluation, Evaluation) else FunctionEvaluation(evaluation)
