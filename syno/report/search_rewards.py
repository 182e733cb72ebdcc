"""The figure of a search by trial: rewards and the best so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from syno.report.figures import AT_THE_BOTTOM, BLUE, GREEN, GREY, finish, nothing
from syno.report.points import NO_POINTS, Point, identify_trials
from syno.report.results import rewarded
from syno.results.values import TRIAL_COLUMNS, complete

if TYPE_CHECKING:
    import pandas


# A warning if many trials have the lowest or the highest reward, so that the search cannot tell them apart.


MANY = 0.25  # share of the complete trials
FEWEST = 8  # complete trials from which on a share says something


def saturation(trials: pandas.DataFrame) -> str | None:
    """Return in words that a quarter or more of the complete trials have the reward 0 or 1, and what to change; else None."""
    rewards = trials.loc[trials["outcome"] == "complete", "reward"].dropna()
    if len(rewards) < FEWEST:
        return None
    parts = []
    for end, meant in (
        (0, "operators that are nearly as bad as the worst differ no more; lower the score that has the reward 0 (`low`)"),
        (1, "better operators are not told from good ones; raise the score that has the reward 1 (`high`)"),
    ):
        count = int((rewards <= 0).sum() if end == 0 else (rewards >= 1).sum())
        if count >= MANY * len(rewards):
            parts.append(f"{count} of {len(rewards)} complete trials have the reward {end}: {meant}")
    if not parts:
        return None
    return f"{'; '.join(parts)}. `reward: {{name: relative}}` follows the original network's score, whatever the data"


TITLE = "Rewards of the search"


def reward_figure(trials: pandas.DataFrame, notes: Sequence[str] = (), points: Mapping[int, Point] = NO_POINTS) -> Figure:
    """Draw the reward of each trial, and the best so far. Marks at the bottom are trials that were pruned, paused or failed.

    `points` says what the point of each trial is, by the trial's number. SpecError if the table lacks a column.
    """
    rows = complete(trials, TRIAL_COLUMNS, "trials")
    if rewarded(rows).empty and not rows["outcome"].isin(list(AT_THE_BOTTOM)).any():
        return nothing(TITLE, "No trial has ended.", notes)
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    draw_rewards(axes, rows, points)
    finish(figure, [axes], TITLE, notes, columns=4)
    return figure


def draw_rewards(axes: Axes, rows: pandas.DataFrame, points: Mapping[int, Point] = NO_POINTS) -> None:
    """Draw the reward of each trial, and the best so far, into a panel. `rows` is numbered from 0."""
    done = rewarded(rows)
    (line,) = axes.plot(
        done["number"], done["reward"], "o", color=BLUE, markersize=4.5, alpha=0.75, label=f"complete ({len(done)})", mew=0
    )
    identify_trials(line, done["number"], points)
    for outcome, (marker, colour, height) in AT_THE_BOTTOM.items():
        numbers = rows.loc[rows["outcome"] == outcome, "number"]
        if len(numbers):
            label = f"{outcome} ({len(numbers)})"
            heights = [height] * len(numbers)
            look: dict[str, Any] = {"color": colour, "markersize": 4, "label": label, "transform": axes.get_xaxis_transform()}
            (line,) = axes.plot(numbers, heights, marker, **look)
            identify_trials(line, numbers, points)
    if len(done):
        _running_best(axes, done, int(rows["number"].max()))
    axes.set_xlabel("trial")
    axes.set_ylabel("reward")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines["right"].set_visible(False)


def _running_best(axes: Axes, done: pandas.DataFrame, last: int) -> None:
    best = done["reward"].cummax()
    axes.step([*done["number"], last], [*best, best.iloc[-1]], where="post", color=GREEN, linewidth=1.6, label="best so far")
    low, high = done["reward"].min(), done["reward"].max()
    span = (high - low) or 0.1
    axes.set_ylim(low - 0.22 * span, high + 0.14 * span)  # room for the marks below and the name above
    first = done[done["reward"] == high].iloc[0]
    axes.annotate(
        f"{high:.4g} in trial {first['number']}", (first["number"], high), (0, 5), textcoords="offset points",
        ha="right" if first["number"] > last / 2 else "left", fontsize=8, color=GREY,
    )  # fmt: skip
