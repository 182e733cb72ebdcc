"""Being told to stop only where that does no harm.

A signal that raises in the middle of a database transaction leaves the database locked. So while trials are stored it is only
noted; it stops the worker in its evaluation, or when it next looks what to do.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from syno.base.progress import Display, Progress
from syno.ir.graph import PGraph

if TYPE_CHECKING:
    from syno.search.study import Evaluate, Report

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C, and what schedulers send when the time is up


class Interruption:
    """Turns these signals into KeyboardInterrupt where it is allowed; a second Ctrl-C raises anywhere.

    A second SIGTERM does not: Slurm sends two when the time is up, and the trial is to be given back between them.
    Use it as a context in a process's main thread; in others it does nothing.
    """

    def __init__(self) -> None:
        self._asked = False
        self._is_allowed = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        is_impatient = self._asked and number == signal.SIGINT
        self._asked = True
        if self._is_allowed or is_impatient:
            self._stop()

    def _stop(self) -> None:
        self._is_allowed = False  # what is cleared up on the way out is not to be stopped in its turn
        raise KeyboardInterrupt

    def check(self) -> None:
        """Stop here if a signal has come."""
        if self._asked:
            self._stop()

    @contextmanager
    def allowed(self, yes: bool = True) -> Iterator[None]:
        """Within it signals raise at once, or, with `yes=False`, do not."""
        before, self._is_allowed = self._is_allowed, yes
        try:
            if yes:
                self.check()
            yield
        finally:
            self._is_allowed = before


@dataclass(frozen=True)
class Stoppable:
    """An evaluation that can be stopped anywhere but while it reports."""

    evaluate: Evaluate
    interruption: Interruption

    def __call__(self, operator: PGraph, report: Report) -> Mapping[str, float]:
        """Evaluate."""

        def safely(step: int, value: float) -> None:
            with self.interruption.allowed(False):
                report(step, value)
            self.interruption.check()

        with self.interruption.allowed():
            return self.evaluate(operator, safely)


@dataclass(frozen=True)
class StoppingDisplay:
    """Stops the worker when it next shows something; else shows it, if there is a display."""

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
        """Show it."""
        self.interruption.check()
        if self.shown is not None:
            self.shown.show(progress)
