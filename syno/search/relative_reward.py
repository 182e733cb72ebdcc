"""The reward of a score relative to the original network's."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field, model_validator

from syno.base.errors import SpecError
from syno.search.reward_contract import OF_ORIGINAL, REWARDS, Failure, Metrics, Outcome, Positive, Reward

CHANCE = "chance_"  # prefix of the scores of a network that has learnt nothing


@REWARDS.register("relative")
class RelativeReward(Reward):
    """((s - low) / (high - low)) ** power for the score s on a scale where chance is 0 and the original network is 1.

    For accuracies, s = (accuracy - chance_accuracy) / (original_accuracy - chance_accuracy); for losses, in the same way, with
    the loss of equal probabilities as chance. The original has the same training as the operators: it is trained once, when the
    study begins. So the reward distinguishes operators whatever the data, the network and the length of the training are.
    """

    name = "relative"
    needs = ("accuracy", f"{OF_ORIGINAL}accuracy", f"{CHANCE}accuracy")
    compares_scores = True
    low: Annotated[float, Field(lt=1)] = 0.0
    """score of reward 0; 0 is chance, 1 the original network"""
    high: Positive = 1.1
    """score of reward 1; above 1, so that operators better than the original are told apart"""
    power: Positive = 4
    """exponent; the larger, the more the best operators stand out"""

    @model_validator(mode="after")
    def _ordered(self) -> RelativeReward:
        if self.low >= self.high:
            raise ValueError(f"low={self.low} must be below high={self.high}")
        return self

    def needed(self, metrics: Metrics) -> tuple[str, ...]:
        """Return the names of the scores that it reads: accuracies, or losses if no accuracy was measured."""
        metric = "loss" if "loss" in metrics and "accuracy" not in metrics else "accuracy"
        return metric, f"{OF_ORIGINAL}{metric}", f"{CHANCE}{metric}"

    def of(self, metrics: Metrics) -> Outcome:
        """Return the reward by the formula of the class."""
        names = self.needed(metrics)
        score, original, chance = (metrics[name] for name in names)
        if problem := learnt_nothing(names[0], original, chance):
            return Failure(problem, "function")
        relative = (score - chance) / (original - chance)
        return float((max(relative - self.low, 0.0) / (self.high - self.low)) ** self.power)


def compared_scores(metric: str, score: float, classes: int) -> dict[str, float]:
    """Return the original network's score and that of chance, as metrics by name, which a reward that compares scores reads.

    Args:
        metric: "accuracy" or "loss".
        score: of the original network, after the training that operators get.
        classes: of the data, or tokens of the vocabulary.

    Raises SpecError if the original network is not better than chance.
    """
    chance = 1 / classes if metric == "accuracy" else math.log(classes)
    if problem := learnt_nothing(metric, score, chance):
        raise SpecError(f"reward: {problem}")
    return {f"{OF_ORIGINAL}{metric}": score, f"{CHANCE}{metric}": chance}


def learnt_nothing(metric: str, original: float, chance: float) -> str | None:
    """Return in words that the original network is not better than chance; None if it is."""
    if (original > chance) == (metric == "accuracy") and original != chance:
        return None
    return (
        f"the original network has the {metric} {original:.4g} after this training, and chance has {chance:.4g}: it learnt "
        "nothing to compare with; train longer, or give another reward"
    )
