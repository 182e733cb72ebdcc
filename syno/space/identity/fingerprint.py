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
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from syno.algebra import Valuation, product
from syno.base.errors import GraphError
from syno.ir.dim import content_id
from syno.ir.graph import PGraph
from syno.space.identity.agreement import Array, Summands, eliminated, summed
from syno.space.identity.valuations import own_valuations, tiny_valuations, windows_of


def number_of_different(colors: Array) -> int:
    """Return the number of distinct values in an array of colors."""
    # `numpy.unique` takes ten times as long.
    ordered = np.sort(colors, axis=None)
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + 1


def mixed(numbers: Array) -> Array:
    """Hash `numbers` to 64-bit random numbers. They are odd, so that products lose no bits.

    Source: the finalizer of SplitMix64, Steele 2014.
    """
    bits: Array = numbers + np.uint64(0x9E3779B97F4A7C15)
    shifted = bits >> np.uint64(30)
    bits ^= shifted
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= np.right_shift(bits, np.uint64(27), out=shifted)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= np.right_shift(bits, np.uint64(31), out=shifted)
    bits |= np.uint64(1)
    return bits


# The summands of an operator at one valuation, and color refinement of the elements that they connect.
#
# Source: color refinement, Weisfeiler and Leman 1968; testing polynomials at random points, Schwartz 1980.

LARGEST_BATCH = 50_000  # most colors in one batch, over all ways to mark elements
TENSORS = ("output", "input")
Free = Sequence[tuple[set[int], set[int]]]  # unordered and rolled axes, of output and of input


@dataclass(frozen=True)
class Unnamed:
    """Elements without names (see the module): the elements of a weight, or the positions of an unordered axis."""

    seed: Array  # their first color
    at: Array  # the number of the element that each summand reads
    loops: set[int]  # the loops that `at` depends on
    colors: slice  # the place of their colors among all colors
    rolled: bool  # whether they follow each other in a ring
    marked: bool  # whether one of them at a time is marked if they have the same color
    is_each_once: bool  # whether `at` holds each of them once


class Connections:
    """The summands at one valuation, and the unnamed elements that they connect.

    Colors have one row for each way to mark elements. Other arrays have a first axis for the row, and one for each loop.
    """

    def __init__(self, graph: PGraph, summands: Summands, names: Sequence[Sequence[int]], free: Free) -> None:
        self.unnamed: list[Unnamed] = []
        self.size = 0
        sizes = summands.valuation
        named = [np.ones([1] * (len(summands.extents) + 1), np.uint64)]
        named += [inside[None].astype(np.uint64) for inside in summands.inside]
        for tensor, dims, own, (unordered, rolled) in zip(TENSORS, (graph.output, graph.input), names, free, strict=True):
            for axis, (dim, name) in enumerate(zip(dims, own, strict=True)):
                at, count, seed = summands.at[dim][None], sizes.integer(dim.size), _seed(f"{tensor} {name}")
                if axis in unordered or axis in rolled:
                    self._add(seed, at, count, axis in rolled, tensor == "output" and axis in rolled)
                else:
                    named.append(mixed(np.arange(count, dtype=np.uint64) + seed)[at])
        for weight in graph.weights:
            element = np.zeros_like(named[0], np.int64)
            for dim in weight:
                element = element * sizes.integer(dim.size) + summands.at[dim][None]
            self._add(_seed("weight"), element, sizes.numel(dim.size for dim in weight))
        touched = {loop for part in self.unnamed for loop in part.loops}
        extents = list(enumerate(summands.extents, 1))
        self.named = eliminated(named, {loop: extent for loop, extent in extents if loop not in touched})
        self.extents = {loop: extent for loop, extent in extents if loop in touched}

    def _add(self, seed: Array, at: Array, count: int, rolled: bool = False, marked: bool = False) -> None:
        loops = {axis for axis, extent in enumerate(at.shape) if extent > 1}
        is_each_once = at.size == count == np.count_nonzero(np.bincount(at.reshape(-1), minlength=count))
        self.unnamed.append(Unnamed(seed, at, loops, slice(self.size, self.size + count), rolled, marked, is_each_once))
        self.size += count

    def glance(self) -> int:
        """Return a number from the first round of colors, which is cheaper than `total`.

        If two numbers differ, so do the totals.
        """
        return int(self._hashed(self._round(self._first()))[0]) if self.unnamed else self.total()

    def total(self) -> int:
        """Return a number that describes all connections, and does not depend on the numbering of unnamed elements."""
        if not self.unnamed:
            return int(summed(self.named, {}).item())
        colors = self._refined(self._first())
        total = self._hashed(colors)
        if len(marks := self._marks(colors[0])):
            marked = np.repeat(colors, len(marks), axis=0)
            rows = np.arange(len(marks))[:, None]
            marked[rows, marks] = mixed(marked[rows, marks])
            total = mixed(total + self._hashed(self._refined(marked)))
        return int(total[0])

    def _first(self) -> Array:
        """Return the colors of all elements before the first round."""
        seeds = (np.broadcast_to(part.seed, part.colors.stop - part.colors.start) for part in self.unnamed)
        return np.concatenate([*seeds])[None]

    def _refined(self, colors: Array) -> Array:
        """Color refinement: return the colors after the last round that distinguishes more elements than the round before."""
        known = 0
        while (now := number_of_different(colors)) > known:
            known, colors = now, self._round(colors)
        return colors

    def _round(self, colors: Array) -> Array:
        """Return new colors: hashes of an element's color, the sum over its summands, and, in a rolled axis, the next color."""
        factors = [np.take(colors[:, part.colors], part.at[0], axis=1) for part in self.unnamed]
        new = mixed(colors)
        for place, part in enumerate(self.unnamed):
            others = factors[:place] + factors[place + 1 :]
            over = {loop: extent for loop, extent in self.extents.items() if loop not in part.loops}
            terms = np.broadcast_to(summed([*self.named, *others], over), (len(colors), *part.at.shape[1:]))
            if part.is_each_once:
                new[:, part.colors.start + part.at.reshape(-1)] += terms.reshape(len(colors), -1)
            else:
                first = np.arange(part.colors.start, colors.size, self.size).reshape(-1, *[1] * (part.at.ndim - 1))
                np.add.at(new.reshape(-1), (first + part.at).reshape(-1), terms.reshape(-1))
        new = mixed(new)
        for part in self.unnamed:
            if part.rolled:
                new[:, part.colors] += np.roll(colors[:, part.colors], -1, axis=1)
        return mixed(new)

    def _marks(self, colors: Array) -> Array:
        """Return the elements to mark, one row for each way: one element of every rolled output axis, and one of an unordered
        axis or weight.

        Each is an element of the smallest class of equal colors, of an axis or of all weights together. If there are too many
        ways, the largest classes are left out.
        """
        rings: list[Array] = []
        others: list[Array] = []
        for seed in sorted({int(part.seed[0]) for part in self.unnamed}):
            parts = [part for part in self.unnamed if int(part.seed[0]) == seed and part.rolled == part.marked]
            places = np.concatenate([np.arange(0), *(np.arange(self.size)[part.colors] for part in parts)])
            distinct, where, counts = np.unique(colors[places], return_inverse=True, return_counts=True)
            if (counts > 1).any():
                smallest = np.lexsort((distinct, np.where(counts > 1, counts, self.size + 1)))[0]
                (rings if parts[0].marked else others).append(places[where == smallest])
        others.sort(key=len)
        while (rings or others) and prod(map(len, rings)) * (sum(map(len, others)) or 1) * self.size > LARGEST_BATCH:
            (others or rings).pop()
        lasts = [[place] for group in others for place in group] or [[]]
        return np.array([[*ring, *last] for ring in itertools.product(*rings) for last in lasts if ring or last])

    def _hashed(self, colors: Array) -> Array:
        """Hash rows of colors to one number that is independent of the order of rows, of weights and of their elements."""
        parts = np.add.reduceat(mixed(colors), [part.colors.start for part in self.unnamed], axis=1)
        rows = mixed(parts + np.concatenate([part.seed for part in self.unnamed])).sum(axis=1)
        total: Array = mixed(rows).sum(keepdims=True)
        return total


@lru_cache(maxsize=1024)
def _seed(name: str) -> Array:
    return mixed(np.array([int(content_id("label", name)[:16], 16)], np.uint64))


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
    """Return 32 hexadecimal digits that are equal for operators that compute the same function, up to the freedom below.

    The notation is always free: layout and order of the weights (any permutation of a weight's elements), numbering of
    reductions, views that cancel each other, loops that are split or merged. The arguments add freedom.

    Args:
        graph: the operator.
        unordered_output: output axes whose positions may be permuted, because neighbouring weights absorb it.
        unordered_input: input axes whose positions may be permuted.
        rolled_output: output axes that may be rotated by any number of positions, the same for all other coordinates.
        rolled_input: input axes that may be rotated in this way.
        mirrors: pairs of output axes that may be exchanged together with a pair of input axes, as in `((2, 3), (2, 3))`.
        valuations: the valuations at which to evaluate. Those at which a size of the operator is not a whole number are
            skipped; if none remains, `own_valuations` of the operator are used. Only fingerprints at equal valuations can be
            compared.

    Different operators have different fingerprints, with two exceptions: those that agree at all of these valuations and have
    the same symbolic sizes of input, output and weights; and those whose unnamed elements are connected so regularly that
    marking one of them does not tell the others apart (hard cases of graph isomorphism).

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
    digests = []
    for names in _namings(graph, mirrors):
        totals = (str(Connections(graph, each, names, free).total()) for each in summands)
        digests.append(content_id("fingerprint", *content, *totals))
    return min(digests)


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
    """Return 32 hexadecimal digits that are equal if the fingerprints are equal, and mostly differ if they differ.

    They are made of the first round of colors at the first valuation, which takes an eighth of the fingerprint's time and
    distinguishes 282 of 300 operators of ResNet-18's space.

    Arguments, errors and source: as for `fingerprint`.
    """
    pairs = ((unordered_output, rolled_output), (unordered_input, rolled_input))
    free = [({*unordered}, {*rolled} - {*unordered}) for unordered, rolled in pairs]
    _check_axes(graph, free, mirrors)
    rows = _rows(graph, valuations)
    summands = Summands.of(graph, rows[0])
    numbers = {str(Connections(graph, summands, names, free).glance()) for names in _namings(graph, mirrors)}
    return content_id("glance", *_content(graph, rows), *sorted(numbers))


def same_operator(first: PGraph, second: PGraph, **free: Any) -> bool:
    """Return whether two operators have equal fingerprints at sizes that suit both; `free` are arguments of `fingerprint`.

    Source: module docstring.
    """
    rows = tiny_valuations([*first.sizes, *second.sizes], [*windows_of(first), *windows_of(second)])
    return fingerprint(first, valuations=rows, **free) == fingerprint(second, valuations=rows, **free)


def _rows(graph: PGraph, valuations: Iterable[Mapping[str, int]] | None) -> Sequence[Valuation]:
    """Return the valuations at which the operator is evaluated: those given at which its sizes are whole, else its own."""
    candidates = map(Valuation, valuations or ())
    rows = [row for row in candidates if all(row.fraction(size).denominator == 1 for size in graph.sizes)]
    return rows or own_valuations(graph)


def _content(graph: PGraph, rows: Sequence[Valuation]) -> list[str]:
    """Return the operator's shapes and the valuations as text, which is equal for equal operators."""
    content = [", ".join(str(dim.size) for dim in dims) for dims in (graph.output, graph.input)]
    content += sorted(str(product(dim.size for dim in weight)) for weight in graph.weights)
    return content + [str(sorted(row.items())) for row in rows]


def _namings(graph: PGraph, mirrors: Sequence[Mirror]) -> Iterator[list[list[int]]]:
    """Yield the numbers of the output axes and of the input axes, for every combination of mirrors."""
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
