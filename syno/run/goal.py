"""Verdicts on networks: whether they meet the goal of a search, by the confidence intervals of their measurements.

`syno.run.story` has the words.

>>> goal = Goal(speedup=1.5, lose_at_most=0.01)
>>> judge(goal, ACCURACY, Interval(1.73, 1.70, 1.76), Interval(0.004, -0.001, 0.009)).state
'meets'
>>> found = judge(goal, ACCURACY, Interval(1.41, 1.38, 1.44), Interval(0.004, -0.001, 0.009))
>>> found.state, found.binding, round(found.missing, 2)
('misses', ('speedup',), 0.06)
>>> judge(goal, ACCURACY, Interval(1.73, 1.70, 1.76), Interval(0.004), seeds=1).state
'may meet'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite, isnan, nan
from typing import NamedTuple

from syno.base.files import ORIGINAL
from syno.base.interval import Interval
from syno.run.speedups import APART, BY_LAYERS, IN_SEARCH, IN_TURNS, speedup_apart, speedup_by_layers
from syno.run.values import SCORE, SPEED, STATES, Latency, Part, Score, State, TimedPart, Trial, Verdict
from syno.search.goal import COST_WORDS, COSTS, Goal
from syno.train.metric import ACCURACY, METRICS, OF_ORIGINAL, Metric, score_of

LOSS_SCALE = 0.1  # a loss that exceeds the allowed one by this much has the shortfall 1, as an infinitely slow network
TIMES = 10  # the same for scores whose range is unknown: a loss of so many times the allowed one
ROUNDING = 1e-9
PREDICTED, SCREENED = "predicted", "screened"  # how a speedup is known, and the role of an operator that was screened out


def judge(
    goal: Goal,
    metric: Metric,
    speedup: Interval | None,
    lost: Interval | None,
    shares: Mapping[str, float] | None = None,
    seeds: int | None = None,
) -> Verdict:
    """Return the verdict on an operator by a goal. A value without an interval never "meets" it, since it may be chance.

    Args:
        goal: the goal.
        metric: the metric of the scores.
        speedup: speedup of the network with the operator; None if it was not measured.
        lost: its loss of score against the original, positive if worse; None if it was not trained.
        shares: its costs as shares of the original's, by the metrics in `syno.search.goal.COSTS`.
        seeds: the number of trainings behind its score; None if it is not known.
    """
    parts: list[Part] = []
    if goal.measures:
        parts.append(_speed(goal.speedup, speedup or Interval(nan)))
    if goal.lose_at_most is not None or lost is not None:
        parts.append(_loss(goal.lose_at_most, metric, lost or Interval(nan)))
    parts += [_cost(COSTS[option], most, (shares or {}).get(COSTS[option])) for option, most in goal.limits.items()]
    return Verdict(tuple(parts), metric, seeds)


def _speed(least: float | None, speedup: Interval) -> Part:
    if least is None:
        return Part(SPEED, "meets", speedup)
    if not isfinite(speedup.value):
        return Part(SPEED, "unknown", speedup, least)
    state = _state(Interval(*(end - least for end in speedup)))
    return Part(SPEED, state, speedup, least, max(0.0, 1 - speedup.value / least))


def _loss(most: float | None, metric: Metric, lost: Interval) -> Part:
    """Return the part of the verdict on the score. An infinite loss, of a training that diverged, misses."""
    if most is None:
        return Part(SCORE, "meets", lost)
    if isnan(lost.value) or lost.value == -inf:
        return Part(SCORE, "unknown", lost, most)
    scale = LOSS_SCALE if metric.margin is not None else TIMES * most or 1.0
    state = _state(Interval(most - lost.value, most - lost.high, most - lost.low))
    return Part(SCORE, state, lost, most, max(0.0, lost.value - most) / scale)


def _cost(name: str, most: float, share: float | None) -> Part:
    if share is None or not isfinite(share):
        return Part(name, "unknown", Interval(nan), most)
    return Part(name, "meets" if share <= most + ROUNDING else "misses", Interval(share), most, max(0.0, share - most))


def _state(margin: Interval) -> State:
    """Return the state of a requirement by its margin, the measured minus the required value (positive if it is met).

    NaN ends mean that there is no interval, and are handled first, since comparisons with NaN are false.
    """
    if not margin.is_certain:
        return "may meet" if margin.value >= -ROUNDING else "misses"
    if min(margin.value, margin.low) >= -ROUNDING:
        return "meets"
    return "may meet" if max(margin.value, margin.high) >= -ROUNDING else "misses"


def verdict_on_trial(goal: Goal, metrics: Mapping[str, float]) -> Verdict:
    """Return the verdict on a trial by its metrics. One training has no interval of the score, so it never "meets" a loss."""
    metric = METRICS.get(score_of(metrics) or "", ACCURACY)
    return judge(goal, metric, speedup_in(metrics), lost_in(metrics), shares_in(metrics), seeds=1)


def order_of_trial(goal: Goal, metrics: Mapping[str, float]) -> tuple[int, float]:
    """Return the sort key of a trial by a goal, smallest first: the rank of its verdict, and its shortfall.

    One seed decides here, as in the search itself: the score counts as if it were exact.
    """
    metric, lost = METRICS.get(score_of(metrics) or "", ACCURACY), lost_in(metrics)
    exact = None if lost is None else Interval(lost.value, lost.value, lost.value)
    found = judge(goal, metric, speedup_in(metrics), exact, shares_in(metrics))
    return STATES.index(found.state), found.missing if found.state in ("misses", "unknown") else 0.0


def speedup_in(metrics: Mapping[str, float], name: str = SPEED) -> Interval | None:
    """Return the speedup measured in the search, or another metric `name`, with its interval; None if the trial lacks it."""
    return Interval(metrics[name], *(metrics.get(f"{name}_{end}", nan) for end in ("low", "high"))) if name in metrics else None


def lost_in(metrics: Mapping[str, float]) -> Interval | None:
    """Return the loss of score in the search against the original; None if one of the scores is not known."""
    metric = METRICS.get(score_of(metrics) or "")
    if metric is None or (original := metrics.get(f"{OF_ORIGINAL}{metric.key}")) is None:
        return None
    return Interval(metric.quality(original) - metric.quality(metrics[metric.key]))


def shares_in(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the costs counted in the search, as shares of the original's, by metric."""
    return {name: metrics[f"{name}_share"] for name in COST_WORDS if f"{name}_share" in metrics}


def judged_networks(
    goal: Goal,
    scores: Sequence[Score],
    latencies: Sequence[Latency],
    searched: Mapping[str, Mapping[str, float]],
    parts: Sequence[TimedPart] = (),
    again: Mapping[str, Interval] | None = None,
    rivals: Mapping[str, tuple[str, Interval]] | None = None,
) -> list[Score]:
    """Return each network but the original with the verdict on it, in the order of the scores.

    The speedup is, as far as known, (1) the one measured after the selection, in turns with the original, whose interval is
    unbiased; (2) that of the search, by which the operator was selected; (3) that of the breakdown with the goal's compiler
    and device, where layers were timed in turns; (4) the ratio of two latencies that were timed apart.

    Args:
        goal: the goal.
        scores: scores of the networks.
        latencies: latencies of the networks.
        searched: the metrics in the search, by the key of the operator.
        parts: parts of the networks' time; empty if no breakdown was measured.
        again: the speedups that were measured after the selection, by the key of the operator.
        rivals: how the rivals were timed, and their speedups, by their keys.
    """
    judged = []
    for one in scores:
        if one.key == ORIGINAL:
            continue
        metrics, place = searched.get(one.key, {}), (one.key, goal.compiler, goal.device)
        known = (
            (rivals or {}).get(one.key, ("", None)),
            (IN_TURNS, (again or {}).get(one.key)),
            (IN_SEARCH, speedup_in(metrics)),
            (BY_LAYERS, speedup_by_layers(parts, *place)),
            (APART, speedup_apart(latencies, *place)),
        )
        timed, speedup = next(((how, ratio) for how, ratio in known if ratio is not None), ("", None))
        shares = {"parameters": nan if one.parameters_share is None else one.parameters_share, **shares_in(metrics)}
        is_asked = goal.lose_at_most is not None or not isnan(one.lost.value)
        verdict = judge(goal, METRICS[one.metric], speedup, one.lost if is_asked else None, shares, one.seeds)
        judged.append(replace(one, verdict=verdict, speedup=speedup or Interval(nan), timed=timed))
    return judged


class Screened(NamedTuple):
    """A trial whose operator was screened out before a training.

    Attributes:
        trial: the trial.
        speedup: the measured speedup or, if the prediction was enough to screen the operator out, the predicted one; NaN if
            neither is known.
        timed: `IN_TURNS` for a measured, `PREDICTED` for a predicted speedup; None if neither is known.
        missing: the relative shortfall from the goal (`syno.run.values.Part`); None where nothing is known.
    """

    trial: Trial
    speedup: Interval
    timed: str | None
    missing: float | None


def nearest_screened(goal: Goal, trials: Iterable[Trial]) -> list[Screened]:
    """Return the trials that were screened out, the nearest to the goal first."""
    found = [_screened(goal, trial) for trial in trials if trial.outcome == "screened"]
    return sorted(found, key=lambda one: (one.missing is None, one.missing, -one.speedup.value if one.timed else 0.0))


def _screened(goal: Goal, trial: Trial) -> Screened:
    measured, predicted = (speedup_in(trial.metrics, name) for name in (SPEED, f"predicted_{SPEED}"))
    speedup = measured or predicted
    timed = IN_TURNS if measured is not None else PREDICTED if predicted is not None else None
    shares = ((trial.metrics.get(f"{COSTS[option]}_share", 0.0), most) for option, most in goal.limits.items())
    over = [share - most for share, most in shares if share > most]
    slow = 0.0 if speedup is None or not goal.least_speedup else max(0.0, 1 - speedup.value / goal.least_speedup)
    return Screened(trial, speedup or Interval(nan), timed, sum(over) + slow if timed or over else None)
