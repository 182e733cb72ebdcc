"""Nothing is lost, doubled or stuck when a run is killed and started again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from finished_run import Done
from kills import Kill, Ordeal, endure


@pytest.mark.slow(minutes=2)
def test_four_kills_at_random_moments(tmp_path: Path) -> None:
    events = list(endure(tmp_path, kills=4, seed=0))
    assert sum(isinstance(event, Kill) for event in events) == 4
    assert [fault for event in events if isinstance(event, list) for fault in event] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["worker", "train"])
def test_a_job_that_outlives_its_workflow_and_ends_last(kind: str, done: Done) -> None:
    """In an experiment that is to have more trials, or lacks a training."""
    ordeal = Ordeal(done.folder, 1, random.Random(0), changes={"study": {"n_trials": 5}} if kind == "worker" else {})
    if kind == "train":
        (done.results / "train" / "original" / "seed1.json").unlink()
    ordeal.run_beside_a_late_twin(kind)
    assert ordeal.faults == []
