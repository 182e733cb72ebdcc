"""Evaluations and displays that signals stop, except while trials are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

from syno.base.progress import Display, Progress
from syno.ir.graph import PGraph
from syno.search.workers import Interruption
from syno.train.contract import Evaluation, Report, Screening


@dataclass(frozen=True)
class Stoppable(Evaluation):
    """An evaluation that signals stop anywhere except while it reports."""

    evaluation: Evaluation
    interruption: Interruption

    def __call__(self, operator: PGraph, report: Report) -> Mapping[str, float]:
        """Evaluate the operator. Raises KeyboardInterrupt if a signal comes."""
        with self.interruption.allowed():
            return self.evaluation(operator, _UninterruptedReport(report, self.interruption))

    def screen(self, operator: PGraph) -> Screening | None:
        """Screen the operator, if the evaluation does. Raises KeyboardInterrupt if a signal comes."""
        with self.interruption.allowed():
            return self.evaluation.screen(operator)

    def forget(self, operator: PGraph) -> None:
        """Let the evaluation delete what it keeps of an operator's evaluation that will not be resumed."""
        self.evaluation.forget(operator)


class _UninterruptedReport(Report):
    """A report during which signals are only recorded: what it stores is stored as a whole."""

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


@dataclass(frozen=True)
class StoppingDisplay:
    """A display that stops the worker if a signal has come; it shows progress on `shown`, if given."""

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
        """Show the progress. Raises KeyboardInterrupt if a signal has come."""
        self.interruption.check()
        if self.shown is not None:
            self.shown.show(progress)
