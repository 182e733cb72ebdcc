"""The weights of an operator numbered in another order: it stays the same operator, with another text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from syno.ir.dim import Dim, Operation, Rebuilt
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
    def rebuild(operation: Operation, bottoms: tuple[Dim, ...]) -> tuple[Dim, ...]:
        parameter = operation.parameter
        if operation.primitive is SHARE and isinstance(parameter, int):
            parameter = number[parameter]
        return Operation(operation.primitive, parameter, bottoms).tops

    weights = [operator.weights[old - 1] for old in sorted(number, key=number.__getitem__)]
    return operator.mapped(Rebuilt({}, rebuild), weights=weights)
