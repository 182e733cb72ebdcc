"""Coordinates by Table 1: each dim's coordinate from those of the dims below; an operator's index map, and its loop nest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syno.algebra import Expression, Size, Valuation, half, iterator
from syno.algebra.limits import MOST_TERMS
from syno.base.errors import GraphError, LoweringError
from syno.ir.dim import Dim
from syno.ir.graph import PGraph
from syno.ir.primitives import Arithmetic

Array = NDArray[Any]


def coordinates(dims: Iterable[Dim], start: Mapping[Dim, Any], arithmetic: Arithmetic) -> dict[Dim, Any]:
    """Return the coordinates of `dims`, and of all dims between `dims` and the dims in `start`.

    Args:
        dims: the dims to reach, usually those of the tensors.
        start: the coordinates of output axes and reductions.
        arithmetic: computes with coordinates.

    Raises GraphError if a dim depends on an output axis or a reduction whose coordinate is not given.
    """
    known = dict(start)
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
            if index.count_terms(MOST_TERMS) > MOST_TERMS:  # a Merge above a Split can double the number
                raise LoweringError(f"the coordinate of {dim!r}, written out, has more than {MOST_TERMS} terms")
    known.update(zip(operation.tops, found, strict=True))


@dataclass
class Symbolic:
    """Arithmetic on expressions. `conditions` has pairs (index, extent): the summand is zero unless 0 <= index < extent."""

    conditions: list[tuple[Expression, Size]] = field(default_factory=list)

    def size(self, size: Size) -> Size:
        """Return the size itself; expressions can be multiplied and divided by it."""
        return size

    def half(self, size: Size) -> Expression:
        """Return `size // 2` as an expression."""
        return half(size)

    def guard(self, index: Expression, extent: Size) -> Expression:
        """Return the index, and collect the condition that it is in [0, extent)."""
        self.conditions.append((index, extent))
        return index.guarded(extent)


class Indices:
    """Arithmetic on arrays of integers for one valuation. `inside` is true in iterations without an index beyond a border."""

    def __init__(self, valuation: Valuation) -> None:
        self.valuation = valuation
        self.inside: Array = np.array(True)

    def size(self, size: Size) -> int:
        """Return the value of `size` at the valuation."""
        return self.valuation.integer(size)

    def half(self, size: Size) -> int:
        """Return the value of `size // 2` at the valuation."""
        return self.valuation.integer(size) // 2

    def guard(self, index: Array, extent: Size) -> Array:
        """Return the index clipped to legal values, and clear `inside` where it was illegal."""
        n = self.valuation.integer(extent)
        self.inside = self.inside & (index >= 0) & (index < n)
        return np.clip(index, 0, n - 1)  # a legal address; what it reads is multiplied by zero


@dataclass(frozen=True)
class IndexMap:
    """The indices at which an operator reads its tensors: `y[i0, ...] = sum over r0, ... of x[input] * w1[...] * ...`.

    The expressions have the iterators `i0`, `i1` ... (output axes) and `r0`, `r1` ... (reductions). A summand for which a
    condition `0 <= index < extent` fails is zero.
    """

    input: tuple[Expression, ...]
    weights: tuple[tuple[Expression, ...], ...]
    conditions: tuple[tuple[Expression, Size], ...]


def index_map(graph: PGraph) -> IndexMap:
    """Return the operator's index map, simplified."""
    given = {dim: iterator(graph.labels[dim], dim.size) for dim in (*graph.output, *graph.reduces)}
    arithmetic = Symbolic()
    at = coordinates(graph.tops, given, arithmetic)
    return IndexMap(
        input=tuple(at[dim] for dim in graph.input),
        weights=tuple(tuple(at[dim] for dim in weight) for weight in graph.weights),
        conditions=tuple(dict.fromkeys(arithmetic.conditions)),
    )


def expression(graph: PGraph) -> str:
    """Return the operator as one line of text, with the conditions at borders.

    >>> import syno
    >>> print(expression(syno.OPERATORS["matmul"]()))
    y[i0, i1] = sum(r0) x[i0, r0] * w1[r0, i1]
    """
    reads, conditions = _reads_and_conditions(graph)
    loops = ", ".join(graph.labels[dim] for dim in graph.reduces)
    written = f"y[{', '.join(graph.labels[dim] for dim in graph.output)}]"
    where = f"  where {' and '.join(conditions)}" if conditions else ""
    return f"{written} = {f'sum({loops}) ' if loops else ''}{' * '.join(reads)}{where}"


def loop_nest(graph: PGraph) -> str:
    """Return the operator as nested loops over output axes and reductions, in Python's notation.

    >>> import syno
    >>> print(loop_nest(syno.OPERATORS["matmul"]()).rstrip())
    for i0 in range(M):
      for i1 in range(N):
        y[i0, i1] = 0
        for r0 in range(K):
          y[i0, i1] += x[i0, r0] * w1[r0, i1]
    """
    reads, conditions = _reads_and_conditions(graph)
    lines: list[str] = []
    depth = 0
    for dim in graph.output:
        lines.append(f"{'  ' * depth}for {graph.labels[dim]} in range({_extent(dim.size)}):")
        depth += 1
    written = f"y[{', '.join(graph.labels[dim] for dim in graph.output)}]"
    lines.append(f"{'  ' * depth}{written} = 0")
    for dim in graph.reduces:
        lines.append(f"{'  ' * depth}for {graph.labels[dim]} in range({_extent(dim.size)}):")
        depth += 1
    if conditions:
        lines.append(f"{'  ' * depth}if {' and '.join(conditions)}:")
        depth += 1
    lines.append(f"{'  ' * depth}{written} += {' * '.join(reads)}")
    return "\n".join(lines) + "\n"


def _reads_and_conditions(graph: PGraph) -> tuple[list[str], list[str]]:
    at = index_map(graph)
    reads = [_access("x", at.input)] + [_access(f"w{number}", axes) for number, axes in enumerate(at.weights, 1)]
    return reads, [f"0 <= {_text(index)} < {_extent(extent)}" for index, extent in at.conditions]


def _access(tensor: str, indices: Sequence[Expression]) -> str:
    return f"{tensor}[{', '.join(map(_text, indices))}]"


def _text(index: Expression) -> str:
    return index.text(lambda size: _extent(size).replace(" ", ""))


def _extent(size: Size) -> str:
    return size.integer_text(name=str)  # for people, so variables keep their names
