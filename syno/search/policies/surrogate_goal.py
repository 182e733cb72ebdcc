"""Models behind the policy `surrogate` in a search with a goal: the constraint first, then the improvement.

The chance that an operator is fast enough is learnt from all operators whose speedup is known, trained or not; the improvement
of the score, of the speed, or of the front of both, from those that were trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from syno.search.goal import Goal
from syno.search.goal_reward import relative_score, score_of
from syno.search.policies.evaluated import Evaluated, rewards
from syno.search.policies.surrogate_model import Model, Numbers, expected_improvement
from syno.search.relative_reward import CHANCE
from syno.search.reward_contract import OF_ORIGINAL

FEWEST = 3  # operators whose speedup is known, before trees learn from them
EARLY_DEVIATION = 0.4  # of the logarithm of an operator's time about its estimate, before trees have learnt
UNCERTAIN = 0.1  # least deviation of the logarithm of a predicted speedup: operators of equal features differ by as much
LIKELY = 0.5  # of the chance of the likeliest operator: others with so much of it count as equally likely to be trained
LEAST_CHANCE = 0.02  # that an operator is not too large, and can be compiled
Sample = Callable[[list[tuple[Evaluated, float]]], list[tuple[Evaluated, float]]]
Point = tuple[float, float]


def log_speedup(one: Evaluated) -> float | None:
    """Return the logarithm of an operator's speedup, measured or else predicted; None if neither is known."""
    found = one.metrics.get("speedup", one.metrics.get("predicted_speedup"))
    return None if found is None or found <= 0 else math.log(found)


def quality(one: Evaluated) -> float:
    """Return the score of a trained operator, 0 for chance and 1 for the original network; its reward if that is not known."""
    score = relative_score(one.metrics)
    return (one.reward or 0.0) if score is None else max(score, 0.0)


class SpeedModel:
    """A model of the logarithm of the speedup. It learns by how much operators are faster than their estimated time says.

    The first measurements tell how an estimated time becomes a speedup; from the third one on, trees tell for which operators
    the estimate is wrong. Without estimates, nothing is predicted before.

    Args:
        new: returns an empty model.
        timed: whether the last column of rows is the logarithm of the estimated time.
    """

    def __init__(self, new: Callable[[], Model], *, timed: bool) -> None:
        self._new = new
        self._timed = timed
        self._model: Model | None = None
        self._faster: float | None = None  # in the mean, than the estimated time says

    @property
    def is_fitted(self) -> bool:
        """Whether predictions are speedups. Otherwise they can only be compared with each other."""
        return self._model is not None or self._faster is not None

    def learn(self, rows: Numbers, speeds: Numbers) -> Self:
        """Learn from operators, shape [operators, columns], and the logarithms of their speedups."""
        if len(speeds) >= FEWEST:
            self._model = self._new()
            self._model.fit(rows, speeds - self._estimates(rows))
        elif len(speeds) and self._timed:
            self._faster = float((speeds - self._estimates(rows)).mean())
        return self

    def predict(self, rows: Numbers) -> tuple[Numbers, Numbers] | None:
        """Return means and standard deviations, shapes [operators]; None if nothing is known."""
        estimates = self._estimates(rows)
        if self._model is not None:
            means, deviations = self._model.predict(rows)
            return means + estimates, np.hypot(deviations, UNCERTAIN)
        return (estimates + (self._faster or 0.0), np.full(len(rows), EARLY_DEVIATION)) if self._timed else None

    def _estimates(self, rows: Numbers) -> Numbers:
        """Return logarithms of speedups by estimated times, up to a constant."""
        return -rows[:, -1] if self._timed else np.zeros(len(rows))


@dataclass(frozen=True)
class GoalModels:
    """Models of what decides whether an operator is of use for a goal.

    Attributes:
        goal: the goal.
        speed: of the speedup.
        passing: of whether operators are screened out for another reason than their speed; None if none was.
        score: of the score, as in `quality`; None while nothing was trained, and where the reward is what counts.
        least: the least score that suffices.
        points: score and logarithm of the speedup of the trained operators.
    """

    goal: Goal
    speed: SpeedModel
    passing: Model | None
    score: Model | None
    least: float
    points: tuple[Point, ...]

    @classmethod
    def fit(
        cls, goal: Goal, new: Callable[[], Model], known: Sequence[Evaluated], row: Callable[[Evaluated], tuple[float, ...]],
        sample: Sample, timed: bool = False,
    ) -> GoalModels:  # fmt: skip
        """Return models that have learnt from the operators of a study.

        Args:
            goal: the goal.
            new: returns an empty model.
            known: the operators of which something is known, in the order of proposals.
            row: returns the numbers of an operator.
            sample: returns the operators that a model learns from, each with what is learnt.
            timed: whether the last number of an operator is the logarithm of its estimated time.
        """

        def learnt(pairs: list[tuple[Evaluated, float]]) -> tuple[Numbers, Numbers]:
            chosen = sample(pairs)
            return np.array([(0.0, *row(one)) for one, _ in chosen]), np.array([value for _, value in chosen])

        def fitted(pairs: list[tuple[Evaluated, float]]) -> Model:
            model = new()
            model.fit(*learnt(pairs))
            return model

        speeds = [(one, speed) for one in known if (speed := log_speedup(one)) is not None]
        others = [one for one in known if one.is_screened and log_speedup(one) is None]
        passed = [(one, float(not one.is_screened or log_speedup(one) is not None)) for one in known]
        trained = [one for one in known if one.is_informed]
        scores = rewards([one if one.reward is None else one._replace(reward=quality(one)) for one in trained])
        needs_score = goal.find != "most_accurate" and trained
        ended = [one for one in trained if one.reward is not None]
        return cls(
            goal,
            SpeedModel(new, timed=timed).learn(*learnt(speeds)),
            fitted(passed) if others else None,
            fitted(list(zip(trained, scores, strict=True))) if needs_score else None,
            max((_least(goal, one) for one in ended), default=0.0),
            tuple((quality(one), speed) for one in ended if (speed := log_speedup(one)) is not None),
        )

    def chances(self, rows: Numbers) -> Numbers:
        """Return for each row the chance that the operator is trained: that it is fast enough, not too large, and compiles."""
        from scipy.special import ndtr

        found: Numbers = self._passing(rows)
        if self.goal.least_speedup is not None and (speeds := self.speed.predict(rows)) is not None:
            means, deviations = speeds
            least = math.log(self.goal.least_speedup) if self.speed.is_fitted else np.median(means)
            found = found * ndtr((means - least) / deviations)
        return found

    def gains(self, rows: Numbers, rewards: Callable[[], Numbers]) -> Numbers:
        """Return for each row what is expected of the operator.

        Args:
            rows: numbers of operators, shape [operators, columns].
            rewards: returns the expected improvement of the reward for these rows.
        """
        speeds = self.speed.predict(rows)
        if self.score is None or speeds is None or not self.speed.is_fitted:
            return self.chances(rows) * rewards()
        least = math.log(self.goal.least_speedup or 1.0)
        scores = self.score.predict(rows)
        if self.goal.find == "front":
            return self._passing(rows) * expected_hypervolume(scores, speeds, self.points, (0.0, least))
        from scipy.special import ndtr

        enough = ndtr((scores[0] - self.least) / scores[1])
        best = max((speed for score, speed in self.points if score >= self.least), default=least)
        found: Numbers = self._passing(rows) * enough * expected_improvement(*speeds, max(best, least))
        return found

    def _passing(self, rows: Numbers) -> Numbers:
        return np.ones(len(rows)) if self.passing is None else np.clip(self.passing.predict(rows)[0], LEAST_CHANCE, 1.0)


def _least(goal: Goal, one: Evaluated) -> float:
    """Return the least score that loses no more than the goal allows, by the metrics of a trained operator."""
    metric = score_of(one.metrics)
    scores = [one.metrics.get(f"{prefix}{metric}") for prefix in (OF_ORIGINAL, CHANCE)]
    if goal.lose_at_most is None or scores[0] is None or scores[1] is None or scores[0] == scores[1]:
        return 0.0
    return max(0.0, 1 - goal.lose_at_most / abs(scores[0] - scores[1]))


def expected_hypervolume(
    one: tuple[Numbers, Numbers],
    other: tuple[Numbers, Numbers],
    points: Sequence[tuple[float, float]],
    worst: tuple[float, float],
) -> Numbers:
    """Return by how much area each operator is expected to improve the front of two quantities of which more is better.

    The area is a sum over strips between the points of the front. In each strip, the two quantities, which are independent and
    normal, contribute a product of two expected improvements.

    Args:
        one, other: means and standard deviations of the quantities, shapes [operators].
        points: of the operators that are known.
        worst: the corner from which the area counts.
    """
    ahead: list[Point] = []
    for point in sorted({(max(a, worst[0]), max(b, worst[1])) for a, b in points}, reverse=True):
        if not ahead or point[1] > ahead[-1][1]:
            ahead.append(point)
    front = ahead[::-1]  # the first quantity rises, the other falls
    total: Numbers = np.zeros(len(one[0]))
    begins = [worst[0], *(a for a, _ in front)]
    heights = [*(b for _, b in front), worst[1]]
    for place, (begin, height) in enumerate(zip(begins, heights, strict=True)):
        width = expected_improvement(*one, begin)
        if place + 1 < len(begins):
            width = width - expected_improvement(*one, begins[place + 1])
        total = total + np.maximum(width, 0.0) * expected_improvement(*other, height)
    return total
