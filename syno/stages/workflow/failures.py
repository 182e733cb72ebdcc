"""Failed jobs: which of them Snakemake restarts, and their messages at the end of the workflow.

A job fails for good if its command ended with an error of its input or of the user's code (exit code 1 or 2), which its log
says at its end. What was killed, or ended with exit code 75, may succeed in another attempt. Snakemake's setting `retries`
knows no exit codes, and on a cluster it sees none; logs are in the shared folder. So the number of restarts of a job, which
Snakemake asks for after each failure, is 0 if the job failed for good.
"""

from __future__ import annotations

import atexit
import logging
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from syno.search.faults import LATER
from syno.stages.workflow.patches import RESTARTS, apply

ERROR = "error: "  # begins the last line of a log with an error of the input
TRACEBACK = "Traceback (most recent call last)"
TAIL_BYTES = 2**16
CLOCKS_APART_SECONDS = 5.0  # of this machine and those that write logs
MOST_SHOWN = 5  # failed jobs


def end_of_log(file: Path, since: float = 0.0) -> tuple[str, bool]:
    """Return the last line of a job's log, and whether it says that the job failed for good.

    ("", False) if the log was not written after `since`: a job killed before it began has the log of an earlier run.
    """
    try:
        if file.stat().st_mtime < since:
            return "", False
        lines = file.read_bytes()[-TAIL_BYTES:].decode(errors="replace").strip().splitlines()
    except OSError:
        return "", False
    last = lines[-1].strip() if lines else ""
    if last.endswith(LATER):
        return last, False
    return last, last.startswith(ERROR) or any(line.startswith(TRACEBACK) for line in lines)


class FailedJobs:
    """The jobs that failed in a run of the workflow.

    Attributes:
        said: the last line of each failed job's log, by the log's path.
    """

    def __init__(self) -> None:
        self.said: dict[str, str] = {}
        self._began = time.time() - CLOCKS_APART_SECONDS

    def restarts(self, job: Any, allowed: int) -> int:
        """Return how often Snakemake may restart a failed job or group of jobs: `allowed`, or 0 if it failed for good."""
        logs = [str(log) for one in getattr(job, "jobs", [job]) for log in one.log]
        ends = {log: end_of_log(Path(log), self._began) for log in logs}
        failed = {log: line for log, (line, is_for_good) in ends.items() if is_for_good} or {
            log: line for log, (line, _) in ends.items() if line
        }
        self.said |= failed
        return 0 if any(is_for_good for _, is_for_good in ends.values()) else allowed

    def text(self) -> str:
        """Return the errors of the failed jobs, one line each."""
        lines = [f"{line if line.startswith(ERROR) else f'{ERROR}{line}'} ({log})" for log, line in self.said.items()]
        more = [f"... and {len(lines) - MOST_SHOWN} more failed jobs"] if len(lines) > MOST_SHOWN else []
        return "\n".join([*lines[:MOST_SHOWN], *more])


def tell_failures_apart() -> FailedJobs:
    """Let Snakemake restart jobs only if that may help, and print no CalledProcessError. Returns the failed jobs of the run.

    Call it once, in the workflow that starts the jobs.
    """
    failed = FailedJobs()
    import_module(RESTARTS.module)
    apply(RESTARTS, lambda allowed: property(lambda job: failed.restarts(job, allowed.fget(job))))
    for name in ("snakemake.logging", "snakemake"):
        logging.getLogger(name).addFilter(is_no_called_process_error)
    return failed


def is_no_called_process_error(record: logging.LogRecord) -> bool:
    """Return False for Snakemake's message that a command failed, which only repeats the command: a filter of log records."""
    return not (record.levelno >= logging.ERROR and "CalledProcessError" in str(record.msg))


def say_at_the_end(failed: FailedJobs) -> None:
    """Print the messages of failed jobs at the very end of this process's output."""
    if failed.said:
        atexit.register(lambda: print(failed.text(), file=sys.stderr))
