"""Rewards: the quality of an evaluated operator as one number in [0, 1], which policies maximize.

>>> REWARDS["accuracy"](low=0.25, high=0.75, power=4)({"accuracy": 0.5})
0.0625
>>> PAPER_REWARDS["gpt2"]({"loss": 7.2})
Failure(reason='the loss is 7.2; it must be below 6.9')

Source: the published system's live rewards, and the settings its search was run with.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from pydantic import model_validator

from syno.search.goal_reward import GoalReward
from syno.search.relative_reward import RelativeReward
from syno.search.reward_contract import OF_ORIGINAL, REWARDS, Failure, Fraction, Metrics, Outcome, Positive, Reward

__all__ = [
    "OF_ORIGINAL",
    "PAPER_REWARDS",
    "REWARDS",
    "AccuracyReward",
    "Failure",
    "FlopsReward",
    "GoalReward",
    "LossReward",
    "Metrics",
    "Outcome",
    "RelativeReward",
    "Reward",
    "SavingsReward",
    "from_settings",
]


@REWARDS.register("accuracy")
class AccuracyReward(Reward):
    """((a - low) / (high - low)) ** power for the accuracy a, a fraction. Accuracy 0 means that training broke.

    The published replay code divides by (1 - low) / high instead, so that replayed and live rewards differ; this is the
    live formula, everywhere.
    """

    name = "accuracy"
    needs = ("accuracy",)
    low: Fraction = 0.4
    """accuracy of reward 0"""
    high: Fraction = 0.7
    """accuracy of reward 1"""
    power: Positive = 4
    """exponent; the larger, the more the best operators stand out"""

    @model_validator(mode="after")
    def _ordered(self) -> AccuracyReward:
        if self.low >= self.high:
            raise ValueError(f"low={self.low} must be below high={self.high}")
        return self

    def of(self, metrics: Metrics) -> Outcome:
        """Return the reward by the formula of the class."""
        accuracy = metrics["accuracy"]
        if accuracy <= 0:
            return Failure(f"the accuracy is {accuracy:g}; it must be above 0")
        return float((max(accuracy - self.low, 0.0) / (self.high - self.low)) ** self.power)


@REWARDS.register("flops")
class FlopsReward(Reward):
    """Few FLOPs, once the accuracy suffices: (m + max(0, 1 - f / max_ratio) * (1 - m)) ** power with m = min_accuracy.

    f is `flops / original_flops`, of the whole model. Below min_accuracy it is accuracy ** power, so that every operator
    that suffices is worth more than every one that does not; the published formula leaves this case open.
    """

    name = "flops"
    needs = ("accuracy", "flops", "original_flops")
    min_accuracy: Fraction = 0.6
    """accuracy m from which on FLOPs count"""
    max_ratio: Positive = 0.9
    """share of the original's FLOPs from which on nothing is saved"""
    power: Positive = 4
    """exponent; the larger, the more the best operators stand out"""

    def of(self, metrics: Metrics) -> Outcome:
        """Return the reward by the formula of the class."""
        accuracy, original = metrics["accuracy"], metrics["original_flops"]
        if accuracy <= 0:
            return Failure(f"the accuracy is {accuracy:g}; it must be above 0")
        if original <= 0:
            return Failure(f"original_flops is {original:g}; it must be above 0", "function")
        if accuracy < self.min_accuracy:
            return float(accuracy**self.power)
        saved = max(0.0, 1 - metrics["flops"] / original / self.max_ratio)
        return float((self.min_accuracy + saved * (1 - self.min_accuracy)) ** self.power)


@REWARDS.register("loss")
class LossReward(Reward):
    """((maximum - loss) / maximum) ** power. A loss of `maximum` or more means that nothing was learnt."""

    name = "loss"
    needs = ("loss",)
    maximum: Positive = 6.9
    """loss of reward 0, such as that of an untrained model"""
    power: Positive = 4
    """exponent; the larger, the more the best operators stand out"""

    def of(self, metrics: Metrics) -> Outcome:
        """Return the reward by the formula of the class."""
        loss = metrics["loss"]
        if loss >= self.maximum:
            return Failure(f"the loss is {loss:g}; it must be below {self.maximum:g}")
        return float(((self.maximum - max(loss, 0.0)) / self.maximum) ** self.power)


@REWARDS.register("savings")
class SavingsReward(Reward):
    """(1 - x / original) ** power: the share of the original model's FLOPs or parameters that is saved, whatever is learnt.

    It is for searches without training, which try out a space. `evaluate: cost` gives the metrics that it needs.
    """

    name = "savings"
    needs = ("flops", "original_flops", "parameters", "original_parameters")
    what: Literal["flops", "parameters"] = "flops"
    """the cost to save"""
    power: Positive = 1
    """exponent; the larger, the more the best operators stand out"""

    def of(self, metrics: Metrics) -> Outcome:
        """Return the reward by the formula of the class."""
        original = metrics[f"original_{self.what}"]
        if original <= 0:
            return Failure(f"original_{self.what} is {original:g}; it must be above 0", "function")
        return float(max(0.0, 1 - metrics[self.what] / original) ** self.power)


PAPER_REWARDS: Mapping[str, Reward] = MappingProxyType(
    {
        "resnet18": AccuracyReward(low=0.4, high=0.7, power=4),
        "resnext29_2x64d": AccuracyReward(low=0.2, high=0.7, power=4),
        "efficientnet_v2_s": AccuracyReward(low=0.3, high=0.7, power=4),
        "densenet121": AccuracyReward(low=0.3, high=0.7, power=4),
        "gpt2": LossReward(maximum=6.9, power=4),
    }
)


def from_settings(settings: Mapping[str, Any]) -> Reward:
    """Return the reward with these settings: its `name` or path `package.module:name`, and what differs from the defaults.

    Raises UnknownNameError for a name that is not registered, SpecError for a path that leads to no reward, and pydantic's
    ValidationError for settings out of range.
    """
    rest = dict(settings)
    return REWARDS.find(rest.pop("name", "accuracy"))(**rest)
