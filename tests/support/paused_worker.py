"""One worker of a study with pauses: what is done of each operator is a file, as a checkpoint is."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from paused_studies import STEPS, open_study, reward, value

from syno.ir.graph import PGraph
from syno.train.contract import Report
from syno.train.progress import Paused


def work(storage: str, folder: Path, trials: int) -> None:
    """Work on a study until it has so many trials."""

    def evaluate(operator: PGraph, report: Report) -> Mapping[str, float]:
        state = folder / operator.id
        done = int(state.read_text()) if state.exists() else 0
        for step in range(1, STEPS + 1):
            if step > done:
                with (folder / "notes").open("a") as notes:
                    notes.write(f"{operator.id} {step} {os.getpid()}\n")
                time.sleep(0.02)
            try:
                report(step, value(operator, step))
            except Paused:
                state.write_text(str(step))
                raise
        return {"accuracy": 0.1 + 0.9 * reward(operator)}

    open_study(storage, "evolution", heartbeat_seconds=1, grace_seconds=3).run(evaluate, trials, poll_seconds=0.1)
