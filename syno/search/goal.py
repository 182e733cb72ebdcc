"""The goal of a search: the required speedup, the allowed loss of score, and the allowed size of the network with an operator.

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

FASTEST = "fastest"  # the compiler that takes for each network the compiler that is fastest for it
LARGEST = 10  # a larger share or speedup was meant as a percentage
SCREENED_PER_TRIAL = 20  # operators screened out for each trial before a search ends
EXAMPLE = "speedup: 1.5 (one and a half times as fast as the original), lose_at_most: 0.01 (of the accuracy), or both"
COSTS = {"most_parameters": "parameters", "most_memory": "memory_bytes", "most_file_size": "file_bytes"}  # limits: metrics
COST_WORDS = {"parameters": "parameters", "memory_bytes": "memory", "file_bytes": "file size"}  # of these metrics


class Goal(Settings):
    """The goal of the search: required speed, allowed loss and allowed size. Operators that cannot meet it are not trained."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    speedup: float | None = None
    """required speedup of the network over the original, such as 1.5"""
    lose_at_most: Annotated[float, Field(ge=0)] | None = None
    """allowed loss of score against the original network: a fraction of accuracy, such as 0.01, or nats of loss; for a task of
    your own, in the unit of its score
    """
    find: Find | None = None
    """most_accurate: the best score among networks that are fast enough; fastest: the highest speed among networks that lose
    little enough; front: the Pareto front of both. Default: most_accurate if `speedup` is given, fastest if only `lose_at_most`
    is given, else front
    """
    device: str = "cpu"
    """the device on which networks are timed: cpu, cuda, or the name of a remote device in `tune`"""
    compiler: str = "inductor"
    """the compiler of both networks, as in `tune: compilers`; `tune: latency` has the settings of timing. fastest: for each
    network the compiler that is fastest for it, so that verdicts compare the best with the best
    """
    screening: str | None = Field(default=None, exclude_if=lambda value: value is None)  # older checksums stay
    """with compiler: fastest: the compiler with which the search times operators, over the original with its fastest compiler;
    null: native on the CPU, inductor on a GPU"""
    most_parameters: Share | None = None
    """largest number of parameters, as a share of the original's"""
    most_memory: Share | None = None
    """largest memory (the peak over the layers, in bytes), as a share of the original's"""
    most_file_size: Share | None = None
    """largest size of the file of weights, as a share of the original's"""
    most_screened: Annotated[int, Field(ge=1)] | None = None
    """number of screened-out operators after which the search ends; null: 20 times `study: n_trials`"""

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
        """Raise SpecError if the allowed loss is larger than the score can be: probably a percentage was meant."""
        if self.lose_at_most is not None and self.lose_at_most > 1 and metric in (ACCURACY, LOSS):
            raise SpecError(f"goal.lose_at_most: {_no_fraction(self.lose_at_most)}")

    @model_validator(mode="after")
    def _asks_for_something(self) -> Goal:
        if (self.speedup, self.lose_at_most, self.find) == (None, None, None) and not self.limits:
            raise ValueError(f"the goal is empty; give {EXAMPLE}")
        if self.find is None:
            default = "most_accurate" if self.speedup is not None else "front" if self.lose_at_most is None else "fastest"
            set_fields(self, {"find": default})
        if self.find == "most_accurate" and self.speedup is None and not self.limits:
            raise ValueError("find: most_accurate needs a limit; give speedup: 1.5, most_parameters: 0.5, or the like")
        if self.find == "fastest" and self.lose_at_most is None:
            raise ValueError("find: fastest needs a limit of the loss; give lose_at_most: 0.01, or the like")
        return self

    @property
    def screening_compiler(self) -> str:
        """The compiler with which the search times operators."""
        if self.screening is not None or self.compiler != FASTEST:
            return self.screening or self.compiler
        return "native" if self.device.partition(":")[0] != "cuda" else "inductor"

    @property
    def limits(self) -> dict[str, float]:
        """Limits on costs of the network, as shares of the original's, by the name of the option."""
        return {name: share for name in COSTS if (share := getattr(self, name)) is not None}

    @property
    def measures(self) -> bool:
        """Whether the goal needs measured latencies."""
        return self.speedup is not None or self.find != "most_accurate"

    @property
    def least_speedup(self) -> float | None:
        """The least speedup of operators that are trained: 1 if the goal has none; None if latency does not matter."""
        if not self.measures:
            return None
        return 1.0 if self.speedup is None else self.speedup

    @property
    def place(self) -> str:
        """The compiler and the device of the goal, in words."""
        return f"{self.compiler} on {self.device}"

    @property
    def screening_place(self) -> str:
        """Compiler and device of the search's measurements in words, such as "native on cpu"."""
        return f"{self.screening_compiler} on {self.device}"

    def screened_for(self, n_trials: int) -> int:
        """Return the maximum number of screened-out operators in a study of `n_trials` trials."""
        return SCREENED_PER_TRIAL * n_trials if self.most_screened is None else self.most_screened


def _no_fraction(number: float) -> str:
    return f"{number:g} is no fraction; give {number / 100:g} for {number:g} %"
