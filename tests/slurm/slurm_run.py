"""A small experiment on a cluster, as users run it there, and what is done to its jobs on the way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import run_state
from daemons import run, said
from small_run import RESULTS, ROOT, environment, merged, write_config

from syno.config import Experiment
from syno.search.records import table
from syno.search.storage import read_trials

WORKERS, TRIALS = 4, 16
# Trainings of some seconds each; a worker that is silent for ten counts as dead.
CHANGES: Mapping[str, Any] = {
    "workload": {"data_settings": {"train": 2048}, "training": {"epochs": 2}},
    "study": {"n_trials": TRIALS, "workers": WORKERS, "storage": "journal", "heartbeat_seconds": 2, "grace_seconds": 10},
    "train": {"seeds": [1, 2]},
}
# The profile for clusters, but for one that is small and near by.
NEAR = ("--slurm-init-seconds-before-status-checks", "2", "--latency-wait", "10")
MOST_SECONDS = 600  # of one Snakemake
RUN_ID = re.compile(r"SLURM run ID: (\S+)")


class Job(NamedTuple):
    """A job in Slurm's queue: its id, its state, and for which rule and wildcards it is."""

    id: str
    state: str
    what: str


class Run:
    """An experiment in a folder of its own."""

    def __init__(self, folder: Path, changes: Mapping[str, Any] | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.config = write_config(folder / "small.yaml", merged(CHANGES, changes or {}))
        self.results = folder / RESULTS
        self.printed = folder / "printed"

    # ---- Snakemake ------------------------------------------------------------------------------------------------

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        """Start Snakemake with the profile; what it prints is in `printed`."""
        command = [sys.executable, "-m", "snakemake", "--profile", str(ROOT / "slurm"), "--snakefile", str(ROOT / "Snakefile")]
        command += ["--directory", str(self.folder), "--configfile", str(self.config), *NEAR, *more]
        with self.printed.open("ab") as printed:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment() | {"PATH": os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def finish(self, *more: str) -> None:
        """Run Snakemake to its end, which must be a good one."""
        self.end(self.start(*more))

    def end(self, snakemake: subprocess.Popen[bytes]) -> None:
        """Wait until Snakemake has ended well, and look at what there is."""
        try:
            code = snakemake.wait(MOST_SECONDS)
        except subprocess.TimeoutExpired:
            snakemake.kill()
            code = -1
        printed = self.printed.read_text(encoding="utf-8", errors="replace")
        assert code == 0, printed[-8000:]
        assert run_state.faults(self.config, self.results) == [], printed[-8000:]

    # ---- jobs -----------------------------------------------------------------------------------------------------

    def jobs(self, rule: str) -> list[Job]:
        """Those of this experiment that are in the queue."""
        name = ",".join(RUN_ID.findall(self.printed.read_text(encoding="utf-8", errors="replace")))
        lines = said("squeue", "--noheader", "--format=%i %T %k", f"--name={name}").splitlines() if name else []
        found = [Job(*line.split(" ", 2)) for line in lines]
        return [job for job in found if job.what.startswith(f"rule_{rule}")]

    def running(self, rule: str) -> list[Job]:
        """Those of them that are running."""
        return [job for job in self.jobs(rule) if job.state == "RUNNING"]

    def node_of(self, job: Job) -> int:
        """The number of the node on which a job runs."""
        return int(run("squeue", "--noheader", "--format=%N", f"--jobs={job.id}").strip().removeprefix("n"))

    # ---- the study ------------------------------------------------------------------------------------------------

    def outcomes(self) -> dict[str, int]:
        """How many trials there are, by outcome."""
        experiment = Experiment.load(self.config).model_copy(update={"output": self.results})
        try:
            trials = table(read_trials(experiment.storage, experiment.name))
        except Exception:  # the study is being made
            return {}
        return dict(trials["outcome"].value_counts()) if len(trials) else {}

    def processes(self) -> list[int]:
        """The workers of this experiment, by their command lines."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    here = (entry / "cwd").resolve() == self.folder.resolve()
                except OSError:  # it has ended
                    continue
                if here and "worker" in words[1:4] and any(Path(word).name == "syno" for word in words[:3]):
                    found.append(int(entry.name))
        return found


def until(what: str, true: Callable[[], bool], seconds: float = 180) -> None:
    """Wait until it is so."""
    last = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < last, f"not within {seconds:g} s: {what}"
        time.sleep(0.5)
