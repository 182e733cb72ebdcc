"""The drawings of Figures 6 and 10, which have points and lines."""

from __future__ import annotations

from collections.abc import Sequence

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from syno.base.files import ORIGINAL
from syno.report.figures import BLUE, GREEN, INK, ORANGE, finish, nothing
from syno.report.paper.bars import WIDTH, panels, present
from syno.report.paper.comparisons import MINUTES, Scores
from syno.results.paper import COMPILERS, DEVICES, MODELS

LOOKS = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), ("#CC79A7", "v"), ("#E69F00", "P"))  # colours and marks of networks


def imagenet_figure(points: pandas.DataFrame, title: str, notes: Sequence[str]) -> Figure:
    """Draw accuracy against latency on a logarithmic axis, in a panel for each compiler and device.

    Large hollow marks are the original networks; a line joins the Pareto front of each network.
    """
    if points.empty:
        return nothing(title, "No network has both an accuracy on ImageNet and a latency.", notes)
    devices, compilers = present(tuple(DEVICES), points["device"]), present(tuple(COMPILERS), points["compiler"])
    models = present(tuple(MODELS), points["model"])
    figure = Figure(figsize=(WIDTH * len(devices), 1.2 + 3.0 * len(compilers)), layout="constrained")
    grid = panels(figure, len(compilers), len(devices))
    for line, compiler in zip(grid, compilers, strict=True):
        for axes, device in zip(line, devices, strict=True):
            here = points[(points["device"] == device) & (points["compiler"] == compiler)]
            for place, model in enumerate(models):
                _network(axes, here[here["model"] == model], *LOOKS[place % len(LOOKS)])
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_title(f"{COMPILERS.get(compiler, compiler)}, {DEVICES.get(device, device)}", fontsize=9)
        line[0].set_ylabel("accuracy on ImageNet")
    for axes in grid[-1]:
        axes.set_xlabel("latency/ms")
    for place, model in enumerate(models):
        colour, mark = LOOKS[place % len(LOOKS)]
        grid[0][0].plot([], [], mark, color=colour, label=MODELS.get(model, model))
    finish(figure, [axes for line in grid for axes in line], title, notes, columns=len(models))
    return figure


def language_figure(losses: pandas.DataFrame, known: Scores, title: str, notes: Sequence[str]) -> Figure:
    """Draw the loss of GPT-2 over its training, and the losses after the search's time, with the operator and without."""
    if losses.empty:
        return nothing(title, "The log of GPT-2's training is not in the data.", notes)
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(losses["minutes"], losses["loss"], color=INK, linewidth=1, label="original GPT-2")
    for value, colour, mark, label in (
        (known.told, ORANGE, "s", f"original, after {MINUTES:g} minutes, as the paper prints it"),
        (known.operator, BLUE, "o", f"with the operator, after {MINUTES:g} minutes"),
    ):
        if value is not None:
            axes.plot([MINUTES], [value], mark, color=colour, markersize=6, linestyle="none", label=f"{label}: {value:.4f}")
    axes.set_xlabel("minutes of training")
    axes.set_ylabel("loss/nats per token")
    finish(figure, [axes], title, notes)
    return figure


def _network(axes: Axes, found: pandas.DataFrame, colour: str, mark: str) -> None:
    is_original = found["operator"] == ORIGINAL
    operators, originals = found[~is_original], found[is_original]
    axes.plot(operators["latency_ms"], operators["accuracy"], mark, color=colour, markersize=4.5, zorder=3)
    (hollow,) = axes.plot(originals["latency_ms"], originals["accuracy"], mark, color=colour, markersize=8, zorder=3)
    hollow.set_markerfacecolor("white")
    ahead = found[found["on_front"]].sort_values("latency_ms")
    axes.plot(ahead["latency_ms"], ahead["accuracy"], color=colour, linewidth=1, zorder=2)
