"""The progress of a study, for a display."""

from __future__ import annotations

import time
from collections.abc import Mapping

from syno.base.progress import Progress
from syno.search.ledger import Ledger


class ProgressMeter:
    """Measures how fast a study advances, from the moment when a worker begins."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._finished_before: int | None = None

    def progress(self, ledger: Ledger, title: str, total: int, notes: Mapping[str, object]) -> Progress:
        """Return the progress of a study of `total` trials, for a display."""
        if self._finished_before is None:
            self._finished_before = ledger.finished
        seconds = time.monotonic() - self._start
        return Progress(
            title,
            ledger.finished,
            total,
            valid=ledger.ended["complete"] + ledger.ended["pruned"] + len(ledger.waiting),
            running=ledger.running,
            best=ledger.best[0] if ledger.best else None,
            seconds=seconds,
            rate=(ledger.finished - self._finished_before) / seconds if seconds > 0 else 0.0,
            notes=notes,
            screened=ledger.screened,
            fastest=ledger.fastest_screened,
        )
