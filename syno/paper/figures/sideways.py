"""The drawings of Figure 8 and `alpha-nas`, which have horizontal bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from textwrap import fill
from typing import Any

import pandas
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from syno.paper.figures.bars import LOOKS, WRONG, panels, size
from syno.paper.figures.comparisons import OURS
from syno.paper.figures.origins import OUTLINE, is_mixed
from syno.paper.figures.titles import (
    SHORT_ORIGINS,
    compiler_title,
    device_title,
    model_title,
    panels_of,
)
from syno.report.figures import BLUE, INK, ORANGE, finish, nothing

THICK = 0.38  # the share of a network's space that each of its two bars takes
SAVINGS = (("fewer_flops", "fewer FLOPs", BLUE, ""), ("fewer_parameters", "fewer parameters", ORANGE, "///"))


def case_study_figure(table: pandas.DataFrame, title: str, notes: Sequence[str]) -> Figure:
    """Draw latencies as horizontal bars, with the speedup and the accuracy of each."""
    if table.empty:
        return nothing(title, "No latency of the case study is known.", notes)
    parts = {
        key: table[(table["model"] == key[0]) & (table["compiler"] == key[1]) & (table["place"] == key[2])]
        for key in panels_of(table)
    }
    candidates = list(dict.fromkeys(table["candidate"]))
    tall = max(len(rows) for rows in parts.values())
    figure = Figure(figsize=size(len(parts), 0.55 * tall + 0.6, 0.8), layout="constrained")
    one = {column: table[column].nunique() == 1 for column in ("model", "compiler")}
    every = panels(figure, len(parts), share=False)
    for axes, ((model, compiler, place), here) in zip(every, parts.items(), strict=True):
        for number, row in enumerate(here.to_dict("records")):
            colour, hatch = LOOKS[candidates.index(row["candidate"]) % len(LOOKS)]
            axes.barh(number, row["latency_ms"], 0.6, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
            if row["latency_origin"] == "measured" and is_mixed(table):
                axes.barh(number, row["latency_ms"], 0.6, facecolor="none", edgecolor=INK, linewidth=OUTLINE)
            faster = f" ({row['speedup']:.2f}x)" if isfinite(row["speedup"]) else ""
            text = f" {row['latency_ms']:.3g} ms{faster}{WRONG if row['is_wrong'] else ''}"
            axes.text(row["latency_ms"], number, text, va="center", fontsize=7.5)
        axes.set_xlim(0, 1.5 * here["latency_ms"].max())
        axes.set_xlabel("latency/ms")
        heading = [
            *([] if one["model"] else [model_title(model)]),
            *([] if one["compiler"] else [compiler_title(compiler)]),
            device_title(str(here["device"].iloc[0]), place),
        ]
        axes.set_title(fill(", ".join(heading), 50), fontsize=9)
        axes.set_yticks(range(len(here)), [_candidate(row) for row in here.to_dict("records")], fontsize=7.5)
        axes.set_ylim(tall - 0.5, -0.5)
    (model, compiler, _), *_ = parts
    of = [*([model_title(model)] if one["model"] else []), *([compiler_title(compiler)] if one["compiler"] else [])]
    finish(figure, every, f"{title} ({', '.join(of)})" if of else title, notes, columns=0)
    for axes in every:
        axes.grid(False, axis="y")
    return figure


def _candidate(row: Mapping[Any, Any]) -> str:
    if not isfinite(row["accuracy"]):
        return str(row["candidate"])
    return f"{row['candidate']}\naccuracy {row['accuracy']:.4f}\n({SHORT_ORIGINS[row['accuracy_origin']]})"


def savings_figure(table: pandas.DataFrame, title: str, notes: Sequence[str]) -> Figure:
    """Draw two bars for each network, the FLOPs and parameters that it saves, and beside them accuracy and speedup as text."""
    if not (table["system"] == OURS).any():
        return nothing(title, "No network's FLOPs are known with an operator that is accurate enough.", notes)
    rows = table.to_dict("records")
    figure = Figure(figsize=(12, 1.8 + 0.5 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for number, (column, label, colour, hatch) in enumerate(SAVINGS):
        places = [place + (number - 0.5) * THICK for place in range(len(rows))]
        values = [float(row[column]) for row in rows]
        axes.barh(places, values, THICK, color=colour, hatch=hatch, edgecolor="white", linewidth=0, label=label, zorder=2)
        for place, value in zip(places, values, strict=True):
            axes.text(max(value, 0) if isfinite(value) else 0, place, _share(value), va="center", fontsize=7)
    for place, row in enumerate(rows):
        axes.text(1.02, place, _change(row), va="center", fontsize=7.5, transform=axes.get_yaxis_transform())
    labels = [f"{row['system']}: {row['network']}" + (f"\n{row['operator']}" if row["system"] == OURS else "") for row in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.axhline((table["system"] != OURS).sum() - 0.5, color="#555555", linewidth=0.6, linestyle=":")
    least = [float(row[column]) for row in rows for column, *_ in SAVINGS if isfinite(row[column])]
    axes.set_xlim(left=min(0.0, *least), right=1)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    finish(figure, [axes], title, notes, columns=len(SAVINGS))
    axes.grid(False, axis="y")
    axes.spines["right"].set_visible(False)
    return figure


def _share(value: float) -> str:
    return f" {value:.0%}" if isfinite(value) else " unknown"


def _change(row: Mapping[Any, Any]) -> str:
    """Return the text beside the bars of a network: how accuracy changes, how much faster it is, and the origins."""
    if row["system"] != OURS:
        is_told = "and" in row["network"]
        return "within 2 points on ImageNet;\nabout 12 % faster training" if is_told else "no accuracy lost on ImageNet"
    change = [
        f"{-100 * row[column]:+.1f} on the {role} one"
        for column, role in (("lost_proxy", "proxy"), ("lost_final", "final"))
        if isfinite(row[column])
    ]
    faster = f"{row['least_speedup']:.2f}x to {row['largest_speedup']:.2f}x; " if isfinite(row["largest_speedup"]) else ""
    places = {"accuracy": row["accuracy_origin"], "FLOPs": row["cost_origin"], "latency": row["latency_origin"]}
    known = {what: origin for what, origin in places.items() if isinstance(origin, str)}
    if len(set(known.values())) == 1:
        told = next(iter(known.values()))
    else:
        told = ", ".join(f"{what} {origin}" for what, origin in known.items())
    return f"within {row['within']}: accuracy {', '.join(change)}\n{faster}{told}"
