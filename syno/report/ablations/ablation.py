"""The paper's two ablations. Each writes tables and figures that name the source of their numbers.

`canonical` measures how many operators the canonicalization rules leave out (`syno.report.ablations.canonical`), `distance` how
many more operators random walks find with the shape distance (`syno.report.ablations.guided`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from syno.base.files import write_whole
from syno.base.progress import Display
from syno.base.record import versions
from syno.base.text_tables import Row, csv_text, markdown
from syno.measure.machine import device_name
from syno.report.ablations.canonical import Rate, canonical_rates, complete_operators
from syno.report.ablations.guided import Run, comparison, run, totals
from syno.report.ablations.sampling import shown_on
from syno.report.figures import BLUE, GREEN, ORANGE, finish, save
from syno.space.space import Space
from syno.space.spec import OperatorSpec
from syno.space.state_graph import check_not_empty

UNSEEN = ("rejected_by",)  # columns too wide for a page
PAPER_REDUNDANCY = 70


@dataclass(frozen=True)
class Ablation:
    """The result of a measurement.

    Attributes:
        files: the files that were written.
        text: the tables as Markdown, and where the numbers come from.
    """

    files: tuple[Path, ...]
    text: str


def canonical(
    spec: OperatorSpec,
    folder: Path,
    *,
    command: str,
    samples: int = 1000,
    complete: int = 3,
    seed: int = 0,
    display: Display | None = None,
) -> Ablation:
    """Measure the share of random graphs that are canonical, by size, and count complete operators with the rules and without.

    Args:
        spec: the space to measure, up to its depth.
        folder: the folder of `canonical.csv`, `canonical-complete.csv`, `canonical-paper.csv`, and the figure `canonical`.
        command: the command line, which is written beside the numbers as their source.
        samples: the number of random graphs of each size.
        complete: the most primitives of the complete operators that are counted; 0 to leave this out.
        seed: the seed of the random graphs.
        display: shows the progress.
    """
    with display or nullcontext():
        show = shown_on(display)
        rates = canonical_rates(spec, samples, seed=seed, show=show)
        whole = complete_operators(spec, complete, show=show) if complete else []
    notes = provenance(command, spec, seed)
    tables: dict[str, Sequence[Row]] = {
        "canonical": [rate.row() for rate in rates],
        "canonical-complete": [row.row() for row in whole],
        "canonical-paper": beside_the_paper(rates),
    }
    figure = canonical_figure(rates, f"Random graphs that are canonical, {spec.name} ({samples:,} of each size)", notes)
    return _saved(folder, "canonical", tables, figure, notes)


def distance(
    spec: OperatorSpec,
    folder: Path,
    *,
    command: str,
    trials: int | None = None,
    seconds: float = 30,
    seed: int = 0,
    display: Display | None = None,
) -> Ablation:
    """Count operators that random walks find with the shape distance and without, at equal trials and in equal CPU time.

    Args:
        spec: the space to walk in.
        folder: the folder of `distance.csv`, `distance-totals.csv`, `distance.svg` and `distance.png`.
        command: the command line, which is written beside the numbers as their source.
        trials, seconds: the most trials and CPU-seconds of each side; None for any number of trials.
        seed: the seed of the walks.
        display: shows the progress.

    Raises:
        SpecError: the space is empty.
    """
    check_not_empty(Space(spec))
    with display or nullcontext():
        show = shown_on(display)
        runs = [
            run(spec, use_distance=guided, trials=trials, seconds=seconds, seed=seed, show=show) for guided in (True, False)
        ]
    notes = provenance(command, spec, seed)
    tables = {"distance": comparison(runs), "distance-totals": totals(runs)}
    figure = distance_figure(runs, f"Random walks with the shape distance and without, {spec.name}, depth {spec.depth}", notes)
    return _saved(folder, "distance", tables, figure, notes)


def beside_the_paper(rates: Sequence[Rate]) -> list[Row]:
    """Return rows of random graphs per canonical graph: at the largest size with canonical ones, and as the paper says.

    No rows if no graph was canonical. Source of the paper's number: its canonicalization ablation.
    """
    found = [rate for rate in rates if rate.canonical]
    if not found:
        return []
    rate = max(found, key=lambda rate: rate.size)
    low, high = rate.interval
    return [
        {
            "graphs per canonical graph": f"{1 / rate.share:.1f}",
            "95 %": f"{1 / high:.1f} to {1 / low:.1f}",
            "of": f"{rate.graphs:,} random graphs of {rate.size} primitives",
            "origin": "measured",
        },
        {
            "graphs per canonical graph": f"more than {PAPER_REDUNDANCY}",
            "95 %": "",
            "of": "its random graphs",
            "origin": "paper",
        },
    ]


def _saved(folder: Path, name: str, tables: Mapping[str, Sequence[Row]], figure: Figure, notes: Sequence[str]) -> Ablation:
    """Write the tables that have rows, and the figure."""
    files, parts = [], []
    for table, rows in tables.items():
        if rows:
            files.append(folder / f"{table}.csv")
            write_whole(files[-1], csv_text(rows, notes))
            parts.append(markdown([{key: value for key, value in row.items() if key not in UNSEEN} for row in rows]))
    files += save(figure, folder / name)
    return Ablation(tuple(files), "\n".join([*parts, *(f"- {note}" for note in notes)]) + "\n")


def provenance(command: str, spec: OperatorSpec, seed: int) -> list[str]:
    """Return lines that say what was run, where and when. They stand above every table and below every figure."""
    packages = ", ".join(f"{name} {version}" for name, version in versions(["numpy"]).items())
    return [
        f"command: {command}",
        f"spec: {spec.name}, depth {spec.depth}, id {spec.id}; seed {seed}",
        f"measured on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, one process, on {device_name('cpu')}, "
        f"{os.cpu_count()} logical cores",
        f"versions: {packages}",
    ]


def canonical_figure(rates: Sequence[Rate], title: str, notes: Sequence[str]) -> Figure:
    """Draw the shares of random graphs that are canonical, by size, on a logarithmic axis; a size with none has no mark."""
    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axes = figure.add_subplot()
    found = [rate for rate in rates if rate.canonical]
    for shown, colour, style, label in (
        ([(rate.size, rate.exact / rate.graphs) for rate in rates if rate.exact], GREEN, "s--", "by exact rules alone"),
        ([(rate.size, rate.share) for rate in found], BLUE, "o-", "by all rules"),
        ([(rate.size, rate.in_order / rate.graphs) for rate in rates if rate.in_order], ORANGE, "^:", "in the order drawn"),
    ):
        axes.plot([size for size, _ in shown], [share for _, share in shown], style, color=colour, label=label)
    low, high = zip(*(rate.interval for rate in found), strict=True) if found else ((), ())
    axes.fill_between([rate.size for rate in found], low, high, color=BLUE, alpha=0.15, linewidth=0, label="95 % interval")
    axes.set_yscale("log")
    axes.set_xticks([rate.size for rate in rates])
    axes.set_ylabel("share of canonical graphs")
    axes.secondary_yaxis("right", functions=(_inverse, _inverse)).set_ylabel("graphs per canonical graph")
    axes.set_xlabel("primitives")
    finish(figure, [axes], title, notes)
    return figure


def distance_figure(runs: Sequence[Run], title: str, notes: Sequence[str]) -> Figure:
    """Draw the distinct operators found, by trials and by CPU time, with the distance and without."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    by_trials, by_time = figure.subplots(1, 2, sharey=True)
    for side, colour in zip(runs, (BLUE, ORANGE), strict=True):
        count = len(side.trials)
        found = [0, *range(1, count + 1), count]
        by_trials.step([1, *side.trials, side.walks], found, where="post", color=colour, label=f"{side.name} ({count})")
        by_time.step([0.1, *side.seconds, side.used], found, where="post", color=colour, label=f"{side.name} ({count})")
    for axes, label in ((by_trials, "random walks"), (by_time, "CPU-seconds, start included")):
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(label)
    by_trials.set_ylabel("distinct operators found")
    finish(figure, [by_trials, by_time], title, notes)
    return figure


def _inverse(shares: npt.ArrayLike) -> npt.NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.reciprocal(np.asarray(shares, dtype=np.float64))
