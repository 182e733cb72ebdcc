"""The drawings of Figures 6 and 10, which have points and lines."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from textwrap import fill
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from syno.base.files import ORIGINAL
from syno.paper.figures import origins
from syno.paper.figures.bars import SHARE, first_of_lines, panels, size
from syno.paper.figures.language import MINUTES, SERIES, Scores, mean_curve
from syno.paper.figures.titles import (
    SHORT_ORIGINS,
    compiler_title,
    model_title,
    models_of,
    operator_title,
    panels_of,
)
from syno.paper.numbers import LANGUAGE_MODEL, PERPLEXITIES, PERPLEXITY_STEPS
from syno.report.figures import BLUE, GREEN, INK, ORANGE, finish, nothing
from syno.report.points import Point, identify

LOOKS = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), ("#CC79A7", "v"), ("#E69F00", "P"), ("#56B4E9", "D"))  # of networks
STYLES = {"measured": "-", "artifact": "--", "paper": ":"}  # of lines, by origin
AXES = (("loss", "step"), ("loss", "minutes"), ("perplexity", "step"), ("perplexity", "minutes"))
NAMES = {"loss": "loss/nats per token", "perplexity": "perplexity per token", "step": "steps", "minutes": "minutes of training"}


def imagenet_figure(points: pandas.DataFrame, title: str, notes: Sequence[str]) -> Figure:
    """Draw accuracy against latency on a logarithmic axis, in a panel for each compiler and place of measurement.

    Large hollow marks are the original networks; a line joins the Pareto front of each network; crosses are baselines.
    """
    if points.empty:
        return nothing(title, "No network has both an accuracy on ImageNet and a latency.", notes)
    models = models_of(points["model"])
    chosen = list(dict.fromkeys(panel[1:] for panel in panels_of(points.assign(model=""))))
    figure = Figure(figsize=size(len(chosen), 3.0), layout="constrained")
    every, mixed = panels(figure, len(chosen)), origins.is_mixed(points)
    for axes, (compiler, place) in zip(every, chosen, strict=True):
        here = points[(points["compiler"] == compiler) & (points["place"] == place)]
        for number, model in enumerate(models):
            _network(axes, here[here["model"] == model], *LOOKS[number % len(LOOKS)], mixed)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_title(fill(f"{compiler_title(compiler)}, {place}", 55), fontsize=9)
        axes.set_xlabel("latency/ms", fontsize=8)
    first_of_lines(every, "accuracy on ImageNet" if set(points["data"]) <= {"imagenet"} else "accuracy")
    for number, model in enumerate(models):
        colour, mark = LOOKS[number % len(LOOKS)]
        every[0].plot([], [], mark, color=colour, label=model_title(model))
    count = len(models) + origins.legend_entries(every[0], points)
    if points["is_baseline"].any():
        every[0].plot([], [], "x", color=INK, label="baseline")
        count += 1
    finish(figure, every, title, notes, columns=min(count, SHARE + 1))
    return figure


def _network(axes: Axes, found: pandas.DataFrame, colour: str, mark: str, mixed: bool) -> None:
    is_original, is_baseline = found["operator"] == ORIGINAL, found["is_baseline"].astype(bool)
    operators, originals, baselines = found[~is_original & ~is_baseline], found[is_original], found[is_baseline]
    size = 6.5 if mixed else 4.5
    (filled,) = axes.plot(operators["latency_ms"], operators["accuracy"], mark, color=colour, markersize=size, zorder=3)
    (crosses,) = axes.plot(baselines["latency_ms"], baselines["accuracy"], "x", color=colour, markersize=5, zorder=3)
    (hollow,) = axes.plot(originals["latency_ms"], originals["accuracy"], mark, color=colour, markersize=8, zorder=3)
    hollow.set_markerfacecolor("white")
    for line, rows in ((filled, operators), (crosses, baselines), (hollow, originals)):
        identify(line, [_point(row) for row in rows.to_dict("records")])
    for _, row in found[~is_baseline].iterrows() if mixed else ():
        origins.mark_point(axes, row, mark)
    ahead = found[found["on_front"]].sort_values("latency_ms")
    axes.plot(ahead["latency_ms"], ahead["accuracy"], color=colour, linewidth=1, zorder=2)


def _point(row: dict[Any, Any]) -> Point:
    """Return what the mark of a network says."""
    network = f"{model_title(row['model'])}, {operator_title(row['operator'])}"
    return Point(f"{network}: accuracy {row['accuracy']:.4f}, latency {row['latency_ms']:.3g} ms", str(row["operator"]))


def language_figure(curves: pandas.DataFrame, known: Scores, title: str, notes: Sequence[str]) -> Figure:
    """Draw loss and perplexity over the steps and the minutes of trainings, with operators and without.

    Seeds are thin lines, their mean a thick one. Numbers of which no curve is known, as of the paper, are marks.
    """
    if curves.empty:
        return nothing(title, "The log of GPT-2's training is not in the data.", notes)
    models = models_of(curves["model"])
    figure = Figure(figsize=(10.5, 1.6 + 5.6 * len(models)), layout="constrained")
    grid = figure.subplots(2 * len(models), 2, squeeze=False)
    for number, model in enumerate(models):
        own = curves[curves["model"] == model]
        lines = grid[2 * number : 2 * number + 2].flat
        for axes, (quantity, over) in zip(lines, AXES, strict=True):
            _curves(axes, own, quantity, over, is_first=(quantity, over) == AXES[0], model=model if len(models) > 1 else "")
            if model == LANGUAGE_MODEL:
                _marks(axes, known, quantity, over)
            axes.set_xlabel(NAMES[over])
            axes.set_ylabel(NAMES[quantity])
            if quantity == "perplexity":
                axes.set_yscale("log")
                axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axes.yaxis.set_minor_formatter(NullFormatter())
        if len(models) > 1:
            grid[2 * number][0].set_title(model_title(model), fontsize=9, loc="left")
    finish(figure, list(grid.flat), title, notes, columns=2)
    return figure


def _curves(axes: Axes, own: pandas.DataFrame, quantity: str, over: str, *, is_first: bool, model: str) -> None:
    """Draw the curves of one network; those in the first panel are named in the legend."""
    others = [name for name in dict.fromkeys(own["operator"]) if name != ORIGINAL]
    several = own.drop_duplicates(SERIES)[["operator", "origin"]].duplicated(keep=False).any()
    for (_, experiment, operator, origin), series in own.groupby(SERIES, sort=False):
        colour = INK if operator == ORIGINAL else LOOKS[others.index(operator) % len(LOOKS)][0]
        style = STYLES.get(str(origin), "-")
        seeds = [one for _, one in series.groupby("seed", dropna=False)]
        for one in seeds if len(seeds) > 1 else ():
            axes.plot(one[over], one[quantity], style, color=colour, linewidth=0.5, alpha=0.6)
        mean = mean_curve(series)
        told = [SHORT_ORIGINS.get(str(origin), str(origin)), *([str(experiment)] if several and experiment else [])]
        told += [f"mean of {len(seeds)} seeds"] if len(seeds) > 1 else []
        label = f"{model_title(model)}: " if model else ""
        label += f"{operator_title(str(operator))} ({', '.join(told)})"
        axes.plot(mean[over], mean[quantity], style, color=colour, linewidth=1.2, label=label if is_first else None)


def _marks(axes: Axes, known: Scores, quantity: str, over: str) -> None:
    """Draw the numbers of GPT-2 that have no curve: losses after the search's minutes, perplexities after the last step."""
    if over == "minutes":
        for value, colour, mark, label in (
            (known.told, ORANGE, "s", f"original, after {MINUTES:g} minutes, as the paper prints it"),
            (known.operator, BLUE, "o", f"with the operator, after {MINUTES:g} minutes (artifact)"),
        ):
            if value is not None:
                text = f"{label}: {value:.4f}" if quantity == "loss" else None
                shown = value if quantity == "loss" else exp(value)
                axes.plot([MINUTES], [shown], mark, color=colour, markersize=6, linestyle="none", label=text, zorder=4)
    elif quantity == "perplexity":
        for (name, shown), colour, mark in zip(PERPLEXITIES.items(), (ORANGE, BLUE), "Dv", strict=True):
            label = "original" if name == ORIGINAL else "with the operator"
            text = f"{label}, after {PERPLEXITY_STEPS:,} steps, as the paper prints it: {shown:g}"
            axes.plot([PERPLEXITY_STEPS], [shown], mark, color=colour, markersize=6, linestyle="none", label=text, zorder=4)
