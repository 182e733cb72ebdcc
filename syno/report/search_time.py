"""The figure of a search over time: rewards and the best so far over the seconds since the study began."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import accumulate
from math import inf
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from syno.report.figures import AT_THE_BOTTOM, BLUE, GREEN, GREY, INK, finish, nothing
from syno.report.points import NO_POINTS, Point, count_text, identify_trials, shown_points
from syno.run.goal import order_of_trial
from syno.run.values import STATES, Trial
from syno.search.goal import Goal

TITLE = "Search over time"
LONGEST_GAP = timedelta(minutes=10)  # without a trial: more is an interruption, which does not count
MINUTES = 600  # seconds from which on the axis has minutes, and so on
HOURS = 4 * 3600


def time_figure(
    trials: Iterable[Trial],
    goal: Goal | None = None,
    reward_at_goal: float | None = None,
    notes: Sequence[str] = (),
    points: Mapping[int, Point] = NO_POINTS,
) -> Figure:
    """Draw the reward of each trial at the time at which it ended, and the best so far.

    Times count from the start of the first trial, without interruptions in which no trial ran for more than 10 minutes. Trials
    that meet the goal have a ring. Marks at the bottom are trials that were screened out, pruned or paused, or failed.

    Args:
        trials: the trials of the search; if there are too many, a selection is drawn (`shown_points`).
        goal: the goal of the search; None if there is none.
        reward_at_goal: the reward of an operator that just meets the goal, for a line; None for no line.
        notes: paragraphs at the bottom.
        points: the points' tooltips by the trial's number.
    """
    timed = with_times(trials)
    if not any(trial.is_rewarded or trial.outcome in AT_THE_BOTTOM for trial in timed):
        return nothing(TITLE, "No trial with a known time has ended.", notes)
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    draw_over_time(axes, timed, goal, reward_at_goal, points)
    finish(figure, [axes], TITLE, notes, columns=4)
    return figure


def with_times(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials whose start and end times are known."""
    return [trial for trial in trials if trial.started is not None and trial.ended is not None]


def draw_over_time(
    axes: Axes,
    trials: Sequence[Trial],
    goal: Goal | None = None,
    reward_at_goal: float | None = None,
    points: Mapping[int, Point] = NO_POINTS,
) -> None:
    """Draw the plot of `time_figure` into a panel. The trials are those of `with_times`, at least one of which has ended."""
    seconds, without = elapsed(trials)
    unit, name = (1, "seconds") if max(seconds) < MINUTES else (60, "minutes") if max(seconds) < HOURS else (3600, "hours")
    timed = [(one / unit, trial) for one, trial in zip(seconds, trials, strict=True)]
    done = sorted(((time, trial) for time, trial in timed if trial.is_rewarded), key=lambda pair: pair[1].number)
    drawn = _drawn(done)
    (line,) = axes.plot(
        [time for time, _ in drawn], [trial.reward or 0.0 for _, trial in drawn], "o", color=BLUE, markersize=4.5, alpha=0.75,
        mew=0, label=f"complete ({count_text(len(done), len(drawn))})",
    )  # fmt: skip
    identify_trials(line, [trial.number for _, trial in drawn], points)
    for outcome, (marker, colour, height) in AT_THE_BOTTOM.items():
        all_ended = [(time, trial.number) for time, trial in timed if trial.outcome == outcome]
        ended = [all_ended[place] for place in shown_points(len(all_ended))]
        if ended:
            label = f"{outcome} ({count_text(len(all_ended), len(ended))})"
            look: dict[str, Any] = {"color": colour, "markersize": 4, "label": label, "transform": axes.get_xaxis_transform()}
            (line,) = axes.plot([time for time, _ in ended], [height] * len(ended), marker, **look)
            identify_trials(line, [number for _, number in ended], points)
    if done:
        _best(axes, drawn, max(seconds) / unit)
    if goal is not None:
        _met(axes, done, goal, name)
        if reward_at_goal is not None:
            axes.axhline(reward_at_goal, color=INK, linewidth=0.9, linestyle="--", label="just meets the goal", zorder=1)
    left_out = f", without {without / 3600:.2g} h in which nothing ran" if without else ""
    axes.set_xlabel(f"{name} since the study began{left_out}")
    axes.set_ylabel("reward")
    axes.set_xlim(left=0)
    axes.spines.right.set_visible(False)


def elapsed(trials: Iterable[Trial]) -> tuple[list[float], float]:
    """Return the seconds from the first trial's start to each trial's end, without interruptions, and the seconds of these.

    The trials are those of `with_times`; several may have run at the same time.
    """
    spans = [(trial.started, trial.ended) for trial in trials if trial.started is not None and trial.ended is not None]
    first = latest = min(started for started, _ in spans)
    gaps = []  # (when it ended, how long it was)
    for started, ended in sorted(spans):
        if started - latest > LONGEST_GAP:
            gaps.append((started, started - latest))
        latest = max(latest, ended)
    seconds = [
        (ended - first - sum((gap for end, gap in gaps if end <= ended), timedelta())).total_seconds() for _, ended in spans
    ]
    return seconds, sum(gap.total_seconds() for _, gap in gaps)


def _drawn(done: Sequence[tuple[float, Trial]]) -> list[tuple[float, Trial]]:
    """Return the pairs (seconds, trial) to draw: rewarded trials, including every trial that was the best at its end."""
    records: list[int] = []
    best = -inf
    for place in sorted(range(len(done)), key=lambda place: done[place][0]):
        if (reward := done[place][1].reward or 0.0) > best:
            best = reward
            records.append(place)
    return [done[place] for place in shown_points(len(done), records)]


def _best(axes: Axes, done: Sequence[tuple[float, Trial]], last: float) -> None:
    ordered = sorted(done, key=lambda pair: pair[0])
    best = list(accumulate((trial.reward or 0.0 for _, trial in ordered), max))
    steps = ([*(time for time, _ in ordered), last], [*best, best[-1]])
    axes.step(*steps, where="post", color=GREEN, linewidth=1.6, label="best so far")
    low, high = min(trial.reward or 0.0 for _, trial in done), best[-1]
    span = (high - low) or 0.1
    axes.set_ylim(low - 0.25 * span, high + 0.14 * span)  # room for the marks below


def _met(axes: Axes, done: Sequence[tuple[float, Trial]], goal: Goal, unit: str) -> None:
    """Draw a ring around trials that meet the goal with their one seed, and write the time of the first such trial."""
    found = [(time, trial.reward or 0.0) for time, trial in done if STATES[order_of_trial(goal, trial.metrics)[0]] == "meets"]
    if not found:
        return
    drawn = [found[place] for place in shown_points(len(found), [found.index(min(found))])]
    label = f"meets the goal, by one seed ({count_text(len(found), len(drawn))})"
    axes.plot(*zip(*drawn, strict=True), "o", color=GREEN, markersize=9, markerfacecolor="none", label=label)
    first, reward = min(found)
    axes.annotate(
        f"first after {first:.3g} {unit}", (first, reward), (6, -10), textcoords="offset points", fontsize=8, color=GREY
    )
