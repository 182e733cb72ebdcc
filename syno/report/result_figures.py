"""The figures of an experiment by name: scores against costs, speedups, and the rewards of the search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf, isfinite
from statistics import fmean
from textwrap import fill
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from syno.base.files import ORIGINAL
from syno.base.interval import Interval, times_as_fast
from syno.base.registry import Registry
from syno.report.figures import BLUE, GREEN, GREY, INK, ORANGE, Picture, drawn, finish, nothing
from syno.report.layer_tables import TITLE as LAYERS
from syno.report.layer_tables import layer_figure
from syno.report.points import Point, identify
from syno.report.search_rewards import TITLE as REWARDS
from syno.report.search_rewards import reward_figure
from syno.report.search_time import TITLE as OVER_TIME
from syno.report.search_time import time_figure
from syno.report.trade_off import cost_figure, pareto_figure, speed_figure
from syno.report.trial_points import TrialPoints
from syno.run.breakdown import NETWORK, OPERATOR, REST, STAGE
from syno.run.run import Run
from syno.run.values import Latency, Round, TimedPart, last_of_each
from syno.train.metric import METRICS, Metric

# The figure of learning curves: the score on the test data after each round of training, for each network.


LEARNING = "Learning curves"
OPERATOR_COLOURS = (
    BLUE,
    ORANGE,
    GREEN,
    "#CC79A7",
    "#56B4E9",
    "#E69F00",
    "#777777",
)  # of operators; the palette of Okabe and Ito
STYLES = ("-", "--", ":", "-.")  # after all colours, the next style


def learning_figure(curves: Sequence[Round], notes: Sequence[str] = ()) -> Figure:
    """Draw the mean score over seeds after each round of training, with a band from the lowest to the highest seed.

    The line ends at the last round that all seeds of the network reached. The legend names the lines.

    Args:
        curves: the score of each network, seed and round. May be empty.
        notes: paragraphs at the bottom.
    """
    rounds = [one for one in curves if isfinite(one.score)]  # a training that diverged has an infinite loss
    if not rounds:
        return nothing(LEARNING, "No network was trained with other seeds.", notes)
    metric = METRICS[rounds[0].metric]
    figure = Figure(figsize=(7, 4.4), layout="constrained")
    axes = figure.add_subplot()
    names = sorted(dict.fromkeys(one.operator for one in rounds), key=lambda name: name != ORIGINAL)
    number = 0
    for name in names:
        style = STYLES[number // len(OPERATOR_COLOURS) % len(STYLES)]
        colour = INK if name == ORIGINAL else OPERATOR_COLOURS[number % len(OPERATOR_COLOURS)]
        _draw_curve(axes, [one for one in rounds if one.operator == name], name, colour, style, metric)
        number += name != ORIGINAL
    axes.set_xlabel("round of training (an epoch, unless the settings say otherwise)")
    axes.set_ylabel(f"{metric.heading} on the test data")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines.right.set_visible(False)
    finish(figure, [axes], LEARNING, notes, columns=min(4, len(names)))
    return figure


def _draw_curve(axes: Axes, rounds: Sequence[Round], name: str, colour: str, style: str, metric: Metric) -> None:
    scores: dict[int, list[float]] = {}
    for one in sorted(rounds, key=lambda one: one.number):
        scores.setdefault(one.number, []).append(one.score)
    seeds = len({one.seed for one in rounds})
    by_round = {number: (fmean(of), min(of), max(of)) for number, of in scores.items() if len(of) == seeds}
    means, lows, highs = zip(*by_round.values(), strict=True) if by_round else ((), (), ())
    axes.fill_between(list(by_round), lows, highs, color=colour, alpha=0.15, linewidth=0)
    (line,) = axes.plot(list(by_round), means, style, marker="o", markersize=3.5, color=colour, label=name)
    points = []
    for number, numbers in by_round.items():
        mean, low, high = map(metric.text, numbers)
        points.append(Point(f"{name}: {metric.name} {mean} ({low} to {high}) after round {number}", name))
    identify(line, points)


# The figure of where a network's time goes: its layers before and after, by the operator's stages, and speedups by layer.


BREAKDOWN = "Where the time goes"
MOST = 4  # pairs of panels: an operator with a compiler on a device each
BEFORE, AFTER, AROUND, UNKNOWN = "#999999", BLUE, "#DDDDDD", "#BBBBBB"
STAGE_COLOURS = ("#56B4E9", "#009E73", "#E69F00", "#CC79A7", "#F0E442", "#D55E00")  # of stages; the palette of Okabe and Ito
LAYER_BAR = 0.36  # of the distance of two layers
WORDS = 90  # letters of a line of a reason
EDGE = 0.5  # width of the white line between stages
ALL, THE_REST = "whole network", "other layers"


def breakdown_figure(parts: Sequence[TimedPart], notes: Sequence[str] = ()) -> Figure:
    """Draw the time of each replaced layer before and after the replacement, and its speedup with the 95 % interval.

    There is a row of two panels for each operator, compiler and device. A bar of layers that occur several times is the sum of
    their times. The lower bar of a layer is the operator's, in the colours of its stages if they were measured. Synthesized
    operators come first. Failed measurements, and networks too many for one figure, are left out, and a note says so.
    """
    groups: dict[tuple[str, str, str], list[TimedPart]] = {}
    for part in sorted(parts, key=lambda part: part.role != "found"):
        groups.setdefault((part.operator, part.compiler, part.device), []).append(part)
    known = {name: group for name, group in groups.items() if any(part.part == OPERATOR for part in group)}
    failed = [
        f"{operator}, {compiler} on {device}: {group[0].reason}"
        for (operator, compiler, device), group in groups.items()
        if (operator, compiler, device) not in known
    ]
    if not known:
        why = failed[0] if failed else "No operator's layers were timed in turns with the original's."
        return nothing(BREAKDOWN, fill(why, WORDS), notes)
    left_out = [" with ".join(name[:2]) for name in list(known)[MOST:]]
    known = dict(list(known.items())[:MOST])
    heights = [len({part.layer for part in group if part.layer}) + 2.6 for group in known.values()]
    figure = Figure(figsize=(8.4, 0.9 + 0.3 * sum(heights) + 0.4 * len(known)), layout="constrained")
    grid = figure.subplots(len(known), 2, squeeze=False, sharey="row", width_ratios=(2.6, 1), height_ratios=heights)
    stages = list(dict.fromkeys(part.stage for group in known.values() for part in group if part.stage))
    colours = {name: STAGE_COLOURS[number % len(STAGE_COLOURS)] for number, name in enumerate(stages)} | {"other": UNKNOWN}
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
    finish(figure, [axes for pair in grid for axes in pair], BREAKDOWN, [*failed, *more, *notes], columns=4)
    for axes in (axes for pair in grid for axes in pair):
        axes.grid(False, axis="y")
        axes.spines.right.set_visible(False)
    return figure


def _draw(times: Axes, speedups: Axes, group: Sequence[TimedPart], colours: dict[str, str]) -> None:
    """Draw a network's row of panels: a pair of bars for the whole, for each size of replaced layers, and for the rest."""
    known = {(part.layer, part.part): part for part in group}
    changed = known["", NETWORK]
    _pair(times, 0, known["", ORIGINAL].ms, changed.ms)
    _speedup(speedups, 0, changed.speedup)
    layers = list(dict.fromkeys(part.layer for part in group if part.layer))
    names = []
    for place, layer in enumerate(layers, 1):
        after = known[layer, OPERATOR]
        stages = [(colours[part.stage], part.ms.value) for part in group if (part.layer, part.part) == (layer, STAGE)]
        _pair(times, place, known[layer, ORIGINAL].ms, after.ms, after.count, stages)
        _speedup(speedups, place, after.speedup)
        names.append(f"{after.count} × {layer}" if after.count > 1 else layer)
    rest = known.get(("", REST))
    times.barh(len(layers) + 1, 0.0 if rest is None else rest.ms.value, height=LAYER_BAR, color=AROUND, zorder=2)
    times.set_yticks(range(len(names) + 2), [ALL, *names, THE_REST], fontsize=7.5, parse_math=False)
    times.set_ylim(len(names) + 1.6, -0.6)
    times.set_xlim(left=0)
    speedups.axvline(1, color=INK, linewidth=1, zorder=1)
    speedups.margins(x=0.3)


def _pair(
    axes: Axes,
    place: int,
    before: Interval,
    after: Interval,
    count: int = 1,
    stages: Sequence[tuple[str, float]] = (),
) -> None:
    """Draw the time of `count` layers, or of the network, before and after; `stages`: (colour, ms) of one layer's stages."""
    axes.barh(place - LAYER_BAR / 2, count * before.value, height=LAYER_BAR, color=BEFORE, zorder=2)
    left = 0.0
    for colour, milliseconds in stages or [(AFTER, after.value)]:
        width = count * milliseconds
        axes.barh(
            place + LAYER_BAR / 2, width, left=left, height=LAYER_BAR, color=colour, edgecolor="white", linewidth=EDGE, zorder=2
        )
        left += width
    for offset, (value, low, high) in ((-LAYER_BAR / 2, before), (LAYER_BAR / 2, after)):
        ends = [[count * (value - low)], [count * (high - value)]]
        axes.errorbar(count * value, place + offset, xerr=ends, fmt="none", color=INK, elinewidth=0.8, capsize=1.5, zorder=3)


def _speedup(axes: Axes, place: int, speedup: Interval) -> None:
    value, low, high = speedup
    if not isfinite(value):
        return
    colour = GREEN if low > 1 else ORANGE if high < 1 else GREY
    axes.errorbar(value, place, xerr=[[value - low], [high - value]], fmt="o", color=colour, markersize=4, capsize=2, zorder=3)
    axes.annotate(f"{value:.2f}", (value, place), (0, 5), textcoords="offset points", ha="center", fontsize=7, color=INK)


SPEEDUP = "Speedup over the original"  # title
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#E69F00")  # of compilers; the palette of Okabe and Ito
BAR = 0.21  # inches
NOTE = 0.12  # inches, of a line at the bottom
SPACE = 0.8  # the share of a group that its bars fill


def speedup_figure(latencies: Sequence[Latency], notes: Sequence[str] = ()) -> Figure:
    """Draw the speedup over the original network as bars, the fastest operator first.

    There is a panel for each device, a group of bars for each operator, and a colour for each compiler. Measurements that
    failed or are partial have a cross and no bar.
    """
    own = [row for row in latencies if row.role != ORIGINAL]
    rows = last_of_each(own, lambda row: (row.operator, row.target))
    if not rows:
        return nothing(SPEEDUP, "No operator's latency was measured.", notes)
    compilers, devices = sorted({row.compiler for row in rows}), sorted({row.device for row in rows})
    best: dict[str, float] = {}
    for row in rows:
        best[row.operator] = max(best.get(row.operator, -inf), -inf if row.speedup is None else row.speedup)
    operators = sorted(best, key=lambda name: -best[name])
    height = 1.6 + NOTE * len(notes) + len(operators) * (BAR * len(compilers) + 0.16)
    figure = Figure(figsize=(7 if len(devices) == 1 else 4.6 * len(devices), height), layout="constrained")
    panels = list(figure.subplots(1, len(devices), sharey=True, squeeze=False).flat)
    for axes, device in zip(panels, devices, strict=True):
        measured = [row for row in rows if row.device == device]
        _bars(axes, measured, operators, compilers)
        names = dict.fromkeys(row.device_name for row in measured if row.device_name)
        axes.set_title("\n".join([device, *names]), fontsize=8.5, parse_math=False)
    for colour, compiler in zip(COLOURS, compilers, strict=False):
        panels[0].barh([0], [0], color=colour, label=compiler)
    if not all(row.is_ok for row in rows):
        partial = " or partial" if any(row.status == "partial" for row in rows) else ""
        panels[0].plot([], [], "x", color=INK, label=f"failed{partial}")
    panels[0].set_yticks(range(len(operators)), operators, parse_math=False)
    panels[0].set_ylim(len(operators) - 0.45, -0.55)
    finish(figure, panels, SPEEDUP, notes, columns=4)
    for axes in panels:
        axes.grid(False, axis="y")
    return figure


def _bars(axes: Axes, rows: Sequence[Latency], operators: Sequence[str], compilers: Sequence[str]) -> None:
    thickness = SPACE / len(compilers)
    for row in rows:
        number = compilers.index(row.compiler)
        middle = operators.index(row.operator) + (number - (len(compilers) - 1) / 2) * thickness
        if not row.is_ok:
            axes.plot([0.0], [middle], "x", color=INK, markersize=5, clip_on=False, zorder=4)
            continue
        if row.speedup is None:
            text, end = f"{row.ms.value:.3g} ms; the original was not measured", 0.0
        else:
            peak, end = " (faster than the peak)" if row.is_suspicious else "", row.speedup
            text = f"{row.speedup:.2f}{peak}"
            colour, alpha = COLOURS[number % len(COLOURS)], 0.35 if row.is_suspicious else 1.0
            bars = axes.barh(middle, end, height=0.9 * thickness, color=colour, alpha=alpha, zorder=2)
            words = f"{row.operator}: {times_as_fast(row.speedup)} with {row.compiler} on {row.device}{peak}"
            identify(bars[0], [Point(words, row.operator)])
        halo = [withStroke(linewidth=2, foreground="white")]
        axes.annotate(
            text, (end, middle), (4, 0), textcoords="offset points", va="center", fontsize=7, path_effects=halo, zorder=4
        )
    axes.axvline(1, color=INK, linewidth=1, zorder=3)
    axes.set_xlim(0, 1.15 * max([1.0, *(row.speedup for row in rows if row.speedup is not None)]))
    axes.set_xlabel("times as fast as the original")
    axes.spines.right.set_visible(False)


class Drawing(NamedTuple):
    """A figure of an experiment.

    Attributes:
        title: The title; `{metric}` and `{Metric}` in it stand for the name of the metric.
        caption: How to read it; `{better}` in it stands for the direction of better scores.
        draw: Draws the figure from a run, with notes at the bottom.
    """

    title: str
    caption: str
    draw: Callable[[Run, Sequence[str]], Figure]

    def words(self, metric: Metric) -> tuple[str, str]:
        """Return the figure's title and caption, with the words for scores of this metric filled in."""
        named = {"metric": metric.name, "Metric": metric.title, "better": metric.better}
        return self.title.format(**named), self.caption.format(**named)


FIGURES: Registry[Drawing] = Registry("figure")


def pictures(run: Run, names: Iterable[str]) -> list[Picture]:
    """Draw the named figures for the page, without notes, which the page has as text. UnknownNameError for other names."""
    found = []
    for drawing in [FIGURES[name] for name in names]:
        title, caption = drawing.words(run.metric)
        found.append(Picture(title, drawn(drawing.draw(run, ()), "svg").decode(), caption))
    return found


FIGURES.register("score-latency")(
    Drawing(
        "{Metric} against latency",
        "Mean {metric} with its standard deviation over seeds; median latency of the whole network with its 95 % interval. The "
        "{better} and the further to the left, the better. The line is the Pareto front: no other operator is both faster and "
        "better than one on it.",
        lambda run, notes: pareto_figure(run.scores, run.latencies, run.metric, notes),
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
        lambda run, notes: speed_figure(run.scores, run.speedups, run.metric, run.goal, notes),
    )
)
FIGURES.register("score-flops")(
    Drawing(
        "{Metric} against FLOPs",
        "Mean {metric} with its standard deviation over seeds, against the FLOPs (multiply-adds) of the network with the "
        "operator, as a share of the original network's. The {better} and the further to the left, the better.",
        lambda run, notes: cost_figure(run.scores, run.metric, notes),
    )
)
FIGURES.register("speedup")(
    Drawing(
        SPEEDUP,
        "Latency of the original network divided by the latency of the network with the operator, on the same device with the "
        "same compiler.",
        lambda run, notes: speedup_figure(run.latencies, notes),
    )
)
FIGURES.register("layers")(
    Drawing(
        LAYERS,
        "Latency of each distinct layer that operators replace, divided by that of the layer with the operator, on the same "
        "device with the same compiler. A layer with a stride is measured as the network has it, an operator after the pooling "
        "that stands for the stride.",
        lambda run, notes: layer_figure(run.layers, notes),
    )
)
FIGURES.register("learning")(
    Drawing(
        LEARNING,
        "Mean {metric} on the test data over the seeds, after each round of the training of the whole network; the band is "
        "from the lowest to the highest seed. A training that was stopped early ends the line of its network there.",
        lambda run, notes: learning_figure(run.rounds, notes),
    )
)
FIGURES.register("reward")(
    Drawing(
        REWARDS,
        "Each dot is a trial of an operator. The marks at the bottom are trials without a reward: their operators cannot meet "
        "the goal (screened), they were stopped early, or failed.",
        lambda run, notes: reward_figure(run.trials, notes, TrialPoints(run)),
    )
)
FIGURES.register("search-time")(
    Drawing(
        OVER_TIME,
        "Each dot is the reward of a trial when it ended; the line is the best so far. Rings are trials that meet the goal "
        "of the search, and the dashed line is the reward of one that just does. The marks at the bottom are trials without "
        "a reward: their operators cannot meet the goal (screened), they were stopped early, or failed.",
        lambda run, notes: time_figure(run.trials, run.goal, run.reward_at_goal, notes, TrialPoints(run)),
    )
)
FIGURES.register("breakdown")(
    Drawing(
        BREAKDOWN,
        "The time of the replaced layers in one call of the network: the upper bar of each is the original layer's, the "
        "lower one the operator's. Layers of one size are one line. With the compiler eager, the operator's bar is divided "
        "into the calls of its code; other compilers fuse them. On the right, the speedup of each size of the layers, and "
        "of the whole network, with 95 % intervals; original and operator were timed in turns.",
        lambda run, notes: breakdown_figure(run.parts, notes),
    )
)
