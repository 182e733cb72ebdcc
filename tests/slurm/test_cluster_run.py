"""The whole way on a real Slurm of three nodes with four workers, and what is done to it on the way: no trial is lost."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from subprocess import Popen

import pytest
from cluster import kill_node, revive_node, start_controller, stop_controller
from daemons import run
from slurm_run import TRIALS, WORKERS, Run, until

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("cluster")]


def started(folder: Path) -> tuple[Run, Popen[bytes]]:
    """An experiment of which some trials are complete, and others are running."""
    small = Run(folder)
    snakemake = small.start()
    until("trials are complete and running", lambda: {"complete", "running"} <= set(small.outcomes()))
    return small, snakemake


def test_nothing_happens_to_it(tmp_path: Path) -> None:
    small = Run(tmp_path)
    small.finish()
    found = small.outcomes()  # of two that began with one operator, one gives way; workers may be one too many at the end
    assert found["complete"] == TRIALS and set(found) <= {"complete", "duplicate", "interrupted"}
    assert len(list((small.results / "search").glob("worker*.json"))) == WORKERS
    printed = small.printed.read_text(encoding="utf-8")
    assert "group_results" in printed or "group job" in printed  # tables, figures and the page are one job


def test_a_worker_is_cancelled(tmp_path: Path) -> None:
    small, snakemake = started(tmp_path)
    run("scancel", small.running("worker")[0].id)
    small.end(snakemake)


def test_a_worker_runs_out_of_memory(tmp_path: Path) -> None:
    """The kernel kills its process; there are no limits of memory here, so this test does."""
    small, snakemake = started(tmp_path)
    os.kill(small.processes()[0], signal.SIGKILL)
    small.end(snakemake)


def test_a_node_is_lost(tmp_path: Path) -> None:
    small, snakemake = started(tmp_path)
    node = small.node_of(small.running("worker")[0])
    kill_node(node)
    try:
        small.end(snakemake)
    finally:
        revive_node(node)


def test_the_controller_is_restarted(tmp_path: Path) -> None:
    small, snakemake = started(tmp_path)
    stop_controller()
    time.sleep(20)
    start_controller()
    small.end(snakemake)


def test_snakemake_is_killed_and_started_again(tmp_path: Path) -> None:
    """Its jobs go on, and the same jobs are started beside them."""
    small, snakemake = started(tmp_path)
    snakemake.kill()
    snakemake.wait()
    small.finish("--nolock")


def test_the_time_is_up(tmp_path: Path) -> None:
    """A worker gives its trial back, and another one goes on."""
    small = Run(tmp_path, {"study": {"n_trials": 60}, "workload": {"training": {"epochs": 6}}})
    small.finish("--set-resources", "worker:runtime=1")
