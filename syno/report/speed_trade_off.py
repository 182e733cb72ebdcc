"""The figure of scores against speedups: the original network, all trained operators, and the corner that a goal asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.transforms import Bbox

from syno.base.files import ORIGINAL
from syno.report.figures import GREEN, GREY, INK, finish, nothing
from syno.report.labels import Label, place_labels
from syno.report.points import Point, identify
from syno.report.results import complete, metric_of
from syno.report.trade_off import LOOKS, NAMED, finite_scores, panels_of_targets
from syno.results.metric import ScoreMetric
from syno.results.speedups import APART, IN_SEARCH, SPEEDUP_COLUMNS
from syno.results.table import SCORE_COLUMNS
from syno.search.goal import Goal

CONFIDENCE = 0.95
DASHED = (0, (3, 2))
DOUBTS = {APART: "timed apart, not in turns", IN_SEARCH: "in the search, by which it was selected"}
ROOM = 0.06  # around the points and the goal's corner, as a share of their range


@dataclass(frozen=True)
class SpedPoint:
    """A network's speedup and score, each with the ends of its interval, which are equal to it where they are unknown.

    `trusted` is false for a latency below what the device's peak speed allows. `doubt` says why the interval of
    the speedup is too narrow, a key of `DOUBTS`; "" if it is not.
    """

    name: str
    role: str
    speedup: tuple[float, float, float]
    score: tuple[float, float, float]
    trusted: bool = True
    doubt: str = ""

    @property
    def point(self) -> tuple[float, float]:
        """The coordinates."""
        return self.speedup[0], self.score[0]

    @property
    def bars(self) -> list[Bbox]:
        """The intervals, as boxes without area."""
        (x, left, right), (y, low, high) = self.speedup, self.score
        return [Bbox.from_extents(left, y, right, y), Bbox.from_extents(x, low, x, high)]


def speed_figure(
    scores: pandas.DataFrame, speedups: pandas.DataFrame, goal: Goal | None = None, notes: Sequence[str] = ()
) -> Figure:
    """Draw the score of each trained network against its speedup over the original, which is at 1.

    There is a panel for each device and compiler. The corner that the goal asks for is shaded in the panel of its compiler on
    its device. An operator meets the goal if both its bars lie inside: that of the speedup is its 95 % interval, that of the
    score the 95 % interval of its difference from the original's score.

    Args:
        scores: `syno.results.table.score_view`.
        speedups: `syno.results.speedups.speedup_view`.
        goal: the goal; None for no corner.
        notes: paragraphs at the bottom.

    Raises SpecError if a table lacks a column.
    """
    trained, fast = complete(scores, SCORE_COLUMNS, "scores"), complete(speedups, SPEEDUP_COLUMNS, "speedups")
    metric = metric_of(trained)
    title = f"{metric.name.capitalize()} against speedup"
    known = {row["operator"]: row for row in finite_scores(trained).to_dict("records")}
    fast = fast[fast["operator"].isin(list(known))]
    if fast.empty:
        return nothing(title, "No operator has both a score and a speedup over the original network.", notes)
    original = next((row for row in known.values() if row["role"] == ORIGINAL), None)
    targets = list(fast.groupby(["device", "compiler"], sort=True))
    figure, panels, columns = panels_of_targets(len(targets))
    groups = []
    for axes, ((device, compiler), rows) in zip(panels, targets, strict=True):
        points = [] if original is None else [SpedPoint(ORIGINAL, ORIGINAL, (1.0,) * 3, _mean_interval(original))]
        points += [_point(row, known[row["operator"]]) for row in rows.to_dict("records")]
        groups.append(points)
        _draw_points(axes, points, metric)
        axes.set_title(f"{compiler} on {device}", fontsize=8.5, parse_math=False)
        axes.set_xlabel("times as fast as the original")
    for axes in panels[::columns]:
        axes.set_ylabel(metric.heading)
    place = None if goal is None else (goal.device, goal.compiler)
    corners = [_corner(goal, metric, original) if target == place else None for target, _ in targets]
    for axes, points, corner in zip(panels, groups, corners, strict=True):
        _set_across(axes, points, corner)
    _set_upwards(panels[0], groups, corners, metric)
    for axes, corner in zip(panels, corners, strict=True):
        if goal is not None and corner is not None:
            _shade(axes, goal, metric, corner)
        if original is not None:
            axes.axhline(original["score"], color=INK, linewidth=0.6, linestyle=":", zorder=1)
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


def _point(row: dict[Any, Any], scored: dict[Any, Any]) -> SpedPoint:
    score, off = float(scored["score"]), float(nan if scored["difference"] is None else scored["difference"])
    ends = (
        score - off + float(nan if scored[name] is None else scored[name]) for name in ("difference_low", "difference_high")
    )
    speedup = _span(float(row["speedup"]), row["speedup_low"], row["speedup_high"])
    return SpedPoint(
        *(str(row["operator"]), row["role"], speedup, _span(score, *ends), row["suspicious"] is not True),
        doubt=row["timed"] if row["timed"] in DOUBTS else "",
    )


def _span(value: float, low: float | None, high: float | None) -> tuple[float, float, float]:
    """Return a number with the ends of its interval, or with itself where they are unknown."""
    ends = [float(nan if end is None else end) for end in (low, high)]
    return (value, *ends) if all(map(isfinite, ends)) else (value,) * 3  # type: ignore[return-value]


def _mean_interval(original: dict[Any, Any]) -> tuple[float, float, float]:
    """Return the mean score over seeds with its 95 % interval (Student's)."""
    mean, spread, seeds = float(original["score"]), original["score_std"], int(original["seeds"])
    if spread is None or not isfinite(spread) or seeds < 2:
        return (mean,) * 3
    from scipy.stats import t

    half = float(t.ppf((1 + CONFIDENCE) / 2, seeds - 1)) * spread / seeds**0.5
    return mean, mean - half, mean + half


def _draw_points(axes: Axes, points: Sequence[SpedPoint], metric: ScoreMetric) -> None:
    for point in points:
        marker, size, colour, _ = LOOKS.get(point.role, LOOKS["found"])
        (x, left, right), (y, low, high) = point.speedup, point.score
        across, upwards = [[x - left], [right - x]], [[y - low], [high - y]]
        line, _, bars = axes.errorbar(
            x, y, xerr=across if right > left else None, yerr=upwards if high > low else None,
            fmt=marker, color=colour, markersize=size, markerfacecolor=colour if point.trusted else "white",
            markeredgecolor="white" if point.trusted else colour, markeredgewidth=0.8, elinewidth=0.9, capsize=2, zorder=3,
        )  # fmt: skip
        ends = f" ({left:.2f} to {right:.2f})" if right > left else ""
        identify(line, [Point(f"{point.name}: {x:.2f} times as fast{ends}, {metric.name} {y:.4f}", point.name)])
        if bars and point.doubt:
            bars[0].set_linestyle(DASHED)
    axes.spines["right"].set_visible(False)


# ---- the goal's corner ------------------------------------------------------------------------------------------------------

Corner = tuple[float | None, float | None]  # the least speedup, and the worst score; None where any will do


def _corner(goal: Goal | None, metric: ScoreMetric, original: dict[Any, Any] | None) -> Corner | None:
    """Return the limits of a goal; None if it has none, or the original's score is not known."""
    if goal is None or (goal.speedup is None and goal.lose_at_most is None):
        return None
    if goal.lose_at_most is None:
        return goal.speedup, None
    if original is None:
        return None
    return goal.speedup, original["score"] + (-goal.lose_at_most if metric.more_is_better else goal.lose_at_most)


def _set_across(axes: Axes, points: Sequence[SpedPoint], corner: Corner | None) -> None:
    least = [] if corner is None or corner[0] is None else [corner[0], 1.05 * corner[0]]
    low, high = _with_room([*(end for point in points for end in point.speedup), *least])
    axes.set_xlim(max(0.0, low), high)


def _set_upwards(
    axes: Axes, groups: Sequence[Sequence[SpedPoint]], corners: Sequence[Corner | None], metric: ScoreMetric
) -> None:
    """Show all intervals as far as there are scores: an interval of few seeds may reach beyond."""
    worst = [corner[1] for corner in corners if corner is not None and corner[1] is not None]
    ends = [*(end for points in groups for point in points for end in point.score), *worst]
    axes.set_ylim(_with_room([min(max(end, metric.lowest), metric.highest) for end in ends]))


def _with_room(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = ROOM * ((high - low) or max(abs(high), 1.0))
    return low - room, high + 2 * room  # names stand above the points


def _shade(axes: Axes, goal: Goal, metric: ScoreMetric, corner: Corner) -> None:
    """Shade the corner from its limits to the edges of the panel, and write the goal into it."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    across, worst = left if corner[0] is None else corner[0], corner[1]
    edges = (bottom, top) if worst is None else (worst, top) if metric.more_is_better else (bottom, worst)
    low, high = min(edges), max(edges)
    axes.add_patch(Rectangle((across, low), right - across, high - low, facecolor=GREEN, alpha=0.12, linewidth=0, zorder=0))
    wanted = [] if goal.speedup is None else [f"{goal.speedup:g} times as fast"]
    if goal.lose_at_most is not None:
        steps = goal.lose_at_most / metric.step
        unit = metric.step_name.removesuffix("s") if steps == 1 else metric.step_name
        wanted.append(f"at most {steps:g} {unit} worse")
    best, inwards, side = (high, -4, "top") if metric.more_is_better else (low, 4, "bottom")
    text = "goal: " + ",\n".join(wanted)
    axes.annotate(text, (right, best), (-4, inwards), textcoords="offset points", ha="right", va=side, fontsize=7.5, color=GREY)
