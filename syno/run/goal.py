"""Verdicts on operators: whether they meet the goal of a search, by the intervals of what was measured.

>>> goal = Goal(speedup=1.5, lose_at_most=0.01)
>>> judge(goal, ACCURACY, Interval(1.73, 1.70, 1.76), Interval(0.004, -0.001, 0.009)).text
'meets: 1.73 times as fast (1.70 to 1.76); accuracy -0.4 points (-0.9 to +0.1)'
>>> judge(goal, ACCURACY, Interval(1.41, 1.38, 1.44), Interval(0.004)).text
'misses by 0.09 in speedup: 1.41 times as fast (1.38 to 1.44); accuracy -0.4 points'
>>> judge(goal, ACCURACY, Interval(1.52, 1.47, 1.57), Interval(0.004, -0.001, 0.009)).text.split(":")[0]
'may meet (the interval of the speedup contains the goal)'
>>> judge(goal, ACCURACY, Interval(1.73, 1.70, 1.76), Interval(0.004), seeds=1).text
'may meet (one seed: no interval of the accuracy): 1.73 times as fast (1.70 to 1.76); accuracy -0.4 points'
>>> judge(Goal(lose_at_most=0.01), ACCURACY, None, Interval(0.14, -0.11, 0.39)).text.split(":")[0]
'may meet (the interval of the accuracy contains the goal, though the measured accuracy misses it)'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf, isfinite, isnan, nan
from typing import Literal, NamedTuple

from syno.base.interval import Interval
from syno.search.goal import COSTS, Goal
from syno.train.metric import ACCURACY, METRICS, OF_ORIGINAL, Metric, score_of

State = Literal["meets", "may meet", "misses", "unknown"]
STATES: tuple[State, ...] = ("meets", "may meet", "misses", "unknown")  # the best first
LOSS_SCALE = 0.1  # a loss of so much more than allowed is as far from the goal as a network that stands still
TIMES = 10  # times what is allowed, which is as far in scores whose range is not known
ROUNDING = 1e-9
SPEED = "speedup"
NONE_FASTER = "none is faster than the original"  # said first, before any number that might be taken for good news
WORDS = {"parameters": "parameters", "memory_bytes": "memory", "file_bytes": "file size"}


class Part(NamedTuple):
    """One requirement of a goal, and how an operator meets it.

    Attributes:
        name: "speedup", the name of the score, or that of a cost.
        state: as in a verdict.
        text: what was measured.
        miss: by how much it is missed, in words; "" unless it is.
        missing: by how much it is missed, as a share, by which operators are ordered; 0 if it is met.
        doubt: why there is no interval, in words; "" if there is one, or none is needed.
    """

    name: str
    state: State
    text: str
    miss: str = ""
    missing: float = 0.0
    doubt: str = ""


class Verdict(NamedTuple):
    """The verdict on an operator: whether it meets a goal, by the goal's requirements."""

    parts: tuple[Part, ...]

    @property
    def state(self) -> State:
        """The worst state of a requirement.

        "meets": all of it, with the whole intervals; "may meet": an interval contains the goal, or there is none, as with one
        seed, and the number itself meets it; "misses": an interval lies outside, or a number without one; "unknown": something
        was not measured.
        """
        return max((part.state for part in self.parts), key=STATES.index, default="unknown")

    @property
    def missing(self) -> float:
        """Distance from the goal: the sum of the relative shortfalls of requirements that are not met."""
        return sum(part.missing for part in self.parts)

    @property
    def binding(self) -> tuple[str, ...]:
        """The names of the requirements that are not met."""
        return tuple(part.name for part in self.parts if part.state != "meets")

    @property
    def text(self) -> str:
        """The verdict in words, as the page, `syno top` and `syno watch` show it: the state, why, and what was measured."""
        missed = f" by {' and '.join(part.miss for part in self.parts if part.miss)}" if self.state == "misses" else ""
        return f"{self.state}{missed}{self.doubts}: {self.numbers}"

    @property
    def doubts(self) -> str:
        """Why the goal may be met, or may not, in brackets; "" in any other state."""
        if self.state != "may meet":
            return ""
        doubts = [part.doubt for part in self.parts if part.doubt]
        around = [part.name for part in self.parts if part.state != "meets" and not part.doubt]
        missed = [part.name for part in self.parts if part.missing > ROUNDING]
        but = f", though the measured {' and '.join(missed)} misses it" if missed else ""
        contains = [f"the interval of the {' and of the '.join(around)} contains the goal{but}"] if around else []
        return f" ({'; '.join([*contains, *doubts])})"

    @property
    def numbers(self) -> str:
        """What was measured, in words."""
        return "; ".join(part.text for part in self.parts)


def judge(
    goal: Goal,
    metric: Metric,
    speedup: Interval | None,
    lost: Interval | None,
    shares: Mapping[str, float] | None = None,
    seeds: int | None = None,
) -> Verdict:
    """Return whether an operator meets a goal. It never does by a number without an interval: that says nothing of chance.

    Args:
        goal: the goal.
        metric: of the scores.
        speedup: of the network with the operator; None if it was not measured.
        lost: how much worse than the original's its score is; None if it was not trained.
        shares: its costs as shares of the original's, by the metrics in `syno.search.goal.COSTS`.
        seeds: the number of trainings behind its score, to say why that has no interval; None if it is not known.
    """
    return Verdict(tuple(_parts(goal, metric, speedup, lost, shares or {}, seeds)))


def fastest_of(speedup: Interval, which: str = "the fastest") -> str:
    """Return in words how fast the fastest of several is, and first of all whether none is faster than the original."""
    first = f"{NONE_FASTER}: " if not speedup.value > 1 else ""
    return f"{first}{which} is {times_as_fast(speedup, ' times as fast')}"


def none_faster(name: str, speedup: Interval, place: str) -> str:
    """Return in a sentence that no operator is faster at a place, though this one is the fastest."""
    doubt = ", an interval that contains 1" if speedup.is_certain and speedup.high > 1 else ""
    fastest = f"{name}, is {times_as_fast(speedup, ' times as fast')}{doubt}"
    return f"{NONE_FASTER.capitalize()} with {place}: the fastest, {fastest}."


def times_as_fast(speedup: Interval, unit: str = "x") -> str:
    """Return a speedup with its interval: "1.81x (1.75 to 1.89)"."""
    return f"{speedup.value:.2f}{unit}" + (f" ({speedup.low:.2f} to {speedup.high:.2f})" if speedup.is_certain else "")


def speed_text(speedup: Interval) -> str:
    """Return a speedup with its interval in words, and whether that leaves open which of the two is faster."""
    text = f"{speedup.value:.2f} times as fast"
    if not speedup.is_certain:
        return text
    doubt = "; the interval contains 1" if speedup.low <= 1 <= speedup.high else ""
    return f"{text} (95 %: {speedup.low:.2f} to {speedup.high:.2f}{doubt})"


def _parts(
    goal: Goal,
    metric: Metric,
    speedup: Interval | None,
    lost: Interval | None,
    shares: Mapping[str, float],
    seeds: int | None,
) -> Iterator[Part]:
    if goal.measures:
        yield _speed(goal.speedup, speedup)
    if goal.lose_at_most is not None or lost is not None:
        yield _loss(goal.lose_at_most, metric, lost, seeds)
    for option, most in goal.limits.items():
        name = COSTS[option]
        share = nan if (given := shares.get(name)) is None else given
        if not isfinite(share):
            yield Part(WORDS[name], "unknown", f"{WORDS[name]} unknown")
            continue
        is_met = share <= most + ROUNDING
        miss = "" if is_met else f"{share - most:.2f} of the original's {WORDS[name]}"
        yield Part(
            WORDS[name], "meets" if is_met else "misses", f"{share:.2f} of the {WORDS[name]}", miss, max(0.0, share - most)
        )


def _speed(least: float | None, found: Interval | None) -> Part:
    if found is None or not isfinite(found.value):
        return Part(SPEED, "meets" if least is None else "unknown", "speedup not measured")
    text = times_as_fast(found, " times as fast")
    if least is None:
        return Part(SPEED, "meets", text)
    margin = Interval(found.value - least, found.low - least, found.high - least)
    state, doubt = _state(margin), "" if margin.is_certain else "no interval of the speedup"
    miss = f"{least - found.value:.2f} in speedup" if state == "misses" else ""
    return Part(SPEED, state, text, miss, max(0.0, 1 - found.value / least), doubt)


def _loss(most: float | None, metric: Metric, found: Interval | None, seeds: int | None) -> Part:
    """Return the part of the verdict on the score. A score that is infinitely worse, of a training that diverged, misses."""
    if found is None or isnan(found.value) or found.value == -inf:
        return Part(metric.name, "meets" if most is None else "unknown", f"{metric.name} not known")
    sign = -1 if metric.more_is_better else 1
    value, *ends = (metric.steps_text(sign * end, "+z") for end in found)
    low, high = ends if sign > 0 else ends[::-1]
    text = f"{metric.name} {metric.with_unit(value)}" + (f" ({low} to {high})" if found.is_certain else "")
    if most is None:
        return Part(metric.name, "meets", text)
    margin, excess = Interval(most - found.value, most - found.high, most - found.low), found.value - most
    state, doubt = _state(margin), "" if margin.is_certain else _no_interval(metric, seeds)
    miss = f"{metric.with_unit(metric.steps_text(excess))} of {metric.name}" if state == "misses" else ""
    if miss and seeds == 1:
        miss += f" ({doubt})"
    scale = LOSS_SCALE if metric.margin is not None else TIMES * most or 1.0
    return Part(metric.name, state, text, miss, max(0.0, excess) / scale, doubt)


def _no_interval(metric: Metric, seeds: int | None) -> str:
    """Return why nothing is known of how much a score varies by chance."""
    if seeds == 1:
        return f"one seed: no interval of the {metric.name}"
    why = ", as with one seed" if seeds is None else f": the scores of {seeds} seeds are equal, or the original's are too few"
    return f"no interval of the {metric.name}{why}"


def _state(margin: Interval) -> State:
    """Return the state of a requirement by the margin by which it is met.

    Comparisons with NaN are all false, so whatever is not known must not get to one: without an interval, nothing is met.
    """
    if not margin.is_certain:
        return "may meet" if margin.value >= -ROUNDING else "misses"
    if min(margin.value, margin.low) >= -ROUNDING:
        return "meets"
    return "may meet" if max(margin.value, margin.high) >= -ROUNDING else "misses"


def verdict_on_trial(goal: Goal, metrics: Mapping[str, float]) -> Verdict:
    """Return whether a trial meets a goal, by its metrics: the interval of the speedup is known, that of the score is not."""
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
    """Return the speedup that was measured in the search, or the metric of this name with its interval; None without it."""
    return Interval(metrics[name], *(metrics.get(f"{name}_{end}", nan) for end in ("low", "high"))) if name in metrics else None


def lost_in(metrics: Mapping[str, float]) -> Interval | None:
    """Return the loss of score in the search against the original; None if one of the scores is not known."""
    metric = METRICS.get(score_of(metrics) or "")
    if metric is None or (original := metrics.get(f"{OF_ORIGINAL}{metric.key}")) is None:
        return None
    return Interval(metric.quality(original) - metric.quality(metrics[metric.key]))


def shares_in(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the shares of costs that were counted in the search."""
    return {name: metrics[f"{name}_share"] for name in WORDS if f"{name}_share" in metrics}
