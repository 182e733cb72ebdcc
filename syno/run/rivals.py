"""The best network of an experiment with a goal, and the gain of synthesis over networks without it (rivals).

The best of many networks is in part the luckiest: of 16 equal networks, the 95 % interval of the best score contains the true
score in 85 to 90 % of all cases, and that of the best speedup in 72 to 84 %. So a chosen network gets simultaneous intervals
over all candidates (Bonferroni): they hold in at least 95 % of all cases, however the network was chosen, and whether
candidates are alike or not.

Three seeds say little about the spread of a network's scores, and at such levels Student's quantile with so few degrees of
freedom makes intervals so wide that nothing would meet a goal. So the variance of each network is shrunk towards the mean
variance of all, the more the more alike they are (moderated variances).

Sources: Y. Benjamini and D. Yekutieli, "False Discovery Rate-Adjusted Multiple Confidence Intervals for Selected Parameters",
Journal of the American Statistical Association 100 (2005): where one of m is selected, its interval has the level 1 - 0.05 / m.
G. Smyth, "Linear Models and Empirical Bayes Methods for Assessing Differential Expression in Microarray Experiments",
Statistical Applications in Genetics and Molecular Biology 3 (2004): the variances.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp, inf, isfinite, isnan, log, nan, sqrt
from statistics import mean, variance
from typing import NamedTuple

from syno.base.files import ORIGINAL
from syno.base.interval import Interval
from syno.measure.timing import FEWEST_FOR_INTERVAL
from syno.run.goal import ROUNDING, judge
from syno.run.metric import front
from syno.run.values import STATES, Score, Verdict
from syno.search.goal import COST_WORDS, Goal
from syno.train.metric import CONFIDENCE, Metric

FOUND = "found"  # the role of networks with synthesized operators
KNOWN = ("rival", "baseline")  # the roles of those without


class Comparison(NamedTuple):
    """The best network with a synthesized operator beside the front of those without, at its speed.

    Attributes:
        synthesized: the best network with a synthesized operator.
        others: the number of networks without one, including the original, on whose front it is placed.
        slower, faster: the neighbours on the front, equal if one is about as fast. The original may be the slower one;
            `faster` is None if no network is as fast as `synthesized`.
        score: the front's score at the speed of `synthesized`, on the line between both neighbours; NaN without a faster one.
        gain: how much better than `score` the score of `synthesized` is, with its 95 % interval (Welch), simultaneous over the
            networks that both were chosen from.
    """

    synthesized: Score
    others: int
    slower: Score
    faster: Score | None
    score: float
    gain: Interval


def best_of(networks: Iterable[Score], goal: Goal, metric: Metric) -> Score | None:
    """Return the best network by the goal: among networks that meet it, else among those that may meet it, else the nearest.

    Among networks that may meet it, those whose measured values meet it come first, then the nearest: an interval of few
    trainings is so wide that a network that loses too much may meet the goal, too, and would be chosen for its speed.

    The returned network has simultaneous intervals, and the verdict by these (`counting_choice`).

    Args:
        networks: the candidates, and the original. Networks without a finite score or a verdict, as the original, are skipped.
        goal: the goal, which asks for the most accurate, the fastest, or for both.
        metric: the metric of the scores.
    """

    def place(one: Score) -> tuple[float, ...]:
        speed = -inf if isnan(one.speedup.value) else one.speedup.value
        quality = _quality(one, metric)
        wanted = (quality, speed) if goal.find == "most_accurate" else (speed, quality)
        return (-STATES.index(one.state or "unknown"), -one.missing if one.missing > ROUNDING else 0.0, *wanted)

    known = list(networks)
    candidates = [one for one in known if one.is_finite and one.verdict]
    if not candidates:
        return None
    return counting_choice(max(candidates, key=place), len(candidates), known, goal, metric)


def counting_choice(score: Score, among: int, networks: Sequence[Score], goal: Goal, metric: Metric) -> Score:
    """Return a network with simultaneous 95 % intervals over all candidates that it was chosen from, and the verdict by these.

    They contain the network's own intervals, and the verdict is never better than the one by its own intervals.

    Args:
        score: the network, with its own intervals.
        among: the number of networks that it was chosen from.
        networks: all networks of the experiment, including the original, if its score is known.
        goal, metric: the experiment's goal, and the metric of the scores.
    """
    if among == 1:
        return score
    original = next((each for each in networks if each.role == ORIGINAL), None)
    difference = Interval(score.difference.value)
    if score.difference.is_certain and original is not None:
        gain = gain_over(score, [(1.0, original)], metric, among, moderated_variances(networks))
        value, low, high = gain if metric.more_is_better else Interval(-gain.value, -gain.high, -gain.low)
        difference = Interval(value, min(low, score.difference.low), max(high, score.difference.high))
    counted = replace(score, speedup=wider(score.speedup, among), difference=difference, among=among)
    is_asked = goal.lose_at_most is not None or not isnan(counted.lost.value)
    by_intervals = judge(goal, metric, counted.speedup, counted.lost if is_asked else None, seeds=counted.seeds).parts
    verdict = Verdict(tuple(part for part in by_intervals if part.name not in COST_WORDS), metric, counted.seeds, among)
    if score.verdict is not None and STATES.index(score.verdict.state) > STATES.index(verdict.state):  # by its costs
        verdict = score.verdict
    return replace(counted, verdict=verdict)


def wider(speedup: Interval, among: int) -> Interval:
    """Return the speedup of a network that was chosen from `among` networks, with the simultaneous 95 % interval over all.

    The speedup's own interval is that of a median of rounds. It is widened in logarithms by the ratio of Student's quantiles
    for the fewest allowed rounds, since widths of medians' intervals scatter as much, and a narrow one may have been chosen.
    """
    if not (speedup.is_certain and speedup.low > 0):
        return speedup
    from scipy.stats import t

    usual, counting = t.ppf([(1 + CONFIDENCE) / 2, 1 - (1 - CONFIDENCE) / (2 * among)], FEWEST_FOR_INTERVAL - 1)
    value, low, high = speedup
    factor = float(counting / usual)
    return Interval(value, value * (low / value) ** factor, value * (high / value) ** factor)


def compared(networks: Sequence[Score], goal: Goal, metric: Metric) -> Comparison | None:
    """Return the comparison of the best synthesized network with the front of the others; None if either is missing.

    Rivals are few, and a rival of another size might be as fast as the synthesized network. So the front between two rivals is
    their connecting line, and a rival whose speedup interval reaches the network's speedup counts as equally fast.
    """
    found = best_of([one for one in networks if one.role in (FOUND, ORIGINAL)], goal, metric)
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
        return Comparison(found, len(points), slower, None, nan, Interval(nan))
    if faster.speedup.value <= at or slower is faster:  # by its interval
        slower, share = faster, 1.0
    else:
        share = (at - slower.speedup.value) / (faster.speedup.value - slower.speedup.value)
    parts = [(share, faster), (1 - share, slower)]
    gain = gain_over(found, parts, metric, found.among * len(points), moderated_variances(networks))
    return Comparison(found, len(points), slower, faster, sum(weight * (one.score or 0.0) for weight, one in parts), gain)


class Variance(NamedTuple):
    """The variance of a network's scores over seeds, and its degrees of freedom."""

    value: float
    freedom: float


def gain_over(
    score: Score,
    others: Sequence[tuple[float, Score]],
    metric: Metric,
    among: int = 1,
    moderated: Mapping[tuple[str, str], Variance] | None = None,
) -> Interval:
    """Return the gain in score of a network over a weighted mean of others, with its 95 % interval over the seeds (Welch).

    Args:
        score: the network.
        others: other networks, each with its weight in the mean.
        metric: the metric of the scores.
        among: the number of gains among which this one was chosen; the interval is simultaneous over all of them.
        moderated: variances by `moderated_variances`, in place of those of each network by itself.
    """
    terms = [(1.0, score), *((-weight, other) for weight, other in others if weight)]
    sign = 1 if metric.more_is_better else -1
    value = sign * sum(weight * (each.score or 0.0) for weight, each in terms)
    variances = [(moderated or {}).get(_name(each)) or _variance(each) for _, each in terms]
    errors = [
        (weight**2 * known.value / (each.seeds or 1), known.freedom)
        for (weight, each), known in zip(terms, variances, strict=True)
        if known is not None
    ]
    total = sum(error for error, _ in errors)
    if len(errors) < len(terms) or not total:
        return Interval(value)
    from scipy.stats import t

    # Welch's sum of degrees of freedom counts variances as known apart, which moderated ones are not.
    freedom = min(free for _, free in errors) if moderated else total**2 / sum(error**2 / free for error, free in errors)
    half = float(t.ppf(1 - (1 - CONFIDENCE) / (2 * among), freedom)) * sqrt(total)
    return Interval(value, value - half, value + half)


def moderated_variances(networks: Iterable[Score]) -> dict[tuple[str, str], Variance]:
    """Return the variances of networks' scores over seeds, each shrunk towards the mean of all, by (role, key).

    They are posterior estimates under a scaled inverse chi-squared prior, which is fitted to the logarithms of the sample
    variances. Networks whose variance is unknown or 0 are left out; {} if fewer than two are left.
    """
    from scipy.optimize import brentq
    from scipy.special import digamma, polygamma

    known = {_name(one): found for one in networks if (found := _variance(one)) is not None and found.value > 0}
    if len(known) < 2:
        return {}
    centred = [log(one.value) - float(digamma(one.freedom / 2)) + log(one.freedom / 2) for one in known.values()]
    by_chance = mean(float(polygamma(1, one.freedom / 2)) for one in known.values())
    apart, most = variance(centred) - by_chance, sum(one.freedom for one in known.values())
    # The degrees of freedom of the distribution: infinite if variances differ no more than by chance. Together, all networks
    # have no more than `most`.
    prior = most
    if apart > float(polygamma(1, most / 2)):
        prior = brentq(lambda free: float(polygamma(1, free / 2)) - apart, 1e-3, most)
    centre = exp(mean(centred) + float(digamma(prior / 2)) - log(prior / 2))
    return {
        name: Variance((prior * centre + one.freedom * one.value) / (prior + one.freedom), prior + one.freedom)
        for name, one in known.items()
    }


def _name(one: Score) -> tuple[str, str]:
    return one.role, one.key


def _variance(one: Score) -> Variance | None:
    """Return the sample variance of a network's scores over seeds; None where it is not known."""
    if one.seeds is None or one.seeds < 2 or one.spread is None or not isfinite(one.spread):
        return None
    return Variance(one.spread**2, one.seeds - 1)


def _quality(one: Score, metric: Metric) -> float:
    return metric.quality(one.score or 0.0)


def _or(value: float, other: float = -inf) -> float:
    return other if isnan(value) else value
