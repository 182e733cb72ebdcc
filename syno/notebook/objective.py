"""A user's own function as the evaluation of operators: it takes an operator, and returns a number or metrics by name."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from syno.base.errors import SpecError
from syno.ir.graph import PGraph
from syno.search.reward import Failure, Metrics, Outcome, Reward
from syno.space.spec import OperatorSpec
from syno.train.contract import Evaluation, FunctionEvaluation, Report

VALUE = "value"  # the metric that a number becomes
Objective: TypeAlias = Callable[..., float | Mapping[str, float]]


class NetworkObjective(ABC):
    """An objective that evaluates operators in a network, and can evaluate the network as it is."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Everything that its results depend on, as JSON."""

    @abstractmethod
    def train_original(self) -> dict[str, Any]:
        """Return the score of the network as it is, in the form that `evaluation` takes."""

    @abstractmethod
    def evaluation(self, spec: OperatorSpec, original: Mapping[str, Any] | None = None) -> Evaluation:
        """Return the evaluation of the operators of a spec, which adds the metrics of the network as it is to theirs.

        Raises SpecError if the spec is for other layers.
        """


class ValueReward(Reward):
    """The metric `value` itself, which must be from 0 to 1."""

    name = VALUE
    needs = (VALUE,)

    def of(self, metrics: Metrics) -> Outcome:
        """Return the metric; a Failure if it is below 0 or above 1."""
        value = float(metrics[VALUE])
        if 0 <= value <= 1:
            return value
        return Failure(f"the objective returned {value:g}; without a reward it must be from 0 to 1, more is better", "function")


def evaluation_of(objective: Objective) -> Evaluation:
    """Return the evaluation that calls a function of an operator, or of an operator and a `syno.train.contract.Report`.

    A number that it returns becomes the metric `value`.

    Raises SpecError if the function can be called with neither.
    """
    takes_report = _takes_report(objective)

    def evaluate(operator: PGraph, report: Report) -> Mapping[str, float]:
        found: Any = objective(operator, report) if takes_report else objective(operator)
        return found if isinstance(found, Mapping) else {VALUE: float(found)}

    return FunctionEvaluation(evaluate)


def _takes_report(objective: Objective) -> bool:
    """Return whether a function takes a report, too. SpecError if it takes neither one nor two arguments."""
    if not callable(objective):
        raise SpecError(
            f"the objective is {objective!r}; give a syno.Training, or a function that takes an operator and returns a number "
            "or metrics by name"
        )
    try:
        signature = inspect.signature(objective)
    except (TypeError, ValueError):  # such as a function in C
        return False
    for count in (2, 1):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        if count == 1 or _is_needed(signature):
            return count == 2
    raise SpecError(f"the objective takes {signature}; it must take an operator, or an operator and a report")


def _is_needed(signature: inspect.Signature) -> bool:
    """Return whether a second argument has no default, or is called `report`."""
    places = [one for one in signature.parameters.values() if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return len(places) > 1 and (places[1].default is inspect.Parameter.empty or places[1].name == "report")
