"""A network's way from its tasks to a file: tuned, noted in the record, built, saved. The same for every device."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from syno.measure.compilers import Job
from syno.measure.tvm.compilation import built, saved, scheduled
from syno.measure.tvm.database import TrialDatabase
from syno.measure.tvm.search import tune_network
from syno.measure.tvm.summary import TuningSummary

PROGRESS, MODULES = "progress.log", "modules"


def tuned(
    job: Job, network: Any, to: Any, folder: Path, *, runner: Any = None, untuned_ms: float | None = None
) -> tuple[Any, Path]:
    """Tune what is not tuned yet, and build the network with the best schedules: what is built, and the file that it is in.

    Args:
        job: is told the phases, the summary, and what is lacking.
        network: fused (`compilation.fused`).
        to: the target.
        folder: of the target and device; the caller is its only writer.
        runner: measures on the device; by default on this machine.
        untuned_ms: latency before, for the summary.
    """
    job.begin("tuning")
    start = time.perf_counter()
    tasks = tune_network(
        network,
        to,
        folder,
        job.tvm,
        runner=runner,
        deadline=job.deadline,
        progress=_told_to(folder, job.name),
        count=job.count,
    )
    seconds = time.perf_counter() - start
    summary = TuningSummary.of(tasks, json.loads(str(to)), job.tvm.trials_per_task, seconds, untuned_ms)
    job.found(tuning=summary.model_dump())
    if job.tvm.trials_per_task and summary.shortcoming:
        job.lacks(summary.shortcoming)
    job.begin("compiling")
    executable = built(scheduled(network, to, TrialDatabase(folder).trials), to)
    library = folder / MODULES / f"{job.name}.tar"
    saved(executable, library)
    return executable, library


def _told_to(folder: Path, name: str) -> Callable[[str], None]:
    """Writes lines of progress to this process's output, and to a file in the folder."""

    def tell(line: str) -> None:
        print(line, flush=True)
        with (folder / PROGRESS).open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%F %T')} {name}: {line}\n")

    return tell
