"""The whole way on a real Slurm of three nodes, with four workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_run import TRIALS, WORKERS, Run
from slurm_settings import NODES

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("cluster")]


def test_every_trial_is_there_once(tmp_path: Path) -> None:
    with Run(tmp_path) as small:
        small.start()
        small.end()
        found = small.outcomes()  # of two that began with one operator, one gives way; workers may be one too many at the end
        assert found["complete"] == TRIALS and set(found) <= {"complete", "duplicate", "interrupted"}
        assert len(list((small.experiment.folder / "search").glob("worker*.json"))) == WORKERS
        assert {node for _, node in small.jobs("NodeList")} == {f"n{number}" for number in range(1, NODES + 1)}
        assert {state for _, state in small.jobs()} == {"COMPLETED"}
        assert "group_results" in small.printed or "group job" in small.printed  # tables, figures and the page are one job
