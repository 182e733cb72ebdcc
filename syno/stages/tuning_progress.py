"""How far compiling and measuring is, for the displays that searches have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syno.base.progress import Display, Progress, display

if TYPE_CHECKING:
    from syno.measure.measuring import Findings


@dataclass(frozen=True)
class TuningProgress(Progress):
    """How far it is: `finished` of `total` trials while TVM tunes, and neither in other phases.

    Attributes:
        phase: what is being done.
    """

    phase: str = ""

    @classmethod
    def of(cls, title: str, findings: Findings, seconds: float) -> TuningProgress:
        """The progress after so many seconds."""
        count = findings.count
        if findings.phase != "tuning" or count is None:
            return cls(title, 0, 1, 0, seconds=seconds, phase=findings.phase)
        place = f"tuning, task {max(count.task, 1)} of {count.tasks}, {count.trials} of {count.trials_wanted} trials"
        return cls(title, count.trials, max(count.trials_wanted, 1), 0, seconds=seconds, phase=place)

    def __str__(self) -> str:
        minutes = self.seconds / 60
        return f"{self.title}: {self.phase}, {f'{self.seconds:.0f} s' if minutes < 2 else f'{minutes:.0f} min'} elapsed"


@contextmanager
def shown(title: str, on: Display | None = None) -> Iterator[Callable[[Findings], None]]:
    """Within, progress that the function gets is shown: on a terminal as a bar, in a log as a line now and then.

    Args:
        title: what is compiled, and for what.
        on: where it is shown; by default on standard error.
    """
    began = time.monotonic()
    with on or display() as there:
        yield lambda findings: there.show(TuningProgress.of(title, findings, time.monotonic() - began))
