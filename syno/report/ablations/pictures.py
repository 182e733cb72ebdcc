"""The figures of the two ablations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from syno.report.ablations.canonical import Rate
from syno.report.ablations.guided import Run
from syno.report.figures import BLUE, GREEN, ORANGE, finish


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
    for run, colour in zip(runs, (BLUE, ORANGE), strict=True):
        count = len(run.trials)
        found = [0, *range(1, count + 1), count]
        by_trials.step([1, *run.trials, run.walks], found, where="post", color=colour, label=f"{run.name} ({count})")
        by_time.step([0.1, *run.seconds, run.used], found, where="post", color=colour, label=f"{run.name} ({count})")
    for axes, label in ((by_trials, "random walks"), (by_time, "CPU-seconds, start included")):
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(label)
    by_trials.set_ylabel("distinct operators found")
    finish(figure, [by_trials, by_time], title, notes)
    return figure


def _inverse(shares: npt.ArrayLike) -> npt.NDArray[np.float64]:
    values: npt.NDArray[np.float64] = np.asarray(shares, dtype=np.float64)
    inverse = np.full_like(values, np.inf)
    np.divide(1.0, values, out=inverse, where=values != 0)
    return inverse
