"""Horizontal positions in a layered layout: balanced first, then the straightest.

Sources: Gansner, Koutsofios, North, Vo, "A Technique for Drawing Directed Graphs", 1993 (the objective and its weights);
Murota, "Discrete Convex Analysis", 2003, chapter 10 (steepest descent finds its minimum).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import floor

from syno.ir.drawing.levels import Item, Levels

_SWEEPS = 60  # of the balancing
_STEPS = (32, 16, 8, 4, 2, 1)  # of the descent; the last one makes it exact
# Weights: of a link within an edge (long edges are straight first), at the only edge of a node's side, at one of several.
_ALONG, _ALONE, _BESIDE = 8, 4, 2
_FUZZ = 1e-6  # so that the last digits of a sum, which differ between versions of Python, decide nothing
_SOURCE, _SINK, _ENDLESS = -1, -2, 1 << 40


def columns(
    levels: Levels, separation: Callable[[Item, Item], int], offset: Callable[[Item, int, bool], int]
) -> dict[Item, int]:
    """The middle of every item, such that the sum of |horizontal run| * weight over all links is least.

    `separation(left, right)` is the least distance of neighbours in a level; `offset(item, port, above)` is where a
    link meets an item, from its middle. Of equally good positions these are near balanced ones (the sum of squares).
    """
    return _Columns(levels, separation, offset).solve()


class _Columns:
    """Items by number: what lies left of each and how far at least, and what pulls them together."""

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
        """Positions near the least sum of squared horizontal runs: level after level, the others being fixed."""
        pulls: list[list[tuple[int, int, int]]] = [[] for _ in self.items]
        for upper, lower, shift, weight in self.links:
            pulls[upper].append((lower, shift, weight))
            pulls[lower].append((upper, -shift, weight))
        x = [0.0] * len(self.items)
        for level in _SWEEPS * (*self.levels, *self.levels[::-1]):
            self._settle(level, x, pulls)
        return x

    def _settle(self, level: Sequence[int], x: list[float], pulls: Sequence[Sequence[tuple[int, int, int]]]) -> None:
        """The best positions in one level: a monotone regression of those wanted, less the distances from the left."""
        blocks: list[tuple[float, int, int]] = []  # items that stand tight: their mean, weight and number
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
        """Move by `step` the set of items for which the sum falls most: a minimum cut. Whether there is such a set."""
        alone: dict[int, int] = defaultdict(int)
        arcs: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for upper, lower, shift, weight in self.links:
            run = x[upper] - x[lower] - shift
            one = weight * (abs(run + step) - abs(run))  # what it costs to move only the upper item
            other = weight * (abs(run - step) - abs(run))  # ... only the lower item; to move both costs nothing
            credit = min(one, 0) - min(other, 0)  # a negative cost becomes the items' own, so that no arc has one
            alone[upper] += credit
            alone[lower] -= credit
            arcs[upper][lower] += one - credit
            arcs[lower][upper] += other + credit
        for right, (left, distance) in self.apart.items():
            if x[right] - x[left] - distance < abs(step):
                pusher, pushed = (left, right) if step > 0 else (right, left)
                arcs[pusher][pushed] += _ENDLESS
        for item, cost in alone.items():
            arcs[_SOURCE][item], arcs[item][_SINK] = max(0, -cost), max(0, cost)
        moved = _cut(arcs)
        for item in moved:
            x[item] += step
        return bool(moved)


def _cut(arcs: dict[int, dict[int, int]]) -> list[int]:
    """Saturate all ways from source to sink; what the source then still reaches. `arcs` become the residual ones."""
    while True:
        came = {_SOURCE: _SOURCE}
        queue = deque([_SOURCE])
        while queue and _SINK not in came:
            here = queue.popleft()
            for there, capacity in arcs[here].items():
                if capacity > 0 and there not in came:
                    came[there] = here
                    queue.append(there)
        if _SINK not in came:
            return [item for item in came if item != _SOURCE]
        way = [_SINK]
        while way[-1] != _SOURCE:
            way.append(came[way[-1]])
        pairs = list(zip(way[1:], way, strict=False))
        flow = min(arcs[here][there] for here, there in pairs)
        for here, there in pairs:
            arcs[here][there] -= flow
            arcs[there][here] += flow
