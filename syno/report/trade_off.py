"""Figures of scores against latency or FLOPs. They show the Pareto front, and name the operators on it and near it first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf, isfinite, isnan, log10, nan
from textwrap import fill
from typing import Any

import matplotlib.ticker
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from syno.base.files import ORIGINAL
from syno.report.figures import BLUE, GREY, INK, ORANGE, finish, nothing
from syno.report.labels import Label, place_labels
from syno.report.page_tables import setting
from syno.report.points import Point, identify
from syno.report.results import complete, metric_of
from syno.results.metric import ScoreMetric, front, near_front
from syno.results.table import LATENCY_COLUMNS, SCORE_COLUMNS

LOOKS = {  # for each role: marker, its size, colour, name in the legend
    ORIGINAL: ("D", 6.5, INK, "original network"),
    "baseline": ("s", 6.0, ORANGE, "known operators"),
    "found": ("o", 6.5, BLUE, "found operators"),
}
WIDE = 8.0  # if costs differ by a larger factor, their axis is logarithmic
NEAR = 0.08  # operators this near to the front are named before the others; a share of the ranges of cost and score
NAMED = 14  # operators named in one panel, at most
WIDTHS = (7.0, 9.6, 12.6)  # in inches, by the number of panels side by side


@dataclass(frozen=True)
class ScoredPoint:
    """An operator's score and cost with their error bars.

    A point that is not trusted has a latency below what the device's peak speed allows; it is never on the front.
    """

    name: str
    role: str
    cost: float
    low: float
    high: float
    score: float
    spread: float
    trusted: bool = True

    @property
    def point(self) -> tuple[float, float]:
        """The coordinates."""
        return self.cost, self.score

    @property
    def bars(self) -> list[Bbox]:
        """The error bars, as boxes without area."""
        across = Bbox.from_extents(self.low, self.score, self.high, self.score)
        return [across, Bbox.from_extents(self.cost, self.score - self.spread, self.cost, self.score + self.spread)]


def pareto_figure(scores: pandas.DataFrame, latency: pandas.DataFrame, notes: Sequence[str] = ()) -> Figure:
    """Draw scores (mean and standard deviation over seeds) against latencies (median and 95 % interval).

    There is a panel for each device and compiler. Operators without a score or a latency are left out. SpecError if a table
    lacks a column.
    """
    trained, timed = complete(scores, SCORE_COLUMNS, "scores"), complete(latency, LATENCY_COLUMNS, "latency")
    metric = metric_of(trained)
    title = f"{metric.name.capitalize()} against latency"
    both = latency_rows(trained, timed)
    if both.empty:
        return nothing(title, "No operator has both a score and a latency.", notes)
    targets = list(both.groupby(["device", "compiler"], sort=True))
    figure, panels, columns = panels_of_targets(len(targets))
    groups = []
    for axes, ((device, compiler), points) in zip(panels, targets, strict=True):
        groups.append(latency_points(points))
        same = setting(points.to_dict("records"))
        draw_points(axes, groups[-1], f"latency/ms ({same})" if same else "latency/ms", metric)
        names = ", ".join(dict.fromkeys(points["device_name"].dropna().astype(str)))
        heading = f"{compiler} on {device}" + (f" ({names})" if names else "")
        axes.set_title(fill(heading, int(14 * WIDTHS[columns - 1] / columns)), fontsize=8.5, parse_math=False)
    for axes in panels[::columns]:
        axes.set_ylabel(metric.heading)
    _completed(figure, panels, groups, metric, title, notes)
    return figure


def panels_of_targets(count: int) -> tuple[Figure, list[Axes], int]:
    """Return a figure with so many panels, whose vertical axes are the same, and the number of panels side by side."""
    columns = min(len(WIDTHS), count)
    lines = ceil(count / columns)
    figure = Figure(figsize=(WIDTHS[columns - 1], 0.9 + 3.9 * lines), layout="constrained")
    panels = list(figure.subplots(lines, columns, sharey=True, squeeze=False).flat)
    for axes in panels[count:]:
        axes.remove()
    return figure, panels[:count], columns


def cost_figure(scores: pandas.DataFrame, notes: Sequence[str] = ()) -> Figure:
    """Draw scores (mean, standard deviation over seeds) against shares of the original's FLOPs.

    SpecError if the table lacks a column.
    """
    rows = complete(scores, SCORE_COLUMNS, "scores")
    metric = metric_of(rows)
    title = f"{metric.name.capitalize()} against FLOPs"
    marks = cost_points(rows)
    if not marks:
        return nothing(title, "No operator has both a score and a share of the original's FLOPs.", notes)
    figure = Figure(figsize=(7, 4.8), layout="constrained")
    axes = figure.add_subplot()
    draw_points(axes, marks, "share of the original's FLOPs", metric)
    axes.set_ylabel(metric.heading)
    _completed(figure, [axes], [marks], metric, title, notes)
    return figure


def cost_points(scores: pandas.DataFrame, column: str = "flops_share") -> list[ScoredPoint]:
    """Return a point for each operator with a finite score and a cost above 0, which is in this column."""
    return [
        ScoredPoint(str(row["operator"]), row["role"], cost, cost, cost, float(row["score"]), _or(row["score_std"], 0.0))
        for row in finite_scores(scores).dropna(subset=[column]).to_dict("records")
        if (cost := float(row[column])) > 0
    ]


def latency_rows(scores: pandas.DataFrame, latency: pandas.DataFrame) -> pandas.DataFrame:
    """Return the latencies above 0 that were measured in full, with the scores of their operators."""
    known = finite_scores(scores)[["operator", "score", "score_std"]].drop_duplicates("operator")
    both = latency[latency["status"] == "ok"].merge(known, on="operator").dropna(subset=["latency_ms"])
    return both[both["latency_ms"] > 0]


def latency_points(rows: pandas.DataFrame) -> list[ScoredPoint]:
    """Return a point for each of `latency_rows`."""
    return [_timed(row) for row in rows.to_dict("records")]


def finite_scores(scores: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows with a finite score; a training that diverged has an infinite loss."""
    return scores[pandas.to_numeric(scores["score"]).abs() < inf]


def _timed(row: dict[Any, Any]) -> ScoredPoint:
    cost = float(row["latency_ms"])
    low, high = min(cost, _or(row["latency_low_ms"], cost)), max(cost, _or(row["latency_high_ms"], cost))
    spread, trusted = _or(row["score_std"], 0.0), row["suspicious"] is not True
    return ScoredPoint(str(row["operator"]), row["role"], cost, low, high, float(row["score"]), spread, trusted)


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None or isnan(value) else float(value)


def draw_points(axes: Axes, marks: Sequence[ScoredPoint], label: str, metric: ScoreMetric) -> None:
    """Draw points with their error bars into a panel, which gets a logarithmic axis if their costs differ much.

    Args:
        axes: the panel.
        marks: the points, at least one.
        label, metric: of the axes of costs and of scores.
    """
    for mark in marks:
        marker, size, colour, _ = LOOKS.get(mark.role, LOOKS["found"])
        interval = [[mark.cost - mark.low], [mark.high - mark.cost]]
        line, _, _ = axes.errorbar(
            *mark.point, yerr=mark.spread or None, xerr=interval if mark.high > mark.low else None,
            fmt=marker, color=colour, markersize=size, markerfacecolor=colour if mark.trusted else "white",
            markeredgecolor="white" if mark.trusted else colour, markeredgewidth=0.8, elinewidth=0.9, capsize=2, zorder=3,
        )  # fmt: skip
        identify(line, [Point(f"{mark.name}: {metric.name} {mark.score:.4f}, {label}: {mark.cost:.3g}", mark.name)])
    if max(mark.cost for mark in marks) > WIDE * min(mark.cost for mark in marks):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
        axes.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    axes.margins(0.12)
    axes.spines["right"].set_visible(False)
    axes.set_xlabel(label)


def _completed(
    figure: Figure,
    panels: Sequence[Axes],
    groups: Sequence[Sequence[ScoredPoint]],
    metric: ScoreMetric,
    title: str,
    notes: Sequence[str],
) -> None:
    """Draw the legend, the fronts and the names; the last two depend on the limits of all panels."""
    name_looks(panels[0], [mark for marks in groups for mark in marks])
    finish(figure, panels, title, notes, columns=5 if len(panels) > 1 else 4)
    figure.draw_without_rendering()
    for axes, marks in zip(panels, groups, strict=True):
        draw_front(axes, marks, metric)


def name_looks(axes: Axes, marks: Sequence[ScoredPoint]) -> None:
    """Add entries to a panel's legend: what the points and the line are."""
    roles = {mark.role for mark in marks}
    for role, (marker, size, colour, name) in LOOKS.items():
        if role in roles:
            axes.plot([], [], marker, color=colour, markersize=size, label=name)
    if not all(mark.trusted for mark in marks):
        axes.plot([], [], "o", color=GREY, markerfacecolor="white", label="faster than the device's peak speed: not trusted")
    axes.plot([], [], color=GREY, linewidth=1.2, label="Pareto front")


def draw_front(axes: Axes, marks: Sequence[ScoredPoint], metric: ScoreMetric) -> None:
    """Draw the front of points and names, first of those on it and near it. The panel has its points, and is laid out."""
    steps = _front_line(axes, marks, metric)
    bars = [bar for mark in marks for bar in mark.bars]
    place_labels(axes, _names(axes, marks, metric), [mark.point for mark in marks], [*steps, *bars])


def _front_line(axes: Axes, marks: Sequence[ScoredPoint], metric: ScoreMetric) -> list[Bbox]:
    """Draw the front as steps: the best score for each cost. Return the steps as boxes without area."""
    trusted = [mark for mark in marks if mark.trusted]
    ahead = [trusted[place].point for place in front([(mark.cost, metric.quality(mark.score)) for mark in trusted])]
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


def _names(axes: Axes, marks: Sequence[ScoredPoint], metric: ScoreMetric) -> list[Label]:
    """Return the labels of the original, of operators on the front and near it, and of all others if they are few."""
    scale = log10 if axes.get_xscale() == "log" else float
    points = [(scale(mark.cost) if mark.trusted else nan, metric.quality(mark.score)) for mark in marks]
    finite = [point for point in points if isfinite(point[0])] or [(0.0, 0.0)]
    cheaper, better = (NEAR * (max(values) - min(values)) for values in zip(*finite, strict=True))
    originals = [place for place, mark in enumerate(marks) if mark.role == ORIGINAL]
    others = range(len(points)) if len(points) <= NAMED else ()
    places = dict.fromkeys([*originals, *front(points), *near_front(points, (cheaper, better)), *others])
    named = [marks[place] for place in list(places)[:NAMED]]
    return [Label(mark.cost, mark.score, mark.name) for mark in named]
