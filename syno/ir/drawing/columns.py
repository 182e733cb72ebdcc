"""Horizontal positions in a layered layout: balanced ones, then those with the straightest edges.

The objective is a linear program, but scipy's `linprog` does worse here: of the many equally good positions it returns others,
which depend on its version and are less balanced.

Sources: Gansner, Koutsofios, North, Vo, "A Technique for Drawing Directed Graphs", 1993 (the objective and its weights);
Murota, "Discrete Convex Analysis", 2003, chapter 10 (steepest descent finds its minimum).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import floor

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from syno.ir.drawing.levels import Item, Levels

_SWEEPS = 60  # of the balancing
_STEPS = (32, 16, 8, 4, 2, 1)  # of the descent; the last one makes it exact
# Weights of links: inside an edge (long edges are straight first), at the only edge of a node's side, at one of several edges.
_ALONG, _ALONE, _BESIDE = 8, 4, 2
_FUZZ = 1e-6  # makes rounding independent of the last digits of sums, which differ between versions of Python
_ENDLESS = 1 << 30  # capacity of an arc that no cut may contain


def columns(
    levels: Levels, separation: Callable[[Item, Item], int], offset: Callable[[Item, int, bool], int]
) -> dict[Item, int]:
    """Return the middle of every item, such that the sum of |horizontal run| * weight over all links is least.

    Of equally good positions, those near balanced positions are taken (the least sum of squares).

    Args:
        levels: the items of each level in their order, and the links between them.
        separation: `(left, right)` -> the least distance of two neighbours in a level, in pixels.
        offset: `(item, port, above)` -> the distance from the item's middle at which a link meets it, in pixels.
    """
    return _Columns(levels, separation, offset).solve()


class _Columns:
    """The items by number, the least distance of each to its left neighbour, and the links."""

    def __init__(
        self, levels: Levels, separation: Callable[[Item, Item], int], offset: Callable[[Item, int, bool], int]
    ) -> None:
        self.items = [item for items in levels.levels for item in items]
        number = {item: index for index, item in enumerate(self.items)}
        self.levels = [[number[item] for item in items] for items in levels.levels]
        self.apart: dict[int, tuple[int, int]] = {}  # right -> (left, distance)
        for items in levels.levels:
            for left, right in pairwise(items):
                self.apart[number[right]] = (number[left], separation(left, right))
        self.links: list[tuple[int, int, int, int]] = []  # upper, lower, wanted x[upper] - x[lower], weight
        for link in (link for chain in levels.chains for link in chain):
            shift = offset(link.lower, link.lower_port, True) - offset(link.upper, link.upper_port, False)
            ends = (link.upper.node, link.lower.node)
            several = (ends[0] and ends[0].roles_below) or (ends[1] and ends[1].roles_above)
            weight = _ALONG if ends == (None, None) else _BESIDE if several else _ALONE
            self.links.append((number[link.upper], number[link.lower], shift, weight))

    def solve(self) -> dict[Item, int]:
        x = [floor(position + 0.5 + _FUZZ) for position in self._balanced()]
        for right, (left, distance) in self.apart.items():
            x[right] = max(x[right], x[left] + distance)
        for step in _STEPS:
            moving = True
            while moving:
                moving = self._descend(x, step)
                moving = self._descend(x, -step) or moving
        return dict(zip(self.items, x, strict=True))

    def _balanced(self) -> list[float]:
        """Return positions near the least sum of squared horizontal runs, found level by level with the others fixed."""
        pulls: list[list[tuple[int, int, int]]] = [[] for _ in self.items]
        for upper, lower, shift, weight in self.links:
            pulls[upper].append((lower, shift, weight))
            pulls[lower].append((upper, -shift, weight))
        x = [0.0] * len(self.items)
        for level in _SWEEPS * (*self.levels, *self.levels[::-1]):
            self._settle(level, x, pulls)
        return x

    def _settle(self, level: Sequence[int], x: list[float], pulls: Sequence[Sequence[tuple[int, int, int]]]) -> None:
        """Set the best positions in one level, by isotonic regression of the wanted positions less the least distances."""
        blocks: list[tuple[float, int, int]] = []  # items at their least distances: their mean, weight and number
        starts = []
        start = 0
        for item in level:
            start += self.apart[item][1] if item in self.apart else 0
            starts.append(start)
            weight = sum(pull for _, _, pull in pulls[item])
            wanted = sum((x[other] + shift) * pull for other, shift, pull in pulls[item]) / weight
            blocks.append((wanted - start, weight, 1))
            while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
                (one, heavy, many), (other_mean, light, few) = blocks[-2:]
                blocks[-2:] = [((one * heavy + other_mean * light) / (heavy + light), heavy + light, many + few)]
        means = [mean for mean, _, many in blocks for _ in range(many)]
        for item, mean, start in zip(level, means, starts, strict=True):
            x[item] = mean + start

    def _descend(self, x: list[int], step: int) -> bool:
        """Move by `step` the set of items for which the sum falls most, and return whether there is such a set.

        The set is a minimum cut: what moves is reachable from the source in the residual network of a maximum flow.
        """
        count = len(self.items)
        source, sink = count, count + 1
        capacity = np.zeros((count + 2, count + 2), dtype=np.int32)
        costs = [0] * count
        for upper, lower, shift, weight in self.links:
            run = x[upper] - x[lower] - shift
            one = weight * (abs(run + step) - abs(run))  # the cost of moving only the upper item
            other = weight * (abs(run - step) - abs(run))  # ... only the lower item; to move both costs nothing
            credit = min(one, 0) - min(other, 0)  # a negative cost becomes the items' own, so that no arc has one
            costs[upper] += credit
            costs[lower] -= credit
            capacity[upper, lower] += one - credit
            capacity[lower, upper] += other + credit
        for right, (left, distance) in self.apart.items():
            if x[right] - x[left] - distance < abs(step):
                capacity[(left, right) if step > 0 else (right, left)] = _ENDLESS
        capacity[source, :count] = np.maximum(np.negative(costs), 0)
        capacity[:count, sink] = np.maximum(costs, 0)
        flow = maximum_flow(csr_array(capacity), source, sink).flow
        residual = csr_array(capacity - flow.toarray())
        moved = breadth_first_order(residual, source, return_predecessors=False)[1:]
        for item in moved:
            x[item] += step
        return len(moved) > 0
