"""Measure many workers on one study, without training: the time of an ask as the study grows, and the operators' outcomes.

    python benchmarks/workers.py --workers 200 --trials 10000 --processes 2
    python benchmarks/workers.py --storage postgresql
    python benchmarks/workers.py --storage postgresql+psycopg://user@host/name

Each process simulates its share of the workers. Each of these runs a trial; the worker whose trial ends first, in virtual time,
stores its result and asks for another. So a process asks without pauses, and processes compete for the storage as workers do on
a cluster. Workers of one process share a view of the study: a storage, a policy, a tree.

On a cluster each worker has its own view, and all others ask between two of its asks. One simulated worker ("lone") is like
that: it asks as often as one of so many, and has to read each time what all others did.

An ask is everything that a worker does between two evaluations: end the trials of dead workers, read new trials, tell the
    policy, choose an operator, create its trial, and read again if another worker was faster. Rewards are as in
    benchmarks/search.py.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

import reports
from crowds import NAME, Ask, Seen, Setting, joining, simulate

from syno.search.storage.store import read_trials

JOURNAL, POSTGRESQL = "journal", "postgresql"
STRIPES, LONE_STRIPES = 10, 4  # rows of the report; one worker asks less often
LONGEST = 1.0  # seconds that an ask may take


def report(setting: Setting, seen: Sequence[Seen], seconds: float) -> list[str]:
    """Return the report without its heading."""
    asks = sorted(ask for one in seen for ask in one.asks)
    lone = sorted(ask for one in seen for ask in one.lone)
    trials = read_trials(setting.storage, NAME)
    outcomes = Counter(_outcome(trial.user_attrs) for trial in trials)
    complete = [trial.user_attrs["fingerprint"] for trial in trials if _outcome(trial.user_attrs) == "complete"]
    late = sum(ask.seconds >= LONGEST for ask in (*asks, *lone))
    made = len(asks) + len(lone)
    last = [ask.seconds for ask in (*asks, *lone) if ask.size >= made * (STRIPES - 1) // STRIPES]
    space = setting.space if setting.depth is None else f"{setting.space} to {setting.depth} primitives"
    columns = ["trials in the study", "asks", "median, ms", "99 % below, ms", "longest, ms", "of it choosing: median, ms"]
    return [
        f"- Space {space}, policy {setting.policy}; {setting.processes} processes stand for the workers",
        f"- {made:,} trials in {seconds:.0f} s: {made / seconds:.1f} proposals a second, all processes together",
        f"- Trials by outcome: {', '.join(f'{kind} {count:,}' for kind, count in sorted(outcomes.items()))}",
        f"- Operators that were evaluated twice: {len(complete) - len(set(complete))}",
        f"- Storing a result: {1e3 * max(one.ending for one in seen):.1f} ms on average",
        f"- Memory of a process at its most: {max(one.memory_mib for one in seen):.0f} MiB",
        f"- A worker that joins in the end knows the study after {joining(setting):.1f} s",
        f"- Asks of {LONGEST:g} s or more: {late:,} of {made:,}; the longest in the last tenth took "
        f"{max(last, default=0.0):.3f} s",
        "",
        "## Workers that share a view",
        "",
        *reports.table(columns, _rows(asks, made, STRIPES)),
        "",
        f"## A worker with a view of its own, that asks as often as one of {setting.workers}",
        "",
        *reports.table(columns, _rows(lone, made, LONE_STRIPES)),
    ]


def _rows(asks: Sequence[Ask], trials: int, stripes: int) -> list[list[str]]:
    """Return rows of asks by the size of the study."""
    rows = []
    for stripe in range(stripes):
        first, last = (trials * edge // stripes for edge in (stripe, stripe + 1))
        found = [1e3 * ask.seconds for ask in asks if first <= ask.size < last]
        choosing = [1e3 * ask.choosing for ask in asks if first <= ask.size < last]
        if len(found) > 1:
            high = quantiles(found, n=100, method="inclusive")[-1]
            times = [f"{value:.1f}" for value in (median(found), high, max(found), median(choosing))]
            rows.append([f"{first:,} to {last:,}", f"{len(found):,}", *times])
    return rows


def _outcome(attributes: dict[str, object]) -> str:
    stored = attributes.get("result")
    return str(stored["kind"]) if isinstance(stored, dict) else "running"


@contextmanager
def storage_of(given: str) -> Iterator[tuple[str, str]]:
    """Yield the URL of a storage, and its name in the report."""
    if given == JOURNAL:
        with tempfile.TemporaryDirectory(prefix="syno-study-") as folder:
            yield f"journal:{folder}/trials.log", "a journal"
    elif given == POSTGRESQL:
        sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
        from postgresql_server import missing, server

        if lacking := missing():
            sys.exit(lacking)
        with server() as url:
            yield url, "PostgreSQL"
    else:
        yield given, given.partition(":")[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the report, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2, help="that stand for the workers")
    parser.add_argument("--minutes", type=float, help="after which no more trials are begun")
    parser.add_argument("--space", default="resnet18", help='"mock", or a model of the paper')
    parser.add_argument("--depth", type=int, help="of the space, in place of its own")
    parser.add_argument("--policy", default="mcts")
    parser.add_argument("--hidden", default="0", help="as for benchmarks/search.py")
    parser.add_argument(
        "--storage",
        default=JOURNAL,
        help=f'a URL; "{JOURNAL}" for one in a new folder, "{POSTGRESQL}" for a server that is started for this',
    )
    options = reports.parse(parser, arguments)
    if not 1 <= options.processes <= options.workers:
        parser.error(f"--processes {options.processes}: from 1 to as many as there are workers, {options.workers}")
    named = {name: value for name, value in vars(options).items() if name != "output" and value != parser.get_default(name)}
    command = " ".join(["benchmarks/workers.py", *(f"--{name} {value}" for name, value in named.items())])
    with storage_of(options.storage) as (storage, shown):
        setting = Setting(
            storage,
            options.space,
            options.depth,
            options.policy,
            options.hidden,
            options.trials,
            options.workers,
            options.processes,
            options.minutes,
        )
        lines = reports.heading(f"{setting.workers} workers, {setting.trials:,} trials, on {shown}", command)
        lines += report(setting, *simulate(setting))
    reports.deliver(lines, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
