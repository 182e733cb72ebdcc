"""The policy `surrogate` under a goal: the constraint first, then the improvement."""

from __future__ import annotations

from functools import partial
from itertools import count
from statistics import mean

import numpy as np
import pytest
from search_trees import chosen_of, hidden_family_reward, wide_tree

from syno.ir.graph import PGraph
from syno.search.goal import Goal
from syno.search.policies import POLICIES, Proposal
from syno.search.policies.earlier import Evaluated
from syno.search.policies.surrogate import (
    GoalModels,
    Model,
    SpeedModel,
    SurrogateSettings,
    expected_gain,
    expected_hypervolume,
)
from syno.search.reward import FrontPoint, GainReward, Reward

FEW = SurrogateSettings(trees=8, walks=4, mutations=4, beginner_walks=4)
quality = hidden_family_reward(frozenset({2, 3, 7, 10, 13}))
SLOW = frozenset({3, 8, 12, 16, 18})  # each of these operations takes time
FAST = Goal(speedup=2.0)


def speedup(operator: PGraph) -> float:
    return 2.4 * 0.7 ** len(SLOW & chosen_of(operator))


def metrics(operator: PGraph) -> dict[str, float]:
    accuracy = 0.1 + 0.8 * quality(operator)
    return {"accuracy": accuracy, "original_accuracy": 0.9, "chance_accuracy": 0.1, "speedup": speedup(operator)}


def trained(name: str, seed: int, *, blind: bool = False) -> tuple[float, int]:
    """The best quality of a fast operator after 10 trainings, and how many operators were proposed for them.

    A blind policy is not told the goal, and trains everything.
    """
    policy = POLICIES[name](wide_tree(), seed, settings=FEW if name == "surrogate" else None, goal=None if blind else FAST)
    found: list[float] = []
    for asked in count(1):
        proposal = policy.ask()
        assert isinstance(proposal, Proposal)
        known = metrics(proposal.operator)
        is_fast = known["speedup"] >= 2
        if not blind and not is_fast:
            policy.measure(proposal, {"speedup": known["speedup"]})
            policy.screen_out(proposal)
            continue
        policy.measure(proposal, known)
        policy.tell(proposal, quality(proposal.operator))
        found.append(quality(proposal.operator) if is_fast else 0.0)
        if len(found) == 10:
            return max(found), asked
    raise AssertionError


def test_finds_fast_and_accurate_operators_in_fewer_trainings_than_a_policy_blind_to_speed() -> None:
    ours, blind = ([trained("surrogate", seed, blind=is_blind) for seed in range(2)] for is_blind in (False, True))
    assert mean(best for best, _ in ours) > 2 * mean(best for best, _ in blind), (ours, blind)
    random = [trained("random", seed) for seed in range(2)]  # as fast ones are rare, it asks for many that are too slow
    assert mean(asked for _, asked in ours) < mean(asked for _, asked in random) / 1.5, (ours, random)


def models(goal: Goal, known: list[tuple[float, float, float]], reward: Reward | None = None) -> GoalModels:
    """Models of operators with one number, each with its score in [0, 1] and its speedup; of NaN, it was screened out."""
    evaluated = [
        Evaluated(
            str(place), None if score != score else score, row=(number,), is_screened=score != score,
            metrics={"speedup": speed} | ({} if score != score else
                                          {"accuracy": score, "original_accuracy": 1.0, "chance_accuracy": 0.0}),
        )
        for place, (number, score, speed) in enumerate(known)
    ]  # fmt: skip
    return GoalModels.fit(goal, partial(Model, 32, 0), evaluated, lambda one: one.row or (), list, reward=reward)


ROWS = np.array([[0.0, number] for number in (0.0, 1.0, 2.0, 3.0)])
KNOWN = [(0.0, 0.5, 2.0), (1.0, 0.95, 1.6), (2.0, 1.0, 1.2), (3.0, float("nan"), 0.5)]


def test_those_that_are_certainly_too_slow_are_worth_nothing() -> None:
    gains = models(Goal(speedup=1.5), KNOWN).gains(ROWS, lambda: np.ones(4))
    assert gains[0] > 0.9 and 0.5 < gains[1] < 1 and gains[2] < 0.05 and gains[3] < 1e-9


def test_speedups_are_learnt_as_corrections_of_estimated_times() -> None:
    rows = np.array([[0.0, kind, np.log(time)] for kind in (0.0, 1.0) for time in (1.0, 2.0, 4.0, 8.0)])
    speeds = np.log(4 / np.exp(rows[:, 2])) - 0.5 * rows[:, 1]  # those of the second kind take longer than their estimate
    new = partial(Model, 32, 0)
    before = SpeedModel(new, timed=True).predict(rows)
    assert before is not None and (np.diff(before[0][:4]) < 0).all(), "estimates alone put operators in order"
    assert SpeedModel(new, timed=False).predict(rows) is None

    once = SpeedModel(new, timed=True).learn(rows[:1], speeds[:1])
    found = once.predict(rows[:4])
    assert once.is_fitted and found is not None and found[0] == pytest.approx(speeds[:4])

    known = [0, 1, 3, 4, 6, 7]
    found = SpeedModel(new, timed=True).learn(rows[known], speeds[known]).predict(rows)
    assert found is not None and found[0] == pytest.approx(speeds, abs=0.15)


def test_the_fastest_of_those_that_suffice_is_wanted() -> None:
    found = models(Goal(lose_at_most=0.1), KNOWN)
    assert found.least == pytest.approx(0.9)
    gains = found.gains(ROWS, lambda: np.ones(4))
    assert gains.argmax() == 1 and gains[0] < 0.01 > gains[3]  # the first is the fastest, and not accurate enough


def test_above_the_front_is_wanted_where_rivals_are_known() -> None:
    front = [FrontPoint(name="slow", speedup=1.2, score=0.97), FrontPoint(name="fast", speedup=2.0, score=0.45)]
    known = [*KNOWN[:2], (2.0, 0.96, 1.2)]  # the third has the best score, but is below the front at its speed
    rewards = [None, GainReward(front=tuple(front))]
    plain, found = (models(Goal(speedup=1.1), known, reward) for reward in rewards)
    assert plain.score is None and found.to_beat is not None and found.to_beat(1.6) == pytest.approx(0.71)
    gains = found.gains(ROWS[:3], lambda: ROWS[:3, 1])  # by the reward, the third would be the best
    assert gains.argmax() == 1 and gains[2] < 0.1 * gains[1], gains
    assert plain.gains(ROWS[:3], lambda: ROWS[:3, 1]).argmax() == 2

    strict = models(Goal(speedup=1.9), known, rewards[1]).gains(ROWS[:3], lambda: ROWS[:3, 1])
    assert strict[2] < 1e-3 and strict[1] / strict[0] < 0.1 * gains[1] / gains[0], "gains that are too slow do not count"


def test_the_expected_gain_is_the_mean_over_scores_and_speeds() -> None:
    reward = GainReward(front=(FrontPoint(name="a", speedup=1, score=0.9), FrontPoint(name="b", speedup=4, score=0.6)))
    draws = np.random.default_rng(0)
    scores, speeds = draws.normal(0.8, 0.05, 20_000), np.exp(draws.normal(0.7, 0.3, 20_000))
    won = [
        max(score - reward.score_to_beat(speed, "accuracy", 0.9) + 0.02, 0.0) if speed >= 1.5 else 0.0
        for score, speed in zip(scores, speeds, strict=True)
    ]
    both = [(np.array([mid]), np.array([spread])) for mid, spread in ((0.8, 0.05), (0.7, 0.3))]
    found = expected_gain(both[0], both[1], lambda speed: reward.score_to_beat(speed, "accuracy", 0.9), -0.02, np.log(1.5))
    assert found[0] == pytest.approx(mean(won), rel=0.05)


def test_an_operator_that_may_be_too_large_is_worth_less() -> None:
    large = Evaluated("large", None, row=(3.0,), is_screened=True, metrics={"parameters_share": 2.0})
    fine = [Evaluated(str(place), 0.5, row=(float(place),), metrics={"speedup": 2.0}) for place in range(3)]
    found = GoalModels.fit(Goal(speedup=1.5), partial(Model, 32, 0), [*fine, large], lambda one: one.row or (), list)
    assert found.chances(ROWS)[3] < 0.05 < 0.9 < found.chances(ROWS)[0]


def test_expected_hypervolume_is_the_mean_of_the_area_that_is_won() -> None:
    points, worst = [(0.2, 0.9), (0.5, 0.5), (0.4, 0.4), (0.8, 0.1)], (0.1, 0.0)
    draws = np.random.default_rng(0)
    one, other = draws.normal(0.5, 0.2, 4000), draws.normal(0.45, 0.3, 4000)

    def area(all_points: list[tuple[float, float]]) -> float:
        edges = sorted({worst[0], *(a for a, _ in all_points)})
        heights = [max((b for a, b in all_points if a >= end), default=worst[1]) for end in edges[1:]]
        widths = np.diff(edges)
        return float(sum(width * max(height - worst[1], 0) for width, height in zip(widths, heights, strict=True)))

    before = area(points)
    won = [area([*points, (a, b)]) - before if a > worst[0] and b > worst[1] else 0.0 for a, b in zip(one, other, strict=True)]
    both = [(np.array([mid]), np.array([spread])) for mid, spread in ((0.5, 0.2), (0.45, 0.3))]
    assert expected_hypervolume(both[0], both[1], points, worst)[0] == pytest.approx(mean(won), rel=0.05)
