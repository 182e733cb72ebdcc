"""The whole way on a real Slurm of three nodes, with four workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_run import TRIALS, WORKERS, Run

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("cluster")]


def test_every_trial_is_there_once(tmp_path: Path) -> None:
    small = Run(tmp_path)
    small.finish()
    found = small.outcomes()  # of two that began with one operator, one gives way; workers may be one too many at the end
    assert found["complete"] == TRIALS and set(found) <= {"complete", "duplicate", "interrupted"}
    assert len(list((small.results / "search").glob("worker*.json"))) == WORKERS
    printed = small.printed.read_text(encoding="utf-8")
    assert "group_results" in printed or "group job" in printed  # tables, figures and the page are one job
