"""The statements of an operator's module, in the cheapest of equivalent forms, and the time they are estimated to take."""

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
    """The statements of an operator.

    Attributes:
        body: those of `forward`.
        composing: those that contract two weights with each other; None if no weights are.
        valuations: the sizes for which the forms were chosen.
    """

    body: TensorCode
    composing: TensorCode | None
    valuations: Valuations


def statements(
    graph: PGraph, values: Mapping[str, int] | Valuations | None = None, *, mode: str = "fused", plan: Plan | None = None
) -> Statements:
    """Return an operator's statements. The arguments, and the errors raised, are those of `to_source`."""
    lowering = MODES[mode]  # names the modes there are, if this is none
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
    """Return the estimated microseconds of an operator in all layers together, without work on weights alone.

    The estimate is that of the code generator (`syno.lower.pytorch.costs`): of one core, in plain PyTorch. Times with compilers
    and on other devices have to be learnt from measurements.

    Raises SizeError, ValuationError or LoweringError for an operator that does not fit a layer.
    """
    found = statements(graph, layers)
    return estimated_microseconds(found.body.work, found.valuations)
