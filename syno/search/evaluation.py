"""Evaluations of operators by name; `syno.train.contract` defines the interface.

`cost` counts FLOPs and memory without training. `package.module:function` is a user's own function, which takes an operator and
a `Report` and returns metrics by name. Every worker imports it, with the working directory on the import path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TypeAlias

from syno.base.errors import SpecError, suggestion
from syno.base.progress import Display, Progress
from syno.base.registry import Registry, imported, is_path
from syno.ir.graph import PGraph
from syno.search.workers import Interruption
from syno.space.complete import Cost, cost
from syno.space.spec import OperatorSpec
from syno.train.contract import Evaluation, Report, Screening, evaluation_of


@dataclass(frozen=True)
class Stoppable(Evaluation):
    """Wraps an evaluation so that SIGINT and SIGTERM interrupt it everywhere except inside `report()`."""

    evaluation: Evaluation
    interruption: Interruption

    def __call__(self, operator: PGraph, report: Report) -> Mapping[str, float]:
        """Evaluate the operator. Raises KeyboardInterrupt on a signal."""
        with self.interruption.allowed():
            return self.evaluation(operator, _UninterruptedReport(report, self.interruption))

    def screen(self, operator: PGraph) -> Screening | None:
        """Screen the operator, if the evaluation has screening. Raises KeyboardInterrupt on a signal."""
        with self.interruption.allowed():
            return self.evaluation.screen(operator)

    def forget(self, operator: PGraph) -> None:
        """Let the wrapped evaluation delete the checkpoint of an operator whose evaluation will not be resumed."""
        self.evaluation.forget(operator)


class _UninterruptedReport(Report):
    """A report during which signals are deferred, so that its writes are never interrupted."""

    def __init__(self, report: Report, interruption: Interruption) -> None:
        self.report, self.interruption = report, interruption
        self.passed, self.looks = report.passed, report.looks

    def __call__(self, step: int, value: float) -> None:
        with self.interruption.allowed(False):
            self.report(step, value)
        self.interruption.check()

    def recent_loss(self, step: float, loss: float) -> None:
        with self.interruption.allowed(False):
            self.report.recent_loss(step, loss)
        self.interruption.check()

    def measured(self, metrics: Mapping[str, float]) -> None:
        with self.interruption.allowed(False):
            self.report.measured(metrics)
        self.interruption.check()


@dataclass(frozen=True)
class StoppingDisplay:
    """A display that stops the worker after a signal; it forwards progress to the display `shown`, if there is one."""

    interruption: Interruption
    shown: Display | None = None

    def __enter__(self) -> StoppingDisplay:
        if self.shown is not None:
            self.shown.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self.shown is not None:
            self.shown.__exit__(kind, error, traceback)

    def show(self, progress: Progress) -> None:
        """Show the progress. Raises KeyboardInterrupt if a signal was received."""
        self.interruption.check()
        if self.shown is not None:
            self.shown.show(progress)


Factory: TypeAlias = Callable[[OperatorSpec, Cost | None], Evaluation]
EVALUATIONS: Registry[Factory] = Registry("evaluation")


@dataclass(frozen=True)
class CountedCost(Evaluation):
    """An evaluation without training: FLOPs, parameters and memory of the model with the operator, and of the original.

    One multiply-add counts as one FLOP; costs are for one batch.
    """

    spec: OperatorSpec
    original: Cost | None = None

    def __call__(self, operator: PGraph, report: Report) -> Mapping[str, float]:
        """Return the costs of the model with the operator as metrics."""
        return cost(operator, self.spec).metrics(self.original)


EVALUATIONS.register("cost")(CountedCost)


def find_evaluation(name: str, spec: OperatorSpec, original: Cost | None = None) -> Evaluation:
    """Return the evaluation with this name.

    Args:
        name: a name in `EVALUATIONS`, or `package.module:function`.
        spec: the spec of the operators.
        original: the cost of the original model, for evaluations that compare with it.

    Raises SpecError if there is no evaluation of this name, or it cannot be imported.
    """
    if name in EVALUATIONS:
        return EVALUATIONS[name](spec, original)
    if not is_path(name):
        raise SpecError(
            f'evaluate is "{name}"; it is one of: {", ".join(EVALUATIONS)}, or your own as "package.module:function"'
            f".{suggestion(name, EVALUATIONS)}"
        )
    function = imported(name, "evaluation")
    if not callable(function):
        raise SpecError(f'evaluate is "{name}", which is no function but {function!r}')
    return evaluation_of(function)
