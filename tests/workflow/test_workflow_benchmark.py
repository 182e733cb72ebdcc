"""The benchmark of the whole workflow runs, and prints what it promises. Its figures are no matter here."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

import pytest
from finished_run import CONFIG
from small_run import RESULTS, ROOT


@pytest.mark.slow
def test_the_report_has_a_row_for_each_run(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each run is a copy of the one for all tests."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    workflow = importlib.import_module("workflow")

    def run(command: list[str], **_: Any) -> CompletedProcess[str]:
        assert command[:3] == [sys.executable, "-m", "snakemake"]
        shutil.copytree(finished / RESULTS, Path(command[command.index("--directory") + 1]) / "results" / "small")
        return CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(workflow, "subprocess", SimpleNamespace(run=run))
    file = tmp_path / "report.md"
    workflow.main(["--runs", "2", "--config", str(finished / CONFIG), "--output", str(file)])
    page = capsys.readouterr().out
    assert page == file.read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    assert [row[:2] for row in rows[2:4]] == [["1", "0"], ["2", "0"]]
    assert rows[2][3] == rows[3][3]  # one worker and one seed: the same operators and scores
    assert "2 of 2 ended well; they found 1 set(s)" in page
    assert "| original" in page
