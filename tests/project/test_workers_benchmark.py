"""The simulation of many workers runs, and every operator in it is evaluated once. Its times are no matter here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_lines import HANGS_AFTER

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/workers.py", "--space", "mock", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=HANGS_AFTER)


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["journal", "sqlite:///{}/trials.db"])
def test_every_trial_is_there_once(storage: str, tmp_path: Path) -> None:
    done = run("--workers", "12", "--trials", "60", "--processes", "2", "--storage", storage.format(tmp_path))
    assert done.returncode == 0, done.stderr
    (outcomes,) = re.findall(r"^- Trials by outcome: (.*)$", done.stdout, re.MULTILINE)
    counts = dict(part.rsplit(" ", 1) for part in outcomes.split(", "))
    assert counts["complete"] == "60" and set(counts) <= {"complete", "duplicate", "interrupted"}
    assert "- Operators that were evaluated twice: 0" in done.stdout
    asked = [int(line.split("|")[2]) for line in done.stdout.splitlines() if re.match(r"\| \d+ to \d+ ", line)]
    assert 0 < sum(asked) <= 60


@pytest.mark.slow
def test_more_processes_than_workers_are_refused() -> None:
    done = run("--workers", "2", "--processes", "3")
    assert done.returncode == 2 and "--processes 3: from 1 to as many as there are workers, 2" in done.stderr
