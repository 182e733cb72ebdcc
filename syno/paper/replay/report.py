"""The comparison of policies on the table of trained operators: runs the searches, in parallel, and writes its files."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from shutil import rmtree

import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter

from syno.base.files import checksum, write_whole
from syno.base.progress import Display, Progress
from syno.base.text_tables import Row, csv_text, markdown
from syno.paper.replay.comparison import FLOPS, LOSE, Contender, Run, Searches, summary
from syno.paper.replay.replay import SEARCH_SEED
from syno.paper.replay.table import FOLDER, OperatorTable, Subset
from syno.report.figures import BLUE, GREEN, GREY, INK, ORANGE, finish, save
from syno.search.halving import HalvingSettings

# The figure of policies compared on the table of truth: the best operator so far, by trials and by CPU-seconds.


COLOURS = (GREY, BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#E69F00", INK)
STYLES = ("-", "--", "-.", ":")
TITLES = {
    Subset.NATURAL: "without requirements",
    Subset.REQUIRED: "with requirements",
    Subset.ALL: "all operators of the table",
}
TICKS = (0.03, 0.05, 0.1, 0.2, 0.5, 1)  # of errors
TIMES = 100  # points of a line over seconds


def draw(searches: Sequence[Searches], notes: Sequence[str]) -> Figure:
    """Return the figure: for each part of the table, the lowest error so far, as median and quartiles over seeds."""
    subsets = list(dict.fromkeys(one.subset for one in searches))
    names = list(dict.fromkeys(one.contender.name for one in searches))
    figure = Figure(figsize=(10, 1.2 + 3.2 * len(subsets)), layout="constrained")
    panels = figure.subplots(len(subsets), 2, sharey=True, squeeze=False)
    for number, (row, subset) in enumerate(zip(panels, subsets, strict=True)):
        for one in searches:
            if one.subset == subset:
                place = names.index(one.contender.name)
                style = STYLES[place // len(COLOURS) % len(STYLES)]
                _lines(row, one, COLOURS[place % len(COLOURS)], style, None if number else one.contender.name)
        for axes, what in zip(row, ("trials", "CPU-seconds of training"), strict=True):
            original = searches[0].table.original.accuracy(SEARCH_SEED)
            axes.axhline(1 - original + LOSE, color=INK, linewidth=0.8, linestyle=":")
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
            axes.set_yscale("log")
            axes.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
            axes.minorticks_off()
            axes.set_xlabel(what)
            axes.set_title(TITLES[subset], fontsize=9)
        row[0].set_ylabel(f"lowest error at {FLOPS:.0%} of FLOPs or less")
    count = max(len(one.runs) for one in searches)
    lines = (
        f"Median and quartiles of {count} searches. Error: 1 - accuracy. Dotted: the original's error plus {LOSE}.",
        *notes,
    )
    finish(figure, [axes for row in panels for axes in row], "Best operator so far", lines, columns=min(len(names), 5))
    return figure


def _lines(row: Sequence[Axes], searches: Searches, colour: str, style: str, label: str | None) -> None:
    last = min((run.finished[-1] for run in searches.runs if run.finished), default=1.0)
    first = min((run.finished[0] for run in searches.runs if run.finished), default=0.1)
    seconds = numpy.geomspace(first, max(last, first * 1.01), TIMES)
    trials = numpy.arange(1, searches.trials + 1)
    for axes, where, values in ((row[0], trials, searches.best_so_far), (row[1], seconds, searches.best_at(seconds))):
        low, middle, high = numpy.quantile(1 - values, (0.25, 0.5, 0.75), axis=0, method="inverted_cdf")
        axes.step(where, middle, style, where="post", color=colour, linewidth=1.4, label=label if axes is row[0] else None)
        axes.fill_between(where, low, high, step="post", color=colour, alpha=0.12, linewidth=0)


NAME = "policies"  # of the files
PARTS = "parts"  # folder of searches that are finished, from which an interrupted comparison continues

table_in = cache(OperatorTable.read)


def compare(
    contenders: Sequence[Contender],
    subsets: Sequence[Subset],
    *,
    seeds: int = 100,
    trials: int = 100,
    parts: Path,
    stopping: HalvingSettings | None = None,
    processes: int = 1,
    folder: Path = FOLDER,
    display: Display,
) -> list[Searches]:
    """Search the table with each policy, on each part of it, with each seed.

    Args:
        contenders: the policies.
        subsets: the parts of the table.
        seeds: number of searches with each policy and part, with the seeds 0, 1, 2 ...
        trials: number of trials of a search.
        parts: folder for finished searches, from which an interrupted comparison continues.
        stopping: as `study: stopping`; by default all trainings go to their end.
        processes: number of parallel processes, which does not change results.
        folder: folder of the table.
        display: shows the progress.
    """
    with display, _pool(processes) as pool:
        shown, began, done = 0, time.monotonic(), 0
        found = []
        for subset in subsets:
            for contender in contenders:
                search = partial(_search, folder, contender, subset, trials, stopping)
                total, runs = len(subsets) * len(contenders) * seeds, list[Run]()
                for is_new, run in _all(search, _file(parts, folder, contender, subset, trials, stopping), seeds, pool):
                    runs.append(run)
                    shown, done = shown + 1, done + is_new
                    rate, notes = done / max(time.monotonic() - began, 1e-9), {"policy": contender.name, "on": str(subset)}
                    display.show(Progress("bench policies", shown, total, shown, rate=rate, notes=notes))
                runs.sort(key=lambda run: run.seed)
                found.append(Searches(table_in(folder), contender, subset, trials, runs))
    return found


def _search(
    folder: Path, contender: Contender, subset: Subset, trials: int, stopping: HalvingSettings | None, seed: int
) -> Run:
    return Run.of(table_in(folder), contender, subset, seed, trials, stopping)


def _all(search: Callable[[int], Run], file: Path, seeds: int, pool: Executor | None) -> Iterator[tuple[bool, Run]]:
    """Yield (is new, run) for each seed: runs in the file are reused, new runs are added to it."""
    kept = [Run(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
    yield from (
        (False, Run(run.seed, tuple(run.ids), tuple(run.finished), tuple(run.begun))) for run in kept if run.seed < seeds
    )
    for run in _new(search, [seed for seed in range(seeds) if seed not in {run.seed for run in kept}], pool):
        kept.append(run)
        write_whole(file, "".join(f"{json.dumps(vars(one))}\n" for one in kept), durable=False)
        yield True, run


def _new(search: Callable[[int], Run], seeds: Sequence[int], pool: Executor | None) -> Iterator[Run]:
    if pool is None:
        yield from map(search, seeds)
    else:
        for future in as_completed([pool.submit(search, seed) for seed in seeds]):
            yield future.result()


@contextmanager
def _pool(processes: int) -> Iterator[Executor | None]:
    """Yield a pool of processes, which end if the block is left early; None for a single process."""
    if processes == 1:
        yield None
        return
    pool = ProcessPoolExecutor(processes, get_context("spawn"))
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _file(
    parts: Path, folder: Path, contender: Contender, subset: Subset, trials: int, stopping: HalvingSettings | None
) -> Path:
    """Return the file of finished searches. Its name changes with the table, the settings and the source of the policy."""
    tables = [file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file()]
    source = Path(inspect.getfile(contender.kind)).read_bytes()
    named = [contender.policy, dict(contender.settings), subset, trials, stopping and stopping.model_dump(mode="json")]
    settings = json.dumps(named, sort_keys=True).encode()
    return parts / f"{checksum(*tables, source, settings)}.jsonl"


def write(searches: Sequence[Searches], folder: Path, notes: Sequence[str]) -> str:
    """Write the comparison, and return its table as text.

    Files: policies.csv (a row for each policy and part), policies-runs.csv (one for each search), policies.svg and .png. The
    finished searches are deleted.
    """
    rows = summary(searches)
    write_whole(folder / f"{NAME}.csv", csv_text(rows, notes))
    write_whole(folder / f"{NAME}-runs.csv", csv_text(_run_rows(searches), notes))
    save(draw(searches, notes), folder / NAME)
    rmtree(folder / PARTS, ignore_errors=True)
    return markdown(rows, left=2)


def _run_rows(searches: Sequence[Searches]) -> list[Row]:
    return [
        {
            "policy": one.contender.name,
            "operators": str(one.subset),
            "seed": run.seed,
            "trials": run.begun[-1] if run.begun else 0,
            "trials to success": one.trials_of(run),
            "trials to success by the mean of seeds": one.trials_of(run, None),
            "CPU-seconds": run.finished[-1] if run.finished else 0.0,
            "best accuracy": max((one.table.entries[id_].accuracy(SEARCH_SEED) for id_ in run.ids), default=None),
            "best accuracy at 45 % of the FLOPs": float(best[-1]),
        }
        for one in searches
        for run, best in zip(one.runs, one.best_so_far, strict=True)
    ]
