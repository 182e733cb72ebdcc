"""Failed jobs: restarted only if that may help, by what their commands said and by the exit codes."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from syno.base.errors import DataError, DeviceError, MissingDeviceError, SearchStoppedError, SpecError, StorageError, SynoError
from syno.cli import app
from syno.search.faults import LATER, fault_of, may_pass
from syno.search.scheduler import stopped_by_machine
from syno.stages.workflow.failures import FailedJobs, is_no_called_process_error

ROOT = Path(__file__).parents[2]
FULL = OSError(errno.ENOSPC, "No space left on device")


def caused(error: Exception, by: Exception) -> Exception:
    error.__cause__ = by
    return error


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (FULL, True),
        (MemoryError(), True),
        (DeviceError("the tracker does not answer"), True),
        (caused(StorageError("cannot be used"), FULL), True),
        (stopped_by_machine("study", fault_of(FULL)), True),
        (stopped_by_machine("study", fault_of(DataError("no pictures"))), False),
        (MissingDeviceError("no GPU"), False),
        (caused(SpecError("your function failed"), FULL), False),
        (DataError("missing"), False),
        (StorageError("damaged"), False),
        (SearchStoppedError("all failed"), False),
        (FileNotFoundError(errno.ENOENT, "no such file"), False),
        (ValueError("a bug"), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_what_another_attempt_may_mend(error: Exception, passes: bool) -> None:
    assert may_pass(error) == passes


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (SpecError("wrong"), 2, "error: wrong"),
        (FULL, 75, f"error: [Errno 28] No space left on device{LATER}"),
        (RuntimeError("bug"), 1, ""),
    ],
)
def test_exit_codes_tell_them_apart(error: Exception, code: int, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr("syno.cli.stages.experiment_of", broken)
    found = CliRunner().invoke(app, ["freeze", "any.yaml"])
    assert found.exit_code == code and found.stderr.startswith(line)


@pytest.mark.parametrize(
    ("text", "restarts"),
    [
        ("one line\nerror: wrong\n", 0),
        ("Traceback (most recent call last):\n  File x\nTypeError: bug\n", 0),
        (f"one line\nerror: [Errno 28] No space left on device{LATER}\n", 3),
        ("Killed\n", 3),
        ("stopped: trials so far are in it; the same command goes on\n", 3),
        ("", 3),
        (None, 3),
    ],
)
def test_a_job_that_failed_for_good_is_not_restarted(text: str | None, restarts: int, tmp_path: Path) -> None:
    log, other = tmp_path / "a.log", tmp_path / "b.log"
    if text is not None:
        log.write_text(text, encoding="utf-8")
    other.write_text("done\n", encoding="utf-8")
    job, failed = SimpleNamespace(log=[log]), FailedJobs()
    assert failed.restarts(job, 3) == restarts
    assert failed.restarts(SimpleNamespace(jobs=[SimpleNamespace(log=[other]), job]), 3) == restarts  # a group of jobs
    if not restarts:
        assert failed.text() == f"{'' if 'error' in str(text) else 'error: '}{str(text).splitlines()[-1]} ({log})"


def test_the_log_of_an_earlier_run_says_nothing_of_this_one(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("error: wrong\n", encoding="utf-8")
    os.utime(log, (1_700_000_000, 1_700_000_000))
    assert FailedJobs().restarts(SimpleNamespace(log=[log]), 3) == 3


def test_the_wall_around_an_error_is_not_printed() -> None:
    def record(level: int, text: str) -> logging.LogRecord:
        return logging.LogRecord("snakemake", level, "", 0, text, (), None)

    assert not is_no_called_process_error(record(logging.ERROR, "RuleException:\nCalledProcessError in file ..."))
    assert is_no_called_process_error(record(logging.ERROR, "MissingOutputException")) and issubclass(SpecError, SynoError)


@pytest.mark.parametrize(("command", "code"), [("exit 2", 2), ("exit 75", 75), ("kill -KILL $BASHPID", 137), ("true", 0)])
@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_measurement_without_a_record_keeps_its_exit_code(command: str, code: int, is_recorded: bool, tmp_path: Path) -> None:
    """The shell of all rules that measure; where there is a record with the reason, that is its result."""
    text = (ROOT / "workflow" / "rules" / "tune.smk").read_text(encoding="utf-8")
    shells = [shell for shell in text.split("    shell:\n")[1:] if "--compiler" in shell or "tune selected" in shell]
    assert len(shells) == 4
    assert all(one.count("|| {{ code=$?; test -s {output:q} || exit $code; }})") == one.count("test -s") == 1 for one in shells)
    record = tmp_path / "record"
    record.write_text("{}" if is_recorded else "", encoding="utf-8")
    shell = f"set -euo pipefail; (({command}) || {{ code=$?; test -s {record} || exit $code; }}) 2>&1 | cat"
    done = subprocess.run(["bash", "-c", shell], check=False, capture_output=True)
    assert done.returncode == (0 if is_recorded else code)
