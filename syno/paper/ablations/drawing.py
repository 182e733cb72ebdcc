"""The figures of ablations: one drawn from each ablation's table, and two from all measured data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, ScalarFormatter

from syno.paper.ablations.canonical import Rate
from syno.paper.ablations.guided import Run
from syno.paper.ablations.requiring import requirement_figure
from syno.paper.ablations.tables import ALL_RULES, BUILT_IN, EXACT_RULES, IN_ORDER, MEASURED, PAPER, AblationRow
from syno.report.figures import BLUE, GREEN, GREY, INK, ORANGE, finish, nothing

COLOURS = (BLUE, GREEN, ORANGE, GREY)
STYLES = {ALL_RULES: (BLUE, "o-"), EXACT_RULES: (GREEN, "s--"), IN_ORDER: (ORANGE, "^:"), BUILT_IN: (GREY, "d-.")}
MOST_PATTERNS = 20  # bars of a figure


def draw(name: str, rows: Sequence[AblationRow], notes: Sequence[str]) -> Figure:
    """Return the figure of an ablation from the rows of its table (`syno.paper.ablations.tables`)."""
    if not rows:
        return nothing(f"Ablation: {name}", "Nothing was measured.", notes)
    drawn = {"canonical": _canonical, "distance": _distance, "patterns": _patterns, "requirements": requirement_figure}
    return drawn[name](rows, notes)


def _canonical(rows: Sequence[AblationRow], notes: Sequence[str]) -> Figure:
    figure = Figure(figsize=(7, 4.4), layout="constrained")
    axes = figure.add_subplot()
    for variant, (colour, style) in STYLES.items():
        found = [row for row in sizes_of(rows, MEASURED) if row["variant"] == variant]
        sizes = [_number(row["primitives"]) for row in found]
        if found:
            axes.plot(sizes, [_number(row["rate"]) for row in found], style, color=colour, label=variant)
        if variant == ALL_RULES and found:
            low, high = ([_number(row[end]) for row in found] for end in ("low", "high"))
            axes.fill_between(sizes, low, high, color=colour, alpha=0.15, linewidth=0)
    if printed := sizes_of(rows, PAPER):
        shown = [[_number(row[column]) for row in printed] for column in ("primitives", "rate")]
        axes.plot(*shown, "D", color=INK, markerfacecolor="white", markersize=5, label="the paper, Table 3")
    paper = next((_number(row["rate"]) for row in rows if row["origin"] == PAPER and not _number(row["primitives"])), 0.0)
    if paper:
        axes.axhline(paper, color=INK, linewidth=1, linestyle=":", label=f"the paper, all sizes ({paper:.2%})")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("primitives")
    axes.set_ylabel("share of canonical graphs")
    finish(figure, [axes], f"Random graphs that are canonical, {rows[0]['space']}", notes)
    return figure


def sizes_of(rows: Sequence[AblationRow], origin: str) -> list[AblationRow]:
    """Return the rows of one origin for single sizes whose share is above 0, so that a logarithmic axis can show it."""
    return [row for row in rows if row["origin"] == origin and _number(row["primitives"]) and _number(row["rate"])]


def _distance(rows: Sequence[AblationRow], notes: Sequence[str]) -> Figure:
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    panels = list(figure.subplots(1, 3, sharey=True))
    own = [row for row in rows if row["origin"] == MEASURED]
    quantities = (("per_second", None), ("ended_share", None), ("lost", "complete"))
    titles = ("operators per CPU-second", "share of walks that end in an operator", "share of operators lost")
    for axes, (quantity, whole), title in zip(panels, quantities, titles, strict=True):
        for place, row in enumerate(own):
            value = row[quantity] if whole is None or not row[whole] else _number(row[quantity]) / _number(row[whole])
            _bar(axes, place, value, COLOURS[place % len(COLOURS)])
        axes.set_xlabel(title, fontsize=8)
    panels[0].set_yticks(range(len(own)), [str(row["distance"]) for row in own])
    panels[0].set_ylim(len(own) - 0.5, -0.5)
    panels[2].set_xlim(0, max(0.01, panels[2].get_xlim()[1]))
    finish(figure, panels, f"Shape distances, {rows[0]['space']}, depth {rows[0]['depth']}", notes, columns=0)
    return figure


def _bar(axes: Axes, place: int, value: object, colour: str) -> None:
    known = value is not None and value == value
    axes.barh(place, _number(value), color=colour, height=0.6)
    axes.annotate(
        f"{_number(value):.3g}" if known else "-",
        (_number(value), place),
        (3, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
    )
    axes.margins(x=0.2)


def _patterns(rows: Sequence[AblationRow], notes: Sequence[str]) -> Figure:
    """Draw the lifts of the patterns whose confidence intervals are farthest from 1."""
    by_best = any(_number(row["lift_best"]) for row in rows)
    lift, of = ("lift_best", "the best / all found") if by_best else ("lift_random", "found / random")
    known = [row for row in rows if _number(row[f"{lift}_low"]) > 0 and _number(row[lift]) not in (0.0, 1.0)]
    known.sort(key=lambda row: max(_number(row[f"{lift}_low"]), 1 / max(_number(row[f"{lift}_high"]), 1e-9)), reverse=True)
    shown = sorted(known[:MOST_PATTERNS], key=lambda row: _number(row[lift]), reverse=True)
    title = f"Patterns of operators, {rows[0]['space']}"
    if not shown:
        return nothing(title, "No pattern occurs often enough to be compared.", notes)
    figure = Figure(figsize=(9, 1.5 + 0.24 * len(shown)), layout="constrained")
    shares, lifts = figure.subplots(1, 2, sharey=True)
    for name, colour, height in (("share", BLUE, -0.27), ("best_share", GREEN, 0.0), ("random_share", GREY, 0.27)):
        if any(_number(row[name]) for row in shown):
            places = [place + height for place in range(len(shown))]
            label = {"share": "all found", "best_share": "the best", "random_share": "random"}[name]
            shares.barh(places, [_number(row[name]) for row in shown], height=0.26, color=colour, label=label)
    middle = [_number(row[lift]) for row in shown]
    below = [m - _number(row[f"{lift}_low"]) for m, row in zip(middle, shown, strict=True)]
    above = [_number(row[f"{lift}_high"]) - m for m, row in zip(middle, shown, strict=True)]
    lifts.errorbar(middle, range(len(shown)), xerr=[below, above], fmt="o", color=BLUE, markersize=4, linewidth=1)
    lifts.axvline(1, color=INK, linewidth=1)
    lifts.set_xscale("log")
    lifts.xaxis.set_major_formatter(ScalarFormatter())
    lifts.xaxis.set_minor_formatter(NullFormatter())
    lifts.set_xlabel(f"lift: {of}, with 95 % interval")
    shares.set_xlabel("share of operators")
    shares.set_yticks(range(len(shown)), [str(row["pattern"]) for row in shown], fontsize=7, parse_math=False)
    shares.set_ylim(len(shown) - 0.5, -0.5)
    finish(figure, [shares, lifts], title, notes, columns=3)
    return figure


def _number(value: object) -> float:
    """Return a cell of a table as a number; 0 if it is missing."""
    return float(value) if isinstance(value, int | float) and value == value else 0.0


def canonical_figure(rates: Sequence[Rate], title: str, notes: Sequence[str]) -> Figure:
    """Draw the shares of random graphs that are canonical, by size, on a logarithmic axis; a size with none has no mark."""
    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axes = figure.add_subplot()
    found = [rate for rate in rates if rate.canonical]
    for shown, colour, style, label in (
        ([(rate.size, rate.exact / rate.graphs) for rate in rates if rate.exact], GREEN, "s--", "by exact rules alone"),
        ([(rate.size, rate.share) for rate in found], BLUE, "o-", "by all rules"),
        ([(rate.size, rate.in_order / rate.graphs) for rate in rates if rate.in_order], ORANGE, "^:", "in the order drawn"),
    ):
        axes.plot([size for size, _ in shown], [share for _, share in shown], style, color=colour, label=label)
    low, high = zip(*(rate.interval for rate in found), strict=True) if found else ((), ())
    axes.fill_between([rate.size for rate in found], low, high, color=BLUE, alpha=0.15, linewidth=0, label="95 % interval")
    axes.set_yscale("log")
    axes.set_xticks([rate.size for rate in rates])
    axes.set_ylabel("share of canonical graphs")
    axes.secondary_yaxis("right", functions=(_inverse, _inverse)).set_ylabel("graphs per canonical graph")
    axes.set_xlabel("primitives")
    finish(figure, [axes], title, notes)
    return figure


def distance_figure(runs: Sequence[Run], title: str, notes: Sequence[str]) -> Figure:
    """Draw the distinct operators found, by trials and by CPU time, with each distance."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    by_trials, by_time = figure.subplots(1, 2, sharey=True)
    for side, colour in zip(runs, COLOURS, strict=False):
        count = len(side.trials)
        found = [0, *range(1, count + 1), count]
        by_trials.step([1, *side.trials, side.walks], found, where="post", color=colour, label=f"{side.name} ({count})")
        by_time.step([0.1, *side.seconds, side.used], found, where="post", color=colour, label=f"{side.name} ({count})")
    for axes, label in ((by_trials, "random walks"), (by_time, "CPU-seconds, start included")):
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(label)
    by_trials.set_ylabel("distinct operators found")
    finish(figure, [by_trials, by_time], title, notes)
    return figure


def _inverse(shares: npt.ArrayLike) -> npt.NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.reciprocal(np.asarray(shares, dtype=np.float64))
