"""The best of all networks of an experiment with a goal, and what synthesis is worth beside what a user would do without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite, isnan, sqrt
from typing import NamedTuple

from syno.base.interval import Interval
from syno.results.goal import STATES, times_as_fast
from syno.results.values import Judged, Score
from syno.search.goal import Goal
from syno.train.metric import CONFIDENCE, Metric

FOUND = "found"  # the role of networks with synthesized operators
KNOWN = ("rival", "baseline")  # the roles of those without


class Comparison(NamedTuple):
    """The best network with a synthesized operator beside the best one without.

    Attributes:
        found: the best network with an operator that was found.
        rival: of the others that are as fast, the one with the best score; None if none is as fast.
        gain: how much better than that the score of `found` is, with its 95 % interval (Welch); NaN without a rival.
        fastest: the fastest of the others; None without any.
    """

    found: Score
    rival: Score | None
    gain: Interval
    fastest: Score | None


def best_of(networks: Sequence[Score], goal: Goal, judged: Mapping[str, Judged], metric: Metric) -> Score | None:
    """Return the network that the goal asks for: of those that meet it, else of those that may, else the nearest.

    Args:
        networks: to choose from; those without a finite score are never chosen.
        goal: the goal, which asks for the most accurate, the fastest, or for both.
        judged: the verdicts on them, by key.
        metric: of the scores.
    """

    def place(one: Score) -> tuple[float, ...]:
        verdict = judged[one.key]
        speed = -inf if isnan(one.speedup.value) else one.speedup.value
        quality = metric.quality(one.score or 0.0)
        wanted = (quality, speed) if goal.find == "most_accurate" else (speed, quality)
        state = STATES.index(verdict.verdict)
        return (-state, -verdict.missing if state >= STATES.index("misses") else 0.0, *wanted)

    return max((one for one in networks if one.is_finite and one.key in judged), key=place, default=None)


def compared(networks: Sequence[Score], goal: Goal, judged: Mapping[str, Judged], metric: Metric) -> Comparison | None:
    """Return the comparison; None if nothing was found, or nothing is known of others.

    Another network counts as being as fast if its speedup's interval reaches the speedup of the network that was found, so that
    no doubt about a rival's speed is in the favour of synthesis.
    """
    found = best_of([one for one in networks if one.role == FOUND], goal, judged, metric)
    others = [one for one in networks if one.role in KNOWN and one.is_finite and not isnan(one.speedup.value)]
    if found is None or not others or isnan(found.speedup.value):
        return None
    fast = [one for one in others if max(one.speedup.value, _or(one.speedup.high)) >= found.speedup.value]
    rival = max(fast, key=lambda one: metric.quality(one.score or 0.0), default=None)
    gain = Interval(float("nan")) if rival is None else gained(found, rival, metric)
    return Comparison(found, rival, gain, max(others, key=lambda one: one.speedup.value))


def gained(one: Score, other: Score, metric: Metric) -> Interval:
    """Return how much better a network's mean score is than another's, with Welch's interval over the seeds of both."""
    sign = 1 if metric.more_is_better else -1
    value = sign * ((one.score or 0.0) - (other.score or 0.0))
    errors = [_squared_error(each) for each in (one, other)]
    if any(error is None for error in errors) or not (total := sum(error or 0.0 for error in errors)):
        return Interval(value)
    from scipy.stats import t

    shares = [(error or 0.0) ** 2 / ((each.seeds or 2) - 1) for error, each in zip(errors, (one, other), strict=True)]
    half = float(t.ppf((1 + CONFIDENCE) / 2, total**2 / sum(shares))) * sqrt(total)
    return Interval(value, value - half, value + half)


def _squared_error(one: Score) -> float | None:
    """Return the variance of a mean over seeds; None where it is not known."""
    if one.seeds is None or one.seeds < 2 or one.spread is None or not isfinite(one.spread):
        return None
    return one.spread**2 / one.seeds


def _or(value: float, other: float = -inf) -> float:
    return other if isnan(value) else value


# ---- in words ----------------------------------------------------------------------------------------------------------


def worth(found: Comparison, metric: Metric) -> str:
    """Return in a sentence what synthesis is worth."""
    own, gain = described(found.found, metric), found.gain
    if found.rival is None:
        fastest = "" if found.fastest is None else f": the fastest is {described(found.fastest, metric)}"
        return f"Nothing without synthesis is as fast as {own}{fastest}."
    rival, size = described(found.rival, metric), metric.with_unit(metric.steps_text(abs(gain.value)))
    way = "better" if gain.value < 0 else "worse"
    if not gain.is_certain:
        return (
            f"Without synthesis, {rival} is as fast as {own}, and {size} {way}; there is no interval, so nothing is certain: "
            "train with more seeds (train: seeds)."
        )
    low, high = (metric.steps_text(end, "+z") for end in (gain.low, gain.high))
    if gain.low > 0:
        return f"Synthesis is worth {size} (95 %: {low} to {high}): {own} beats {rival}, the best without it that is as fast."
    if gain.high < 0:
        low, high = (metric.steps_text(-end, "+z") for end in (gain.high, gain.low))
        return f"Synthesis adds nothing here: {rival} is as fast as {own}, and {size} better (95 %: {low} to {high})."
    return (
        f"It is not shown that synthesis adds anything here: {rival} is as fast as {own}, and {size} {way} (95 % of the gain: "
        f"{low} to {high})."
    )


def described(one: Score, metric: Metric) -> str:
    """Return the name of a network with its speedup and its score."""
    return f"{one.operator} ({times_as_fast(one.speedup)}, {metric.name} {metric.text(one.score or 0.0)})"


def best_in_words(best: Score, judged: Judged, metric: Metric) -> tuple[str, str, str]:
    """Return in a sentence which network is the best of all; its name stands between two texts."""
    kind = {FOUND: "with a synthesized operator", "rival": "without synthesis", "baseline": "with a known operator"}[best.role]
    state = {"meets": "meets the goal", "may meet": "may meet the goal"}.get(judged.verdict, "is the nearest to the goal")
    score = f"{metric.name} {metric.text(best.score or 0.0)}"
    return "The best of all networks: ", best.operator, f", {kind}, {state}: {times_as_fast(best.speedup)}, {score}."
