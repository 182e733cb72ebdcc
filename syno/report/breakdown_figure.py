"""The figure of where a network's time goes: its layers before and after, by the operator's stages, and speedups by layer."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from textwrap import fill

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from syno.base.files import ORIGINAL
from syno.report.figures import BLUE, GREEN, GREY, INK, ORANGE, finish, nothing
from syno.report.results import complete
from syno.results.breakdown import BREAKDOWN_COLUMNS, NETWORK, OPERATOR, REST, STAGE

TITLE = "Where the time goes"
MOST = 4  # pairs of panels: an operator with a compiler on a device each
BEFORE, AFTER, AROUND, UNKNOWN = "#999999", BLUE, "#DDDDDD", "#BBBBBB"
COLOURS = ("#56B4E9", "#009E73", "#E69F00", "#CC79A7", "#F0E442", "#D55E00")  # of stages; the palette of Okabe and Ito
BAR = 0.36  # of the distance of two layers
WORDS = 90  # letters of a line of a reason
EDGE = 0.5  # width of the white line between stages
ALL, THE_REST = "whole network", "other layers"


def breakdown_figure(breakdown: pandas.DataFrame, notes: Sequence[str] = ()) -> Figure:
    """Draw the time of each replaced layer before and after, and how many times as fast it is, with the 95 % interval.

    There is a row of two panels for each operator, compiler and device. The bars of layers that occur several times are their
    time together. The lower bar of a layer is the operator's, in the colours of its stages where they are known. Found
    operators come first; what could not be measured, or is too much for one figure, is left out, and a note says so. SpecError
    if the table lacks a column.
    """
    rows = complete(breakdown, BREAKDOWN_COLUMNS, "breakdown")
    rows = rows.iloc[(rows["role"] != "found").argsort(kind="stable")]
    found = rows.groupby(["operator", "compiler", "device"], sort=False)
    groups = {tuple(map(str, name)): group for name, group in found if isinstance(name, tuple)}
    known = {name: group for name, group in groups.items() if (group["part"] == OPERATOR).any()}
    failed = [
        f"{operator}, {compiler} on {device}: {group['reason'].iloc[0]}"
        for (operator, compiler, device), group in groups.items()
        if (operator, compiler, device) not in known
    ]
    if not known:
        why = failed[0] if failed else "No operator's layers were timed in turns with the original's."
        return nothing(TITLE, fill(why, WORDS), notes)
    left_out = [" with ".join(name[:2]) for name in list(known)[MOST:]]
    known = dict(list(known.items())[:MOST])
    heights = [group["layer"].dropna().nunique() + 2.6 for group in known.values()]
    figure = Figure(figsize=(8.4, 0.9 + 0.3 * sum(heights) + 0.4 * len(known)), layout="constrained")
    grid = figure.subplots(len(known), 2, squeeze=False, sharey="row", width_ratios=(2.6, 1), height_ratios=heights)
    stages = list(dict.fromkeys(name for group in known.values() for name in group["stage"].dropna()))
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(stages)} | {"other": UNKNOWN}
    for (times, speedups), ((operator, compiler, device), group) in zip(grid, known.items(), strict=True):
        times.set_title(f"{operator}, {compiler} on {device}", fontsize=8.5, loc="left", parse_math=False)
        _draw(times, speedups, group, colours)
    first, last = grid[0][0], grid[-1]
    last[0].set_xlabel("milliseconds in one call of the network")
    last[1].set_xlabel("times as fast")
    first.barh([0], [0], color=BEFORE, label="original")
    first.barh([0], [0], color=AFTER, label="with the operator")
    for name, colour in colours.items():
        if name in stages:  # "other" is not always
            first.barh([0], [0], color=colour, label=name)
    first.barh([0], [0], color=AROUND, label=THE_REST)
    more = [f"not shown: {', '.join(left_out)}"] if left_out else []
    finish(figure, [axes for pair in grid for axes in pair], TITLE, [*failed, *more, *notes], columns=4)
    for axes in (axes for pair in grid for axes in pair):
        axes.grid(False, axis="y")
        axes.spines["right"].set_visible(False)
    return figure


def _draw(times: Axes, speedups: Axes, group: pandas.DataFrame, colours: dict[str, str]) -> None:
    """Draw a network: a line for the whole, for each size of the replaced layers, and for the rest."""
    of_whole = group[group["layer"].isna()]
    whole, changed = (of_whole[of_whole["part"] == part].iloc[0] for part in (ORIGINAL, NETWORK))
    _pair(times, 0, whole, changed)
    _speedup(speedups, 0, changed)
    layers = list(dict.fromkeys(group["layer"].dropna()))
    for place, layer in enumerate(layers, 1):
        of_layer = group[group["layer"] == layer]
        count = int(of_layer["count"].iloc[0])
        before, after = (of_layer[of_layer["part"] == part].iloc[0] for part in (ORIGINAL, OPERATOR))
        parts = of_layer[of_layer["part"] == STAGE]
        _pair(times, place, before, after, count, [(colours[row["stage"]], row["ms"]) for row in parts.to_dict("records")])
        _speedup(speedups, place, after)
    rest = group[group["part"] == REST]["ms"]
    times.barh(len(layers) + 1, rest.iloc[0] if len(rest) else 0.0, height=BAR, color=AROUND, zorder=2)
    counts = {row["layer"]: int(row["count"]) for row in group[(group["part"] == OPERATOR)].to_dict("records")}
    names = [f"{counts[layer]} × {layer}" if counts[layer] > 1 else layer for layer in layers]
    times.set_yticks(range(len(names) + 2), [ALL, *names, THE_REST], fontsize=7.5, parse_math=False)
    times.set_ylim(len(names) + 1.6, -0.6)
    times.set_xlim(left=0)
    speedups.axvline(1, color=INK, linewidth=1, zorder=1)
    speedups.margins(x=0.3)


def _pair(
    axes: Axes,
    place: int,
    before: pandas.Series,
    after: pandas.Series,
    count: int = 1,
    stages: Sequence[tuple[str, float]] = (),
) -> None:
    """Draw the time of `count` layers, or of the network, before and after; `stages` are colours and milliseconds of one."""
    axes.barh(place - BAR / 2, count * before["ms"], height=BAR, color=BEFORE, zorder=2)
    left = 0.0
    for colour, milliseconds in stages or [(AFTER, after["ms"])]:
        width = count * milliseconds
        axes.barh(place + BAR / 2, width, left=left, height=BAR, color=colour, edgecolor="white", linewidth=EDGE, zorder=2)
        left += width
    for offset, row in ((-BAR / 2, before), (BAR / 2, after)):
        ends = [[count * (row["ms"] - row["ms_low"])], [count * (row["ms_high"] - row["ms"])]]
        axes.errorbar(
            count * row["ms"], place + offset, xerr=ends, fmt="none", color=INK, elinewidth=0.8, capsize=1.5, zorder=3
        )


def _speedup(axes: Axes, place: int, row: pandas.Series) -> None:
    value, low, high = row["speedup"], row["speedup_low"], row["speedup_high"]
    if not isfinite(value):
        return
    colour = GREEN if low > 1 else ORANGE if high < 1 else GREY
    axes.errorbar(value, place, xerr=[[value - low], [high - value]], fmt="o", color=colour, markersize=4, capsize=2, zorder=3)
    axes.annotate(f"{value:.2f}", (value, place), (0, 5), textcoords="offset points", ha="center", fontsize=7, color=INK)
