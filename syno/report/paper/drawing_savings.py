"""Horizontal bars: what networks save, beside αNAS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import pandas
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from syno.report.figures import BLUE, ORANGE, finish, nothing
from syno.report.paper.savings import OURS

THICK = 0.38  # of the space for a network, each of its two bars
BARS = (("fewer_flops", "fewer FLOPs", BLUE, ""), ("fewer_parameters", "fewer parameters", ORANGE, "///"))


def savings_figure(table: pandas.DataFrame, title: str, notes: Sequence[str]) -> Figure:
    """Two bars for each network, FLOPs and parameters that it has less, and beside them what that cost and brought."""
    if not (table["system"] == OURS).any():
        return nothing(title, "No network's FLOPs are known with an operator that is accurate enough.", notes)
    rows = table.to_dict("records")
    figure = Figure(figsize=(9, 1.6 + 0.5 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for number, (column, label, colour, hatch) in enumerate(BARS):
        places = [place + (number - 0.5) * THICK for place in range(len(rows))]
        values = [float(row[column]) for row in rows]
        axes.barh(places, values, THICK, color=colour, hatch=hatch, edgecolor="white", linewidth=0, label=label, zorder=2)
        for place, value in zip(places, values, strict=True):
            axes.text(max(value, 0), place, f" {value:.0%}", va="center", fontsize=7)
    for place, row in enumerate(rows):
        axes.text(1.02, place, _told(row), va="center", fontsize=7.5, transform=axes.get_yaxis_transform())
    axes.set_yticks(range(len(rows)), [f"{row['system']}: {row['network']}" for row in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.axhline((table["system"] != OURS).sum() - 0.5, color="#555555", linewidth=0.6, linestyle=":")
    axes.set_xlim(left=min(0.0, *(float(row[column]) for row in rows for column, *_ in BARS)), right=1)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    finish(figure, [axes], title, notes, columns=len(BARS))
    axes.grid(False, axis="y")
    axes.spines["right"].set_visible(False)
    return figure


def _told(row: Mapping[Any, Any]) -> str:
    """What a network loses, and how much faster it is."""
    if row["system"] != OURS:
        return "no accuracy lost on ImageNet"
    change = [
        f"{-100 * row[column]:+.1f} on {data}"
        for column, data in (("lost_cifar100", "CIFAR-100"), ("lost_imagenet", "ImageNet"))
        if isfinite(row[column])
    ]
    faster = f"; {row['least_speedup']:.2f}x to {row['largest_speedup']:.2f}x" if isfinite(row["largest_speedup"]) else ""
    return f"{row['operator']}\naccuracy {', '.join(change)}{faster}"
