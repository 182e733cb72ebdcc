"""Many workers on one study, without training: how long an ask takes as the study grows, and what becomes of its operators.

    python benchmarks/workers.py --workers 200 --trials 10000 --processes 2
    python benchmarks/workers.py --storage postgresql+psycopg://user@host/name

Each process stands for its share of the workers. All of these run a trial; the one whose trial ends first, in virtual time,
stores its result and asks for another. So a process asks again and again without a pause, and processes meet at the storage as
workers do on a cluster. Each has its own view of the study: its storage, its policy, its tree.

An ask is all that a worker does between two evaluations: end the trials of the dead, read what is new, tell the policy, choose
an operator, create its trial, read again whether somebody else was first. Its reward: the share of a hidden one's steps.
"""

from __future__ import annotations

import argparse
import heapq
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import median, quantiles

import reports
from search import hidden, load, reward

from syno.files import write_whole
from syno.search.dispatch import Dispatch, Task
from syno.search.policies import POLICIES
from syno.search.records import Result
from syno.search.storage import TrialStore, open_storage, read_trials
from syno.search.tree import Arc, Tree

NAME = "many workers"
JOURNAL = "journal"
STRIPES = 10  # rows of the report
MEAN_SECONDS, SHORTEST = 600.0, 60.0  # of a virtual training
QUIET = 10_000.0  # seconds of grace: nobody dies here
LONGEST = 1.0  # seconds that an ask may take


@dataclass(frozen=True)
class Setting:
    """What a simulation is of."""

    storage: str
    space: str
    policy: str
    hidden: str
    trials: int
    workers: int
    processes: int


@dataclass
class Seen:
    """What a process saw.

    Attributes:
        asks: for each, how many trials the study had before it, and its seconds.
        ending: seconds for storing a result, mean.
        memory_mib: the most that the process held.
    """

    asks: list[tuple[int, float]]
    ending: float
    memory_mib: float


class Crowd:
    """The workers for which one process stands."""

    def __init__(self, setting: Setting, number: int) -> None:
        self.setting, self.random = setting, Random(f"crowd {number}")
        self.tree: Tree = load(setting.space)
        self.target: frozenset[Arc] = hidden(self.tree, setting.hidden)
        store = TrialStore(*open_storage(setting.storage, QUIET, QUIET), NAME)
        self.dispatch = Dispatch(store, POLICIES[setting.policy](self.tree, 0), most_attempts=3)
        self.clock = 0.0
        self.running: list[tuple[float, int, Task]] = []  # when it ends, its number in the study, and what it is
        self.asks: list[tuple[int, float]] = []
        self.endings: list[float] = []

    def run(self, workers: int) -> Seen:
        """Until the study has its trials."""
        asking = True
        while asking or self.running:
            if asking and len(self.running) < workers:
                asking = self._ask()
            else:
                self._end()
        return Seen(self.asks, sum(self.endings) / max(len(self.endings), 1), reports.peak_memory_mib())

    def _ask(self) -> bool:
        """One worker looks for a trial. False if there is none."""
        began = time.perf_counter()
        task = self.dispatch.next(self.setting.trials)
        seconds = time.perf_counter() - began
        if task is None:
            return False
        self.asks.append((len(self.dispatch.ledger.claims) - 1, seconds))
        self.dispatch._own.discard(task.trial_id)  # else the next ask took it for the trial of a worker that has died
        training = SHORTEST + self.random.expovariate(1 / (MEAN_SECONDS - SHORTEST))
        heapq.heappush(self.running, (self.clock + training, task.number, task))
        return True

    def _end(self) -> None:
        """The trial that ends first has ended."""
        self.clock, _, task = heapq.heappop(self.running)
        value = self._reward(task)
        began = time.perf_counter()
        self.dispatch.finish(task, Result("complete", reward=value, metrics={"accuracy": value}))
        self.endings.append(time.perf_counter() - began)

    def _reward(self, task: Task) -> float:
        role = self.dispatch.ledger.role(task.number)
        assert role is not None  # else it would not have been run
        return reward(role.claim.candidate.path, self.target)


def crowd(setting: Setting, number: int, workers: int, output: Path) -> None:
    """What a process does."""
    write_whole(output, json.dumps(asdict(Crowd(setting, number).run(workers))))


def simulate(setting: Setting) -> tuple[list[Seen], float]:
    """All processes until the study is complete; what they saw, and how many seconds it took."""
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
        return [Seen(**json.loads(file.read_text(encoding="utf-8"))) for file in files], seconds


def joining(setting: Setting) -> float:
    """Seconds until a worker that joins the complete study knows what there is."""
    tree = load(setting.space)
    began = time.perf_counter()
    store = TrialStore(*open_storage(setting.storage, QUIET, QUIET), NAME)
    Dispatch(store, POLICIES[setting.policy](tree, 0), most_attempts=3).read()
    return time.perf_counter() - began


def report(setting: Setting, seen: Sequence[Seen], seconds: float, command: str, shown: str) -> list[str]:
    """The page."""
    asks = sorted((size, taken) for one in seen for size, taken in one.asks)
    outcomes = Counter(_outcome(trial.user_attrs) for trial in read_trials(setting.storage, NAME))
    complete = [trial for trial in read_trials(setting.storage, NAME) if _outcome(trial.user_attrs) == "complete"]
    doubled = len(complete) - len({trial.user_attrs["fingerprint"] for trial in complete})
    slowest = max(taken for _, taken in asks)
    late = "" if slowest < LONGEST else ": not met"
    columns = ["trials in the study", "asks", "median, ms", "95 % below, ms", "longest, ms"]
    title = f"{setting.workers} workers, {setting.trials:,} trials, on {shown}"
    return [
        *reports.heading(title, command),
        f"- Space {setting.space}, policy {setting.policy}; {setting.processes} processes, each with a view of its own",
        f"- {len(asks) / seconds:.1f} proposals a second, all processes together; {seconds:.0f} s in all",
        f"- Trials by outcome: {', '.join(f'{kind} {count:,}' for kind, count in sorted(outcomes.items()))}",
        f"- Operators that were evaluated twice: {doubled}",
        f"- Storing a result: {1e3 * max(one.ending for one in seen):.1f} ms on average",
        f"- Memory of a process at its most: {max(one.memory_mib for one in seen):.0f} MiB",
        f"- A worker that joins in the end knows the study after {joining(setting):.1f} s",
        f"- The longest ask: {slowest:.3f} s; below {LONGEST:g} s is what is asked for{late}",
        "",
        *reports.table(columns, _rows(asks, setting.trials)),
    ]


def _rows(asks: Sequence[tuple[int, float]], trials: int) -> list[list[str]]:
    """Asks by the size of the study."""
    rows = []
    for stripe in range(STRIPES):
        first, last = (trials * edge // STRIPES for edge in (stripe, stripe + 1))
        found = [1e3 * taken for size, taken in asks if first <= size < last]
        if len(found) > 1:
            high = quantiles(found, n=20, method="inclusive")[-1]
            times = [f"{value:.1f}" for value in (median(found), high, max(found))]
            rows.append([f"{first:,} to {last:,}", f"{len(found):,}", *times])
    return rows


def _outcome(attributes: dict[str, object]) -> str:
    stored = attributes.get("result")
    return str(stored["kind"]) if isinstance(stored, dict) else "running"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print the report; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2, help="that stand for the workers")
    parser.add_argument("--space", default="resnet18", help='"mock", or a model of the paper')
    parser.add_argument("--policy", default="mcts")
    parser.add_argument("--hidden", default="0", help="as for benchmarks/search.py")
    parser.add_argument("--storage", default=JOURNAL, help=f'a URL; "{JOURNAL}" for a journal in a new folder')
    options = reports.parse(parser, arguments)
    if not 1 <= options.processes <= options.workers:
        parser.error(f"--processes {options.processes}: from 1 to as many as there are workers, {options.workers}")
    with tempfile.TemporaryDirectory(prefix="syno-study-") as folder:
        storage = f"journal:{folder}/trials.log" if options.storage == JOURNAL else options.storage
        shown = "a journal" if options.storage == JOURNAL else storage.partition(":")[0]
        setting = Setting(
            storage, options.space, options.policy, options.hidden, options.trials, options.workers, options.processes
        )
        command = f"benchmarks/workers.py --workers {setting.workers} --trials {setting.trials} --processes {setting.processes}"
        command += f" --space {setting.space} --policy {setting.policy}"
        seen, seconds = simulate(setting)
        lines = report(setting, seen, seconds, command, shown)
    reports.deliver(lines, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
