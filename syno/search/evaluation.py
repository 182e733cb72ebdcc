"""Evaluation of operators: the interface of an evaluation, and evaluations and pruners by name, as experiments give them.

`cost` counts. `package.module:function` is a function of the user's own, which takes an operator and a `Report` and returns
metrics by name. It is imported in every worker, with the folder where the command runs on the path.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from syno.base.errors import SpecError, suggestion
from syno.base.registry import Registry, imported, is_path
from syno.ir.graph import PGraph
from syno.space.complete import Cost, cost
from syno.space.spec import OperatorSpec

if TYPE_CHECKING:
    from optuna.pruners import BasePruner


class Report(Protocol):
    """Reports how an evaluation is going, at increasing steps such as epochs. Higher values are better.

    Raises TrialPruned if the study's pruner stops the trial; an evaluation lets it pass, or catches it and returns its metrics.
    Raises Paused (`syno.train.progress`) if the trial pauses; an evaluation may keep its state, by the operator's id, and lets
    it pass. When the trial is resumed, the evaluation is called again, and reports the steps before the pause again, too.

    `passed`, if the report has it, is the step after which the trial paused before, or 0. `looks` are parts of steps, such as
    0.5 epochs, after which its method `recent_loss` is to be called with the step and the recent loss, for early stopping.
    """

    def __call__(self, step: int, value: float) -> None:
        """Report a value at a step."""
        ...


Evaluate: TypeAlias = Callable[[PGraph, Report], Mapping[str, float]]
Factory: TypeAlias = Callable[[OperatorSpec, Cost | None], Evaluate]
EVALUATIONS: Registry[Factory] = Registry("evaluation")


def forget(evaluate: Evaluate, operator: PGraph) -> None:
    """Let an evaluation delete what it keeps of a paused trial that will not be resumed, if it has a method `forget`."""
    method = getattr(evaluate, "forget", None)
    if callable(method):
        method(operator)


@dataclass(frozen=True)
class CountedCost:
    """An evaluation without training: FLOPs, parameters and memory of the model with the operator, and those of the original.

    Multiply-adds count as one FLOP; both models are counted for one batch.
    """

    spec: OperatorSpec
    original: Cost | None = None

    def __call__(self, operator: PGraph, report: Report) -> Mapping[str, float]:
        """Return the metrics."""
        return cost(operator, self.spec).metrics(self.original)


EVALUATIONS.register("cost")(CountedCost)


def find_evaluation(given: str, spec: OperatorSpec, original: Cost | None = None) -> Evaluate:
    """Return the evaluation that `given` names.

    Args:
        given: a name in `EVALUATIONS`, or `package.module:function`.
        spec: the spec of the operators.
        original: the cost of the original model, for evaluations that compare with it.

    Raises SpecError if `given` is neither, or cannot be imported.
    """
    if given in EVALUATIONS:
        return EVALUATIONS[given](spec, original)
    if not is_path(given):
        raise SpecError(
            f'evaluate is "{given}"; it is one of: {", ".join(EVALUATIONS)}, or your own as "package.module:function"'
            f".{suggestion(given, EVALUATIONS)}"
        )
    found = imported(given, "evaluation")
    if not callable(found):
        raise SpecError(f'evaluate is "{given}", which is no function but {found!r}')
    evaluate: Evaluate = found
    return evaluate


# ---- pruners, which stop an evaluation that does worse than others did at the same step -------------------------------

PRUNERS: Mapping[str, str] = {
    "median": "MedianPruner",
    "percentile": "PercentilePruner",
    "successive_halving": "SuccessiveHalvingPruner",
    "hyperband": "HyperbandPruner",
    "threshold": "ThresholdPruner",
}


def make_pruner(settings: Mapping[str, Any]) -> BasePruner:
    """Return the pruner with these settings: its `name`, and the arguments of its class.

    `name` is one of Optuna's in `PRUNERS`, or the path `package.module:name` of a user's own subclass of Optuna's BasePruner.

    Raises SpecError for unknown names and arguments; it lists the known ones.
    """
    import optuna  # half a second

    rest = dict(settings)
    name = str(rest.pop("name", ""))
    if is_path(name):
        kind = imported(name, "pruner")
        if not (isinstance(kind, type) and issubclass(kind, optuna.pruners.BasePruner) and not inspect.isabstract(kind)):
            raise SpecError(f'the pruner is "{name}", which is {kind!r}; it must be a subclass of optuna.pruners.BasePruner')
    elif name in PRUNERS:
        kind = getattr(optuna.pruners, PRUNERS[name])
    else:
        known = f'{", ".join(PRUNERS)}, or your own as "package.module:name"'
        raise SpecError(f'"{name}" is no pruner; there are: {known}.{suggestion(name, PRUNERS)}')
    allowed = list(inspect.signature(kind).parameters)
    for key in rest:
        if key not in allowed:
            known = f"there are: {', '.join(allowed)}.{suggestion(key, allowed)}"
            raise SpecError(f'the pruner "{name}" has no setting {key}; {known}')
    try:
        pruner: BasePruner = kind(**rest)
    except (TypeError, ValueError) as error:
        raise SpecError(f'the pruner "{name}": {error}') from error
    return pruner
