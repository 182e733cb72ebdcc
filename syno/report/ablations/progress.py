"""Progress of experiments on a space: of samples, and of the parts of a measurement."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from syno.base.progress import Display, Progress
from syno.space.space import Space

TOP_RULES = 3  # the rules that reject most are shown
Show = Callable[[str, int, int], None]  # shows a title, how much is done, and the total


@dataclass(frozen=True)
class SamplingProgress(Progress):
    """Progress of drawing operators.

    Attributes:
        walks: random walks since this process began.
        dead_ends: those that led nowhere.
    """

    walks: int = 0
    dead_ends: int = 0

    @property
    def valid_rate(self) -> float | None:
        """The share of walks that ended in an operator; None before the first."""
        return 1 - self.dead_ends / self.walks if self.walks else None


@dataclass(frozen=True)
class Part(Progress):
    """Progress of a part of a measurement, which has no valid and invalid results."""

    @property
    def valid_rate(self) -> None:
        """None: there is no share of valid results."""
        return None


def silent(title: str, finished: int, total: int) -> None:
    """Show nothing."""


def shown_on(display: Display) -> Show:
    """Return a function that shows parts on a display, each with its own time and rate."""
    title_now, began = "", time.monotonic()

    def show(title: str, finished: int, total: int) -> None:
        nonlocal title_now, began
        if title != title_now:
            title_now, began = title, time.monotonic()
        seconds = time.monotonic() - began
        rate = finished / seconds if seconds > 0 else 0.0
        display.show(Part(title, finished, total, valid=0, seconds=seconds, rate=rate))

    return show


def rejections(space: Space) -> Mapping[str, str]:
    """Return the rules that have rejected most steps so far, as a note of progress."""
    found = space.rules.rejections
    if not found:
        return {}
    return {"rejected by": " ".join(f"{rule} {count:,}" for rule, count in found.most_common(TOP_RULES))}
