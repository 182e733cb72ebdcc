"""Figures of scores against latency or FLOPs. They show the Pareto front, and label operators on or near it first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import ceil, isfinite, isnan, log10, nan
from textwrap import fill

import matplotlib.ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.transforms import Bbox

from syno.base.files import ORIGINAL
from syno.base.interval import Interval, times_as_fast
from syno.report.figures import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, finish, nothing
from syno.report.labels import Label, place_labels
from syno.report.points import Point, identify
from syno.run.metric import front, near_front
from syno.run.speedups import APART, IN_SEARCH
from syno.run.story import setting
from syno.run.values import Latency, Score, Speedup, by_target
from syno.search.goal import Goal
from syno.train.metric import Metric

LOOKS = {  # for each role: marker, its size, colour, name in the legend
    ORIGINAL: ("D", 6.5, INK, "original network"),
    "baseline": ("s", 6.0, ORANGE, "known operators"),
    "rival": ("^", 6.5, PURPLE, "without synthesis"),
    "found": ("o", 6.5, BLUE, "found operators"),
}
WIDE = 8.0  # if costs differ by a larger factor, their axis is logarithmic
NEAR = 0.08  # operators this near to the front are named before the others; a share of the ranges of cost and score
NAMED = 14  # operators named in one panel, at most
WIDTHS = (7.0, 9.6, 12.6)  # in inches, by the number of panels side by side


@dataclass(frozen=True)
class NetworkPoint:
    """A network in a figure: its score (vertical) and its cost or speedup (horizontal), with error bars.

    If an error is unknown, both ends of its bar equal the value. `trusted` is false for a latency below the device's limit;
    such a point is never on the front. `doubt` is a key of `DOUBTS`, the reason why the horizontal bar is too narrow; ""
    without doubt.
    """

    name: str
    role: str
    across: Interval
    upwards: Interval
    trusted: bool = True
    doubt: str = ""

    @property
    def point(self) -> tuple[float, float]:
        """The coordinates (cost or speedup, score)."""
        return self.across.value, self.upwards.value

    @property
    def bars(self) -> list[Bbox]:
        """The horizontal and the vertical error bar, as boxes without area."""
        (x, left, right), (y, low, high) = self.across, self.upwards
        return [Bbox.from_extents(left, y, right, y), Bbox.from_extents(x, low, x, high)]


def exactly(value: float) -> Interval:
    """Return an interval of width 0, for a point without an error bar."""
    return Interval(value, value, value)


def pareto_figure(scores: Sequence[Score], latencies: Sequence[Latency], metric: Metric, notes: Sequence[str] = ()) -> Figure:
    """Draw scores (mean and standard deviation over seeds) against latencies (median and 95 % interval).

    There is a panel for each device and compiler. Operators without a score or a latency are left out.
    """
    title = f"{metric.title} against latency"
    targets = by_target(with_scores(scores, latencies), lambda one: one.target)
    if not targets:
        return nothing(title, "No operator has both a score and a latency.", notes)
    figure, panels, columns = panels_of_targets(len(targets))
    groups = []
    for axes, ((device, compiler), here) in zip(panels, targets.items(), strict=True):
        groups.append(latency_points(scores, here))
        same = setting(here)
        draw_costs(axes, groups[-1], f"latency/ms ({same})" if same else "latency/ms", metric)
        names = ", ".join(dict.fromkeys(one.device_name for one in here if one.device_name))
        heading = f"{compiler} on {device}" + (f" ({names})" if names else "")
        axes.set_title(fill(heading, int(14 * WIDTHS[columns - 1] / columns)), fontsize=8.5, parse_math=False)
    for axes in panels[::columns]:
        axes.set_ylabel(metric.heading)
    _completed(figure, panels, groups, metric, title, notes)
    return figure


def panels_of_targets(count: int) -> tuple[Figure, list[Axes], int]:
    """Return a figure, its `count` panels with a common vertical axis, and the number of columns of panels."""
    columns = min(len(WIDTHS), count)
    lines = ceil(count / columns)
    figure = Figure(figsize=(WIDTHS[columns - 1], 0.9 + 3.9 * lines), layout="constrained")
    panels = list(figure.subplots(lines, columns, sharey=True, squeeze=False).flat)
    for axes in panels[count:]:
        axes.remove()
    return figure, panels[:count], columns


def cost_figure(scores: Sequence[Score], metric: Metric, notes: Sequence[str] = ()) -> Figure:
    """Draw scores (mean, standard deviation over seeds) against shares of the original's FLOPs."""
    title = f"{metric.title} against FLOPs"
    marks = cost_points(scores)
    if not marks:
        return nothing(title, "No operator has both a score and a share of the original's FLOPs.", notes)
    figure = Figure(figsize=(7, 4.8), layout="constrained")
    axes = figure.add_subplot()
    draw_costs(axes, marks, "share of the original's FLOPs", metric)
    axes.set_ylabel(metric.heading)
    _completed(figure, [axes], [marks], metric, title, notes)
    return figure


def cost_points(scores: Sequence[Score], cost: str = "flops_share") -> list[NetworkPoint]:
    """Return a point for each operator with a finite score and a positive cost; `cost` is the name of the cost's attribute."""
    return [
        NetworkPoint(one.operator, one.role, exactly(found), _with_spread(one))
        for one in scores
        if one.is_finite and (found := getattr(one, cost)) is not None and found > 0
    ]


def time_points(scores: Sequence[Score]) -> list[NetworkPoint]:
    """Return a point for each network with a finite score and a speedup: its time as a share of the original's time."""
    found = [
        NetworkPoint(one.operator, one.role, Interval(*(1 / end for end in (one.speedup.value, high, low))), _with_spread(one))
        for one in scores
        if one.is_finite and not isnan(one.speedup.value)
        for low, high in [one.speedup[1:] if one.speedup.is_certain else (one.speedup.value, one.speedup.value)]
    ]
    originals = [one for one in scores if one.is_finite and one.role == ORIGINAL]
    return [*(NetworkPoint(one.operator, one.role, exactly(1.0), _with_spread(one)) for one in originals), *found]


def with_scores(scores: Sequence[Score], latencies: Sequence[Latency]) -> list[Latency]:
    """Return the latencies above 0 that were measured in full, of operators with a finite score."""
    known = {one.operator for one in scores if one.is_finite}
    return [one for one in latencies if one.is_ok and one.operator in known and one.ms.value > 0]


def latency_points(scores: Sequence[Score], latencies: Sequence[Latency]) -> list[NetworkPoint]:
    """Return a point (latency, score) for each latency of `with_scores`."""
    known = {one.operator: one for one in reversed(scores) if one.is_finite}  # the first of several
    points = []
    for one in latencies:
        cost, low, high = one.ms
        interval = Interval(cost, cost if isnan(low) else min(cost, low), cost if isnan(high) else max(cost, high))
        points.append(NetworkPoint(one.operator, one.role, interval, _with_spread(known[one.operator]), not one.is_suspicious))
    return points


def _with_spread(network: Score) -> Interval:
    """Return a network's finite score as an interval: mean minus and plus the standard deviation over seeds."""
    score, spread = network.score or 0.0, network.spread or 0.0
    return Interval(score, score - spread, score + spread)


def draw_costs(axes: Axes, marks: Sequence[NetworkPoint], label: str, metric: Metric) -> None:
    """Draw points with their error bars into a panel, which gets a logarithmic axis if their costs differ much.

    Args:
        axes: the panel.
        marks: the points, at least one.
        label: the label of the horizontal axis, the costs.
        metric: the metric of the vertical axis, the scores.
    """
    _draw_points(axes, marks, lambda mark: f"{metric.name} {metric.text(mark.upwards.value)}, {label}: {mark.across.value:.3g}")
    costs = [mark.across.value for mark in marks]
    if max(costs) > WIDE * min(costs):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
        axes.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    axes.margins(0.12)
    axes.set_xlabel(label)


def _draw_points(axes: Axes, marks: Sequence[NetworkPoint], words: Callable[[NetworkPoint], str]) -> None:
    """Draw points with their error bars into a panel; `words` returns the text behind the name in a point's tooltip."""
    for mark in marks:
        marker, size, colour, _ = LOOKS.get(mark.role, LOOKS["found"])
        (x, left, right), (y, low, high) = mark.across, mark.upwards
        across, upwards = [[x - left], [right - x]], [[y - low], [high - y]]
        line, _, bars = axes.errorbar(
            x, y, xerr=across if right > left else None, yerr=upwards if high > low else None,
            fmt=marker, color=colour, markersize=size, markerfacecolor=colour if mark.trusted else "white",
            markeredgecolor="white" if mark.trusted else colour, markeredgewidth=0.8, elinewidth=0.9, capsize=2, zorder=3,
        )  # fmt: skip
        identify(line, [Point(f"{mark.name}: {words(mark)}", mark.name)])
        if bars and mark.doubt:
            bars[0].set_linestyle(DASHED)
    axes.spines.right.set_visible(False)


def _completed(
    figure: Figure,
    panels: Sequence[Axes],
    groups: Sequence[Sequence[NetworkPoint]],
    metric: Metric,
    title: str,
    notes: Sequence[str],
) -> None:
    """Add the legend, the fronts and the labels, and return the figure. Fronts and labels need the panels' final limits."""
    name_looks(panels[0], [mark for marks in groups for mark in marks])
    finish(figure, panels, title, notes, columns=5 if len(panels) > 1 else 4)
    figure.draw_without_rendering()
    for axes, marks in zip(panels, groups, strict=True):
        draw_front(axes, marks, metric)


def name_looks(axes: Axes, marks: Sequence[NetworkPoint]) -> None:
    """Add entries to a panel's legend for the kinds of points and the line of the front."""
    roles = {mark.role for mark in marks}
    for role, (marker, size, colour, name) in LOOKS.items():
        if role in roles:
            axes.plot([], [], marker, color=colour, markersize=size, label=name)
    if not all(mark.trusted for mark in marks):
        axes.plot([], [], "o", color=GREY, markerfacecolor="white", label="faster than the device's peak speed: not trusted")
    axes.plot([], [], color=GREY, linewidth=1.2, label="Pareto front")


def draw_front(axes: Axes, marks: Sequence[NetworkPoint], metric: Metric) -> None:
    """Draw the front and the labels, of points on or near the front first. The panel's points and layout are final."""
    steps = _front_line(axes, marks, metric)
    bars = [bar for mark in marks for bar in mark.bars]
    place_labels(axes, _names(axes, marks, metric), [mark.point for mark in marks], [*steps, *bars])


def _front_line(axes: Axes, marks: Sequence[NetworkPoint], metric: Metric) -> list[Bbox]:
    """Draw the front as steps: the best score for each cost. Return the steps as boxes without area."""
    trusted = [mark for mark in marks if mark.trusted]
    ahead = [
        trusted[place].point for place in front([(mark.across.value, metric.quality(mark.upwards.value)) for mark in trusted])
    ]
    if not ahead:
        return []
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    corners = [*ahead, (right, ahead[-1][1])]
    costs, scores = zip(*corners, strict=True)
    axes.step(costs, scores, where="post", color=GREY, linewidth=1.2, zorder=2)
    worse = bottom if metric.more_is_better else top
    axes.fill_between(costs, scores, worse, step="post", color=GREY, alpha=0.06, linewidth=0, zorder=1)
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    across = [Bbox.from_extents(*here, there[0], here[1]) for here, there in pairwise(corners)]
    return across + [Bbox.from_extents(there[0], here[1], *there) for here, there in pairwise(corners)]


def _names(axes: Axes, marks: Sequence[NetworkPoint], metric: Metric) -> list[Label]:
    """Return the labels of the original, of operators on the front and near it, and of all others if they are few."""
    scale = log10 if axes.get_xscale() == "log" else float
    points = [(scale(mark.across.value) if mark.trusted else nan, metric.quality(mark.upwards.value)) for mark in marks]
    finite = [point for point in points if isfinite(point[0])] or [(0.0, 0.0)]
    cheaper, better = (NEAR * (max(values) - min(values)) for values in zip(*finite, strict=True))
    originals = [place for place, mark in enumerate(marks) if mark.role == ORIGINAL]
    others = range(len(points)) if len(points) <= NAMED else ()
    places = dict.fromkeys([*originals, *front(points), *near_front(points, (cheaper, better)), *others])
    named = [marks[place] for place in list(places)[:NAMED]]
    return [Label(mark.across.value, mark.upwards.value, mark.name) for mark in named]


# The figure of scores against speedups: the original network, all trained operators, and the corner that a goal asks for.


CONFIDENCE = 0.95
DASHED = (0, (3, 2))
DOUBTS = {APART: "timed apart, not in turns", IN_SEARCH: "in the search, by which it was selected"}
ROOM = 0.06  # around the points and the goal's corner, as a share of their range


def speed_figure(
    scores: Sequence[Score],
    speedups: Sequence[Speedup],
    metric: Metric,
    goal: Goal | None = None,
    notes: Sequence[str] = (),
) -> Figure:
    """Draw the score of each trained network against its speedup over the original, which is at 1.

    There is a panel for each device and compiler. The corner that the goal asks for is shaded in the panel of its compiler on
    its device. An operator meets the goal if both its bars lie inside: horizontally the speedup's 95 %
    interval, vertically the 95 % interval of the score's difference from the original's score.

    Args:
        scores, metric: the networks' scores, and their metric.
        speedups: the networks' speedups.
        goal: the goal; None for no corner.
        notes: paragraphs at the bottom.
    """
    known = {one.operator: one for one in scores if one.is_finite}
    title = f"{metric.title} against speedup"
    targets = by_target((one for one in speedups if one.operator in known), lambda one: one.target)
    if not targets:
        return nothing(title, "No operator has both a score and a speedup over the original network.", notes)
    original = next((one for one in known.values() if one.role == ORIGINAL), None)
    figure, panels, columns = panels_of_targets(len(targets))
    groups = []
    for axes, ((device, compiler), here) in zip(panels, targets.items(), strict=True):
        points = [] if original is None else [NetworkPoint(ORIGINAL, ORIGINAL, exactly(1.0), _mean_interval(original))]
        points += [_point(one, known[one.operator]) for one in here]
        groups.append(points)
        _draw_points(axes, points, partial(_speed_words, metric=metric))
        axes.set_title(f"{compiler} on {device}", fontsize=8.5, parse_math=False)
        axes.set_xlabel("times as fast as the original")
    for axes in panels[::columns]:
        axes.set_ylabel(metric.heading)
    place = None if goal is None else (goal.device, goal.compiler)
    corners = [_corner(goal, metric, original) if target == place else None for target in targets]
    for axes, points, corner in zip(panels, groups, corners, strict=True):
        _set_across(axes, points, corner)
    _set_upwards(panels[0], groups, corners, metric)
    for axes, corner in zip(panels, corners, strict=True):
        if goal is not None and corner is not None:
            _shade(axes, goal, metric, corner)
        if original is not None:
            axes.axhline(original.score or 0.0, color=INK, linewidth=0.6, linestyle=":", zorder=1)
        axes.axvline(1, color=INK, linewidth=0.6, linestyle=":", zorder=1)
    for role in dict.fromkeys(point.role for points in groups for point in points):
        marker, size, colour, name = LOOKS.get(role, LOOKS["found"])
        panels[0].plot([], [], marker, color=colour, markersize=size, label=name)
    if doubts := sorted({point.doubt for points in groups for point in points} - {""}):
        label = ", or ".join(DOUBTS[doubt] for doubt in doubts)
        panels[0].plot([], [], color=GREY, linestyle=DASHED, linewidth=0.9, label=label)
    finish(figure, panels, title, notes, columns=4)
    figure.draw_without_rendering()
    for axes, points in zip(panels, groups, strict=True):
        labels = [Label(*point.point, point.name) for point in points[:NAMED]]
        place_labels(axes, labels, [point.point for point in points], [bar for point in points for bar in point.bars])
    return figure


def _point(speedup: Speedup, scored: Score) -> NetworkPoint:
    score, (value, low, high) = scored.score or 0.0, scored.difference
    ends = Interval(score, score - value + low, score - value + high)
    doubt = speedup.timed if speedup.timed in DOUBTS else ""
    known, upwards = (one if all(map(isfinite, one)) else exactly(one.value) for one in (speedup.ratio, ends))
    return NetworkPoint(speedup.operator, speedup.role, known, upwards, not speedup.is_suspicious, doubt)


def _mean_interval(original: Score) -> Interval:
    """Return the mean score over seeds with its 95 % interval (Student's)."""
    mean, spread, seeds = original.score or 0.0, original.spread, original.seeds
    if spread is None or not isfinite(spread) or seeds is None or seeds < 2:
        return exactly(mean)
    from scipy.stats import t

    half = float(t.ppf((1 + CONFIDENCE) / 2, seeds - 1)) * spread / seeds**0.5
    return Interval(mean, mean - half, mean + half)


def _speed_words(mark: NetworkPoint, metric: Metric) -> str:
    value, low, high = mark.across
    fast = times_as_fast(mark.across if high > low else value)
    return f"{fast}, {metric.name} {metric.text(mark.upwards.value)}"


Corner = tuple[float | None, float | None]  # the least speedup, and the worst score; None where any will do


def _corner(goal: Goal | None, metric: Metric, original: Score | None) -> Corner | None:
    """Return the corner of a panel that a goal asks for: (least speedup, worst score), with None for no limit."""
    if goal is None or (goal.speedup is None and goal.lose_at_most is None):
        return None
    if goal.lose_at_most is None:
        return goal.speedup, None
    if original is None or original.score is None:
        return None
    return goal.speedup, original.score + (-goal.lose_at_most if metric.more_is_better else goal.lose_at_most)


def _set_across(axes: Axes, points: Sequence[NetworkPoint], corner: Corner | None) -> None:
    least = [] if corner is None or corner[0] is None else [corner[0], 1.05 * corner[0]]
    low, high = _with_room([*(end for point in points for end in point.across), *least])
    axes.set_xlim(max(0.0, low), high)


def _set_upwards(
    axes: Axes, groups: Sequence[Sequence[NetworkPoint]], corners: Sequence[Corner | None], metric: Metric
) -> None:
    """Set the vertical limits to include all intervals, cut to the range of possible scores, which wide intervals exceed."""
    worst = [corner[1] for corner in corners if corner is not None and corner[1] is not None]
    ends = [*(end for points in groups for point in points for end in point.upwards), *worst]
    axes.set_ylim(_with_room([min(max(end, metric.lowest), metric.highest) for end in ends]))


def _with_room(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = ROOM * ((high - low) or max(abs(high), 1.0))
    return low - room, high + 2 * room  # names stand above the points


def _shade(axes: Axes, goal: Goal, metric: Metric, corner: Corner) -> None:
    """Shade the corner from its limits to the edges of the panel, and write the goal into it."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    across, worst = left if corner[0] is None else corner[0], corner[1]
    edges = (bottom, top) if worst is None else (worst, top) if metric.more_is_better else (bottom, worst)
    low, high = min(edges), max(edges)
    axes.add_patch(Rectangle((across, low), right - across, high - low, facecolor=GREEN, alpha=0.12, linewidth=0, zorder=0))
    wanted = [] if goal.speedup is None else [times_as_fast(goal.speedup, form="g")]
    if goal.lose_at_most is not None:
        wanted.append(f"at most {metric.amount(goal.lose_at_most)} worse")
    best, inwards, side = (high, -4, "top") if metric.more_is_better else (low, 4, "bottom")
    text = "goal: " + ",\n".join(wanted)
    axes.annotate(text, (right, best), (-4, inwards), textcoords="offset points", ha="right", va=side, fontsize=7.5, color=GREY)
