"""Evaluating Table 1: the coordinate of every dim, from those of the dims below it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from syno.algebra import Expression, Size, half, iterator
from syno.algebra.limits import MOST_TERMS
from syno.base.errors import GraphError, LoweringError
from syno.ir.dim import Dim
from syno.ir.graph import PGraph
from syno.ir.primitives import Arithmetic


def coordinates(dims: Iterable[Dim], given: Mapping[Dim, Any], arithmetic: Arithmetic) -> dict[Dim, Any]:
    """The coordinates of `dims` and of everything between them and the `given` ones.

    GraphError if a dim stands on an output axis or reduction whose coordinate is not given.
    """
    known = dict(given)
    for dim in dims:
        _settle(dim, known, arithmetic)
    return known


def _settle(dim: Dim, known: dict[Dim, Any], arithmetic: Arithmetic) -> None:
    if dim in known:
        return
    operation = dim.operation
    if operation is None or not operation.bottoms:
        raise GraphError(f"the coordinate of {dim!r} is not given")
    for below in operation.bottoms:
        _settle(below, known, arithmetic)
    found = operation.index(arithmetic, [known[below] for below in operation.bottoms])
    if isinstance(arithmetic, Symbolic):
        for dim, index in zip(operation.tops, found, strict=True):
            if index.count_terms(MOST_TERMS) > MOST_TERMS:  # each Merge of what a Split put together can double it
                raise LoweringError(f"the coordinate of {dim!r}, written out, has more than {MOST_TERMS} terms")
    known.update(zip(operation.tops, found, strict=True))


@dataclass
class Symbolic:
    """Arithmetic on expressions. `conditions` collects what must hold for the summand not to be zero."""

    conditions: list[tuple[Expression, Size]] = field(default_factory=list)

    def size(self, size: Size) -> Size:
        """Expressions multiply with and divide by sizes as they are."""
        return size

    def half(self, size: Size) -> Expression:
        """`size // 2`."""
        return half(size)

    def guard(self, index: Expression, extent: Size) -> Expression:
        """The index; the condition that it lies in [0, extent) is collected."""
        self.conditions.append((index, extent))
        return index.guarded(extent)


@dataclass(frozen=True)
class IndexMap:
    """How an operator reads its tensors: `output[loops] = sum over reductions of input[...] * w1[...] * ...`.

    Every expression is over the iterators `i0`, `i1` ... (output axes) and `r0`, `r1` ... (reductions); a summand for
    which a condition `0 <= index < extent` fails is zero.
    """

    input: tuple[Expression, ...]
    weights: tuple[tuple[Expression, ...], ...]
    conditions: tuple[tuple[Expression, Size], ...]


def index_map(graph: PGraph) -> IndexMap:
    """The operator's index map, simplified."""
    given = {dim: iterator(graph.labels[dim], dim.size) for dim in (*graph.output, *graph.reduces)}
    arithmetic = Symbolic()
    at = coordinates(graph.tops, given, arithmetic)
    return IndexMap(
        input=tuple(at[dim] for dim in graph.input),
        weights=tuple(tuple(at[dim] for dim in weight) for weight in graph.weights),
        conditions=tuple(dict.fromkeys(arithmetic.conditions)),
    )
