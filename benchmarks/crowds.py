"""Simulated workers of a study, without training: each process simulates many, in virtual time (for benchmarks/workers.py)."""

from __future__ import annotations

import heapq
import json
import math
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, ParamSpec, TypeVar

import reports
from search import MOCK, hidden, load, reward

from syno.base.files import write_whole
from syno.search.policies import POLICIES, Policy
from syno.search.scheduler import Scheduler
from syno.search.storage.opening import open_storage
from syno.search.storage.records import Result
from syno.search.storage.store import TrialStore
from syno.search.tree import Action, Tree
from syno.search.trials import RunningTrial

P = ParamSpec("P")
T = TypeVar("T")

NAME = "many workers"
MEAN_SECONDS, SHORTEST = 600.0, 60.0  # of a virtual training
ALWAYS, QUIET = 0.0, 100_000.0  # seconds after which workers that are silent are looked for again, and of grace: nobody dies


@dataclass(frozen=True)
class Setting:
    """The settings of a simulation.

    Attributes:
        depth: depth of the space; None for its default.
        minutes: time after which no more trials are begun; None for no limit.
    """

    storage: str
    space: str
    depth: int | None
    policy: str
    hidden: str
    trials: int
    workers: int
    processes: int
    minutes: float | None = None

    def tree(self) -> Tree:
        if self.space == MOCK:
            sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
            from search_trees import vast_tree

            return vast_tree()
        if self.depth is None:
            return load(self.space)
        from syno.space.presets import preset
        from syno.space.space import Space

        return Space(preset(self.space).with_(depth=self.depth))

    def store(self) -> TrialStore:
        return TrialStore(*open_storage(self.storage, ALWAYS, QUIET), NAME)


class Ask(NamedTuple):
    """The measurement of an ask.

    Attributes:
        size: number of operators in the study before it.
        seconds: its duration.
        choosing: seconds of it in the policy and the tree; the rest is spent in the storage and the state.
    """

    size: int
    seconds: float
    choosing: float


@dataclass
class Seen:
    """The measurements of a process.

    Attributes:
        asks: asks of workers that share a view.
        lone: asks of the worker that has its own view.
        ending: mean seconds for storing a result.
        memory_mib: peak memory of the process.
    """

    asks: list[Ask]
    lone: list[Ask]
    ending: float
    memory_mib: float

    @classmethod
    def read(cls, file: Path) -> Seen:
        """Return the measurements that another process wrote."""
        stored: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        asks, lone = ([Ask(*one) for one in stored.pop(name)] for name in ("asks", "lone"))
        return cls(asks=asks, lone=lone, **stored)


class Stopwatch:
    """A policy, and the seconds of its methods."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.seconds = policy, 0.0

    def _timed(self, action: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        began = time.perf_counter()
        try:
            return action(*arguments, **options)
        finally:
            self.seconds += time.perf_counter() - began

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.policy, name)
        return partial(self._timed, found) if callable(found) else found


class View:
    """The view of the study in one process: a storage, a policy, a tree."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.asks = setting, list[Ask]()
        self.tree = setting.tree()
        self.policy = Stopwatch(POLICIES[setting.policy](self.tree, 0))
        self.store = setting.store()
        self.scheduler = Scheduler(self.store, self.policy, most_attempts=3)  # type: ignore[arg-type]

    @property
    def size(self) -> int:
        """Number of operators in the study, as far as is known here."""
        return len(self.scheduler.state.entries)

    def ask(self) -> RunningTrial | None:
        """Return a trial, or None if there is none to begin."""
        began, chosen = time.perf_counter(), self.policy.seconds
        trial = self.scheduler.next(self.setting.trials)
        seconds = time.perf_counter() - began
        if trial is None:
            return None
        self.asks.append(Ask(self.size - 1, seconds, self.policy.seconds - chosen))
        self.scheduler._own.discard(trial.trial_id)  # else the next ask took it for the trial of a worker that has died
        self.store.leases.renew(trial.trial_id)
        return trial

    def end(self, trial: RunningTrial, value: float) -> None:
        """Store the result of a trial."""
        self.scheduler.finish(trial, Result("complete", reward=value, metrics={"accuracy": value}))
        self.store.leases.forget(trial.trial_id)

    def path(self, trial: RunningTrial) -> Sequence[Action]:
        """Return the path to a trial's operator."""
        assignment = self.scheduler.state.assignment(trial.number)
        assert assignment is not None  # else it would not have been run
        return assignment.entry.candidate.path


class Crowd:
    """The workers that one process simulates; the first process has the lone one."""

    def __init__(self, setting: Setting, number: int) -> None:
        self.setting, self.random = setting, Random(f"crowd {number}")
        self.view, self.lone = View(setting), View(setting) if number == 0 and setting.workers > setting.processes else None
        self.target: frozenset[Action] = hidden(self.view.tree, setting.hidden)
        self.is_first, self.began, self.clock = number == 0, time.monotonic(), 0.0
        self.running: list[
            tuple[float, int, View, RunningTrial]
        ] = []  # when it ends, its number in the study, whose, and what it is
        self.endings: list[float] = []

    def run(self, workers: int) -> Seen:
        """Run until the study has its trials, and return the measurements."""
        asking, last = True, math.inf if self.setting.minutes is None else self.began + 60 * self.setting.minutes
        while asking or self.running:
            if asking and len(self.running) < workers:
                asking = time.monotonic() < last and self._ask()
            else:
                self._end()
        lone = [] if self.lone is None else self.lone.asks
        return Seen(self.view.asks, lone, sum(self.endings) / max(len(self.endings), 1), reports.peak_memory_mib())

    def _ask(self) -> bool:
        """Let one worker look for a trial. Return False if there is none."""
        view = self.lone if self.lone is not None and self._is_its_turn(self.lone) else self.view
        trial = view.ask()
        if trial is None:
            return False
        if self.is_first and len(self.view.asks) % 500 == 0:
            print(f"{view.size:,} trials after {time.monotonic() - self.began:.0f} s", file=sys.stderr)
        training = SHORTEST + self.random.expovariate(1 / (MEAN_SECONDS - SHORTEST))
        heapq.heappush(self.running, (self.clock + training, trial.number, view, trial))
        return True

    def _is_its_turn(self, lone: View) -> bool:
        """Return whether all other workers have asked since the lone one did."""
        return self.view.size >= lone.size + self.setting.workers

    def _end(self) -> None:
        """End the trial that ends first."""
        self.clock, _, view, trial = heapq.heappop(self.running)
        value = reward(view.path(trial), self.target)
        began = time.perf_counter()
        view.end(trial, value)
        self.endings.append(time.perf_counter() - began)


def crowd(setting: Setting, number: int, workers: int, output: Path) -> None:
    """Simulate the workers of one process and write its measurements."""
    write_whole(output, json.dumps(asdict(Crowd(setting, number).run(workers))))


def simulate(setting: Setting) -> tuple[list[Seen], float]:
    """Run all processes until the study is complete. Return their measurements and the seconds that it took."""
    context = multiprocessing.get_context("spawn")
    shares = [len(range(number, setting.workers, setting.processes)) for number in range(setting.processes)]
    with tempfile.TemporaryDirectory(prefix="syno-workers-") as folder:
        files = [Path(folder) / f"{number}.json" for number in range(setting.processes)]
        processes = [
            context.Process(target=crowd, args=(setting, number, share, file))
            for number, (share, file) in enumerate(zip(shares, files, strict=True))
        ]
        began = time.perf_counter()
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        seconds = time.perf_counter() - began
        if broken := [process.exitcode for process in processes if process.exitcode]:
            sys.exit(f"{len(broken)} of {len(processes)} processes broke, with exit codes {broken}; what they say is above")
        return [Seen.read(file) for file in files], seconds


def joining(setting: Setting) -> float:
    """Return the seconds that a worker needs to read the complete study."""
    tree = setting.tree()
    began = time.perf_counter()
    Scheduler(setting.store(), POLICIES[setting.policy](tree, 0), most_attempts=3).read()
    return time.perf_counter() - began
