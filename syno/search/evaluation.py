"""Ways to evaluate an operator, by name: what an experiment's `evaluate` may be.

`cost` counts; `package.module:function` is the user's own, a function of an operator and a `Report` that returns metrics by
name. It is imported in every worker, with the folder where the command runs on the path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syno.base.errors import SpecError, suggestion
from syno.base.registry import Registry, imported
from syno.ir.graph import PGraph
from syno.space.complete import Cost, cost
from syno.space.spec import OperatorSpec

if TYPE_CHECKING:
    from syno.search.study import Evaluate, Report

Factory = Callable[[OperatorSpec, Cost | None], "Evaluate"]
EVALUATIONS: Registry[Factory] = Registry("evaluation")


@dataclass(frozen=True)
class CountedCost:
    """Measures nothing: counts FLOPs, parameters and memory of the model with the operator, and those of the original.

    Multiply-adds count as one FLOP; both models are counted for one batch.
    """

    spec: OperatorSpec
    original: Cost | None = None

    def __call__(self, operator: PGraph, report: Report) -> Mapping[str, float]:
        """The metrics."""
        return cost(operator, self.spec).metrics(self.original)


EVALUATIONS.register("cost")(CountedCost)


def find_evaluation(given: str, spec: OperatorSpec, original: Cost | None = None) -> Evaluate:
    """The evaluation that `given` names.

    Args:
        given: a name in `EVALUATIONS`, or `package.module:function`.
        spec: of the operators.
        original: what the model costs as it is, for evaluations that compare with it.

    Raises SpecError if it is neither, or cannot be imported.
    """
    if given in EVALUATIONS:
        return EVALUATIONS[given](spec, original)
    if ":" not in given:
        raise SpecError(
            f'evaluate is "{given}"; it is one of: {", ".join(EVALUATIONS)}, or your own as "package.module:function"'
            f".{suggestion(given, EVALUATIONS)}"
        )
    found = imported(given, "evaluation")
    if not callable(found):
        raise SpecError(f'evaluate is "{given}", which is no function but {found!r}')
    evaluate: Evaluate = found
    return evaluate
