"""The best of all networks of an experiment with a goal, and what synthesis is worth beside what a user would do without it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf, isfinite, isnan, nan, sqrt
from typing import NamedTuple

from syno.base.files import ORIGINAL
from syno.base.interval import Interval
from syno.results.goal import ROUNDING, STATES, times_as_fast
from syno.results.metric import front
from syno.results.values import Score
from syno.search.goal import Goal
from syno.train.metric import CONFIDENCE, Metric

FOUND = "found"  # the role of networks with synthesized operators
KNOWN = ("rival", "baseline")  # the roles of those without


class Comparison(NamedTuple):
    """The best network with a synthesized operator beside the front of those without, at its speed.

    Attributes:
        found: the best network with an operator that was found.
        slower, faster: the neighbours on the front, equal if one is about as fast. The original may be the slower one;
            `faster` is None if none is as fast as `found`.
        score: the front's score at the speed of `found`, on the line between both neighbours; NaN without a faster one.
        gain: how much better than that `found` is, with its 95 % interval (Welch).
    """

    found: Score
    slower: Score
    faster: Score | None
    score: float
    gain: Interval


def best_of(networks: Iterable[Score], goal: Goal, metric: Metric) -> Score | None:
    """Return the network that the goal asks for: of those that meet it, else of those that may, else the nearest.

    Of those that may, the ones whose own numbers meet it come first, and then the nearest: an interval of few trainings is so
    wide that a network that loses more than is allowed may meet it, too, and would be chosen for its speed.

    Args:
        networks: to choose from; those without a finite score or a verdict, as the original, are never chosen.
        goal: the goal, which asks for the most accurate, the fastest, or for both.
        metric: of the scores.
    """

    def place(one: Score) -> tuple[float, ...]:
        speed = -inf if isnan(one.speedup.value) else one.speedup.value
        quality = _quality(one, metric)
        wanted = (quality, speed) if goal.find == "most_accurate" else (speed, quality)
        return (-STATES.index(one.verdict), -one.missing if one.missing > ROUNDING else 0.0, *wanted)

    return max((one for one in networks if one.is_finite and one.verdict), key=place, default=None)


def compared(networks: Sequence[Score], goal: Goal, metric: Metric) -> Comparison | None:
    """Return the comparison; None if nothing was found, or nothing is known of others.

    Rivals are few, and one of another size might be as fast as the network that was found. So the front between two of them
    counts as if all on the line were there, and one whose interval of the speedup reaches that of the network as being as fast.
    """
    found = best_of([one for one in networks if one.role == FOUND], goal, metric)
    others = [one for one in networks if one.role in KNOWN and one.is_finite and not isnan(one.speedup.value)]
    original = next((one for one in networks if one.role == ORIGINAL and one.is_finite), None)
    if found is None or original is None or not others or isnan(found.speedup.value):
        return None
    points = [replace(original, speedup=Interval(1.0)), *others]
    ahead = [points[place] for place in front([(-one.speedup.value, _quality(one, metric)) for one in points])]
    at = found.speedup.value
    fast = [one for one in ahead if max(one.speedup.value, _or(one.speedup.high)) >= at]
    slow = [one for one in ahead if one.speedup.value < at]
    faster = max(fast, key=lambda one: _quality(one, metric), default=None)
    slower = max(slow, key=lambda one: one.speedup.value, default=faster)
    assert slower is not None  # the front is not empty
    if faster is None:
        return Comparison(found, slower, None, nan, Interval(nan))
    if faster.speedup.value <= at or slower is faster:  # by its interval
        slower, share = faster, 1.0
    else:
        share = (at - slower.speedup.value) / (faster.speedup.value - slower.speedup.value)
    parts = [(share, faster), (1 - share, slower)]
    return Comparison(
        found, slower, faster, sum(weight * (one.score or 0.0) for weight, one in parts), gain_over(found, parts, metric)
    )


def gain_over(one: Score, others: Sequence[tuple[float, Score]], metric: Metric) -> Interval:
    """Return the gain in score of a network over a weighted mean of others, with Welch's interval over the seeds."""
    terms = [(1.0, one), *((-weight, other) for weight, other in others if weight)]
    sign = 1 if metric.more_is_better else -1
    value = sign * sum(weight * (each.score or 0.0) for weight, each in terms)
    errors = [(weight**2 * error, each.seeds) for weight, each in terms if (error := _squared_error(each)) is not None]
    total = sum(error for error, _ in errors)
    if len(errors) < len(terms) or not total:
        return Interval(value)
    from scipy.stats import t

    shares = sum(error**2 / ((seeds or 2) - 1) for error, seeds in errors)
    half = float(t.ppf((1 + CONFIDENCE) / 2, total**2 / shares)) * sqrt(total)
    return Interval(value, value - half, value + half)


def _squared_error(one: Score) -> float | None:
    """Return the variance of a mean over seeds; None where it is not known."""
    if one.seeds is None or one.seeds < 2 or one.spread is None or not isfinite(one.spread):
        return None
    return one.spread**2 / one.seeds


def _quality(one: Score, metric: Metric) -> float:
    return metric.quality(one.score or 0.0)


def _or(value: float, other: float = -inf) -> float:
    return other if isnan(value) else value


# ---- in words ----------------------------------------------------------------------------------------------------------


def worth(found: Comparison, metric: Metric) -> str:
    """Return in a sentence what synthesis is worth."""
    own, gain = described(found.found, metric), found.gain
    if found.faster is None:
        return f"Nothing without synthesis is as fast as {own}: the fastest is {described(found.slower, metric)}."
    rival, size = described(found.faster, metric), metric.with_unit(metric.steps_text(abs(gain.value)))
    if found.slower is not found.faster:
        at_its_speed = f"{metric.name} {metric.text(found.score)} at this speed"
        rival = f"the front between {described(found.slower, metric)} and {rival}, {at_its_speed},"
    way = "better" if gain.value < 0 else "worse"
    if not gain.is_certain:
        return (
            f"Without synthesis, {rival} is {size} {way} than {own}; there is no interval, so nothing is certain: train with "
            "more seeds (train: seeds)."
        )
    low, high = (metric.steps_text(end, "+z") for end in (gain.low, gain.high))
    if gain.low > 0:
        return f"Synthesis is worth {size} (95 %: {low} to {high}): {own} beats {rival.removesuffix(',')}, the best without it."
    if gain.high < 0:
        low, high = (metric.steps_text(-end, "+z") for end in (gain.high, gain.low))
        return f"Synthesis adds nothing here: {rival} is {size} better than {own} (95 %: {low} to {high})."
    return (
        f"It is not shown that synthesis adds anything here: {rival} is {size} {way} than {own} (95 % of the gain: {low} to "
        f"{high})."
    )


def described(one: Score, metric: Metric) -> str:
    """Return the name of a network with its speedup and its score."""
    return f"{one.operator} ({times_as_fast(one.speedup)}, {metric.name} {metric.text(one.score or 0.0)})"


def best_in_words(best: Score, metric: Metric) -> tuple[str, str, str]:
    """Return in a sentence which network is the best of all; its name stands between two texts."""
    kind = {FOUND: "with a synthesized operator", "rival": "without synthesis", "baseline": "with a known operator"}[best.role]
    state = {"meets": "meets the goal", "may meet": "may meet the goal"}.get(best.verdict, "is the nearest to the goal")
    score = f"{metric.name} {metric.text(best.score or 0.0)}"
    return "The best of all networks: ", best.operator, f", {kind}, {state}: {times_as_fast(best.speedup)}, {score}."
