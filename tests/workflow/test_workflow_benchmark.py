"""The benchmark of the whole workflow runs, and prints what it promises. Its figures are no matter here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_run import MOST_SECONDS, ROOT, environment, write_config


@pytest.mark.slow
def test_the_report_has_a_row_for_each_run(tmp_path: Path) -> None:
    config, file = write_config(tmp_path / "small.yaml", {"output": None}), tmp_path / "report.md"
    command = [sys.executable, "benchmarks/workflow.py", "--runs", "2", "--config", str(config), "--output", str(file)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=MOST_SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == file.read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if line.startswith("|")]
    assert [row[:2] for row in rows[2:4]] == [["1", "0"], ["2", "0"]]
    assert rows[2][3] == rows[3][3]  # one worker and one seed: the same operators and scores
    assert "2 of 2 ended well; they found 1 set(s)" in done.stdout
    assert "| original" in done.stdout
