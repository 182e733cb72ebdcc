"""Rewards: the quality of an evaluated operator as one number in [0, 1], which policies maximize.

>>> REWARDS["accuracy"](low=0.25, high=0.75, power=4)({"accuracy": 0.5})
0.0625
>>> PAPER_REWARDS["gpt2"]({"loss": 7.2})
Failure(reason='the loss is 7.2; it must be below 6.9')

Source: the published system's live rewards, and the settings its search was run with.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from syno.base.registry import Registry
from syno.search.faults import FaultKind

Metrics: TypeAlias = Mapping[str, float]

ORIGINAL = "original_"  # prefix of the metrics of the original model


@dataclass(frozen=True)
class Failure:
    """The reason why an operator has no reward: its evaluation broke, or measured nothing that can be used.

    Attributes:
        reason: the reason in words.
        fault: what is to blame; "function" where every operator would fail like this.
    """

    reason: str
    fault: FaultKind = "operator"


Outcome: TypeAlias = float | Failure  # a reward in [0, 1], or why there is none


class Reward(BaseModel, ABC):
    """A function from metrics to a reward, with its settings as fields. Equal settings give equal rewards.

    A subclass has `of`, and `needs`. Experiments give it as `reward: {name: "package.module:MyReward"}`, with its settings.

    Attributes:
        name: the name in experiments and in stored settings; by default the path `package.module:MyReward`.
        needs: names of the metrics that it reads.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" not in vars(cls):
            cls.name = f"{cls.__module__}:{cls.__qualname__}"

    def __call__(self, metrics: Metrics) -> Outcome:
        """Return the reward in [0, 1], or a Failure if a metric that it needs is absent, NaN or infinite."""
        for metric in self.needs:
            if metric not in metrics:
                measured = ", ".join(metrics) or "nothing"
                reason = f'no "{metric}" was measured, which the reward "{self.name}" needs; measured: {measured}'
                return Failure(reason, "function")
            if not math.isfinite(metrics[metric]):
                of_original = metric.startswith(ORIGINAL)  # then every operator fails like this
                return Failure(
                    f'"{metric}" is {metrics[metric]}, which is no measurement', "function" if of_original else "operator"
                )
        value = self.of(metrics)
        if isinstance(value, Failure):
            return value
        if math.isnan(value):
            return Failure(f'the reward "{self.name}" is NaN; it must be a number', "function")
        return min(max(value, 0.0), 1.0)

    @abstractmethod
    def of(self, metrics: Metrics) -> Outcome:
        """Return the reward of these metrics, which is then clipped to [0, 1], or a Failure."""

    def settings(self) -> dict[str, Any]:
        """Return the name and all settings, as they are stored with a study; `from_settings` reads them."""
        return {"name": self.name, **self.model_dump()}


REWARDS: Registry[type[Reward]] = Registry(
    "reward",
    accepts=lambda given: isinstance(given, type) and issubclass(given, Reward) and not inspect.isabstract(given),
    needed="a subclass of syno.search.reward.Reward with a method of",
)

Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]


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
