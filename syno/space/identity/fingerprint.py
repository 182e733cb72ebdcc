"""Fingerprints: equal for operators that compute the same, however they are written.

At tiny sizes an operator is a set of summands. Each connects an element of the output, one of the input, and one of every
weight. Elements of output and input have names, their coordinates. Elements of a weight have none, because its layout is
free, and neither have positions of an unordered axis. Color refinement tells these apart: in each round, the new color of
an element depends on the colors of all elements that it shares a summand with. If some elements have the same color at the
end, one of them at a time is marked, and all are refined once more.

The summands are not listed. Names and colors are random numbers modulo 2**64, a summand is their product, and the sum over
summands is evaluated like any operator, one loop after the other. Different sets of summands have equal sums with a
probability below 2**-40, at each valuation.

Source: color refinement, Weisfeiler and Leman 1968; testing polynomials at random points, Schwartz 1980.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from syno.algebra import Valuation, product
from syno.base.errors import GraphError
from syno.ir.dim import content_id
from syno.ir.graph import PGraph
from syno.space.identity.agreement import Summands
from syno.space.identity.connections import TENSORS, Connections, Free
from syno.space.identity.valuations import own_valuations, tiny_valuations, windows_of

Mirror = tuple[tuple[int, int], tuple[int, int]]  # axes of the output, axes of the input


def fingerprint(
    graph: PGraph,
    *,
    unordered_output: Collection[int] = (),
    unordered_input: Collection[int] = (),
    rolled_output: Collection[int] = (),
    rolled_input: Collection[int] = (),
    mirrors: Sequence[Mirror] = (),
    valuations: Iterable[Mapping[str, int]] | None = None,
) -> str:
    """Return 32 hexadecimal digits that are equal for two operators which differ only in what is free.

    How an operator is written is free: layout and order of its weights (any renaming of the elements of one), numbers of
    reductions, views that cancel each other, loops that are split or merged. The arguments free more.

    Args:
        graph: the operator.
        unordered_output: output axes whose positions may be permuted, because neighbouring weights absorb it.
        unordered_input: such axes of the input.
        rolled_output: output axes that may be rotated by any number of positions, alike for all other coordinates.
        rolled_input: such axes of the input.
        mirrors: two output axes that may change places together with two input axes, as in `((2, 3), (2, 3))`.
        valuations: where to evaluate. Those at which some size of the operator is not a whole number are left out; if none
            remains, `own_valuations` of the operator are used. Equal operators have equal fingerprints only at equal
            valuations: give the same to all that are to be compared.

    Different operators have different fingerprints, with two exceptions: those that agree at all of these valuations and
    have the same symbolic sizes of input, output and weights; and those whose unnamed elements are connected so regularly
    that marking one of them does not tell the others apart (hard cases of graph isomorphism).

    Raises:
        GraphError: an axis does not exist, or mirrored axes have different sizes.
        ValuationError: a variable lacks a value.

    Source: module docstring.
    """
    pairs = ((unordered_output, rolled_output), (unordered_input, rolled_input))
    free = [({*unordered}, {*rolled} - {*unordered}) for unordered, rolled in pairs]
    _check_axes(graph, free, mirrors)
    rows = _rows(graph, valuations)
    content, summands = _content(graph, rows), [Summands.of(graph, row) for row in rows]
    found = []
    for names in _namings(graph, mirrors):
        totals = (str(Connections(graph, each, names, free).total()) for each in summands)
        found.append(content_id("fingerprint", *content, *totals))
    return min(found)


def glance(
    graph: PGraph,
    *,
    unordered_output: Collection[int] = (),
    unordered_input: Collection[int] = (),
    rolled_output: Collection[int] = (),
    rolled_input: Collection[int] = (),
    mirrors: Sequence[Mirror] = (),
    valuations: Iterable[Mapping[str, int]] | None = None,
) -> str:
    """Return 32 hexadecimal digits that are equal where fingerprints are. Where fingerprints differ, these mostly do.

    They are made of the first round of colors at the first valuation, which takes an eighth of the fingerprint's time.

    Arguments, errors and source: those of `fingerprint`.
    """
    pairs = ((unordered_output, rolled_output), (unordered_input, rolled_input))
    free = [({*unordered}, {*rolled} - {*unordered}) for unordered, rolled in pairs]
    _check_axes(graph, free, mirrors)
    rows = _rows(graph, valuations)
    summands = Summands.of(graph, rows[0])
    found = {str(Connections(graph, summands, names, free).glance()) for names in _namings(graph, mirrors)}
    return content_id("glance", *_content(graph, rows), *sorted(found))


def same_operator(first: PGraph, second: PGraph, **free: Any) -> bool:
    """Return whether two operators have equal fingerprints at sizes that suit both; `free` are arguments of `fingerprint`.

    Source: module docstring.
    """
    rows = tiny_valuations([*first.sizes, *second.sizes], [*windows_of(first), *windows_of(second)])
    return fingerprint(first, valuations=rows, **free) == fingerprint(second, valuations=rows, **free)


def _rows(graph: PGraph, valuations: Iterable[Mapping[str, int]] | None) -> Sequence[Valuation]:
    """Return the valuations at which the operator is evaluated."""
    given = map(Valuation, valuations or ())
    rows = [row for row in given if all(row.fraction(size).denominator == 1 for size in graph.sizes)]
    return rows or own_valuations(graph)


def _content(graph: PGraph, rows: Sequence[Valuation]) -> list[str]:
    """Return the shapes and the valuations, which equal operators have in common."""
    content = [", ".join(str(dim.size) for dim in dims) for dims in (graph.output, graph.input)]
    content += sorted(str(product(dim.size for dim in weight)) for weight in graph.weights)
    return content + [str(sorted(row.items())) for row in rows]


def _namings(graph: PGraph, mirrors: Sequence[Mirror]) -> Iterator[list[list[int]]]:
    """Yield the names of the axes of output and input for every choice of mirrors."""
    for chosen in itertools.product((False, True), repeat=len(mirrors)):
        names = [list(range(len(dims))) for dims in (graph.output, graph.input)]
        for mirror in itertools.compress(mirrors, chosen):
            for own, (a, b) in zip(names, mirror, strict=True):
                own[a], own[b] = own[b], own[a]
        yield names


def _check_axes(graph: PGraph, free: Free, mirrors: Sequence[Mirror]) -> None:
    for number, (tensor, dims) in enumerate(zip(TENSORS, (graph.output, graph.input), strict=True)):
        mirrored = [mirror[number] for mirror in mirrors]
        for axis in (*free[number][0], *free[number][1], *(axis for pair in mirrored for axis in pair)):
            if not 0 <= axis < len(dims):
                raise GraphError(f"{graph!r} has no {tensor} axis {axis}; its axes are 0 to {len(dims) - 1}")
        for a, b in mirrored:
            if dims[a].size is not dims[b].size:
                raise GraphError(f"{tensor} axes {a} and {b} are mirrored, but have sizes {dims[a].size} and {dims[b].size}")
