"""The card of an operator: its text, its formula and loops, what it reads, and its cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from syno.algebra import ONE, Size, Valuation, Valuations
from syno.base.errors import SpecError
from syno.base.files import write_whole
from syno.base.text_tables import markdown, wrapped
from syno.ir.coordinates import expression, loop_nest
from syno.ir.drawing import to_dot, to_svg
from syno.ir.graph import PGraph
from syno.lower.plan import Plan, candidates, fewest_flops
from syno.report.operators.words import dependence, in_words
from syno.space.distance.search import CheapestAssignment, InputAxes
from syno.space.reach import PathStep, reach
from syno.space.refusal import described
from syno.space.rules.listing import COLUMNS, rows
from syno.space.space import Space
from syno.space.spec import OperatorSpec

# The steps to a known operator, with the distance at each step and the rules that apply; and the table of rules.


INDENT = "      "
NARROW = {"id", "kind"}  # columns of the table of rules that are not wrapped


def explain(space: Space, operator: PGraph) -> str:
    """Return the steps from the root of the space to an operator as text, each with the distance left and the rules checked.

    The distance is the least number of primitives still missing after a step. The groups of axes below it belong to the
    assignment with that cost.

    Raises UnreachableError, which names the rule or option that excludes the operator.
    """
    stages = reach(space, operator)
    steps = len(stages) - 1  # the last makes the state an operator
    lines = [f"{operator.name} is in the space {space.spec.name}: {steps} primitives, at most {space.spec.depth}", ""]
    for number, stage in enumerate(stages[:-1], 1):
        lines += [f"{number:>3}  {described(stage.candidate)}", *_details(space, stage)]
    lines += [f"end  {described(stages[-1].candidate)}", f"{INDENT}accepted by {_accepting(space, stages[-1])}", ""]
    used = {row.id: row.forbids for stage in stages for row in space.rules.of(stage.candidate.kind)}
    lines += ["The rules that looked at it, and what they forbid:", *(f"{id_:>5}  {forbids}" for id_, forbids in used.items())]
    price = space.completion.cost(operator)
    lines += ["", f"The model with it: {price.flops:,.0f} FLOPs, {price.parameters:,.0f} parameters."]
    return "\n".join(lines) + "\n"


def _details(space: Space, stage: PathStep) -> Iterator[str]:
    yield f"{INDENT}distance {stage.distance} of {stage.left} primitives that may still be added"
    if stage.cheapest is not None:
        yield from (f"{INDENT}  {fate}" for fate in _fates(stage.cheapest))
    yield f"{INDENT}accepted by {_accepting(space, stage)}"


def _accepting(space: Space, stage: PathStep) -> str:
    return ", ".join(row.id for row in space.rules.of(stage.candidate.kind)) or "every rule: none looks at such steps"


def _fates(grouping: CheapestAssignment) -> Iterator[str]:
    """Yield a line for each group of axes that are not axes of the input yet."""
    yield from (_group(group) for group in grouping.groups if group.wanted != group.axes)
    for title, sizes in (
        ("taken in as windows", grouping.windows),
        ("repeated", grouping.repeated),
        ("ended by weights", grouping.ended),
    ):
        if sizes:
            yield f"{_listed(sizes)}: {title}"


def _group(group: InputAxes) -> str:
    rest = "" if group.rest is ONE else f", with {group.rest} to be cut off"
    return f"{_listed(group.axes)} make {_listed(group.wanted)} of the input{rest}"


def _listed(sizes: Iterable[Size]) -> str:
    return ", ".join(map(str, sizes)) or "nothing"


def rules_text(width: int) -> str:
    """Return the canonicalization rules as plain text: a row per rule, with cells wrapped to a page of `width` characters."""
    return wrapped([dict(zip(COLUMNS, row, strict=True)) for row in rows()], width, NARROW)


@dataclass(frozen=True)
class LayerCost:
    """The cost of an operator in one of the layers that it replaces.

    Attributes:
        values: the layer's sizes.
        count: the number of such layers in the network.
        flops, parameters: of one layer: multiply-adds for one batch, and number of weights.
        memory_bytes: the largest memory of one stage, in bytes.
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
    """Return the shape of each of the operator's weights at these sizes."""
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
    """Write a drawing of the operator as SVG or as a Graphviz file, by the file's suffix. SpecError for another suffix."""
    formats = {".svg": to_svg, ".dot": to_dot}
    if file.suffix not in formats:
        raise SpecError(f'{file}: a drawing ends in {" or ".join(formats)}; given: "{file.suffix}"')
    write_whole(file, formats[file.suffix](operator))
