"""The results of a search with a goal: the order of its trials for the selection, and the verdicts on what was trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING

from syno.config import Experiment
from syno.model.networks import is_converted
from syno.run.breakdown import read_breakdown
from syno.run.goal import SPEED, STATES, Verdict, lost_in, order_of_trial, speedup_in, verdict_on_trial
from syno.run.goal_tables import (
    GOAL_COLUMNS,
    GOAL_SPEEDUP,
    GOAL_TIMED,
    SCREENED,
    answer,
    described,
    help_with,
    nearest_screened,
    verdicts,
)
from syno.run.metric import front
from syno.run.table import SCORE_COLUMNS
from syno.run.values import Trial, scores_in, trials_in
from syno.search.goal import Goal
from syno.stages.mixtures import mixture_lines
from syno.stages.places import FROZEN, SELECTED
from syno.stages.rivals import failures_of_rivals, speeds_of_rivals
from syno.stages.selection import read_selected, why_none
from syno.stages.speedups import selected_speedups
from syno.stages.store import ID_DIGITS
from syno.stages.study import read_trials_table
from syno.train.metric import ACCURACY, METRICS, OF_ORIGINAL, score_of

if TYPE_CHECKING:
    import pandas


def nearest_first(ranked: Sequence[Trial], goal: Goal) -> list[Trial]:
    """Return complete trials in the order in which a goal takes them.

    Those that meet it by their one seed come first, by what the goal looks for: the most accurate, the fastest, or those on the
    front of score and speedup. Then come those that may meet it, in the same order, and the others by how much they miss.
    Equal ones keep their order.
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


def reward_at_goal(experiment: Experiment, trials: pandas.DataFrame) -> float | None:
    """Return the reward of a trial that just meets the goal: with the least speedup and the worst score that it allows.

    Its other metrics are those of the first complete trial. None if the goal leaves one of the two open, there is no reward, or
    it is code of one's own, which no page runs, or compares with rivals: then it depends on the trial's speed.
    """
    goal = experiment.goal
    if goal is None or goal.lose_at_most is None or trials.empty or experiment.has_own_reward or experiment.needs_front:
        return None
    metrics = next((trial.metrics for trial in trials_in(trials) if trial.outcome == "complete"), {})
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
    return f"No operator of the search meets the goal; the nearest {judged[0].text}. {help_with(judged[0].binding)}"


def verdict_table(experiment: Experiment, scores: pandas.DataFrame, latency: pandas.DataFrame) -> pandas.DataFrame | None:
    """Return the verdicts on the networks (`syno.run.goal_tables.verdicts`); None without a goal or networks.

    Where no network is trained, they are on those that were measured.
    """
    if experiment.goal is None or (scores.empty and latency.empty):
        return None
    if scores.empty:
        as_trained = latency[~latency["key"].map(is_converted).astype(bool)]
        scores = as_trained.drop_duplicates("key").reindex(columns=[*SCORE_COLUMNS, "key"])
        scores = scores.assign(metric=ACCURACY.key)
    file = experiment.folder / SELECTED
    searched = {one.key: one.metrics for one in read_selected(file)} if file.is_file() else {}
    parts = read_breakdown(experiment.folder) if experiment.tune.breakdown else None
    again = {
        key: record.ratio
        for key, record in selected_speedups(experiment).items()
        if record.status == "ok" and record.ratio is not None
    }
    return verdicts(experiment.goal, scores, latency, searched, parts, again, speeds_of_rivals(experiment))


def screened_table(experiment: Experiment) -> pandas.DataFrame:
    """Return a row of `GOAL_COLUMNS` for each operator that the search has screened out, the nearest to the goal first."""
    import pandas

    goal, file = experiment.goal, experiment.folder / FROZEN
    found = pandas.DataFrame(columns=list(GOAL_COLUMNS))
    if goal is None or not file.is_file():
        return found
    unknown = (nan, nan, nan)  # nothing was trained
    rows = [
        (
            f"{experiment.name}_{one.trial.number}", one.trial.operator_id[:ID_DIGITS], SCREENED,
            "unknown" if one.missing is None else "misses", one.trial.message,
            nan if one.missing is None else one.missing, *one.speedup, one.timed, *unknown,
            goal.least_speedup, goal.lose_at_most,
        )
        for one in nearest_screened(goal, trials_in(read_trials_table(file)))
    ]  # fmt: skip
    return pandas.DataFrame(rows, columns=list(GOAL_COLUMNS)) if rows else found


def with_verdicts(scores: pandas.DataFrame, verdicts: pandas.DataFrame | None) -> pandas.DataFrame:
    """Return the scores with columns for the verdicts, their reasons, and `GOAL_SPEEDUP` and `GOAL_TIMED` if any is known."""
    if verdicts is None:
        return scores
    by_key = verdicts.set_index("key")
    of_speed = {**GOAL_SPEEDUP, GOAL_TIMED: "timed"} if verdicts["speedup"].notna().any() else {}
    columns = {"verdict": "verdict", "verdict_reason": "reason", "verdict_missing": "missing", **of_speed}
    return scores.assign(**{name: scores["key"].map(by_key[column]) for name, column in columns.items()})


def answer_of(experiment: Experiment, scores: pandas.DataFrame, latency: pandas.DataFrame) -> tuple[str, ...]:
    """Return in sentences which operators meet the goal, or how near they come; () without a goal or networks.

    Where no operator was selected, they say why, without a goal, too.
    """
    goal, nothing = experiment.goal, why_none(experiment.folder / SELECTED)
    metric = None if scores.empty else METRICS[str(scores["metric"].iloc[0])]
    if nothing is not None and not experiment.rival_names:
        return (*(() if goal is None else (f"Goal: {described(goal, metric)}.",)), nothing)
    found = verdict_table(experiment, scores, latency)
    if goal is None or found is None:
        return () if nothing is None else (nothing,)
    networks = [] if scores.empty else scores_in(with_verdicts(scores, found))
    lines = answer(goal, found, metric, networks)
    missing = [f"The rival {name} is missing: {reason}." for name, reason in failures_of_rivals(experiment).items()]
    return (*(lines if nothing is None else [*lines[:-1], nothing]), *mixture_lines(experiment), *missing)
