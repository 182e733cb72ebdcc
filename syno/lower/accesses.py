"""The accesses of a stage of a plan to its tensors, which generators write inside the loops of the stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from syno.algebra import Expression, Size, iterator
from syno.ir.coordinates import Symbolic, coordinates
from syno.ir.dim import Dim, Operation
from syno.lower.cut import Structure
from syno.lower.stages import Stage


@dataclass(frozen=True)
class Intermediate:
    """A named index: the coordinate of `dim`, computed from those of the dims below its operation."""

    dim: Dim
    operation: Operation
    below: tuple[Expression, ...]


@dataclass(frozen=True)
class Accesses:
    """`result[axes] = sum over reductions of data[...] * weight[...] * ...`, over the labels of axes and reductions.

    A summand for which a condition `0 <= index < extent` fails is zero. Expressions may name intermediates, which come
    in an order in which each needs only earlier ones.
    """

    data: tuple[Expression, ...]
    weights: tuple[tuple[Expression, ...], ...]
    conditions: tuple[tuple[Expression, Size], ...]
    intermediates: tuple[Intermediate, ...]


def accesses(
    structure: Structure,
    stage: Stage,
    source: Sequence[Dim],
    target: Sequence[Dim],
    is_named: Callable[[Operation], bool] = lambda operation: False,
) -> Accesses:
    """Return the accesses of a stage.

    Args:
        structure: that of the operator which the stage is part of.
        stage: the stage.
        source: the axes of the data tensor, in its order.
        target: the axes of the result, in its order.
        is_named: which operations with one dim above them have their index named rather than written out.
    """
    graph = structure.graph
    given = {dim: iterator(graph.labels[dim], dim.size) for dim in (*target, *stage.reduces)}
    weights = [graph.weights[number - 1] for number in stage.weights]
    known = dict.fromkeys([*source, *(dim for weight in weights for dim in weight)])  # a set in a stable order
    wanted = [*known, *_expanded_above(structure, list(given), known)]
    arithmetic = Symbolic()
    intermediates = []
    between = _operations_between(wanted, given)
    for operation in graph.operations:  # from below upwards
        if operation in between and is_named(operation):
            at = coordinates(operation.bottoms, given, arithmetic)
            below = tuple(at[dim] for dim in operation.bottoms)
            (top,) = operation.tops
            given[top] = iterator(graph.labels[top], top.size)
            intermediates.append(Intermediate(top, operation, below))
            own = Symbolic()
            operation.index(own, list(below))
            arithmetic.conditions += [(given[top], extent) for _, extent in own.conditions]
    at = coordinates(wanted, given, arithmetic)
    return Accesses(
        data=tuple(at[dim] for dim in source),
        weights=tuple(tuple(at[dim] for dim in weight) for weight in weights),
        conditions=tuple(dict.fromkeys(arithmetic.conditions)),
        intermediates=tuple(intermediates),
    )


def _expanded_above(structure: Structure, dims: Sequence[Dim], known: Mapping[Dim, None]) -> list[Dim]:
    """Return the expanded dims between `dims` and the tensors. An Unfold below one has a condition, too."""
    found: list[Dim] = []
    for dim in dims:
        if dim not in known:
            tops = structure.above[dim].tops
            found += _expanded_above(structure, tops, known) if tops else [dim]
    return list(dict.fromkeys(found))


def _operations_between(wanted: Iterable[Dim], given: Mapping[Dim, Expression]) -> set[Operation]:
    found: set[Operation] = set()
    waiting = [dim for dim in wanted if dim not in given]
    while waiting:
        operation = waiting.pop().operation
        if operation is not None and operation not in found:
            found.add(operation)
            waiting += [dim for dim in operation.bottoms if dim not in given]
    return found
