"""The figures of an experiment by name: scores against costs, speedups, and the rewards of the search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import isnan
from typing import NamedTuple

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from syno.base.files import ORIGINAL
from syno.base.registry import Registry
from syno.report.breakdown_figure import TITLE as BREAKDOWN
from syno.report.breakdown_figure import breakdown_figure
from syno.report.figures import BLUE, GREEN, INK, ORANGE, drawn, finish, nothing
from syno.report.layer_tables import TITLE as LAYERS
from syno.report.layer_tables import layer_figure
from syno.report.learning_curves import TITLE as LEARNING
from syno.report.learning_curves import learning_figure
from syno.report.points import Point, identify
from syno.report.results import Picture, Results, complete
from syno.report.search_rewards import TITLE as REWARDS
from syno.report.search_rewards import reward_figure
from syno.report.search_time import TITLE as OVER_TIME
from syno.report.search_time import time_figure
from syno.report.speed_trade_off import speed_figure
from syno.report.trade_off import cost_figure, pareto_figure
from syno.report.trial_points import trial_points
from syno.results.metric import ScoreMetric
from syno.results.table import LATENCY_COLUMNS

SPEEDUP = "Speedup over the original"  # title
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#E69F00")  # of compilers; the palette of Okabe and Ito
BAR = 0.21  # inches
NOTE = 0.12  # inches, of a line at the bottom
SPACE = 0.8  # the share of a group that its bars fill


def speedup_figure(latency: pandas.DataFrame, notes: Sequence[str] = ()) -> Figure:
    """Draw the speedup over the original network as bars, the fastest operator first.

    There is a panel for each device, a group of bars for each operator, and a colour for each compiler. Measurements that
    failed or are partial have a cross and no bar. SpecError if the table lacks a column.
    """
    rows = complete(latency, LATENCY_COLUMNS, "latency")
    rows = rows[rows["role"] != ORIGINAL].drop_duplicates(["operator", "device", "compiler"], keep="last")
    if rows.empty:
        return nothing(SPEEDUP, "No operator's latency was measured.", notes)
    rows = rows.assign(speedup=pandas.to_numeric(rows["speedup"]))
    compilers, devices = sorted(rows["compiler"].unique()), sorted(rows["device"].unique())
    operators = list(rows.groupby("operator", sort=False)["speedup"].max().sort_values(ascending=False, kind="stable").index)
    height = 1.6 + NOTE * len(notes) + len(operators) * (BAR * len(compilers) + 0.16)
    figure = Figure(figsize=(7 if len(devices) == 1 else 4.6 * len(devices), height), layout="constrained")
    panels = list(figure.subplots(1, len(devices), sharey=True, squeeze=False).flat)
    for axes, device in zip(panels, devices, strict=True):
        measured = rows[rows["device"] == device]
        _bars(axes, measured, operators, compilers)
        names = dict.fromkeys(measured["device_name"].dropna().astype(str))
        axes.set_title("\n".join([str(device), *names]), fontsize=8.5, parse_math=False)
    for colour, compiler in zip(COLOURS, compilers, strict=False):
        panels[0].barh([0], [0], color=colour, label=compiler)
    if (rows["status"] != "ok").any():
        panels[0].plot([], [], "x", color=INK, label="failed" + (" or partial" if "partial" in set(rows["status"]) else ""))
    panels[0].set_yticks(range(len(operators)), operators, parse_math=False)
    panels[0].set_ylim(len(operators) - 0.45, -0.55)
    finish(figure, panels, SPEEDUP, notes, columns=4)
    for axes in panels:
        axes.grid(False, axis="y")
    return figure


def _bars(axes: Axes, rows: pandas.DataFrame, operators: Sequence[str], compilers: Sequence[str]) -> None:
    thickness = SPACE / len(compilers)
    for row in rows.to_dict("records"):
        number, speedup, trusted = compilers.index(row["compiler"]), float(row["speedup"]), row["suspicious"] is not True
        middle = operators.index(row["operator"]) + (number - (len(compilers) - 1) / 2) * thickness
        if row["status"] != "ok":
            axes.plot([0.0], [middle], "x", color=INK, markersize=5, clip_on=False, zorder=4)
            continue
        if isnan(speedup):
            text, end = f"{row['latency_ms']:.3g} ms; the original was not measured", 0.0
        else:
            text, end = f"{speedup:.2f}{'' if trusted else ' (faster than the peak)'}", speedup
            colour = COLOURS[number % len(COLOURS)]
            bars = axes.barh(middle, speedup, height=0.9 * thickness, color=colour, alpha=1.0 if trusted else 0.35, zorder=2)
            words = f"{row['operator']}: {text} times as fast with {row['compiler']} on {row['device']}"
            identify(bars[0], [Point(words, row["operator"])])
        halo = [withStroke(linewidth=2, foreground="white")]
        axes.annotate(
            text, (end, middle), (4, 0), textcoords="offset points", va="center", fontsize=7, path_effects=halo, zorder=4
        )
    axes.axvline(1, color=INK, linewidth=1, zorder=3)
    axes.set_xlim(0, 1.15 * max([1.0, *rows["speedup"].dropna()]))
    axes.set_xlabel("times as fast as the original")
    axes.spines["right"].set_visible(False)


# ---- the figures by name --------------------------------------------------------------------------------------------


class Drawing(NamedTuple):
    """A figure of an experiment.

    Attributes:
        title: The title; `{metric}` and `{Metric}` in it stand for the name of the metric.
        caption: How to read it; `{better}` in it stands for the direction of better scores.
        draw: Draws it from results.
    """

    title: str
    caption: str
    draw: Callable[[Results], Figure]

    def words(self, metric: ScoreMetric) -> tuple[str, str]:
        """Return the title and the caption for scores of this metric."""
        named = {"metric": metric.name, "Metric": metric.name.capitalize(), "better": metric.better}
        return self.title.format(**named), self.caption.format(**named)


FIGURES: Registry[Drawing] = Registry("figure")


def pictures(results: Results, names: Iterable[str]) -> list[Picture]:
    """Draw the figures of these names for a page, without notes, which it has as text. UnknownNameError for another name."""
    results, found = replace(results, notes=()), []
    for drawing in [FIGURES[name] for name in names]:
        title, caption = drawing.words(results.metric)
        found.append(Picture(title, drawn(drawing.draw(results), "svg").decode(), caption))
    return found


FIGURES.register("score-latency")(
    Drawing(
        "{Metric} against latency",
        "Mean {metric} with its standard deviation over seeds; median latency of the whole network with its 95 % interval. The "
        "{better} and the further to the left, the better. The line is the Pareto front: no other operator is both faster and "
        "better than one on it.",
        lambda found: pareto_figure(found.scores, found.latency, found.notes),
    )
)
FIGURES.register("score-speedup")(
    Drawing(
        "{Metric} against speedup",
        "The original network is at 1. Across: how many times as fast a network is, with the 95 % interval; a dashed one is "
        "the ratio of two latencies that were not timed in turns, and leaves out how the machine changed between them, or the "
        "speedup of the search by which the operator was selected, which may be too high. "
        "Upwards: mean {metric} over seeds; the bar is the 95 % interval of its difference from the original's (Welch), and "
        "for the original that of its own mean. The {better} and the further to the right, the better. An operator meets "
        "the goal of the search if both its bars lie in the shaded corner.",
        lambda found: speed_figure(found.scores, found.speedups, found.aim, found.notes),
    )
)
FIGURES.register("score-flops")(
    Drawing(
        "{Metric} against FLOPs",
        "Mean {metric} with its standard deviation over seeds, against the FLOPs (multiply-adds) of the network with the "
        "operator, as a share of the original network's. The {better} and the further to the left, the better.",
        lambda found: cost_figure(found.scores, found.notes),
    )
)
FIGURES.register("speedup")(
    Drawing(
        SPEEDUP,
        "Latency of the original network divided by the latency of the network with the operator, on the same device with the "
        "same compiler.",
        lambda found: speedup_figure(found.latency, found.notes),
    )
)
FIGURES.register("layers")(
    Drawing(
        LAYERS,
        "Latency of each distinct layer that operators replace, divided by that of the layer with the operator, on the same "
        "device with the same compiler. A layer with a stride is measured as the network has it, an operator after the pooling "
        "that stands for the stride.",
        lambda found: layer_figure(found.layers, found.notes),
    )
)
FIGURES.register("learning")(
    Drawing(
        LEARNING,
        "Mean {metric} on the test data over the seeds, after each round of the training of the whole network; the band is "
        "from the lowest to the highest seed. A training that was stopped early ends the line of its network there.",
        lambda found: learning_figure(found.learning, found.notes),
    )
)
FIGURES.register("reward")(
    Drawing(
        REWARDS,
        "Each dot is a trial of an operator. The marks at the bottom are trials without a reward: their operators cannot meet "
        "the goal (screened), they were stopped early, or failed.",
        lambda found: reward_figure(found.trials, found.notes, trial_points(found)),
    )
)
FIGURES.register("search-time")(
    Drawing(
        OVER_TIME,
        "Each dot is the reward of a trial when it ended; the line is the best so far. Rings are trials that meet the goal "
        "of the search, and the dashed line is the reward of one that just does. The marks at the bottom are trials without "
        "a reward: their operators cannot meet the goal (screened), they were stopped early, or failed.",
        lambda found: time_figure(found.trials, found.aim, found.reward_at_goal, found.notes, trial_points(found)),
    )
)
FIGURES.register("breakdown")(
    Drawing(
        BREAKDOWN,
        "The time of the replaced layers in one call of the network: the upper bar of each is the original layer's, the "
        "lower one the operator's. Layers of one size are one line. With the compiler eager, the operator's bar is divided "
        "into the calls of its code; other compilers fuse them. On the right, the speedup of each size of the layers, and "
        "of the whole network, with 95 % intervals; original and operator were timed in turns.",
        lambda found: breakdown_figure(found.breakdown, found.notes),
    )
)
