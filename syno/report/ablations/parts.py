"""Progress of work that has no valid and invalid results: parts of a measurement, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from syno.base.progress import Display, Progress

Show = Callable[[str, int, int], None]  # what is done, how much of it, of how much


@dataclass(frozen=True)
class Part(Progress):
    """Progress without a share of valid results."""

    @property
    def valid_rate(self) -> None:
        """None."""
        return None


def silent(title: str, finished: int, total: int) -> None:
    """Show nothing."""


def shown_on(display: Display) -> Show:
    """Show the parts on a display. The time and the rate are those of the part at hand."""
    title_now, began = "", time.monotonic()

    def show(title: str, finished: int, total: int) -> None:
        nonlocal title_now, began
        if title != title_now:
            title_now, began = title, time.monotonic()
        seconds = time.monotonic() - began
        rate = finished / seconds if seconds > 0 else 0.0
        display.show(Part(title, finished, total, valid=0, seconds=seconds, rate=rate))

    return show
