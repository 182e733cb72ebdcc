"""A small experiment whose processes are killed at random moments, started again until it ends, and looked at then.

    python tests/workflow/kills.py --kills 20 --seed 0

A victim is Snakemake alone (its jobs go on as orphans, and the next Snakemake starts the same jobs beside them), a worker of
the search, a training, everything at once, or all is asked to stop as Ctrl-C does. In the end there must be every trial once,
every file whole, and nothing left to do. An experiment that ends before the kills are used up is looked at, and another one
begins. Only processes that this program started are killed: they have a mark in their environment.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import run_state
from small_run import MOST_SECONDS, RESULTS, arguments, planned, started, write_config

TRIALS = 8
CHANGES: dict[str, Any] = {
    "workload": {"data_settings": {"train": 2048}, "training": {"epochs": 2}},
    "study": {"n_trials": TRIALS},
    "train": {"seeds": [1, 2]},
}
MARK = "SYNO_KILLS"
STOPPED = "Ctrl-C"
LONGEST_PAUSE = 9.0  # seconds between two kills


@dataclass(frozen=True)
class Kill:
    """A kill: which one, in which experiment, of what, how many seconds after its start, and what had been done by then."""

    number: int
    experiment: int
    victim: str
    seconds: float
    done: str

    def __str__(self) -> str:
        return f"| {self.number} | {self.experiment} | {self.victim} | {self.seconds:.1f} | {self.done} |"


@dataclass
class Ordeal:
    """One experiment in a folder of its own.

    Attributes:
        folder: where it runs; there may be results from before.
        number: of this experiment.
        rng: chooses moments and victims.
        changes: in the small experiment.
        mark: in the environment of all its processes.
        faults: what was lost, doubled or stuck.
    """

    folder: Path
    number: int
    rng: random.Random
    changes: Mapping[str, Any] = field(default_factory=lambda: CHANGES)
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config = write_config(self.folder / "kills.yaml", self.changes)
        self.results = self.folder / RESULTS
        self.began = time.monotonic()
        self._snakemake: BaseProcess | None = None  # the last one
        self._hit = False  # whether something of it was killed

    def run(self, first: int, most: int) -> Iterator[Kill]:
        """Run it to its end, and kill up to `most` times on the way."""
        kills = 0
        while True:
            snakemake, began = self._start(), time.monotonic()
            while snakemake.is_alive() and time.monotonic() - began < MOST_SECONDS:
                if kills == most or not self._runs_after(self.rng.uniform(0.5, LONGEST_PAUSE), snakemake):
                    self._runs_after(MOST_SECONDS, snakemake)
                    break
                victim, done = self.rng.choice(self._victims()), run_state.done(self.results)
                kills += 1
                yield Kill(first + kills - 1, self.number, victim, time.monotonic() - self.began, done)
                self._kill(victim, snakemake)
                if victim not in ("worker", "train"):
                    break
            if (code := snakemake.exitcode) is None:
                self.faults.append(f"Snakemake has not ended after {MOST_SECONDS} s")
                self._kill("everything", snakemake)
                return
            if code == 0:
                break
            if kills == most and code > 0 and not self._hit:
                self.faults.append(f"Snakemake ended with exit code {code} though nothing was killed")
                return
        self._wait_for_orphans()
        self._look()

    def run_beside_a_late_twin(self, kind: str) -> None:
        """Run it to its end while an orphan of this kind stands still; the orphan goes on when everything is done."""
        snakemake = self._start(SYNO_FORK_SERVER="off")  # a child of the server does not stand still when its client does
        while not self._alive(kind):
            time.sleep(0.02)
        time.sleep(1)  # it has read its config
        snakemake.kill()
        snakemake.join()
        late = self._alive(kind)
        for pid in late:
            os.kill(pid, signal.SIGSTOP)
        snakemake = self._start()
        if self._runs_after(MOST_SECONDS, snakemake) or snakemake.exitcode != 0:
            self.faults.append(f"Snakemake failed beside a {kind} that stands still")
        for pid in late:
            os.kill(pid, signal.SIGCONT)
        self._wait_for_orphans()
        self._look()

    # ---- processes ------------------------------------------------------------------------------------------------

    def _start(self, **variables: str) -> BaseProcess:
        self._hit = False
        given = arguments(self.folder, self.config)
        self._snakemake = started(self.folder, given, self.folder / "printed", **{MARK: self.mark}, **variables)
        return self._snakemake

    def _alive(self, kind: str) -> list[int]:
        return [pid for pid, found in self._processes().items() if found == kind]

    def _runs_after(self, seconds: float, snakemake: BaseProcess) -> bool:
        snakemake.join(seconds)
        return snakemake.is_alive()

    def _victims(self) -> list[str]:
        return ["snakemake", "everything", STOPPED, *(kind for kind in ("worker", "train") if self._alive(kind))]

    def _processes(self) -> dict[int, str]:
        """Those of this experiment that are alive: what each is, by its id."""
        found = {}
        if self._snakemake is not None and self._snakemake.is_alive():  # a fork, whose variables the system does not show
            assert self._snakemake.pid is not None
            found[self._snakemake.pid] = "other"
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            try:
                if f"{MARK}={self.mark}".encode() not in (entry / "environ").read_bytes().split(b"\0"):
                    continue
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:  # it has ended, or is somebody else's
                continue
            place = next((i for i, word in enumerate(words[:2]) if Path(word).name == "syno"), None)
            found[int(entry.name)] = "other" if place is None else words[place + 1]
        return found

    def _kill(self, victim: str, snakemake: BaseProcess) -> None:
        self._hit = True
        assert snakemake.pid is not None
        if victim == STOPPED:
            os.killpg(snakemake.pid, signal.SIGINT)
        elif victim == "snakemake":
            snakemake.kill()
        else:
            same = self._alive(victim)
            for pid in list(self._processes()) if victim == "everything" else same and [self.rng.choice(same)]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:  # it ended by itself a moment ago
                    continue
        if victim not in ("worker", "train") and self._runs_after(MOST_SECONDS, snakemake):
            self.faults.append(f"Snakemake has not ended {MOST_SECONDS} s after {victim}")
            snakemake.kill()

    def _wait_for_orphans(self) -> None:
        until = time.monotonic() + MOST_SECONDS
        while self._processes():
            if time.monotonic() > until:
                self.faults.append(f"still running: {self._processes()}")
                for pid in self._processes():
                    os.kill(pid, signal.SIGKILL)
                return
            time.sleep(0.2)

    def _look(self) -> None:
        """Note what is not as it must be in an experiment that has ended."""
        self.faults += run_state.faults(self.config, self.results)
        left = planned(self.folder, self.config)
        if left:
            self.faults.append(f"left to do in the end: {left}")


def endure(folder: Path, kills: int, seed: int) -> Iterator[Kill | list[str]]:
    """Experiments until there were so many kills: each kill, and the faults of each experiment."""
    rng, done, number = random.Random(seed), 0, 0
    while done < kills:
        number += 1
        ordeal = Ordeal(folder / f"experiment{number}", number, rng)
        for kill in ordeal.run(done + 1, kills - done):
            done = kill.number
            yield kill
        yield ordeal.faults


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of moments and victims")
    parser.add_argument("--folder", type=Path, help="where to run; a new one in the folder of temporary files if not given")
    given = parser.parse_args(arguments)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="syno-kills-"))
    for line in _head(f"python tests/workflow/kills.py --kills {given.kills} --seed {given.seed}"):
        print(line)
    began, faults, experiments = time.monotonic(), [], 0
    for event in endure(folder, given.kills, given.seed):
        if isinstance(event, Kill):
            print(event, flush=True)
        else:
            experiments += 1
            faults += event
    print(f"\n{experiments} experiments in {time.monotonic() - began:.0f} s; faults: {len(faults)}")
    for fault in faults:
        print(f"- {fault}")
    return 1 if faults else 0


def _head(line: str) -> list[str]:
    import platform
    from importlib.metadata import version

    from syno.measure.machine import device_name

    packages = ", ".join(f"{package} {version(package)}" for package in ("syno", "snakemake", "optuna", "torch"))
    machine = f"{device_name('cpu')}, {os.cpu_count()} logical cores"
    return [
        "# Killed at random moments",
        "",
        f"- Date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"- Machine: {machine}; load average before the start {os.getloadavg()[0]:.2f}",
        f"- Versions: Python {platform.python_version()}, {packages}",
        f"- Command: `{line}`",
        "",
        "| kill | experiment | victim | s after its start | done by then |",
        "|---:|---:|---|---:|---|",
    ]


if __name__ == "__main__":
    sys.exit(main())
