"""The reward of a search with a goal: the score of those that are fast enough, the speed of those that are good, or both."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from syno.search.goal import Find
from syno.search.relative_reward import CHANCE, learnt_nothing
from syno.search.reward_contract import OF_ORIGINAL, REWARDS, Failure, Metrics, Outcome, Positive, Reward

ROUNDING = 1e-9  # of the difference of two scores: 0.79 is within 0.01 of 0.80


@REWARDS.register("goal")
class GoalReward(Reward):
    """The reward of a search with a goal, whose numbers it takes. It follows from the metrics of one trial alone.

    The score s is 0 for chance and 1 for the original network, as in `relative`; q = (max(s, 0) / high) ** power; the share
    f = x / (1 + x) of a speedup x is 1/2 for a network as fast as the original. `find: most_accurate`: q, times x / speedup for
    those that are too slow. `fastest`: (1 + f) / 2 for those that lose at most `lose_at_most`; for others, half of
    (s / the least s that suffices) ** power. `front`: q * f, the area between the trial's own point and the worst one, in
    place of the improvement of the front, which depends on the other trials; the policy `surrogate` computes that itself.
    Where nothing is trained, the reward is f.
    """

    name = "goal"
    needs = ("accuracy", f"{OF_ORIGINAL}accuracy", f"{CHANCE}accuracy", "speedup")
    compares_scores = True
    find: Find = "most_accurate"
    """by default that of the goal, like the two below"""
    speedup: Positive | None = None
    """least speedup"""
    lose_at_most: Annotated[float, Field(ge=0)] | None = None
    """largest loss of accuracy, or nats, against the original"""
    high: Positive = 1.1
    """score s of q = 1; above 1, so that operators better than the original are told apart"""
    power: Positive = 4
    """exponent; the larger, the more the best operators stand out"""

    def needed(self, metrics: Metrics) -> tuple[str, ...]:
        """Return the names of the scores that it reads, if any was measured, and of the speedup, if it depends on it."""
        metric = score_of(metrics)
        scores = () if metric is None else (metric, f"{OF_ORIGINAL}{metric}", f"{CHANCE}{metric}")
        is_fast_needed = self.speedup is not None or self.find != "most_accurate" or metric is None
        return (*scores, "speedup") if is_fast_needed else scores

    def of(self, metrics: Metrics) -> Outcome:
        """Return the reward by the formula of the class."""
        metric, speedup = score_of(metrics), metrics.get("speedup", 1.0)
        fast = speedup / (1 + speedup)
        if metric is None:
            return float(fast)
        score, original, chance = (metrics[name] for name in (metric, f"{OF_ORIGINAL}{metric}", f"{CHANCE}{metric}"))
        if problem := learnt_nothing(metric, original, chance):
            return Failure(problem, "function")
        relative = (score - chance) / (original - chance)
        quality = float((max(relative, 0.0) / self.high) ** self.power)
        if self.find == "front":
            return quality * fast
        if self.find == "most_accurate":
            return quality * min(1.0, speedup / (self.speedup or speedup))
        least = 1 - (self.lose_at_most or 0.0) / abs(original - chance)
        if relative >= least - ROUNDING:
            return float((1 + fast) / 2)
        return float((max(relative, 0.0) / least) ** self.power / 2)


def score_of(metrics: Metrics) -> str | None:
    """Return which score was measured, "accuracy" or "loss"; None if none was."""
    return next((name for name in ("accuracy", "loss") if name in metrics), None)


def relative_score(metrics: Metrics) -> float | None:
    """Return the score on a scale where chance is 0 and the original network 1; None if it is not known."""
    metric = score_of(metrics)
    if metric is None or not {f"{OF_ORIGINAL}{metric}", f"{CHANCE}{metric}"} <= metrics.keys():
        return None
    original, chance = metrics[f"{OF_ORIGINAL}{metric}"], metrics[f"{CHANCE}{metric}"]
    return None if original == chance else (metrics[metric] - chance) / (original - chance)
