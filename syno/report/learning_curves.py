"""The figure of learning curves: the score on the test data after each round of training, for each network."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from syno.base.files import ORIGINAL
from syno.report.figures import BLUE, GREEN, INK, ORANGE, finish, nothing
from syno.report.points import Point, identify
from syno.report.results import LEARNING_COLUMNS, complete
from syno.results.metric import METRICS, ScoreMetric

TITLE = "Learning curves"
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#E69F00", "#777777")  # of operators; the palette of Okabe and Ito
STYLES = ("-", "--", ":", "-.")  # after all colours, the next style


def learning_figure(curves: pandas.DataFrame, notes: Sequence[str] = ()) -> Figure:
    """Draw the mean score over seeds after each round of training, with a band from the lowest to the highest seed.

    A seed counts in the rounds that its training reached; where not all did, the line ends. The legend names the
    lines.

    Args:
        curves: a row for each network, seed and round with `LEARNING_COLUMNS`; rounds count from 1. May be empty.
        notes: paragraphs at the bottom.

    Raises SpecError if the table lacks a column.
    """
    rows = complete(curves, LEARNING_COLUMNS, "learning curves")
    rows = rows[pandas.to_numeric(rows["score"]).abs() < inf]  # a training that diverged has an infinite loss
    if rows.empty:
        return nothing(TITLE, "No network was trained with other seeds.", notes)
    metric = METRICS[str(rows["metric"].iloc[0])]
    figure = Figure(figsize=(7, 4.4), layout="constrained")
    axes = figure.add_subplot()
    names = sorted(rows["operator"].unique(), key=lambda name: name != ORIGINAL)
    number = 0
    for name in names:
        style = STYLES[number // len(COLOURS) % len(STYLES)]
        colour = INK if name == ORIGINAL else COLOURS[number % len(COLOURS)]
        _draw_curve(axes, rows[rows["operator"] == name], name, colour, style, metric)
        number += name != ORIGINAL
    axes.set_xlabel("round of training (an epoch, unless the settings say otherwise)")
    axes.set_ylabel(f"{metric.heading} on the test data")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines["right"].set_visible(False)
    finish(figure, [axes], TITLE, notes, columns=min(4, len(names)))
    return figure


def _draw_curve(axes: Axes, rows: pandas.DataFrame, name: str, colour: str, style: str, metric: ScoreMetric) -> None:
    by_round = rows.groupby("round")["score"].agg(["mean", "min", "max", "count"])
    by_round = by_round[by_round["count"] == rows["seed"].nunique()]
    rounds = by_round.index.to_numpy()
    axes.fill_between(rounds, by_round["min"], by_round["max"], color=colour, alpha=0.15, linewidth=0)
    (line,) = axes.plot(rounds, by_round["mean"], style, marker="o", markersize=3.5, color=colour, label=name)
    told = []
    for number, row in by_round.iterrows():
        mean, low, high = (metric.text(row[column]) for column in ("mean", "min", "max"))
        told.append(Point(f"{name}: {metric.name} {mean} ({low} to {high}) after round {number}", name))
    identify(line, told)
