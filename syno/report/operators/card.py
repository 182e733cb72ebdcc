"""The card of an operator: its text, its formula and loops, what it reads, and its cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from syno.algebra import Valuation, Valuations
from syno.base.errors import SpecError
from syno.base.files import write_whole
from syno.base.text_tables import markdown
from syno.ir.coordinates import expression, loop_nest
from syno.ir.drawing import to_dot, to_svg
from syno.ir.graph import PGraph
from syno.lower.plan import Plan, candidates, fewest_flops
from syno.report.operators.dependence import dependence
from syno.report.operators.words import in_words
from syno.space.spec import OperatorSpec


@dataclass(frozen=True)
class LayerCost:
    """The cost of an operator in one of the layers that it replaces.

    Attributes:
        values: the layer's sizes.
        count: how many such layers there are.
        flops, parameters: of one of them; multiply-adds for one batch.
        memory_bytes: the most that one stage holds.
        weights: the shapes of the weights.
    """

    values: Mapping[str, int]
    count: int
    flops: int
    parameters: int
    memory_bytes: int
    weights: tuple[tuple[int, ...], ...]


def card(operator: PGraph, values: Mapping[str, int] | None = None, spec: OperatorSpec | None = None) -> str:
    """Return the operator's text, index expression, loop nest and reading in words, with its cost at `values` and in `spec`.

    Raises ValuationError where a variable has no value, SizeError where a size is no whole number.
    """
    known = {name: value for name, value in spec.table.defaults.items() if name in operator.variables} if spec else {}
    read = in_words(operator, values) + dependence(operator, {**known, **(values or {})})
    parts = [str(operator), expression(operator) + "\n", loop_nest(operator), read]
    if values is not None:
        parts.append(_stages(operator, values))
    if spec is not None:
        parts.append(_layers(operator, spec))
    return "\n".join(parts)


def layer_costs(operator: PGraph, spec: OperatorSpec) -> list[LayerCost]:
    """Return the operator's cost in each layer of a spec, by the plan with the fewest FLOPs over all of them."""
    plan = fewest_flops(candidates(operator, spec.valuations))
    costs = []
    for layer in spec.layers:
        values = spec.table.valuation(layer.values)
        row = operator.valuation({name: value for name, value in values.items() if name in operator.variables})
        costs.append(
            LayerCost(
                dict(layer.values),
                layer.count,
                plan.flops(row),
                plan.parameters(row),
                plan.peak_memory_bytes(row),
                weight_shapes(operator, row),
            )
        )
    return costs


def weight_shapes(operator: PGraph, values: Valuation) -> tuple[tuple[int, ...], ...]:
    """Return the shape of each weight."""
    return tuple(tuple(values.integer(dim.size) for dim in weight) for weight in operator.weights)


def _stages(operator: PGraph, values: Mapping[str, int]) -> str:
    row = operator.valuation(values)
    plan: Plan = fewest_flops(candidates(operator, Valuations([row])))
    return "\n".join([plan.table(row).rstrip("\n"), *_weights(operator, row)]) + "\n"


def _weights(operator: PGraph, row: Valuation) -> Iterator[str]:
    total = 0
    for number, (weight, shape) in enumerate(zip(operator.weights, weight_shapes(operator, row), strict=True), 1):
        elements = row.numel(dim.size for dim in weight)
        total += elements
        yield f"w{number} {list(shape)}: {elements:,} parameters"
    yield f"parameters: {total:,}"


def _layers(operator: PGraph, spec: OperatorSpec) -> str:
    costs, budget = layer_costs(operator, spec), spec.budget
    rows = [
        {
            "layer": ", ".join(f"{name}={value}" for name, value in cost.values.items()),
            "count": cost.count,
            "FLOPs": cost.flops,
            "parameters": cost.parameters,
            "memory/MiB": round(cost.memory_bytes / 2**20, 2),
            **{f"w{number}": " x ".join(map(str, shape)) or "1" for number, shape in enumerate(cost.weights, 1)},
        }
        for cost in costs
    ]
    flops = sum(cost.flops * cost.count for cost in costs) + budget.rest_flops
    parameters = sum(cost.parameters * cost.count for cost in costs) + budget.rest_parameters
    return (
        f"{operator.name} in the layers of {spec.name} (FLOPs of one layer, one batch)\n\n{markdown(rows)}\n"
        f"The whole model: {flops:,.0f} FLOPs, {parameters:,.0f} parameters.\n"
    )


def write_drawing(operator: PGraph, file: Path) -> None:
    """Draw the operator as SVG or in Graphviz's language, by the name's end. SpecError for another end."""
    formats = {".svg": to_svg, ".dot": to_dot}
    if file.suffix not in formats:
        raise SpecError(f'{file}: a drawing ends in {" or ".join(formats)}; given: "{file.suffix}"')
    write_whole(file, formats[file.suffix](operator))
