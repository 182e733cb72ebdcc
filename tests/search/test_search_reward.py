"""Rewards: the formulas by hand, clipping, and what counts as no measurement."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from syno.base.errors import UnknownNameError
from syno.search.reward import PAPER_REWARDS, REWARDS, AccuracyReward, Failure, FlopsReward, LossReward, from_settings


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


class TestEveryReward:
    @pytest.mark.parametrize("name", list(REWARDS))
    def test_what_was_not_measured_is_a_failure(self, name: str) -> None:
        reward = REWARDS[name](**({"speedup": 1.5} if name == "goal" else {}))
        metrics = {metric: 0.1 if metric.startswith("chance") else 0.5 for metric in reward.needs}
        assert isinstance(reward(metrics), float)
        for metric in reward.needs:
            without = {key: value for key, value in metrics.items() if key != metric}
            missing = reward(without)
            if (name, metric) == ("goal", "accuracy"):  # in a search that trains nothing, it is the speed
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
