"""What clusters do to a search, on a real Slurm. Each time it ends with every trial once, and with nothing left running."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster import node_lost, slurm_away
from daemons import run
from run_state import search_faults
from slurm_run import MOST_SECONDS, Run, until
from small_run import RESULTS

from syno.stages.data import prepare

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("cluster")]

WORKERS = 2
TRIALS = 6
TABLE = f"{RESULTS}/trials.parquet"  # with it, the search has ended


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of data with which a search begins."""
    small = Run(tmp_path_factory.mktemp("data"))
    prepare(small.experiment)
    return small.experiment.folder / "data.json"


@contextmanager
def searching(folder: Path, data: Path, **study: Any) -> Iterator[Run]:
    """A search on the cluster of which some trials are complete, and others are running."""
    with Run(folder, {"study": {"n_trials": TRIALS, "workers": WORKERS, **study}}) as small:
        small.experiment.folder.mkdir()
        shutil.copy2(data, small.experiment.folder)
        small.start(TABLE)
        until("trials are complete and running", lambda: {"complete", "running"} <= set(small.outcomes()))
        yield small


def test_workers_are_cancelled_run_out_of_time_and_out_of_memory(tmp_path: Path, data: Path) -> None:
    """Each is started again, with more memory. Those that were told to end gave their trials back.

    The kernel would kill the one that is out of memory; there are no limits of memory here, so this test does.
    """
    with searching(tmp_path, data, workers=3, n_trials=8) as small:
        cancelled, late, killed = small.hold(), small.hold(), small.hold()
        run("scontrol", "update", f"jobid={late.job}", "endtime=now+1")
        run("scancel", cancelled.job)  # which lets it go on
        os.kill(killed.pid, signal.SIGKILL)
        small.end(search_faults)
        became = [small.became_of(worker.job) for worker in (cancelled, late, killed)]
        assert became == [["CANCELLED by 0"], ["TIMEOUT"], ["FAILED"]]
        (lost,) = small.lost()
        assert small.trials().set_index("number")["worker"][lost].endswith(f":{killed.pid}")
        memory = [amount for _, amount in small.jobs("ReqMem")]
        assert memory.count("16000M") == memory.count("8000M") == 3


def test_a_node_is_lost(tmp_path: Path, data: Path) -> None:
    """Its trial is retried when there was no sign of life for so long; Slurm starts its worker on another node."""
    with searching(tmp_path, data, grace_seconds=10) as small:
        worker = small.hold()
        with node_lost(small.node_of(worker.job)):
            small.end(search_faults)
        assert small.became_of(worker.job) == ["NODE_FAIL", "COMPLETED"] and len(small.lost()) == 1


def test_snakemake_is_killed_and_started_again_and_slurm_restarted(tmp_path: Path, data: Path) -> None:
    """The jobs of the first Snakemake go on, and the second one, told to heed no lock, starts the same beside them.

    Jobs also go on while Slurm is away, and Snakemake asks until it is answered. These are one test, since a search takes long.
    """
    with searching(tmp_path, data, grace_seconds=MOST_SECONDS) as small:
        worker = small.hold()
        small.snakemake.kill()
        small.snakemake.wait()
        small.start(TABLE, "--nolock")
        until("all workers are there twice", lambda: len(small.workers()) == 2 * WORKERS)
        with slurm_away():
            until("Snakemake asks in vain", lambda: "asked again" in small.printed)
        until("only the trial that stands still is left", lambda: small.outcomes().get("complete") == TRIALS - 1)
        # They would leave when they see its worker run, by records of 5 trials, which that worker would not overwrite.
        others = [pid for pid in small.workers() if pid != worker.pid]
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        os.kill(worker.pid, signal.SIGCONT)
        until("the study has ended", lambda: small.outcomes().get("complete") == TRIALS)
        for pid in others:
            os.kill(pid, signal.SIGCONT)
        small.end(search_faults)
        assert small.lost() == []
