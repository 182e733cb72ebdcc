"""The plan of an operator: the order in which weights are multiplied in and sums are taken, and its cost.

A plan is a row of stages. Each multiplies the data with some weights, or none, and takes some of the sums. Which order
is cheapest depends on the sizes; taking a sum early, so that its result is stored, is the paper's materialized
reduction. The search over orders is exact.

One multiply-add counts as one FLOP.

Paper: section 6.2 (materialized reduction).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from syno.algebra import Kind, Valuation, Valuations
from syno.base.text_tables import html_table
from syno.ir.graph import PGraph
from syno.lower.compose import Composition, compositions
from syno.lower.stages import Stage, orders_of_work

FLOAT_BYTES = 4  # float32, which the figures for memory assume


@dataclass(frozen=True)
class StageCost:
    """A row of a plan's table, for one valuation."""

    weights: tuple[int, ...]
    sums: tuple[str, ...]
    result: tuple[int, ...]
    flops: int
    memory_bytes: int


@dataclass(frozen=True)
class Plan:
    """Stages from the input to the output. Its `repr` is a table.

    With a `composition` two weights are contracted with each other once, ahead of the stages, which then work on
    `staged`; the FLOPs and the memory of that are not counted.
    """

    graph: PGraph
    stages: tuple[Stage, ...]
    valuations: Valuations
    composition: Composition | None = None

    @property
    def staged(self) -> PGraph:
        """The operator that the stages carry out: the given one, or the one with two weights composed."""
        return self.graph if self.composition is None else self.composition.graph

    def flops(self, valuation: Valuation | None = None) -> int:
        """Return the multiply-adds for one valuation; without one, their sum over the valuations of the plan."""
        rows = self.valuations if valuation is None else (valuation,)
        return sum(stage.flops(row) for row in rows for stage in self.stages)

    def tensor_elements(self, valuation: Valuation) -> int:
        """Return the number of elements of the input and of the weights, which the published figures add to the FLOPs."""
        return sum(valuation.numel(dim.size for dim in tensor) for tensor in (self.graph.input, *self.graph.weights))

    def published_flops(self, valuation: Valuation) -> int:
        """Return the FLOPs as the published system's metadata counts them.

        The elements of input and weights are added, and those of a result that a stage without products and sums only moves.

        Source: the FLOPs of the kernels in the artifact of the paper.
        """
        moved = sum(stage.moved(valuation) for stage in self.stages)
        return self.flops(valuation) + moved + self.tensor_elements(valuation)

    def parameters(self, valuation: Valuation) -> int:
        """Return the number of elements of all weights."""
        return sum(valuation.numel(dim.size for dim in weight) for weight in self.graph.weights)

    def costs(self, valuation: Valuation) -> list[StageCost]:
        """Return the cost of each stage. Its memory is that of its data, weights and result in float32."""
        rows = []
        for stage in self.stages:
            held = [stage.data, stage.output, *(self.staged.weights[number - 1] for number in stage.weights)]
            elements = sum(valuation.numel(dim.size for dim in dims) for dims in held)
            rows.append(
                StageCost(
                    weights=stage.weights,
                    sums=tuple(self.staged.labels[dim] for dim in stage.reduces),
                    result=tuple(valuation.integer(dim.size) for dim in stage.output),
                    flops=stage.flops(valuation),
                    memory_bytes=FLOAT_BYTES * elements,
                )
            )
        return rows

    def peak_memory_bytes(self, valuation: Valuation) -> int:
        """Return the largest memory of any stage, in bytes."""
        return max((row.memory_bytes for row in self.costs(valuation)), default=0)

    def table(self, valuation: Valuation) -> str:
        """Return the stages as text, one per line."""
        rows = self.costs(valuation)
        weights = [", ".join(f"w{weight}" for weight in row.weights) or "-" for row in rows]
        sums = [", ".join(row.sums) or "-" for row in rows]
        left, right = max(map(len, ["weights", *weights])), max(map(len, ["sums", *sums]))
        lines = [f"stage  {'weights':<{left}}  {'sums':<{right}}  {'FLOPs':>16}  {'memory/MiB':>10}  result"]
        for number, row in enumerate(rows, 1):
            lines.append(
                f"{number:>5}  {weights[number - 1]:<{left}}  {sums[number - 1]:<{right}}  {row.flops:>16,}  "
                f"{row.memory_bytes / 2**20:>10.2f}  {list(row.result)}"
            )
        total, peak = self.flops(valuation), self.peak_memory_bytes(valuation)
        return "\n".join([*lines, f"total  {'':<{left}}  {'':<{right}}  {total:>16,}  {peak / 2**20:>10.2f}  ({valuation})"])

    def __repr__(self) -> str:
        return self.table(self.valuations[0])

    def _repr_html_(self) -> str:
        """Return the table that notebooks show in place of the repr."""
        rows = [
            {
                "stage": number,
                "weights": ", ".join(f"w{weight}" for weight in row.weights) or "–",
                "sums": ", ".join(row.sums) or "–",
                "FLOPs": row.flops,
                "memory/MiB": row.memory_bytes / 2**20,
                "result": str(list(row.result)),
            }
            for number, row in enumerate(self.costs(self.valuations[0]), 1)
        ]
        return html_table(rows, str(self.valuations[0]))


def candidates(graph: PGraph, values: Mapping[str, int] | Valuations, *, inference: bool = False) -> list[Plan]:
    """Return a plan for each order of multiplying weights in; for inference, also for each pair of weights composed.

    Args:
        graph: the operator.
        values: values of its variables (those with defaults may be left out), or several valuations.
        inference: whether weights are constants, so that contracting them with each other costs nothing.

    Raises:
        ValuationError, SizeError: a value is missing, or a size does not divide.
        LoweringError: a stage has more than 6 reductions.
    """
    valuations = _valuations(graph, values)
    plans = [Plan(graph, stages, valuations) for stages in orders_of_work(graph, valuations)]
    if inference:
        for composition in compositions(graph):
            plans += [Plan(graph, stages, valuations, composition) for stages in orders_of_work(composition.graph, valuations)]
    return plans


def fewest_flops(plans: Sequence[Plan]) -> Plan:
    """Return the plan with the fewest FLOPs, summed over its valuations; among equal ones, the one with most stages."""
    return min(plans, key=lambda plan: (plan.flops(), -len(plan.stages)))


def plan_for(graph: PGraph, values: Mapping[str, int] | Valuations | None, plan: Plan | None) -> Plan:
    """Return the plan given, or the one with the fewest FLOPs for these values; without values, for nominal ones."""
    return plan or fewest_flops(candidates(graph, values if values is not None else nominal_values(graph)))


def nominal_values(graph: PGraph) -> Valuation:
    """Return values for planning where none are given: the defaults; other coefficients 3; primaries large and divisible."""
    values = dict(graph.variables.defaults)
    for name, variable in graph.variables.items():
        if variable.kind is Kind.COEFFICIENT:
            values.setdefault(name, 3)
    deepest = prod(
        values[name] ** max(0, *(-size.exponent(variable) for size in graph.sizes))
        for name, variable in graph.variables.items()
        if variable.kind is Kind.COEFFICIENT
    )
    for name in graph.variables:
        values.setdefault(name, deepest * max(1, -(-64 // deepest)))
    return Valuation(values)


def _valuations(graph: PGraph, values: Mapping[str, int] | Valuations) -> Valuations:
    if not isinstance(values, Valuations):
        return Valuations([graph.valuation(values)])
    used = set(graph.variables)
    if all(row.keys() == used for row in values):
        for row in values:
            graph.check_sizes(row)
        return values
    # a backbone's valuations may have variables that this operator does not
    return Valuations([graph.valuation({name: value for name, value in row.items() if name in used}) for row in values])
