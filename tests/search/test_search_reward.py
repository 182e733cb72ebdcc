"""Rewards: the formulas by hand, clipping, and what counts as no measurement."""

from __future__ import annotations

import itertools
import math

import pytest
from pydantic import ValidationError

from syno.base.errors import UnknownNameError
from syno.search.reward import (
    PAPER_REWARDS,
    REWARDS,
    AccuracyReward,
    Failure,
    FlopsReward,
    FrontPoint,
    GainReward,
    GoalReward,
    LossReward,
    from_settings,
)


class TestAccuracy:
    @pytest.mark.parametrize(
        ("accuracy", "expected"),
        [(0.4, 0.0), (0.55, 0.5**4), (0.7, 1.0), (0.2, 0.0), (0.95, 1.0), (0.475, 0.25**4)],
    )
    def test_live_formula_clipped(self, accuracy: float, expected: float) -> None:
        assert AccuracyReward(low=0.4, high=0.7, power=4)({"accuracy": accuracy}) == pytest.approx(expected)

    def test_is_not_the_formula_of_the_published_replay(self) -> None:
        """Which divides by (1 - low) / high."""
        replayed = ((0.55 - 0.4) / (1 - 0.4) / 0.7) ** 4
        assert AccuracyReward()({"accuracy": 0.55}) != pytest.approx(replayed)

    @pytest.mark.parametrize("accuracy", [0.0, -1.0])
    def test_no_accuracy_is_a_failure(self, accuracy: float) -> None:
        assert AccuracyReward()({"accuracy": accuracy}) == Failure(f"the accuracy is {accuracy:g}; it must be above 0")

    def test_bounds_in_the_wrong_order_are_an_error(self) -> None:
        with pytest.raises(ValidationError, match=r"low=0\.7 must be below high=0\.4"):
            AccuracyReward(low=0.7, high=0.4)


class TestFlops:
    reward = FlopsReward(min_accuracy=0.6, max_ratio=0.9, power=2)

    def of(self, accuracy: float, ratio: float) -> object:
        return self.reward({"accuracy": accuracy, "flops": ratio * 1e9, "original_flops": 1e9})

    def test_fewer_flops_are_better_once_the_accuracy_suffices(self) -> None:
        assert self.of(0.6, 0.45) == pytest.approx((0.6 + 0.5 * 0.4) ** 2)
        assert self.of(0.7, 0.45) == self.of(0.6, 0.45)
        assert self.of(0.6, 0.0) == pytest.approx(1.0)
        assert self.of(0.6, 0.9) == self.of(0.6, 2.0) == pytest.approx(0.36)

    def test_below_that_only_accuracy_counts(self) -> None:
        assert self.of(0.5, 0.1) == self.of(0.5, 0.8) == pytest.approx(0.25)

    def test_what_makes_no_sense_is_a_failure(self) -> None:
        assert isinstance(self.of(0.0, 0.5), Failure)
        assert self.reward({"accuracy": 0.6, "flops": 1.0, "original_flops": 0.0}) == Failure(
            "original_flops is 0; it must be above 0", "function"
        )


class TestLoss:
    def test_formula(self) -> None:
        assert LossReward(maximum=6.9, power=4)({"loss": 3.45}) == pytest.approx(0.5**4)
        assert LossReward(maximum=6.9, power=4)({"loss": -1.0}) == 1.0

    @pytest.mark.parametrize("loss", [6.9, 11.0])
    def test_nothing_learnt_is_a_failure(self, loss: float) -> None:
        assert LossReward()({"loss": loss}) == Failure(f"the loss is {loss:g}; it must be below 6.9")


class TestGain:
    """On a front of the original, a network that is twice as fast, and one that is four times as fast."""

    front = tuple(
        FrontPoint(name=name, speedup=speedup, score=score, deviation=0.005)
        for name, speedup, score in (("original", 1, 0.9), ("slow", 2, 0.88), ("fast", 4, 0.8))
    )
    reward = GainReward(front=front, deviation=0.01)

    def of(self, accuracy: float, speedup: float, reward: GainReward | None = None, **more: float) -> float:
        scores = {"accuracy": accuracy, "original_accuracy": 0.9, "chance_accuracy": 0.1}
        found = (reward or self.reward)({**scores, "speedup": speedup, **more})
        assert isinstance(found, float)
        return found

    @pytest.mark.parametrize(
        ("speedup", "score"), [(0.5, 0.9), (1, 0.9), (1.5, 0.89), (2, 0.88), (3, 0.84), (4, 0.8), (9, 0.8)]
    )
    def test_a_network_on_the_front_has_one_half_and_a_better_one_more(self, speedup: float, score: float) -> None:
        assert self.of(score, speedup) == pytest.approx(0.5)
        rewards = [self.of(accuracy, speedup) for accuracy in (0.1, 0.3, 0.7, score - 0.01, score, score + 0.01, 0.99, 1.0)]
        assert all(worse + 1e-5 < better for worse, better in itertools.pairwise(rewards)) and 0 < rewards[0] < rewards[-1] < 1

    def test_formula(self) -> None:
        z = 0.02 / math.hypot(0.01, 0.75 * 0.005, 0.25 * 0.005)
        assert self.of(0.88, 2.5) == pytest.approx((1 + z / math.sqrt(2 + z**2)) / 2)
        losses = GainReward(front=(FrontPoint(name="original", speedup=1, score=2.0),), deviation=0.1)
        found = losses({"loss": 1.9, "original_loss": 2.0, "chance_loss": 5.0, "speedup": 1.0})
        assert found == pytest.approx((1 + 1 / math.sqrt(3)) / 2), "a lower loss is a gain"

    def test_uncertainty_brings_it_nearer_to_one_half(self) -> None:
        for accuracy in (0.82, 0.86):
            exact, uncertain = self.of(accuracy, 3), self.of(accuracy, 3, GainReward(front=self.front, deviation=0.05))
            wide = self.of(accuracy, 3, speedup_low=2.0, speedup_high=4.0)  # the front falls by 0.08 between them
            for other in (uncertain, wide):
                assert abs(other - 0.5) < abs(exact - 0.5) - 0.1 and (other > 0.5) == (exact > 0.5)
        certain = GainReward(front=tuple(point.model_copy(update={"deviation": 0.0}) for point in self.front))
        assert 0.5 < self.of(0.8405, 3, certain) < 0.7, "trainings are never quite equal, even if the rivals' were"

    def test_what_misses_the_goal_has_less(self) -> None:
        assert self.of(0.88, 2, GainReward(front=self.front, speedup=4)) == pytest.approx(0.25)
        strict = GainReward(front=self.front, lose_at_most=0.05)  # 0.85 suffices, which the fastest rival does not have
        assert self.of(0.85, 4, strict) == pytest.approx(0.5) == self.of(0.88, 2, strict)
        fastest = GainReward(front=self.front, lose_at_most=0.15, find="fastest")
        assert self.of(0.75, 9, fastest) == pytest.approx(0.5) == self.of(0.8, 4, fastest)

    def test_without_a_front_it_is_the_reward_of_the_goal(self) -> None:
        for accuracy, speedup in ((0.88, 2), (0.5, 1.2)):
            assert self.of(accuracy, speedup, GainReward(speedup=1.5)) == self.of(accuracy, speedup, GoalReward(speedup=1.5))

    def test_a_front_in_another_order_is_an_error(self) -> None:
        with pytest.raises(ValidationError, match="must begin with the slowest network"):
            GainReward(front=self.front[::-1])


class TestEveryReward:
    @pytest.mark.parametrize("name", list(REWARDS))
    def test_what_was_not_measured_is_a_failure(self, name: str) -> None:
        reward = REWARDS[name](**({"speedup": 1.5} if name in ("goal", "gain") else {}))
        metrics = {metric: 0.1 if metric.startswith("chance") else 0.5 for metric in reward.needs}
        assert isinstance(reward(metrics), float)
        for metric in reward.needs:
            without = {key: value for key, value in metrics.items() if key != metric}
            missing = reward(without)
            if name in ("goal", "gain") and metric == "accuracy":  # in a search that trains nothing, it is the speed
                assert missing == pytest.approx(1 / 3)
                continue
            assert isinstance(missing, Failure) and missing.reason.startswith(f'no "{metric}" was measured')
            for value in (math.nan, math.inf, -math.inf):
                broken = reward({**metrics, metric: value})
                assert isinstance(broken, Failure) and "is no measurement" in broken.reason

    @pytest.mark.parametrize("name", list(REWARDS))
    def test_is_rebuilt_from_its_settings(self, name: str) -> None:
        reward = REWARDS[name](power=3)
        assert reward.settings()["name"] == name
        assert from_settings(reward.settings()) == reward

    def test_paper_settings(self) -> None:
        assert PAPER_REWARDS["resnet18"] == AccuracyReward(low=0.4, high=0.7, power=4)
        assert PAPER_REWARDS["resnext29_2x64d"] == AccuracyReward(low=0.2, high=0.7, power=4)
        assert PAPER_REWARDS["gpt2"] == LossReward(maximum=6.9, power=4)

    def test_unknown_names_and_settings_are_errors(self) -> None:
        with pytest.raises(UnknownNameError, match='unknown reward "acuracy".*Did you mean "accuracy"'):
            from_settings({"name": "acuracy"})
        with pytest.raises(ValidationError, match="Extra inputs"):
            from_settings({"name": "accuracy", "lo": 0.3})
