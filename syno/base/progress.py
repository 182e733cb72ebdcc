"""How a long search is going: a bar on a terminal, plain lines in a log.

>>> with display() as shown:
...     shown.show(progress)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from syno.search.ledger import Ledger

LOG_SECONDS = 30.0


@dataclass(frozen=True)
class Progress:
    """How far some work is.

    Attributes:
        title: what is being done.
        finished: how many are done, ever.
        total: how many there are to be.
        valid: how many of those done gave a result; a trial that was pruned did, too.
        running: how many are being done now, by all workers.
        best: the highest reward so far; None if there is none.
        seconds: since this worker began.
        rate: how many were done per second since then, by all workers.
        notes: more to be shown, by name.
    """

    title: str
    finished: int
    total: int
    valid: int
    running: int = 0
    best: float | None = None
    seconds: float = 0.0
    rate: float = 0.0
    notes: Mapping[str, object] = field(default_factory=dict)

    @property
    def valid_rate(self) -> float | None:
        """The share of those done that gave a result."""
        return self.valid / self.finished if self.finished else None

    @property
    def remaining_seconds(self) -> float | None:
        """How long the rest takes at this rate; None if there is none yet."""
        left = self.total - self.finished
        return 0.0 if left <= 0 else left / self.rate if self.rate else None

    def __str__(self) -> str:
        parts = [f"{self.finished}/{self.total}", f"{_rate(self.rate)}"]
        if self.valid_rate is not None:
            parts.append(f"{self.valid_rate:.0%} valid")
        if self.running:
            parts.append(f"{self.running} running")
        if self.best is not None:
            parts.append(f"best {self.best:.4f}")
        parts += [f"{name} {value}" for name, value in self.notes.items()]
        if self.remaining_seconds:
            parts.append(f"{_duration(self.remaining_seconds)} left")
        return f"{self.title}: {', '.join(parts)}"


class Start:
    """When a worker began, to measure the study's progress from there."""

    def __init__(self) -> None:
        self._time = time.monotonic()
        self._finished: int | None = None

    def progress(self, ledger: Ledger, title: str, total: int, notes: Mapping[str, object]) -> Progress:
        """The progress of a study."""
        if self._finished is None:
            self._finished = ledger.finished
        seconds = time.monotonic() - self._time
        return Progress(
            title,
            ledger.finished,
            total,
            valid=ledger.ended["complete"] + ledger.ended["pruned"],
            running=ledger.running,
            best=ledger.best[0] if ledger.best else None,
            seconds=seconds,
            rate=(ledger.finished - self._finished) / seconds if seconds > 0 else 0.0,
            notes=notes,
        )


class Display(Protocol):
    """Shows progress while its context lasts."""

    def __enter__(self) -> Display: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def show(self, progress: Progress) -> None:
        """Called whenever something happened, as often as may be."""
        ...


def display(stream: TextIO | None = None) -> Display:
    """A bar if the stream (standard error by default) is a terminal, else lines."""
    stream = stream or sys.stderr
    return TerminalDisplay(stream) if stream.isatty() else LogDisplay(stream)


class LogDisplay:
    """A line every now and then: the first, the last, and one in `interval` seconds."""

    def __init__(self, stream: TextIO | None = None, interval: float = LOG_SECONDS) -> None:
        self._stream = stream or sys.stderr
        self._interval = interval
        self._next = -float("inf")
        self._last: Progress | None = None
        self._is_written = True

    def __enter__(self) -> LogDisplay:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._last is not None and not self._is_written:
            self._write(self._last)

    def show(self, progress: Progress) -> None:
        """Write a line if it is time for one."""
        self._last, self._is_written = progress, False
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._interval
            self._write(progress)

    def _write(self, progress: Progress) -> None:
        self._is_written = True
        print(progress, file=self._stream, flush=True)


class TerminalDisplay:
    """A bar that rich draws."""

    def __init__(self, stream: TextIO | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        title, text = (TextColumn(f"{{task.fields[{field}]}}", markup=False) for field in ("title", "text"))
        self._bar: Bar = Bar(title, BarColumn(), text, console=Console(file=stream or sys.stderr))
        self._task = self._bar.add_task("", title="", text="", total=None, visible=False)

    def __enter__(self) -> TerminalDisplay:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._bar.stop()

    def show(self, progress: Progress) -> None:
        """Draw it."""
        text = str(progress).removeprefix(f"{progress.title}: ")
        self._bar.update(
            self._task, title=progress.title, text=text, visible=True, completed=progress.finished, total=progress.total
        )


def _rate(per_second: float) -> str:
    if per_second and per_second < 1:
        return f"{per_second * 3600:.3g}/h" if per_second < 1 / 60 else f"{per_second * 60:.3g}/min"
    return f"{per_second:.3g}/s"


def _duration(seconds: float) -> str:
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    return f"{round(seconds)} s" if seconds < 120 else f"{minutes} min" if minutes < 120 else f"{hours} h"
