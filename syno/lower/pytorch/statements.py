"""The statements of an operator's module in the cheapest of several equivalent forms, and their estimated time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from syno.algebra import Valuations
from syno.base.registry import Registry
from syno.ir.graph import PGraph
from syno.lower.plan import Plan, candidates, fewest_flops, plan_for
from syno.lower.pytorch.costs import estimated_microseconds
from syno.lower.pytorch.fused import FusedLowering
from syno.lower.pytorch.lowering import Lowering
from syno.lower.pytorch.tensor_code import TensorCode, cheapest

MODES: Registry[type[Lowering]] = Registry("mode of the PyTorch generator")
MODES.register("fused")(FusedLowering)
MODES.register("literal")(Lowering)


@dataclass(frozen=True)
class Statements:
    """The generated statements of an operator.

    Attributes:
        body: the statements of `forward`.
        composing: the statements that contract two weights with each other; None if the plan composes none.
        valuations: the sizes for which the form was chosen.
    """

    body: TensorCode
    composing: TensorCode | None
    valuations: Valuations


def statements(
    graph: PGraph, values: Mapping[str, int] | Valuations | None = None, *, mode: str = "fused", plan: Plan | None = None
) -> Statements:
    """Return an operator's statements in their cheapest form. Arguments and exceptions are as in `to_source`."""
    lowering = MODES[mode]
    chosen = plan_for(graph, values, plan)
    names = [f"self.w{number}" for number in range(1, len(graph.weights) + 1)]
    composing = None
    if (composition := chosen.composition) is not None:
        recipe = fewest_flops(candidates(composition.recipe, chosen.valuations))
        below, above = names[composition.below - 1], names[composition.above - 1]
        composing = lowering(recipe, [below], "composed", above).run()
        names = [*(names[number - 1] for number in composition.uncomposed(len(names))), "composed"]
    body = cheapest(lambda decisions: lowering(chosen, names, decisions=decisions).run(), chosen.valuations)
    return Statements(body, composing, chosen.valuations)


def estimated_time(graph: PGraph, layers: Valuations) -> float:
    """Return the estimated time of an operator in microseconds, summed over layers, without work on weights alone.

    The estimate is the code generator's (`syno.lower.pytorch.costs`): for eager PyTorch on one core. It says little about
    compilers and other devices.

    Raises SizeError, ValuationError or LoweringError for an operator that does not fit a layer.
    """
    code = statements(graph, layers)
    return estimated_microseconds(code.body.work, code.valuations)
