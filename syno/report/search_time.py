"""The figure of a search over time: rewards and the best so far over the seconds since the study began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from syno.report.figures import AT_THE_BOTTOM, BLUE, GREEN, GREY, INK, finish, nothing
from syno.report.points import NO_POINTS, Point, identify_trials
from syno.report.results import rewarded
from syno.results.goal import STATES, order_of_trial
from syno.results.values import TRIAL_COLUMNS, complete, trials_in
from syno.search.goal import Goal

TITLE = "Search over time"
TIMES = ("started", "ended")  # columns; a trial without them is left out
LONGEST_GAP = timedelta(minutes=10)  # without a trial: more is an interruption, which does not count
MINUTES = 600  # seconds from which on the axis has minutes, and so on
HOURS = 4 * 3600


def time_figure(
    trials: pandas.DataFrame,
    goal: Goal | None = None,
    reward_at_goal: float | None = None,
    notes: Sequence[str] = (),
    points: Mapping[int, Point] = NO_POINTS,
) -> Figure:
    """Draw the reward of each trial at the time at which it ended, and the best so far.

    Times count from the start of the first trial, without interruptions in which no trial ran for more than 10 minutes. Trials
    that meet the goal have a ring. Marks at the bottom are trials that were screened out, pruned or paused, or failed.

    Args:
        trials: `syno.search.storage.records.table`.
        goal: the goal of the search; None if there is none.
        reward_at_goal: the reward of an operator that just meets the goal, for a line; None for no line.
        notes: paragraphs at the bottom.
        points: what the point of each trial is, by the trial's number.

    Raises SpecError if the table lacks a column.
    """
    rows = complete(trials, TRIAL_COLUMNS, "trials")
    rows = rows.reindex(columns=list(dict.fromkeys([*rows.columns, *TIMES])))
    rows = rows[rows[list(TIMES)].notna().all(axis="columns")]
    if rewarded(rows).empty and not rows["outcome"].isin(list(AT_THE_BOTTOM)).any():
        return nothing(TITLE, "No trial with a known time has ended.", notes)
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    draw_over_time(axes, rows, goal, reward_at_goal, points)
    finish(figure, [axes], TITLE, notes, columns=4)
    return figure


def draw_over_time(
    axes: Axes,
    rows: pandas.DataFrame,
    goal: Goal | None = None,
    reward_at_goal: float | None = None,
    points: Mapping[int, Point] = NO_POINTS,
) -> None:
    """Draw what `time_figure` shows into a panel. `rows` are trials with known times, one or more of which have ended."""
    done = rewarded(rows)
    seconds, without = elapsed(rows)
    last = float(seconds.max())
    unit, name = (1, "seconds") if last < MINUTES else (60, "minutes") if last < HOURS else (3600, "hours")
    times = seconds / unit
    (line,) = axes.plot(
        times[done.index], done["reward"], "o", color=BLUE, markersize=4.5, alpha=0.75, mew=0, label=f"complete ({len(done)})"
    )
    identify_trials(line, done["number"], points)
    for outcome, (marker, colour, height) in AT_THE_BOTTOM.items():
        ended = times[rows.index[rows["outcome"] == outcome]]
        if len(ended):
            heights, label = [height] * len(ended), f"{outcome} ({len(ended)})"
            look: dict[str, Any] = {"color": colour, "markersize": 4, "label": label, "transform": axes.get_xaxis_transform()}
            (line,) = axes.plot(ended, heights, marker, **look)
            identify_trials(line, rows.loc[ended.index, "number"], points)
    if len(done):
        _best(axes, times, done, float(times.max()))
    if goal is not None:
        _met(axes, times, done, goal, name)
        if reward_at_goal is not None:
            axes.axhline(reward_at_goal, color=INK, linewidth=0.9, linestyle="--", label="just meets the goal", zorder=1)
    left_out = f", without {without / 3600:.2g} h in which nothing ran" if without else ""
    axes.set_xlabel(f"{name} since the study began{left_out}")
    axes.set_ylabel("reward")
    axes.set_xlim(left=0)
    axes.spines["right"].set_visible(False)


def elapsed(rows: pandas.DataFrame) -> tuple[pandas.Series, float]:
    """Return the seconds from the first start to the end of each trial, and the seconds of interruptions, which do not count.

    Args:
        rows: trials with the columns `started` and `ended`; several may have run at the same time.
    """
    starts, ends = pandas.to_datetime(rows["started"]), pandas.to_datetime(rows["ended"])
    gaps = []  # (when it ended, how long it was)
    latest = starts.min()
    for place in starts.sort_values(kind="stable").index:
        if starts[place] - latest > LONGEST_GAP:
            gaps.append((starts[place], starts[place] - latest))
        latest = max(latest, ends[place])
    nothing_ran = [sum((gap for end, gap in gaps if end <= ended), timedelta()) for ended in ends]
    seconds = (ends - starts.min() - pandas.Series(nothing_ran, index=ends.index, dtype="timedelta64[ns]")).dt.total_seconds()
    return seconds, sum(gap.total_seconds() for _, gap in gaps)


def _best(axes: Axes, times: pandas.Series, done: pandas.DataFrame, last: float) -> None:
    ordered = done.loc[times[done.index].sort_values(kind="stable").index]
    best = ordered["reward"].cummax()
    steps = ([*times[ordered.index], last], [*best, best.iloc[-1]])
    axes.step(*steps, where="post", color=GREEN, linewidth=1.6, label="best so far")
    low, high = done["reward"].min(), done["reward"].max()
    span = (high - low) or 0.1
    axes.set_ylim(low - 0.25 * span, high + 0.14 * span)  # room for the marks below


def _met(axes: Axes, times: pandas.Series, done: pandas.DataFrame, goal: Goal, unit: str) -> None:
    """Draw a ring around the trials that meet the goal by their one seed, and write when the first one did."""
    found = [
        (float(ended), trial.reward or 0.0)
        for ended, trial in zip(times[done.index], trials_in(done), strict=True)
        if STATES[order_of_trial(goal, trial.metrics)[0]] == "meets"
    ]
    if not found:
        return
    label = f"meets the goal, by one seed ({len(found)})"
    axes.plot(*zip(*found, strict=True), "o", color=GREEN, markersize=9, markerfacecolor="none", label=label)
    first, reward = min(found)
    axes.annotate(
        f"first after {first:.3g} {unit}", (first, reward), (6, -10), textcoords="offset points", fontsize=8, color=GREY
    )
