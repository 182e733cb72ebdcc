"""Evaluating Table 1: the coordinate of every dim, from those of the dims below it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def expression(graph: PGraph) -> str:
    """One line: `y[i0, i1] = sum(r0) x[i0, r0] * w1[r0, i1]`, with the conditions for borders if there are any."""
    reads, conditions = _reads_and_conditions(graph)
    loops = ", ".join(graph.labels[dim] for dim in graph.reduces)
    written = f"y[{', '.join(graph.labels[dim] for dim in graph.output)}]"
    where = f"  where {' and '.join(conditions)}" if conditions else ""
    return f"{written} = {f'sum({loops}) ' if loops else ''}{' * '.join(reads)}{where}"


def loop_nest(graph: PGraph) -> str:
    """The operator as nested loops over output axes and reductions, in Python's notation."""
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
    return size.integer_text(name=str)  # people read this, so variables have their own names
