"""The figure of policies compared on the table of truth: the best operator so far, by trials and by CPU-seconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter

from syno.paper.replay.comparison import FLOPS, LOSE, Searches
from syno.paper.replay.replay import SEARCH_SEED
from syno.paper.replay.table import Subset
from syno.report.figures import BLUE, GREEN, GREY, INK, ORANGE, finish

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
    """Return the figure: for each part of the table, the median over the seeds with quartiles."""
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


def _lines(row: Sequence[Axes], one: Searches, colour: str, style: str, label: str | None) -> None:
    last = min((run.finished[-1] for run in one.runs if run.finished), default=1.0)
    first = min((run.finished[0] for run in one.runs if run.finished), default=0.1)
    seconds = numpy.geomspace(first, max(last, first * 1.01), TIMES)
    trials = numpy.arange(1, one.trials + 1)
    for axes, where, values in ((row[0], trials, one.best_so_far), (row[1], seconds, one.best_at(seconds))):
        low, middle, high = numpy.quantile(1 - values, (0.25, 0.5, 0.75), axis=0, method="inverted_cdf")
        axes.step(where, middle, style, where="post", color=colour, linewidth=1.4, label=label if axes is row[0] else None)
        axes.fill_between(where, low, high, step="post", color=colour, alpha=0.12, linewidth=0)
