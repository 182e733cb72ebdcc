"""The plan of an operator: the order of its contractions and sums, and its cost.

A plan is a sequence of stages. Each stage multiplies the data with some weights, or none, and takes some of the sums. Which
order is cheapest depends on the sizes; an early sum, whose result is stored, is the paper's materialized reduction. The search
over orders is exact.

One multiply-add counts as one FLOP.

Paper: section 6.2 (materialized reduction).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from syno.algebra import Valuation, Valuations, VariableKind
from syno.base.errors import GraphError
from syno.base.files import LONGEST_NAME
from syno.base.text_tables import html_table
from syno.ir.dim import Dim, Operation, output_axis, share
from syno.ir.graph import PGraph
from syno.ir.primitives import EXPAND, SHARE, SHIFT, SPLIT
from syno.ir.structure import Rebuilt, numbered
from syno.lower.cut import Structure
from syno.lower.stages import Stage, orders_of_work

# Composition of weights: for inference, weights are constants, so an operator that multiplies with two weights in turn can
# multiply with their contraction, which is computed once. Whether that is faster depends on sizes and machine. The
# contraction is itself a linear operator, written in the same language: one weight is its input, the other its weight.


@dataclass(frozen=True)
class Composition:
    """A composition of two weights of an operator into one.

    Attributes:
        graph: the operator with one weight less; the composed weight is its last, the others keep their order.
        recipe: the operator that computes the composed weight: its input is weight `above`, its only weight is weight `below`.
        above, below: numbers of the two weights in the original operator.
    """

    graph: PGraph
    recipe: PGraph
    above: int
    below: int

    def uncomposed(self, weights: int) -> list[int]:
        """Return the numbers of the weights that are not composed, in an operator of `weights` weights."""
        return [number for number in range(1, weights + 1) if number not in (self.above, self.below)]


def compositions(graph: PGraph) -> Iterator[Composition]:
    """Yield every composition of two weights of the operator."""
    numbers = range(1, len(graph.weights) + 1)
    for below in numbers:
        for above in numbers:
            if above != below:
                composition = compose(graph, above, below)
                if composition is not None:
                    yield composition


def compose(graph: PGraph, above: int, below: int) -> Composition | None:
    """Compose weights `above` and `below`; None if primitives other than reshapes and rotations lie between them."""
    return _Composer(graph, above, below).composition()


class _Composer:
    """Composes two weights. A root is the dim below a chain of Shares; the composed weight has an axis for each needed root."""

    def __init__(self, graph: PGraph, above: int, below: int) -> None:
        self.graph, self.above, self.below = graph, above, below
        self.structure = Structure(graph)
        self.pair = (above, below)

    def composition(self) -> Composition | None:
        if self._lies_under(self.above, self.below):
            return None
        if self.above < self.below and not self._lies_under(self.below, self.above):
            return None  # the two are independent of each other, and the pair is tried in the other order
        below_roots = [self._root(self._bottom(axis)) for axis in self.graph.weights[self.below - 1]]
        above_roots: list[Dim] = []
        for axis in self.graph.weights[self.above - 1]:
            for root in self._roots_under(self._bottom(axis)):
                if root not in below_roots and root.operation is not None and not root.is_reduce:
                    return None
                above_roots.append(root)
        if len(set(below_roots)) < len(below_roots) or len(set(above_roots)) < len(above_roots):
            return None
        roots = [*below_roots, *(root for root in above_roots if root not in below_roots)]
        only_weights = [root for root in roots if root.is_reduce and self._is_weight_only(root)]
        axes = [root for root in roots if root not in only_weights]
        if not axes:
            return None
        try:
            recipe = self._recipe(below_roots, axes, only_weights)
            return Composition(self._with_one_weight(axes, only_weights), recipe, self.above, self.below)
        except GraphError:  # a Stride or another rule of the language stands in the way
            return None

    def _lies_under(self, lower: int, upper: int) -> bool:
        """Return whether a Share of weight `lower` lies below a Share of weight `upper`."""
        return any(upper in self.structure.weights_above(share.tops[0]) for share in self.structure.shares[lower])

    @staticmethod
    def _bottom(axis: Dim) -> Dim:
        assert axis.operation is not None
        return axis.operation.bottoms[0]

    @staticmethod
    def _root(dim: Dim) -> Dim:
        while dim.primitive is SHARE and dim.operation is not None:
            dim = dim.operation.bottoms[0]
        return dim

    def _roots_under(self, dim: Dim) -> Iterator[Dim]:
        root = self._root(dim)
        if root.primitive in (SPLIT, SHIFT) and root.operation is not None:
            for below in root.operation.bottoms:
                yield from self._roots_under(below)
        else:
            yield root

    def _is_weight_only(self, root: Dim) -> bool:
        """Return whether `root` indexes the two weights alone, and neither the data nor a third weight."""
        operation: Operation | None = self.structure.above[root]
        while operation is not None and operation.primitive is SHARE and operation.parameter in self.pair:
            operation = self.structure.above.get(operation.tops[0])
        return operation is not None and operation.primitive is EXPAND

    def _recipe(self, below_roots: Sequence[Dim], axes: Sequence[Dim], only_weights: Sequence[Dim]) -> PGraph:
        """Return the operator that computes the composed weight: its input is the upper weight, its weight the lower one."""
        start = {root: output_axis(index, root.size) for index, root in enumerate(axes)}
        start |= numbered(only_weights)
        shares = {root: share(start[root], 1) for root in below_roots}
        at = {root: shares[root][0] if root in shares else start[root] for root in (*axes, *only_weights)}
        new = Rebuilt(at, _without_share)
        axes_of_input = tuple(new[self._bottom(axis)] for axis in self.graph.weights[self.above - 1])
        expansions = tuple(at[root] for root in at if root not in new)
        output = tuple(start[root] for root in axes)
        sides = tuple(shares[root][1] for root in below_roots)
        name = f"{self.graph.name[:LONGEST_NAME]}_weight"
        return PGraph(output, axes_of_input, (sides,), expansions, name, self.graph.defaults)

    def _with_one_weight(self, axes: Sequence[Dim], only_weights: Sequence[Dim]) -> PGraph:
        """Return the operator in which Shares of the composed weight replace those of the two weights."""
        others = [number for number in range(1, len(self.graph.weights) + 1) if number not in self.pair]
        renumbered = {number: position for position, number in enumerate(others, 1)}
        loops = numbered(dim for dim in self.graph.reduces if dim not in only_weights)

        def read_at(root: Dim, new: Dim) -> Dim:
            """Return the dim above the composed weight's Share at a root of its axes; `new` at other roots."""
            return share(new, len(others) + 1)[0] if root in axes else new

        def rebuild(operation: Operation, bottoms: tuple[Dim, ...]) -> tuple[Dim, ...]:
            parameter = operation.parameter
            if operation.primitive is SHARE and isinstance(parameter, int):
                if parameter in self.pair:
                    return bottoms
                parameter = renumbered[parameter]
            tops = Operation(operation.primitive, parameter, bottoms).tops
            return tuple(read_at(dim, top) for dim, top in zip(operation.tops, tops, strict=True))

        bare = {dim: dim for dim in self.graph.output} | loops
        new = Rebuilt({dim: read_at(dim, fresh) for dim, fresh in bare.items()}, rebuild)
        weights = [tuple(new[dim] for dim in self.graph.weights[number - 1]) for number in others]
        composed = [new[root].operation for root in axes]
        weights.append(tuple(operation.tops[1] for operation in composed if operation is not None))
        return replace(
            self.graph,
            input=tuple(new[dim] for dim in self.graph.input),
            weights=tuple(weights),
            expansions=tuple(new[dim] for dim in self.graph.expansions if self._root(dim) not in only_weights),
        )


def _without_share(operation: Operation, bottoms: tuple[Dim, ...]) -> tuple[Dim, ...]:
    if operation.primitive is SHARE:
        return bottoms
    return Operation(operation.primitive, operation.parameter, bottoms).tops


FLOAT_BYTES = 4  # of float32, in which memory is counted


@dataclass(frozen=True)
class StageCost:
    """The cost of one stage for one valuation: a row of the plan's table.

    Attributes:
        weights: numbers of the weights that the stage multiplies with.
        sums: labels of the reductions that it sums over.
        result: shape of its result.
        flops: number of multiply-adds.
        memory_bytes: bytes of the stage's data, weights and result in float32.
    """

    weights: tuple[int, ...]
    sums: tuple[str, ...]
    result: tuple[int, ...]
    flops: int
    memory_bytes: int


@dataclass(frozen=True)
class Plan:
    """A sequence of stages from the input to the output. Its `repr` is a table.

    Attributes:
        graph: the operator.
        stages: the stages of `staged`.
        valuations: the sizes for which the plan was made.
        composition: the composition of two weights that is computed once, ahead of the stages; its FLOPs and memory are not
            counted. None if no weights are composed.
    """

    graph: PGraph
    stages: tuple[Stage, ...]
    valuations: Valuations
    composition: Composition | None = None

    @property
    def staged(self) -> PGraph:
        """The operator that the stages compute: `graph`, or the composition's operator with one weight less."""
        return self.graph if self.composition is None else self.composition.graph

    def flops(self, valuation: Valuation | None = None) -> int:
        """Return the multiply-adds for one valuation; for None, their sum over all valuations of the plan."""
        rows = self.valuations if valuation is None else (valuation,)
        return sum(stage.flops(row) for row in rows for stage in self.stages)

    def tensor_elements(self, valuation: Valuation) -> int:
        """Return the number of elements of the input and of the weights, which the published figures add to the FLOPs."""
        return sum(valuation.numel(dim.size for dim in tensor) for tensor in (self.graph.input, *self.graph.weights))

    def published_flops(self, valuation: Valuation) -> int:
        """Return the FLOPs as the published system's metadata counts them.

        This adds the elements of input and weights, and those of the results of stages that only move elements.

        Source: the FLOPs of the kernels in the artifact of the paper.
        """
        moved = sum(stage.moved(valuation) for stage in self.stages)
        return self.flops(valuation) + moved + self.tensor_elements(valuation)

    def parameters(self, valuation: Valuation) -> int:
        """Return the operator's number of parameters: elements of all weights."""
        return sum(valuation.numel(dim.size for dim in weight) for weight in self.graph.weights)

    def costs(self, valuation: Valuation) -> list[StageCost]:
        """Return the cost of each stage for one valuation."""
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
    """Return a plan for each order of contractions; for inference, also the plans of each composition of two weights.

    Args:
        graph: the operator.
        values: values of its variables (those with defaults may be left out), or several valuations.
        inference: whether weights are constants, so that contracting two of them with each other costs nothing.

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
    """Return the plan with the fewest FLOPs, summed over its valuations; among equals, the plan with the most stages."""
    return min(plans, key=lambda plan: (plan.flops(), -len(plan.stages)))


def plan_for(graph: PGraph, values: Mapping[str, int] | Valuations | None, plan: Plan | None) -> Plan:
    """Return `plan`, or if it is None the plan with the fewest FLOPs for these values (nominal ones if they are None)."""
    return plan or fewest_flops(candidates(graph, values if values is not None else nominal_values(graph)))


def nominal_values(graph: PGraph) -> Valuation:
    """Return nominal values for planning: defaults, 3 for other coefficients, large divisible numbers for primaries."""
    values = dict(graph.variables.defaults)
    for name, variable in graph.variables.items():
        if variable.kind is VariableKind.COEFFICIENT:
            values.setdefault(name, 3)
    deepest = prod(
        values[name] ** max(0, *(-size.exponent(variable) for size in graph.sizes))
        for name, variable in graph.variables.items()
        if variable.kind is VariableKind.COEFFICIENT
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
