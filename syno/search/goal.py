"""The goal of a search: how fast the network with an operator must be, how much worse, and how large.

>>> goal = Goal(speedup=1.5, lose_at_most=0.01)
>>> goal.find, goal.least_speedup
('most_accurate', 1.5)
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from syno.base.errors import SpecError
from syno.base.validation import Settings, set_fields
from syno.train.metric import ACCURACY, LOSS, Metric

Find = Literal["most_accurate", "fastest", "front"]
Share = Annotated[float, Field(gt=0)]

LARGEST = 10  # a larger share or speedup was meant as a percentage
SCREENED_PER_TRIAL = 20  # operators screened out for each trial before a search ends
EXAMPLE = "speedup: 1.5 (one and a half times as fast as the original), lose_at_most: 0.01 (of the accuracy), or both"
COSTS = {"most_parameters": "parameters", "most_memory": "memory_bytes", "most_file_size": "file_bytes"}  # limits: metrics


class Goal(Settings):
    """The goal of the search: a fast, accurate and small network. Operators that cannot meet it are not trained."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    speedup: float | None = None
    """how many times as fast as the original the network must be, as in 1.5"""
    lose_at_most: Annotated[float, Field(ge=0)] | None = None
    """how much worse than the original network's its score may be: a fraction of accuracy, as in 0.01, or nats of loss; of the
    score of a task of your own, in its unit"""
    find: Find | None = None
    """most_accurate: of those that are fast enough; fastest: of those that lose little enough; front: the best trade-offs of
    both. By default most_accurate if `speedup` is given, fastest if only `lose_at_most` is, else front"""
    device: str = "cpu"
    """the device that the network is measured on: cpu, cuda, or the name of a remote device in `tune`"""
    compiler: str = "inductor"
    """the compiler of both networks, as in `tune: compilers`; the settings of timing are those of `tune: latency`"""
    most_parameters: Share | None = None
    """largest share of the original's parameters"""
    most_memory: Share | None = None
    """largest share of the original's memory, which is the most bytes that one layer holds"""
    most_file_size: Share | None = None
    """largest share of the size of the original's file of weights"""
    most_screened: Annotated[int, Field(ge=1)] | None = None
    """operators that may be screened out before the search ends; null: 20 for each of `study: n_trials`"""

    @field_validator("speedup")
    @classmethod
    def _is_faster(cls, speedup: float | None) -> float | None:
        if speedup is not None and speedup < 1:
            raise ValueError(f"{speedup:g} is slower than the original; give 1 or more, as in 1.5 for 1.5 times as fast")
        if speedup is not None and speedup > LARGEST:
            raise ValueError(
                f"{speedup:g} times as fast is out of reach; give a ratio: {1 + speedup / 100:g} for {speedup:g} % more"
            )
        return speedup

    @field_validator("most_parameters", "most_memory", "most_file_size")
    @classmethod
    def _is_a_share(cls, share: float | None) -> float | None:
        if share is not None and share > LARGEST:
            raise ValueError(_no_fraction(share))
        return share

    def check_loss(self, metric: Metric) -> None:
        """Raise SpecError if more may be lost of a score than it can have: a percentage was meant. Other units say what is."""
        if self.lose_at_most is not None and self.lose_at_most > 1 and metric in (ACCURACY, LOSS):
            raise SpecError(f"goal.lose_at_most: {_no_fraction(self.lose_at_most)}")

    @model_validator(mode="after")
    def _asks_for_something(self) -> Goal:
        if (self.speedup, self.lose_at_most, self.find) == (None, None, None) and not self.limits:
            raise ValueError(f"there is nothing in it; give {EXAMPLE}")
        if self.find is None:
            found = "most_accurate" if self.speedup is not None else "front" if self.lose_at_most is None else "fastest"
            set_fields(self, {"find": found})
        if self.find == "most_accurate" and self.speedup is None and not self.limits:
            raise ValueError("find: most_accurate needs what is enough; give speedup: 1.5, most_parameters: 0.5, or the like")
        if self.find == "fastest" and self.lose_at_most is None:
            raise ValueError("find: fastest needs how much may be lost; give lose_at_most: 0.01, or the like")
        return self

    @property
    def limits(self) -> dict[str, float]:
        """The limits of costs, as shares of the original's, by the name of the option."""
        return {name: share for name in COSTS if (share := getattr(self, name)) is not None}

    @property
    def measures(self) -> bool:
        """Whether latencies must be measured."""
        return self.speedup is not None or self.find != "most_accurate"

    @property
    def least_speedup(self) -> float | None:
        """The least speedup of an operator that is trained: 1 if none is given; None if latency does not matter."""
        if not self.measures:
            return None
        return 1.0 if self.speedup is None else self.speedup

    @property
    def place(self) -> str:
        """The compiler and the device, in words."""
        return f"{self.compiler} on {self.device}"

    def screened_for(self, n_trials: int) -> int:
        """Return the largest number of operators screened out in a study of so many trials."""
        return SCREENED_PER_TRIAL * n_trials if self.most_screened is None else self.most_screened


def _no_fraction(number: float) -> str:
    return f"{number:g} is no fraction; give {number / 100:g} for {number:g} %"
