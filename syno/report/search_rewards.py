"""The figure of a search by trial: rewards and the best so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from syno.report.figures import AT_THE_BOTTOM, BLUE, GREEN, GREY, finish, nothing
from syno.report.points import NO_POINTS, Point, count_text, identify_trials, shown_points
from syno.run.values import Trial

# A warning if many trials have the lowest or the highest reward, so that the search cannot tell them apart.


MANY = 0.25  # share of the complete trials
FEWEST = 8  # complete trials from which on a share says something


def saturation(trials: Iterable[Trial]) -> str | None:
    """Return advice if a quarter or more of the complete trials have the reward 0 or 1 (saturated); None otherwise."""
    rewards = [trial.reward for trial in trials if trial.outcome == "complete" and trial.reward is not None]
    if len(rewards) < FEWEST:
        return None
    parts = []
    for end, meant in (
        (0, "operators that are nearly as bad as the worst differ no more; lower the score that has the reward 0 (`low`)"),
        (1, "better operators are not told from good ones; raise the score that has the reward 1 (`high`)"),
    ):
        count = sum(reward <= 0 if end == 0 else reward >= 1 for reward in rewards)
        if count >= MANY * len(rewards):
            parts.append(f"{count} of {len(rewards)} complete trials have the reward {end}: {meant}")
    if not parts:
        return None
    return f"{'; '.join(parts)}. `reward: {{name: relative}}` follows the original network's score, whatever the data"


TITLE = "Rewards of the search"


def reward_figure(trials: Sequence[Trial], notes: Sequence[str] = (), points: Mapping[int, Point] = NO_POINTS) -> Figure:
    """Draw the reward of each trial, and the best so far. Marks at the bottom are trials that were pruned, paused or failed.

    If there are too many trials, a selection is drawn (`shown_points`). `points` are tooltips by the trial's number.
    """
    if not any(trial.is_rewarded or trial.outcome in AT_THE_BOTTOM for trial in trials):
        return nothing(TITLE, "No trial has ended.", notes)
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    draw_rewards(axes, trials, points)
    finish(figure, [axes], TITLE, notes, columns=4)
    return figure


def draw_rewards(axes: Axes, trials: Sequence[Trial], points: Mapping[int, Point] = NO_POINTS) -> None:
    """Draw the reward of each trial, and the best so far, into a panel."""
    done = sorted((trial for trial in trials if trial.is_rewarded), key=lambda trial: trial.number)
    best = list(accumulate((trial.reward or 0.0 for trial in done), max))
    drawn = shown_points(len(done), [place for place, reward in enumerate(best) if not place or reward > best[place - 1]])
    numbers = [done[place].number for place in drawn]
    rewards = [done[place].reward or 0.0 for place in drawn]
    label = f"complete ({count_text(len(done), len(drawn))})"
    (line,) = axes.plot(numbers, rewards, "o", color=BLUE, markersize=4.5, alpha=0.75, label=label, mew=0)
    identify_trials(line, numbers, points)
    for outcome, (marker, colour, height) in AT_THE_BOTTOM.items():
        all_ended = [trial.number for trial in trials if trial.outcome == outcome]
        ended = [all_ended[place] for place in shown_points(len(all_ended))]
        if ended:
            label = f"{outcome} ({count_text(len(all_ended), len(ended))})"
            look: dict[str, Any] = {"color": colour, "markersize": 4, "label": label, "transform": axes.get_xaxis_transform()}
            (line,) = axes.plot(ended, [height] * len(ended), marker, **look)
            identify_trials(line, ended, points)
    if done:
        _running_best(axes, numbers, rewards, max(trial.number for trial in trials))
    axes.set_xlabel("trial")
    axes.set_ylabel("reward")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines.right.set_visible(False)


def _running_best(axes: Axes, numbers: Sequence[int], rewards: Sequence[float], last: int) -> None:
    best = list(accumulate(rewards, max))
    axes.step([*numbers, last], [*best, best[-1]], where="post", color=GREEN, linewidth=1.6, label="best so far")
    low, high = min(rewards), max(rewards)
    span = (high - low) or 0.1
    axes.set_ylim(low - 0.22 * span, high + 0.14 * span)  # room for the marks below and the name above
    first = numbers[rewards.index(high)]
    axes.annotate(
        f"{high:.4g} in trial {first}", (first, high), (0, 5), textcoords="offset points",
        ha="right" if first > last / 2 else "left", fontsize=8, color=GREY,
    )  # fmt: skip
