"""Displays of the progress of long work: a bar on a terminal, lines in a log.

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

from syno.base.interval import NONE_FASTER, times_as_fast

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

LOG_SECONDS = 30.0


@dataclass(frozen=True)
class Progress:
    """The progress of some work, counted in items such as trials.

    Attributes:
        title: name of the work.
        finished: number of finished items, including those of earlier runs.
        total: number of items of the whole work.
        valid: number of finished items with a result; pruned trials count.
        running: number of items in progress now, of all workers.
        best: the highest reward so far; None if there is none.
        seconds: time since this worker began.
        rate: items per second that all workers finished since this worker began.
        notes: further values to display, by name.
        screened: number of items that screening rejected because they cannot meet the goal, by a short reason.
        fastest: highest speedup that screening measured of any item; None if it measured none.
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
    screened: Mapping[str, int] = field(default_factory=dict)
    fastest: float | None = None

    @property
    def valid_rate(self) -> float | None:
        """Share of finished items that have a result; None before the first item is finished."""
        return self.valid / self.finished if self.finished else None

    @property
    def remaining_seconds(self) -> float | None:
        """Estimated seconds until all items are finished; None while the rate is unknown."""
        left = self.total - self.finished
        return 0.0 if left <= 0 else left / self.rate if self.rate else None

    def __str__(self) -> str:
        parts = [f"{self.finished}/{self.total}", f"{rate_text(self.rate)}"]
        if self.screened:
            parts[0] = f"{self.finished} of {self.total} trained"
            nearest = ""
            if self.fastest is not None:
                none = "" if self.fastest > 1 else f"{NONE_FASTER}, "
                nearest = f" ({none}the fastest {times_as_fast(self.fastest, 'x')})"
            parts.append("screened out: " + " and ".join(f"{count} {why}" for why, count in self.screened.items()) + nearest)
        if self.valid_rate is not None:
            parts.append(f"{self.valid_rate:.0%} valid")
        if self.running:
            parts.append(f"{self.running} running")
        if self.best is not None:
            parts.append(f"best {self.best:.4f}")
        parts += [f"{name} {value}" for name, value in self.notes.items()]
        if self.remaining_seconds:
            parts.append(f"{duration(self.remaining_seconds)} left")
        return f"{self.title}: {', '.join(parts)}"


class Display(Protocol):
    """Shows progress while its context lasts."""

    def __enter__(self) -> Display: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def show(self, progress: Progress) -> None:
        """Display the new progress. May be called as often as anything changes."""
        ...


def display(stream: TextIO | None = None) -> Display:
    """Return a bar if the stream (standard error by default) is a terminal, else a log of lines."""
    stream = stream or sys.stderr
    return TerminalDisplay(stream) if stream.isatty() else LogDisplay(stream)


class LogDisplay:
    """A log: the first and the last line are written at once, others every `interval` seconds."""

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
        """Write a line with the progress if the interval has passed."""
        self._last, self._is_written = progress, False
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._interval
            self._write(progress)

    def _write(self, progress: Progress) -> None:
        self._is_written = True
        print(progress, file=self._stream, flush=True)


class TerminalDisplay:
    """A bar on a terminal, drawn by rich."""

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
        """Draw the bar for the new progress."""
        text = str(progress).removeprefix(f"{progress.title}: ")
        self._bar.update(
            self._task, title=progress.title, text=text, visible=True, completed=progress.finished, total=progress.total
        )


def rate_text(per_second: float) -> str:
    """Return a rate in the unit that suits it: "4.2/s", "12/min", "3.5/h"."""
    if per_second and per_second < 1:
        return f"{per_second * 3600:.3g}/h" if per_second < 1 / 60 else f"{per_second * 60:.3g}/min"
    return f"{per_second:.3g}/s"


def duration(seconds: float) -> str:
    """Return a time in seconds, minutes or hours: "90 s", "45 min", "3 h"."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    return f"{round(seconds)} s" if seconds < 120 else f"{minutes} min" if minutes < 120 else f"{hours} h"
