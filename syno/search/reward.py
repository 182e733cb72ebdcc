"""Rewards: the quality of an evaluated operator as one number in [0, 1], which policies maximize.

>>> REWARDS["accuracy"](low=0.25, high=0.75, power=4)({"accuracy": 0.5})
0.0625
>>> PAPER_REWARDS["gpt2"]({"loss": 7.2})
Failure(reason='the loss is 7.2; it must be below 6.9')

Source: the published system's live rewards, and the settings of its searches.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field, model_validator

from syno.base.errors import SpecError
from syno.base.registry import Registry
from syno.base.validation import Settings
from syno.search.faults import FaultKind
from syno.search.goal import Find
from syno.train.metric import ACCURACY, CHANCE, METRICS, OF_ORIGINAL, score_of

__all__ = [
    "PAPER_REWARDS",
    "REWARDS",
    "AccuracyReward",
    "Failure",
    "FlopsReward",
    "FrontPoint",
    "GainReward",
    "GoalReward",
    "LossReward",
    "Metrics",
    "Outcome",
    "RelativeReward",
    "Reward",
    "SavingsReward",
    "from_settings",
]

Metrics: TypeAlias = Mapping[str, float]


@dataclass(frozen=True)
class Failure:
    """The reason why an operator has no reward: its evaluation failed, or measured nothing usable.

    Attributes:
        reason: the reason in words.
        fault: "operator", "machine" or "function"; "function" if every operator would fail like this.
    """

    reason: str
    fault: FaultKind = "operator"


Outcome: TypeAlias = float | Failure  # a reward in [0, 1], or the reason why there is none


class Reward(Settings, ABC):
    """A function from metrics to a reward, with its settings as fields. Equal settings give equal rewards.

    A subclass defines `of` and `needs`. Experiments name it as `reward: {name: "package.module:MyReward"}`, with its settings.

    Attributes:
        name: the name in experiments and in stored settings; by default the path `package.module:MyReward`.
        needs: names of the metrics that it reads.
        compares_scores: whether it reads the original's score after the same training (`original_accuracy` or `original_loss`)
            and the score of chance. If so, the study begins with a training of the original.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    compares_scores: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" not in vars(cls):
            cls.name = f"{cls.__module__}:{cls.__qualname__}"

    def __call__(self, metrics: Metrics) -> Outcome:
        """Return the reward in [0, 1], or a Failure if a required metric is missing, NaN or infinite."""
        for metric in self.needed(metrics):
            if metric not in metrics:
                measured = ", ".join(metrics) or "nothing"
                reason = f'no "{metric}" was measured, which the reward "{self.name}" needs; measured: {measured}'
                return Failure(reason, "function")
            if not math.isfinite(metrics[metric]):
                of_original = metric.startswith(OF_ORIGINAL)  # if so, every operator fails like this
                return Failure(
                    f'"{metric}" is {metrics[metric]}, which is no measurement', "function" if of_original else "operator"
                )
        value = self.of(metrics)
        if isinstance(value, Failure):
            return value
        if math.isnan(value):
            return Failure(f'the reward "{self.name}" is NaN; it must be a number', "function")
        return min(max(value, 0.0), 1.0)

    def needed(self, metrics: Metrics) -> tuple[str, ...]:
        """Return the names of the metrics that the reward reads, given the measured metrics."""
        return self.needs

    @abstractmethod
    def of(self, metrics: Metrics) -> Outcome:
        """Return the reward of these metrics, before clipping to [0, 1], or a Failure."""

    def settings(self) -> dict[str, Any]:
        """Return the name and all settings for storage; `from_settings` restores the reward."""
        return {"name": self.name, **self.model_dump()}


REWARDS: Registry[type[Reward]] = Registry(
    "reward",
    accepts=lambda given: isinstance(given, type) and issubclass(given, Reward) and not inspect.isabstract(given),
    needed="a subclass of syno.search.reward.Reward with a method of",
)

Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]


@REWARDS.register("relative")
class RelativeReward(Reward):
    """((s - low) / (high - low)) ** power for the score s on a scale where chance is 0 and the original network is 1.

    For accuracies, s = (accuracy - chance_accuracy) / (original_accuracy - chance_accuracy); for losses, in the same way, with
    the loss of equal probabilities as chance; for a user's own task, chance is the score of an untrained network, unless the
    task defines it. The original is trained once, when the study begins, with the training of the operators. So the reward
    distinguishes operators for any data, network and length of training.
    """

    name = "relative"
    needs = (ACCURACY.key, f"{OF_ORIGINAL}{ACCURACY.key}", f"{CHANCE}{ACCURACY.key}")
    compares_scores = True
    low: Annotated[float, Field(lt=1)] = 0.0
    """relative score at which the reward is 0; chance has the relative score 0, the original network 1"""
    high: Positive = 1.1
    """relative score at which the reward is 1; above 1, so that operators better than the original are distinguished"""
    power: Positive = 4
    """exponent; the larger it is, the more the best operators stand out"""

    @model_validator(mode="after")
    def _ordered(self) -> RelativeReward:
        if self.low >= self.high:
            raise ValueError(f"low={self.low} must be below high={self.high}")
        return self

    def needed(self, metrics: Metrics) -> tuple[str, ...]:
        """Return the names of the scores that the reward reads: of the measured metric, or of accuracy if none was measured."""
        metric = score_of(metrics) or ACCURACY.key
        return metric, f"{OF_ORIGINAL}{metric}", f"{CHANCE}{metric}"

    def of(self, metrics: Metrics) -> Outcome:
        """Return the reward by the formula in the class's docstring."""
        names = self.needed(metrics)
        score, original, chance = (metrics[name] for name in names)
        if problem := learnt_nothing(names[0], original, chance):
            return Failure(problem, "function")
        relative = (score - chance) / (original - chance)
        return float((max(relative - self.low, 0.0) / (self.high - self.low)) ** self.power)


def compared_scores(metric: str, score: float, chance: float) -> dict[str, float]:
    """Return the scores of the original network and of chance as metrics by name, for rewards that compare scores.

    Args:
        metric: key of the score's metric.
        score: score of the original network, after the training that operators get.
        chance: score of a network that has learnt nothing.

    Raises SpecError if the original network is not better than chance.
    """
    if problem := learnt_nothing(metric, score, chance):
        raise SpecError(f"reward: {problem}")
    return {f"{OF_ORIGINAL}{metric}": score, f"{CHANCE}{metric}": chance}


def learnt_nothing(metric: str, original: float, chance: float) -> str | None:
    """Return the message that the original network is not better than chance; None if it is better."""
    of = METRICS[metric]
    if of.quality(original) > of.quality(chance):
        return None
    return (
        f"the original network has the {of.name} {original:.4g} after this training, and chance has {chance:.4g}: it learnt "
        "nothing to compare with; train longer, or give another reward"
    )


ROUNDING = 1e-9  # tolerance of the difference of two scores: 0.79 is within 0.01 of 0.80


@REWARDS.register("goal")
class GoalReward(Reward):
    """The reward of a search with a goal: a function of the metrics of one trial.

    The relative score s is 0 for chance and 1 for the original network, as in `relative`; q = (max(s, 0) / high) ** power is
    the quality; f = x / (1 + x) maps a speedup x to [0, 1), 1/2 for a network as fast as the original. `find: most_accurate`:
    q, times x / speedup for networks that are too slow. `fastest`: (1 + f) / 2 for networks that lose at most `lose_at_most`;
    for the others, half of (s / the least sufficient s) ** power. `front`: q * f, the area between the trial's point and the
    worst point. It replaces the hypervolume improvement, which depends on the other trials; the policy `surrogate` computes
    that itself. Without training, the reward is f.
    """

    name = "goal"
    needs = (*RelativeReward.needs, "speedup")
    compares_scores = True
    find: Find = "most_accurate"
    """the goal's `find`; default: that of the experiment's goal, as for the two options below"""
    speedup: Positive | None = None
    """required speedup over the original network"""
    lose_at_most: Annotated[float, Field(ge=0)] | None = None
    """largest loss of accuracy, or nats of loss, against the original; for another score, in its unit"""
    high: Positive = 1.1
    """relative score s at which q = 1; above 1, so that operators better than the original are distinguished"""
    power: Positive = 4
    """exponent; the larger it is, the more the best operators stand out"""

    def needed(self, metrics: Metrics) -> tuple[str, ...]:
        """Return the names of the metrics that the reward reads: scores, if any was measured, and the speedup, if it counts."""
        metric = score_of(metrics)
        scores = () if metric is None else (metric, f"{OF_ORIGINAL}{metric}", f"{CHANCE}{metric}")
        is_fast_needed = self.speedup is not None or self.find != "most_accurate" or metric is None
        return (*scores, "speedup") if is_fast_needed else scores

    def of(self, metrics: Metrics) -> Outcome:
        """Return the reward by the formula in the class's docstring."""
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


class FrontPoint(Settings):
    """A network without synthesis on the front of speed and score."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
    name: str
    """name of the rival, or 'original'"""
    speedup: Positive
    """the network's speedup over the original"""
    score: float
    """mean score over the network's trainings, in the metric's unit"""
    deviation: Annotated[float, Field(ge=0)] = 0.0
    """standard deviation of the mean score"""


LEAST_DEVIATION = 0.002  # least deviation of a score, as a share of the distance from chance to the original
INTERVAL = 2 * 1.96  # standard deviations in an interval of 95 %


@REWARDS.register("gain")
class GainReward(GoalReward):
    """The reward of a search with rivals: how far a network is above the front of networks without synthesis, at its speed.

    The reward is F(g / d), with F(z) = (1 + z / sqrt(2 + z * z)) / 2. The gain g is the score minus the score to beat at the
    network's speedup x. Its standard deviation d combines those of the front, of one training, and of the score to beat over
    the confidence interval of x. For networks that are too slow, the reward is multiplied by x / speedup. So a network as good
    as a rival of its speed has the reward 1/2, and the reward approximates the probability that the network is above the front.
    F is the distribution function of Student's t with 2 degrees of freedom, those of a deviation from three seeds. It
    approaches 0 and 1 slowly, with 1 / (2 * z * z), so that networks far from the front are distinguished, too. The score to
    beat is interpolated linearly between the two rivals of the front next to x. With `lose_at_most`, it is at least the score
    that the goal allows. Beyond the fastest rival, it is the score of this rival, or with `find: fastest` the score that the
    goal allows. Without a front, the reward is that of `goal`.
    """

    name = "gain"
    front: tuple[FrontPoint, ...] = ()
    """the front of the rivals, the slowest first; default: computed from their records when the search begins"""
    deviation: Annotated[float, Field(ge=0)] = 0.0
    """standard deviation of the score of one training; default: computed from the seeds of the rivals"""

    @model_validator(mode="after")
    def _in_order(self) -> GainReward:
        if any(slower.speedup >= faster.speedup for slower, faster in pairwise(self.front)):
            raise ValueError("front must begin with the slowest network, and have each speedup once")
        return self

    def needed(self, metrics: Metrics) -> tuple[str, ...]:
        """Return the names of the scores that the reward reads, and of the speedup."""
        if not self.front:
            return super().needed(metrics)
        metric = score_of(metrics) or ACCURACY.key
        return metric, f"{OF_ORIGINAL}{metric}", f"{CHANCE}{metric}", "speedup"

    def of(self, metrics: Metrics) -> Outcome:
        """Return the reward by the formula in the class's docstring."""
        if not self.front:
            return super().of(metrics)
        metric, speedup = score_of(metrics) or ACCURACY.key, metrics["speedup"]
        original, chance = metrics[f"{OF_ORIGINAL}{metric}"], metrics[f"{CHANCE}{metric}"]
        if problem := learnt_nothing(metric, original, chance):
            return Failure(problem, "function")
        gain = METRICS[metric].quality(metrics[metric] - self.score_to_beat(speedup, metric, original))
        slow, fast = (
            self.score_to_beat(metrics.get(end, speedup), metric, original) for end in ("speedup_low", "speedup_high")
        )
        of_front = (weight * point.deviation for weight, point in self._neighbours(speedup))
        deviation = math.hypot(self.deviation, (slow - fast) / INTERVAL, *of_front)
        z = gain / max(deviation, LEAST_DEVIATION * abs(original - chance))
        share = (1 + z / math.sqrt(2 + z * z)) / 2
        return share * min(1.0, speedup / (self.speedup or speedup))

    def score_to_beat(self, speedup: float, metric: str, original: float) -> float:
        """Return the score to beat at a speedup, which is the score of the front.

        Args:
            speedup: the speedup.
            metric: key of the score's metric.
            original: the original network's score, to which `lose_at_most` refers.
        """
        quality = METRICS[metric].quality  # an involution, so it also converts back
        is_open = self.find == "fastest" and self.lose_at_most is not None and speedup > self.front[-1].speedup
        front = -math.inf if is_open else sum(weight * quality(point.score) for weight, point in self._neighbours(speedup))
        least = -math.inf if self.lose_at_most is None else quality(original) - self.lose_at_most
        return quality(max(front, least))

    def _neighbours(self, speedup: float) -> tuple[tuple[float, FrontPoint], ...]:
        """Return the front's points on both sides of a speedup, with interpolation weights; a single point beyond its ends."""
        place = bisect_right([point.speedup for point in self.front], speedup)
        if place in (0, len(self.front)):
            return ((1.0, self.front[max(place - 1, 0)]),)
        slower, faster = self.front[place - 1], self.front[place]
        share = (speedup - slower.speedup) / (faster.speedup - slower.speedup)
        return (1 - share, slower), (share, faster)


def relative_score(metrics: Metrics) -> float | None:
    """Return the relative score in these metrics, 0 for chance and 1 for the original network; None if it is unknown."""
    metric = score_of(metrics)
    if metric is None or not {f"{OF_ORIGINAL}{metric}", f"{CHANCE}{metric}"} <= metrics.keys():
        return None
    original, chance = metrics[f"{OF_ORIGINAL}{metric}"], metrics[f"{CHANCE}{metric}"]
    return None if original == chance else (metrics[metric] - chance) / (original - chance)


@REWARDS.register("accuracy")
class AccuracyReward(Reward):
    """((a - low) / (high - low)) ** power for the accuracy a, a fraction. Accuracy 0 means that the training failed.

    The published replay code divides by (1 - low) / high instead, so that its replayed and live rewards differ. Syno uses the
    live formula everywhere.
    """

    name = "accuracy"
    needs = ("accuracy",)
    low: Fraction = 0.4
    """accuracy at which the reward is 0"""
    high: Fraction = 0.7
    """accuracy at which the reward is 1"""
    power: Positive = 4
    """exponent; the larger it is, the more the best operators stand out"""

    @model_validator(mode="after")
    def _ordered(self) -> AccuracyReward:
        if self.low >= self.high:
            raise ValueError(f"low={self.low} must be below high={self.high}")
        return self

    def of(self, metrics: Metrics) -> Outcome:
        """Return the reward by the formula in the class's docstring."""
        accuracy = metrics["accuracy"]
        if accuracy <= 0:
            return Failure(f"the accuracy is {accuracy:g}; it must be above 0")
        return float((max(accuracy - self.low, 0.0) / (self.high - self.low)) ** self.power)


@REWARDS.register("flops")
class FlopsReward(Reward):
    """Few FLOPs at sufficient accuracy: (m + max(0, 1 - f / max_ratio) * (1 - m)) ** power with m = min_accuracy.

    f is `flops / original_flops` of the whole model. Below min_accuracy, the reward is accuracy ** power, so that every
    sufficiently accurate operator has a higher reward than all others; the published formula leaves this case open.
    """

    name = "flops"
    needs = ("accuracy", "flops", "original_flops")
    min_accuracy: Fraction = 0.6
    """accuracy m above which FLOPs count"""
    max_ratio: Positive = 0.9
    """share of the original's FLOPs above which no saving counts"""
    power: Positive = 4
    """exponent; the larger it is, the more the best operators stand out"""

    def of(self, metrics: Metrics) -> Outcome:
        """Return the reward by the formula in the class's docstring."""
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
    """loss at which the reward is 0, such as the loss of an untrained model"""
    power: Positive = 4
    """exponent; the larger it is, the more the best operators stand out"""

    def of(self, metrics: Metrics) -> Outcome:
        """Return the reward by the formula in the class's docstring."""
        loss = metrics["loss"]
        if loss >= self.maximum:
            return Failure(f"the loss is {loss:g}; it must be below {self.maximum:g}")
        return float(((self.maximum - max(loss, 0.0)) / self.maximum) ** self.power)


@REWARDS.register("savings")
class SavingsReward(Reward):
    """(1 - x / original) ** power: the saved share of the original model's FLOPs or parameters, independent of accuracy.

    For searches without training, which explore a space. `evaluate: cost` measures the required metrics.
    """

    name = "savings"
    needs = ("flops", "original_flops", "parameters", "original_parameters")
    what: Literal["flops", "parameters"] = "flops"
    """the cost to save"""
    power: Positive = 1
    """exponent; the larger it is, the more the best operators stand out"""

    def of(self, metrics: Metrics) -> Outcome:
        """Return the reward by the formula in the class's docstring."""
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
    """Return the reward with these settings: its `name`, or a path `package.module:name`, and settings other than the defaults.

    Raises UnknownNameError for a name that is not registered, SpecError for a path that leads to no reward, and pydantic's
    ValidationError for settings out of range.
    """
    rest = dict(settings)
    return REWARDS.find(rest.pop("name", "accuracy"))(**rest)
