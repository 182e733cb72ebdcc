"""The weights of an operator numbered in another order: it stays the same operator, with another text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from syno.ir.dim import Dim, Operation
from syno.ir.graph import PGraph
from syno.ir.primitives import SHARE


def weight_orders(operator: PGraph) -> Iterator[PGraph]:
    """The operator with its weights numbered in every way."""
    for order in permutations(range(len(operator.weights))):
        yield (
            operator
            if list(order) == sorted(order)
            else _renumbered(operator, {old + 1: new + 1 for new, old in enumerate(order)})
        )


def _renumbered(operator: PGraph, number: dict[int, int]) -> PGraph:
    known: dict[Dim, Dim] = {}

    def rebuild(dim: Dim) -> Dim:
        if dim not in known:
            operation = dim.operation
            if operation is None:
                return dim
            parameter = operation.parameter
            if operation.primitive is SHARE:
                assert isinstance(parameter, int)
                parameter = number[parameter]
            known[dim] = Operation(operation.primitive, parameter, tuple(map(rebuild, operation.bottoms))).tops[dim.position]
        return known[dim]

    weights = [operator.weights[old - 1] for old in sorted(number, key=number.__getitem__)]
    return PGraph(
        operator.output,
        tuple(map(rebuild, operator.input)),
        tuple(tuple(map(rebuild, weight)) for weight in weights),
        tuple(map(rebuild, operator.expansions)),
        operator.name,
        operator.defaults,
    )
