"""A small experiment on a cluster, as users run it there: its Snakemake, its jobs, and its study."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import run_state
from daemons import folder_of, processes, run, said
from small_run import RESULTS, ROOT, environment, merged, write_config

from syno.config import Experiment
from syno.search.storage.records import table
from syno.search.storage.store import read_trials

if TYPE_CHECKING:
    import pandas

WORKERS, TRIALS = 4, 8
# Trainings of some seconds each.
CHANGES: Mapping[str, Any] = {
    "workload": {"data_settings": {"train": 2048}, "training": {"epochs": 2}},
    "study": {"n_trials": TRIALS, "workers": WORKERS, "storage": "journal", "heartbeat_seconds": 2},
}
# The profile for clusters, but for one that is small and near by, which is asked every second what became of jobs. The plugin
# asks ever less often while none ends.
NEAR = ("--latency-wait", "10", "--max-jobs-per-timespan", "100/1s")
SNAKEMAKE = """
from snakemake.cli import main
from snakemake_executor_plugin_slurm import Executor
Executor.next_seconds_between_status_checks = property(lambda self: 1, lambda self, seconds: None)
main()
"""
MOST_SECONDS = 1800  # of one Snakemake: then it is stuck
RUN_ID = re.compile(r"SLURM run ID: (\S+)")
Look = Callable[[Path, Path], list[str]]  # from a config and a folder of results to what is wrong there


class Worker(NamedTuple):
    """A worker of the search: its process, and the id of its job."""

    pid: int
    job: str


class Run:
    """An experiment in a folder of its own. As a context, it leaves no processes or jobs.

    Attributes:
        experiment: it.
        snakemake: the last one that was started.
    """

    snakemake: subprocess.Popen[bytes]

    def __init__(self, folder: Path, changes: Mapping[str, Any] | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.config = write_config(folder / "small.yaml", merged(CHANGES, changes or {}))
        self.experiment = Experiment.load(self.config).model_copy(update={"output": folder / RESULTS})
        self._printed = folder / "printed"
        self._held: list[int] = []

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.snakemake.kill()
        self.snakemake.wait()
        for pid in set(self._held) & set(self.workers()):
            os.kill(pid, signal.SIGKILL)
        if self._names:
            said("scancel", f"--name={self._names}")

    # ---- Snakemake ------------------------------------------------------------------------------------------------

    def start(self, *more: str) -> None:
        """Start Snakemake with the profile, and with targets and options."""
        command = [sys.executable, "-c", SNAKEMAKE, *more, "--profile", str(ROOT / "slurm"), "--directory", str(self.folder)]
        command += ["--snakefile", str(ROOT / "Snakefile"), "--configfile", str(self.config), *NEAR]
        with self._printed.open("ab") as printed:
            self.snakemake = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment() | {"PATH": os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def end(self, look: Look = run_state.faults) -> None:
        """Wait until Snakemake has ended well and no job is left, and look at what there is."""
        try:
            code = self.snakemake.wait(MOST_SECONDS)
        except subprocess.TimeoutExpired:
            code = -1
        assert code == 0, f"Snakemake: {code}; {self.jobs()}\n{self.printed[-8000:]}"
        until("no job is left", lambda: not self.running())
        assert look(self.config, self.experiment.folder) == [], self.printed[-8000:]

    @property
    def printed(self) -> str:
        """What all Snakemakes printed."""
        return self._printed.read_text(encoding="utf-8", errors="replace")

    # ---- jobs -----------------------------------------------------------------------------------------------------

    @property
    def _names(self) -> str:
        """What the jobs of each Snakemake are called."""
        return ",".join(RUN_ID.findall(self.printed))

    def jobs(self, column: str = "State") -> list[tuple[str, str]]:
        """What the accounts say of all jobs so far: ids and a column. A job that was put back has several rows."""
        options = ("--allocations", "--duplicates", "--noheader", "--parsable2", "--starttime=now-1days")
        lines = said("sacct", *options, f"--name={self._names}", f"--format=JobIDRaw,{column}").splitlines()
        return [(id_, value) for id_, _, value in (line.partition("|") for line in lines)]

    def became_of(self, job: str) -> list[str]:
        """The states in which a job ended, or is."""
        return [state for id_, state in self.jobs() if id_ == job]

    def running(self) -> list[str]:
        """The ids of jobs that wait or run."""
        return said("squeue", "--noheader", "--format=%i", "--states=PENDING,RUNNING", f"--name={self._names}").split()

    def node_of(self, job: str) -> int:
        """The number of the node on which a job runs."""
        return int(run("squeue", "--noheader", "--format=%N", f"--jobs={job}").strip().removeprefix("n"))

    # ---- the study ------------------------------------------------------------------------------------------------

    def trials(self) -> pandas.DataFrame:
        """As they are stored now; none while the study is being made."""
        try:
            return table(read_trials(self.experiment.storage, self.experiment.name))
        except Exception:
            return table([])

    def outcomes(self) -> dict[str, int]:
        """How many trials there are, by outcome."""
        trials = self.trials()
        return dict(trials["outcome"].value_counts()) if len(trials) else {}

    def lost(self) -> list[int]:
        """The numbers of trials whose worker died over them."""
        trials = self.trials()
        return list(trials["number"][(trials["outcome"] == "interrupted") & (trials["message"] == "its worker died")])

    def workers(self) -> dict[int, str]:
        """Processes of workers, and the ids of their jobs."""
        here = {
            pid: variables for pid, variables in processes("syno", "worker").items() if folder_of(pid) == self.folder.resolve()
        }
        return {pid: variables["SLURM_JOB_ID"] for pid, variables in here.items()}

    def hold(self) -> Worker:
        """Let another worker stand still in the midst of a trial: until that has ended, the study can't end."""
        found: list[Worker] = []
        lock = self.experiment.folder / "trials.log.lock"

        def is_held() -> bool:
            for pid, job in self.workers().items():
                if pid not in self._held and pid in self._busy():
                    os.kill(pid, signal.SIGSTOP)
                    if not lock.exists() and pid in self._busy():
                        found.append(Worker(pid, job))
                        return True
                    os.kill(pid, signal.SIGCONT)  # it had ended its trial a moment before, or is about to store something
            return False

        until("a worker is in the midst of a trial", is_held)
        self._held.append(found[0].pid)
        return found[0]

    def _busy(self) -> set[int]:
        """Processes whose trials are running."""
        trials = self.trials()
        workers = trials["worker"][trials["outcome"] == "running"] if len(trials) else ()
        return {int(worker.rpartition(":")[2]) for worker in workers}


def until(what: str, true: Callable[[], bool], seconds: float = MOST_SECONDS) -> None:
    """Wait until it is so."""
    last = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < last, f"not within {seconds:g} s: {what}"
        time.sleep(0.3)
