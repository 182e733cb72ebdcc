"""Operators with fewer sizes: pieces of an axis that stay together become one axis again.

Two pieces of one Merge, or two sums, can be one dim if the same weights are indexed by both, and if then both are expanded or
a Split joins them in their order. The sizes of the pieces do not matter for what the operator computes: without them it can
be evaluated at more valuations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations

from syno.ir.dim import Dim, Operation, reduce
from syno.ir.graph import PGraph
from syno.ir.primitives import MERGE, SHARE, SPLIT
from syno.ir.structure import Rebuilt, numbered


def fused(graph: PGraph) -> PGraph:
    """Return the operator with pieces that stay together joined, also as axes of its weights. It computes the same."""
    while (pair := next(_pairs(graph), None)) is not None:
        graph = _joined(graph, *pair)
    return graph


@dataclass(frozen=True)
class _Chain:
    """A dim and the Shares above it: each weight's axis, the dim at the end, and the Split above that, if there is one."""

    begin: Dim
    axes: Mapping[int, Dim]
    end: Dim
    split: Operation | None
    is_expanded: bool


def _pairs(graph: PGraph) -> Iterator[tuple[Dim | None, _Chain, _Chain]]:
    """Yield what can be joined: the dim below (None for sums), the chain on the major piece, that on the minor piece."""
    above = {dim: operation for operation in graph.operations for dim in operation.bottoms}
    expanded = set(graph.expansions)

    def chain(dim: Dim) -> _Chain:
        axes, end = {}, dim
        while (operation := above.get(end)) is not None and operation.primitive is SHARE:
            assert isinstance(operation.parameter, int)
            end, axes[operation.parameter] = operation.tops
        split = operation if operation is not None and operation.primitive is SPLIT else None
        return _Chain(dim, axes, end, split, end in expanded)

    pieces: list[tuple[Dim | None, Dim, Dim]] = [
        (operation.bottoms[0], operation.tops[0], operation.tops[1])
        for operation in graph.operations
        if operation.primitive is MERGE
    ]
    pieces += [(None, one, other) for one, other in permutations(graph.reduces, 2)]
    for below, major, minor in pieces:
        one, other = chain(major), chain(minor)
        together = one.split is not None and one.split.bottoms == (one.end, other.end)
        if one.axes.keys() == other.axes.keys() and (together or (one.is_expanded and other.is_expanded)):
            yield below, one, other


def _joined(graph: PGraph, below: Dim | None, major: _Chain, minor: _Chain) -> PGraph:
    pair = (major.begin, minor.begin)
    loops = [dim for dim in graph.reduces if dim not in pair]
    new = Rebuilt(numbered(loops))
    size = major.begin.size * minor.begin.size
    same = sum(dim.size is size for dim in loops)  # reductions of one size are numbered without a gap
    data = new[below] if below is not None else reduce(size, same)
    for weight, axis in major.axes.items():
        data, new[axis] = Operation(SHARE, weight, (data,)).tops
    new[major.end] = data
    if major.split is not None:
        new[major.split.tops[0]] = data
    gone = {minor.end, *minor.axes.values()}
    return graph.mapped(
        new,
        weights=[[dim for dim in weight if dim not in gone] for weight in graph.weights],
        expansions=[dim for dim in graph.expansions if dim not in gone],
    )
