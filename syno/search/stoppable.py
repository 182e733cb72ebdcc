"""Evaluations and displays that signals stop, except while trials are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

from syno.base.progress import Display, Progress
from syno.ir.graph import PGraph
from syno.search.evaluation import Evaluate, Report, forget
from syno.search.screening import Screening, screening_of
from syno.search.workers import Interruption


@dataclass(frozen=True)
class Stoppable:
    """An evaluation that signals stop anywhere except while it reports."""

    evaluate: Evaluate
    interruption: Interruption

    def __call__(self, operator: PGraph, report: Report) -> Mapping[str, float]:
        """Evaluate the operator. Raises KeyboardInterrupt if a signal comes."""
        with self.interruption.allowed():
            return self.evaluate(operator, _UninterruptedReport(report, self.interruption))

    def screen(self, operator: PGraph) -> Screening | None:
        """Screen the operator, if the evaluation does. Raises KeyboardInterrupt if a signal comes."""
        with self.interruption.allowed():
            return screening_of(self.evaluate, operator)

    def forget(self, operator: PGraph) -> None:
        """Let the evaluation delete what it keeps of an operator's evaluation that will not be resumed."""
        forget(self.evaluate, operator)


@dataclass(frozen=True)
class _UninterruptedReport:
    """A report during which signals are only recorded. Its other attributes are those of `report`."""

    report: Report
    interruption: Interruption

    def __call__(self, step: int, value: float) -> None:
        self._tell(self.report, step, value)

    def _tell(self, method: Callable[..., None], *values: float) -> None:
        with self.interruption.allowed(False):
            method(*values)
        self.interruption.check()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.report, name)
        return partial(self._tell, found) if name == "recent_loss" else found


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
