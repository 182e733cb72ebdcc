"""The summands of an operator at one valuation, and color refinement of the elements that they connect.

Source: color refinement, Weisfeiler and Leman 1968; testing polynomials at random points, Schwartz 1980.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from syno.ir.dim import content_id
from syno.ir.graph import PGraph
from syno.space.identity.agreement import Array, Summands, eliminated, summed
from syno.space.identity.colors import mixed, number_of_different

LARGEST_BATCH = 50_000  # colors that are refined at once when elements are marked in turn
TENSORS = ("output", "input")
Free = Sequence[tuple[set[int], set[int]]]  # unordered and rolled axes, of output and of input


@dataclass(frozen=True)
class Unnamed:
    """Elements without names: those of a weight, or the positions of an axis."""

    seed: Array  # their first color
    at: Array  # the number of the element that each summand reads
    loops: set[int]  # the loops that `at` depends on
    colors: slice  # the place of their colors among all colors
    rolled: bool  # whether they follow each other in a ring
    marked: bool  # whether one of them at a time is marked if they have the same color
    is_each_once: bool  # whether `at` holds each of them once


class Connections:
    """The summands at one valuation, and the elements without names that they connect.

    Colors are in rows, one for each way to mark elements. Other arrays have a first axis for the row and one for each loop.
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
        """Return one number from the first round of colors: wherever it differs, `total` differs, which takes longer."""
        return int(self._hashed(self._round(self._first()))[0]) if self.unnamed else self.total()

    def total(self) -> int:
        """Return one number for all connections, the same however the elements without names are numbered."""
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
        """Return the colors before the first round."""
        seeds = (np.broadcast_to(part.seed, part.colors.stop - part.colors.start) for part in self.unnamed)
        return np.concatenate([*seeds])[None]

    def _refined(self, colors: Array) -> Array:
        """Return the colors after as many rounds as tell more elements apart."""
        known = 0
        while (now := number_of_different(colors)) > known:
            known, colors = now, self._round(colors)
        return colors

    def _round(self, colors: Array) -> Array:
        """Return new colors, made of the old one, the sum over the element's summands, and the next element's in its ring."""
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
        """Return the elements to mark, a row for each way: one of every rolled output axis, and one of an unordered axis
        or weight.

        It is one of the smallest set with the same color, of an axis or of all weights together. If there are too many ways,
        those with the largest sets are left out.
        """
        rings: list[Array] = []
        others: list[Array] = []
        for seed in sorted({int(part.seed[0]) for part in self.unnamed}):
            parts = [part for part in self.unnamed if int(part.seed[0]) == seed and part.rolled == part.marked]
            places = np.concatenate([np.arange(0), *(np.arange(self.size)[part.colors] for part in parts)])
            found, where, counts = np.unique(colors[places], return_inverse=True, return_counts=True)
            if (counts > 1).any():
                smallest = np.lexsort((found, np.where(counts > 1, counts, self.size + 1)))[0]
                (rings if parts[0].marked else others).append(places[where == smallest])
        others.sort(key=len)
        while (rings or others) and prod(map(len, rings)) * (sum(map(len, others)) or 1) * self.size > LARGEST_BATCH:
            (others or rings).pop()
        lasts = [[place] for group in others for place in group] or [[]]
        return np.array([[*ring, *last] for ring in itertools.product(*rings) for last in lasts if ring or last])

    def _hashed(self, colors: Array) -> Array:
        """Return one number for rows of colors that depends on no order: of rows, of weights, or of elements of each."""
        parts = np.add.reduceat(mixed(colors), [part.colors.start for part in self.unnamed], axis=1)
        rows = mixed(parts + np.concatenate([part.seed for part in self.unnamed])).sum(axis=1)
        total: Array = mixed(rows).sum(keepdims=True)
        return total


@lru_cache(maxsize=1024)
def _seed(name: str) -> Array:
    return mixed(np.array([int(content_id("label", name)[:16], 16)], np.uint64))
