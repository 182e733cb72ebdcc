"""Screening: operators that cannot meet the goal are rejected before their training.

The cheapest check comes first: costs are counted, then the speedup is predicted (with a predictor), and finally measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from syno.base.errors import DeviceError
from syno.base.interval import AS_THE_ORIGINAL, Interval, times_as_fast
from syno.ir.graph import PGraph
from syno.search.goal import COST_WORDS, COSTS, Goal
from syno.train.contract import Evaluation, Report, Screening

if TYPE_CHECKING:
    from syno.measure.speedup_record import SpeedupRecord

MOST_UNMEASURED = 5  # failures in a row, before any success, after which the machine is to blame
TOO_SLOW, TOO_LARGE, NOT_MEASURED = "too slow", "too large", "not measured"  # beginnings of reasons


Screen: TypeAlias = Callable[[PGraph], Screening]


@dataclass
class GoalScreen:
    """Screens operators by a goal.

    Attributes:
        goal: the goal.
        shares: returns the costs of the network with an operator as shares of the original's, by the metrics in `COSTS`.
        measure: measures the speedup of an operator; None if latency does not matter.
        predict: predicts the speedup; None, or a result of None, if there is no prediction (yet).
    """

    goal: Goal
    shares: Callable[[PGraph], Mapping[str, float]]
    measure: Callable[[PGraph], SpeedupRecord] | None
    predict: Callable[[PGraph], Interval | None] | None = None
    _unmeasured: int | None = 0  # failures in a row since the beginning; None after the first success

    def __call__(self, operator: PGraph) -> Screening:
        """Screen an operator, and stop at the first unmet limit.

        Raises DeviceError if none of the first operators can be measured.
        """
        metrics: dict[str, float] = {}
        if self.goal.limits:
            shares = self.shares(operator)
            for name, most in self.goal.limits.items():
                cost = COSTS[name]
                share = metrics[f"{cost}_share"] = shares[cost]
                if share > most:
                    text = f"{TOO_LARGE}: {share:.3g} times the original's {COST_WORDS[cost]}; the goal is at most {most:g}"
                    return Screening(metrics, text)
        least = self.goal.least_speedup
        if least is None or self.measure is None:
            return Screening(metrics)
        predicted = None if self.predict is None else self.predict(operator)
        if predicted is not None:
            metrics |= _interval("predicted_speedup", predicted)
            if predicted.high < least:
                return Screening(metrics, self._too_slow("predicted to be ", predicted))
        measured = self.measure(operator)
        if measured.status != "ok" or measured.speedup is None:
            return Screening(metrics, self._not_measured(measured))
        self._unmeasured = None
        if measured.latency_ms is not None:
            metrics["latency_ms"] = measured.latency_ms.value
        low, high = measured.speedup_low, measured.speedup_high
        if low is None or high is None:  # a missing interval must not count as one of width 0
            return Screening(metrics | {"speedup": measured.speedup})
        speedup = Interval(measured.speedup, low, high)
        metrics |= _interval("speedup", speedup)
        return Screening(metrics, self._too_slow("", speedup) if high < least else None)

    def _too_slow(self, verb: str, speedup: Interval) -> str:
        fast = times_as_fast(speedup, AS_THE_ORIGINAL, ".3g")
        return f"{TOO_SLOW}: {verb}{fast} with {self.goal.screening_place}; the goal is {self.goal.least_speedup:g}"

    def _not_measured(self, record: SpeedupRecord) -> str:
        reason = f"{record.status}: {' '.join(record.reason.split())}"
        if self._unmeasured is not None:
            self._unmeasured += 1
            if self._unmeasured >= MOST_UNMEASURED:
                raise DeviceError(
                    f"none of {self._unmeasured} operators could be measured with {self.goal.screening_place} (goal: compiler, "
                    f"device); the last: {reason}"
                )
        return f"{NOT_MEASURED}: {reason}, with {self.goal.screening_place}"


def _interval(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}


@dataclass(frozen=True)
class ScreenedEvaluation(Evaluation):
    """An evaluation with screening.

    Attributes:
        evaluation: evaluates the operators that pass.
        screening: screens the operators.
    """

    evaluation: Evaluation
    screening: Screen

    def __call__(self, operator: PGraph, report: Report) -> Mapping[str, float]:
        """Return the metrics of an operator that has passed screening, by the wrapped evaluation."""
        return self.evaluation(operator, report)

    def screen(self, operator: PGraph) -> Screening:
        """Screen an operator by the goal."""
        return self.screening(operator)

    def forget(self, operator: PGraph) -> None:
        """Let the wrapped evaluation delete the checkpoint of an operator whose evaluation will not be resumed."""
        self.evaluation.forget(operator)
