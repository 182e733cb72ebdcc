"""Latencies of single layers, as a figure and as a table of the page."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from syno.base.files import ORIGINAL
from syno.report.figures import BLUE, GREEN, INK, ORANGE, finish, nothing
from syno.report.page_tables import NOTHING, Cell, Table, latency, word
from syno.report.results import Results, complete
from syno.results.speedups import LAYERS
from syno.results.table import LATENCY_COLUMNS

TITLE = "Speedup of single layers"
COLUMNS = (*LATENCY_COLUMNS, "layer")
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#E69F00", "#777777")  # of operators; the palette of Okabe and Ito
SPACE = 0.8  # the share of a group that its bars fill
INCHES = 0.11  # of a bar
LEAST_WIDTH = 7.0  # inches
SHORT = 8  # letters of a name that is written across
MARKS = {"misfit": ("_", "does not fit"), "failed": ("x", "failed")}


def layer_figure(layers: pandas.DataFrame, notes: Sequence[str] = ()) -> Figure:
    """Draw the speedup of each layer over the original layer: a panel for each device and compiler, a colour for each operator.

    A layer without a bar has a mark: the operator does not fit it, or it could not be compiled or measured. SpecError if the
    table lacks a column.
    """
    rows = complete(layers, COLUMNS, "layers")
    rows = rows[rows["role"] != ORIGINAL].drop_duplicates(["operator", "device", "compiler", "layer"], keep="last")
    if rows.empty:
        return nothing(TITLE, "No operator's layers were measured.", notes)
    rows = rows.assign(speedup=pandas.to_numeric(rows["speedup"]))
    names, operators = list(dict.fromkeys(rows["layer"])), list(dict.fromkeys(rows["operator"]))
    places = list(dict.fromkeys(zip(rows["device"], rows["compiler"], strict=True)))
    width = max(LEAST_WIDTH, 1 + len(names) * (len(operators) + 2) * INCHES)
    figure = Figure(figsize=(width, 1.4 + 2.5 * len(places)), layout="constrained")
    panels = list(figure.subplots(len(places), 1, sharex=True, squeeze=False).flat)
    for axes, (device, compiler) in zip(panels, places, strict=True):
        _bars(axes, rows[(rows["device"] == device) & (rows["compiler"] == compiler)], names, operators)
        axes.set_title(f"{compiler} on {device}", fontsize=9, parse_math=False)
        axes.set_ylabel("times as fast")
    marked = [status for status in MARKS if status in set(map(_mark, rows["status"]))]
    for number, operator in enumerate(operators):
        panels[0].bar([0], [0], color=COLOURS[number % len(COLOURS)], label=operator)
    for status in marked:
        panels[0].add_line(Line2D([], [], linestyle="", marker=MARKS[status][0], color=INK, label=MARKS[status][1]))
    panels[-1].set_xticks(range(len(names)), [_label(name) for name in names], fontsize=7.5, rotation=30, ha="right")
    finish(figure, panels, TITLE, notes, columns=min(4, len(operators) + len(marked)))
    for axes in panels:
        axes.grid(False, axis="x")
    return figure


def _bars(axes: Axes, rows: pandas.DataFrame, names: Sequence[str], operators: Sequence[str]) -> None:
    thickness = SPACE / len(operators)
    for row in rows.to_dict("records"):
        number, speedup = operators.index(row["operator"]), float(row["speedup"])
        middle = names.index(row["layer"]) + (number - (len(operators) - 1) / 2) * thickness
        if isnan(speedup):
            shape = MARKS["failed" if row["status"] == "ok" else _mark(row["status"])][0]
            axes.plot([middle], [0.06], shape, color=INK, markersize=4, transform=axes.get_xaxis_transform(), zorder=4)
        else:
            axes.bar(middle, speedup, width=0.9 * thickness, color=COLOURS[number % len(COLOURS)], zorder=2)
    axes.axhline(1, color=INK, linewidth=1, zorder=3)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.spines["right"].set_visible(False)


def draw_latencies(axes: Axes, rows: pandas.DataFrame) -> None:
    """Draw the latency of each layer with its 95 % interval into a panel: a group of bars for each layer, the original first.

    Args:
        axes: the panel.
        rows: latencies with `COLUMNS` by one compiler on one device, at least one. Those without a latency have a mark.
    """
    rows = rows.sort_values("role", key=lambda role: role != ORIGINAL, kind="stable")
    names, operators = list(dict.fromkeys(rows["layer"])), list(dict.fromkeys(rows["operator"]))
    thickness = SPACE / len(operators)
    looks = [INK if name == ORIGINAL else COLOURS[number % len(COLOURS)] for number, name in enumerate(operators)]
    for number, (operator, colour) in enumerate(zip(operators, looks, strict=True)):
        own = rows[rows["operator"] == operator].drop_duplicates("layer", keep="last")
        middles = [names.index(name) + (number - (len(operators) - 1) / 2) * thickness for name in own["layer"]]
        is_known = [status == "ok" for status in own["status"]]
        known = own[is_known]
        places = [middle for middle, one in zip(middles, is_known, strict=True) if one]
        ends = [known["latency_ms"] - known["latency_low_ms"], known["latency_high_ms"] - known["latency_ms"]]
        axes.bar(
            places, known["latency_ms"], 0.9 * thickness, color=colour, label=operator, zorder=2,
            yerr=[list(end.clip(lower=0).fillna(0)) for end in ends], error_kw={"elinewidth": 0.9, "capsize": 2},
        )  # fmt: skip
        for middle, status in zip(middles, own["status"], strict=True):
            if status != "ok":
                shape = MARKS[_mark(status)][0]
                axes.plot([middle], [0.03], shape, color=INK, markersize=4, transform=axes.get_xaxis_transform(), zorder=4)
    is_long = max(map(len, names)) > SHORT
    axes.set_xticks(range(len(names)), [_label(name) for name in names], fontsize=7.5)
    for label in axes.get_xticklabels():
        label.set(rotation=30 if is_long else 0, horizontalalignment="right" if is_long else "center")
    axes.set_xlabel("layer")
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_ylabel("latency/ms")
    axes.spines["right"].set_visible(False)


def _mark(status: str) -> str:
    """Return which mark stands for a status without a speedup."""
    return status if status in ("ok", "misfit") else "failed"


def _label(layer: str) -> str:
    """Return a layer with its number in the paper, if it has one."""
    return f"{LAYERS[layer]} {layer}" if layer in LAYERS else layer


def layer_table(results: Results) -> Table:
    """Return a row for each layer, device and compiler: the original's latency, and each operator's with its speedup."""
    rows = complete(results.layers, COLUMNS, "layers").to_dict("records")
    operators = list(dict.fromkeys(str(row["operator"]) for row in rows))
    found: dict[tuple[str, ...], dict[str, dict[Any, Any]]] = {}
    for row in rows:
        place = (str(row["layer"]), str(row["device"]), str(row["compiler"]))
        found.setdefault(place, {})[str(row["operator"])] = row
    lines = [
        (word(_label(layer)), word(f"{compiler} on {device}"), *(_cell(of.get(name)) for name in operators))
        for (layer, device, compiler), of in found.items()
    ]
    return Table(("layer", "compiler", *operators), tuple(lines))


def _cell(row: dict[Any, Any] | None) -> Cell:
    """Return a cell with a latency and its speedup; without one, whether the operator does not fit, and why."""
    if row is not None and row["status"] == "misfit":
        return Cell(NOTHING, note=str(row["reason"]))
    return latency(row)


def network_table(results: Results) -> Table:
    """Return a row for each kind of layer of the network: its size and share, and whether operators replace it, or why not."""
    if not results.network:
        return Table((), ())
    rows = tuple(
        tuple(
            Cell(text, float(text.rstrip("%")) / 100) if text.endswith("%") else word(text) for text in map(str, row.values())
        )
        for row in results.network
    )
    return Table(tuple(results.network[0]), rows)
