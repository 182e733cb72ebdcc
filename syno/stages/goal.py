"""The results of a search with a goal: the order of its trials for the selection, and verdicts on its operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan

from syno.config import Experiment
from syno.run.goal import SCREENED, Screened, lost_in, nearest_screened, order_of_trial, speedup_in, verdict_on_trial
from syno.run.metric import front
from syno.run.story import no_operator_meets
from syno.run.values import SPEED, STATES, Part, Score, State, Trial, Verdict
from syno.search.goal import Goal
from syno.stages.store import ID_DIGITS
from syno.train.metric import ACCURACY, METRICS, OF_ORIGINAL, score_of


def nearest_first(ranked: Sequence[Trial], goal: Goal) -> list[Trial]:
    """Return complete trials sorted by how well they meet the goal.

    Trials that meet the goal with their one seed come first, sorted by the setting `find` of the goal: by accuracy, by speed,
    or with the Pareto front of score and speedup first. Then come trials that may meet the goal, sorted in the same way, and
    last the other trials, by how much they miss it. Equal trials keep their order.
    """
    found = [trial.metrics for trial in ranked]
    lost = [-span.value if (span := lost_in(metrics)) is not None else float("-inf") for metrics in found]
    speed = [span.value if (span := speedup_in(metrics)) is not None else float("-inf") for metrics in found]
    on_front = set(front([(-fast, quality) for fast, quality in zip(speed, lost, strict=True)]))

    def key(place: int) -> tuple[float, ...]:
        wanted = {"most_accurate": -lost[place], "fastest": -speed[place], "front": float(place not in on_front)}
        return (*order_of_trial(goal, found[place]), wanted[goal.find or "front"])

    return [ranked[place] for place in sorted(range(len(ranked)), key=key)]


def verdict_in_search(experiment: Experiment, metrics: Mapping[str, float]) -> Verdict | None:
    """Return whether an operator met the goal in the search, by its metrics there; None if there is no goal."""
    return None if experiment.goal is None or not metrics else verdict_on_trial(experiment.goal, metrics)


def reward_at_goal(experiment: Experiment, trials: Sequence[Trial]) -> float | None:
    """Return the reward of a trial that just meets the goal: with the least speedup and the worst score that it allows.

    Other metrics are taken from the first complete trial. None if the goal sets no limit of the score, if there is no reward
    or no complete trial, if the reward is the user's own code, which pages do not run, or if the reward compares with rivals
    and so depends on the trial's speed.
    """
    goal = experiment.goal
    if goal is None or goal.lose_at_most is None or experiment.has_own_reward or experiment.needs_front:
        return None
    metrics = next((trial.metrics for trial in trials if trial.outcome == "complete"), {})
    metric = METRICS.get(score_of(metrics) or "")
    if metric is None or (original := metrics.get(f"{OF_ORIGINAL}{metric.key}")) is None:
        return None
    worst = original - goal.lose_at_most if metric.more_is_better else original + goal.lose_at_most
    speedup = {} if goal.least_speedup is None else {SPEED: goal.least_speedup}
    found = experiment.make_reward()({**metrics, metric.key: worst, **speedup})
    return found if isinstance(found, float) else None


def help_of_search(experiment: Experiment, chosen: list[Mapping[str, float]]) -> str | None:
    """Return advice if none of the selected operators met the goal in the search; None if one did.

    Args:
        experiment: the experiment.
        chosen: the metrics of the selected operators, the nearest to the goal first.
    """
    judged = [one for metrics in chosen if (one := verdict_in_search(experiment, metrics)) is not None]
    if not judged or any(one.state in STATES[:2] for one in judged):
        return None
    return no_operator_meets(judged[0])


def screened_out(experiment: Experiment, trials: Sequence[Trial]) -> list[tuple[Score, str]]:
    """Return the operators that the search has screened out with the reasons for it, the nearest to the goal first."""
    return [
        (
            Score(
                f"{experiment.name}_{one.trial.number}", SCREENED, one.trial.operator_id[:ID_DIGITS],
                verdict=_verdict(one), speedup=one.speedup, timed=one.timed or "",
            ),
            one.trial.message,
        )
        for one in (() if experiment.goal is None else nearest_screened(experiment.goal, trials))
    ]  # fmt: skip


def _verdict(screened: Screened) -> Verdict:
    """Return the verdict on an operator that the search screened out by its speed or a cost; it has no accuracy."""
    state: State = "unknown" if screened.missing is None else "misses"
    missing = nan if screened.missing is None else screened.missing
    return Verdict((Part(SPEED, state, screened.speedup, missing=missing),), ACCURACY)
