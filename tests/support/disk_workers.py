"""Workers of a study whose disk may be full, as a program that starts some whenever a line with a number of trials comes in.

They note each trial whose end is stored, on another disk. The program answers with their exit codes. It forks them, so that
nothing has to be imported again.

python tests/support/disk_workers.py STORAGE NOTES WORKERS
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import search_worker
from optuna.storages._rdb import storage as rdb

from syno.base.errors import SynoError
from syno.cli.app import WRONG
from syno.search.scheduler import Scheduler
from syno.search.storage.records import Result
from syno.search.trials import RunningTrial


def work(storage: str, trials: int, notes: Path) -> int:
    finish = Scheduler.finish

    def noted(scheduler: Scheduler, task: RunningTrial, result: Result) -> bool:
        kept = finish(scheduler, task, result)
        if kept and result.outcome is not None:
            with notes.open("a", encoding="utf-8") as file:
                file.write(f"{task.number} {result.reward}\n")
        return kept

    Scheduler.finish = noted  # type: ignore[method-assign]
    try:
        study = search_worker.open_study(storage, "random")
        study.run(lambda operator, report: {"accuracy": (1 + int(operator.id[:4], 16)) / 2**16}, trials, poll_seconds=0.05)
    except SynoError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return WRONG
    return 0


class Hurried:
    """Optuna's clock for an SQLite file: it tries five times to create a trial, seconds apart, also where the disk is full."""

    @staticmethod
    def sleep(seconds: float) -> None:
        time.sleep(seconds / 50)


def main(storage: str, notes: Path, workers: int) -> None:
    rdb.time = Hurried  # type: ignore[attr-defined]
    for line in sys.stdin:
        children = []
        for _ in range(workers):
            child = os.fork()
            if not child:
                code = 1
                try:
                    code = work(storage, int(line), notes)
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                finally:
                    os._exit(code)
            children.append(child)
        print(*[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children], flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
