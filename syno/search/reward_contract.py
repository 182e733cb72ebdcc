"""The interface of rewards: functions from the metrics of an evaluated operator to a number in [0, 1]."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import ConfigDict, Field

from syno.base.registry import Registry
from syno.base.validation import Settings
from syno.search.faults import FaultKind

Metrics: TypeAlias = Mapping[str, float]

OF_ORIGINAL = "original_"  # prefix of the metrics of the original model


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


class Reward(Settings, ABC):
    """A function from metrics to a reward, with its settings as fields. Equal settings give equal rewards.

    A subclass has `of`, and `needs`. Experiments give it as `reward: {name: "package.module:MyReward"}`, with its settings.

    Attributes:
        name: the name in experiments and in stored settings; by default the path `package.module:MyReward`.
        needs: names of the metrics that it reads.
        compares_scores: whether it compares with the original's score in the same training, `original_accuracy` or
            `original_loss`, and that of chance. The study then begins with a training of the original.
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
        """Return the reward in [0, 1], or a Failure if a metric that it needs is absent, NaN or infinite."""
        for metric in self.needed(metrics):
            if metric not in metrics:
                measured = ", ".join(metrics) or "nothing"
                reason = f'no "{metric}" was measured, which the reward "{self.name}" needs; measured: {measured}'
                return Failure(reason, "function")
            if not math.isfinite(metrics[metric]):
                of_original = metric.startswith(OF_ORIGINAL)  # then every operator fails like this
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
        """Return the names of the metrics that it reads where these were measured."""
        return self.needs

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
