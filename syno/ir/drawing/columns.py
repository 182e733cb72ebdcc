"""Horizontal positions in a layered layout: short edges first, then straight ones.

Source: Gansner, Koutsofios, North, Vo, "A Technique for Drawing Directed Graphs", 1993 (the objective, its weights).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from syno.ir.drawing.levels import Item, Levels, Link

_SWEEPS, _ROUNDS = 80, 6
_BEND, _LEAVE = 8.0, 2.0  # weights of a link between two points of an edge, and of one that leaves a node
Separation = Callable[[Item, Item], float]
Offset = Callable[[Item, int, bool], float]


class Columns:
    """Finds `x`, the middle of every item, in whole pixels.

    `separation(left, right)` is the least distance of neighbours in a level; `offset(item, port, above)` is where a
    link meets an item, from its middle.
    """

    def __init__(self, levels: Levels, separation: Separation, offset: Offset) -> None:
        self.levels = levels
        self.x: dict[Item, float] = {}
        self.before: dict[Item, tuple[Item, float]] = {}
        self.after: dict[Item, tuple[Item, float]] = {}
        for items in levels.levels:
            position = 0.0
            for index, item in enumerate(items):
                if index:
                    apart = separation(items[index - 1], item)
                    self.before[item], self.after[items[index - 1]] = (items[index - 1], apart), (item, apart)
                    position += apart
                self.x[item] = position
        self.pulls: dict[Item, list[tuple[Item, float, float]]] = {item: [] for item in self.x}
        for chain in levels.chains:
            for link in chain:
                shift = offset(link.upper, link.upper_port, False) - offset(link.lower, link.lower_port, True)
                weight = _BEND if link.upper.node is None and link.lower.node is None else _LEAVE
                self.pulls[link.upper].append((link.lower, -shift, weight))
                self.pulls[link.lower].append((link.upper, shift, weight))
        for _ in range(_SWEEPS):
            for items in (*levels.levels, *levels.levels[::-1]):
                self._settle(items)
        for item, position in self.x.items():
            self.x[item] = float(round(position))
        for _ in range(_ROUNDS):
            self._straighten()

    def _settle(self, items: Sequence[Item]) -> None:
        """The least sum of squares for one level, given the others: a monotone regression on x less all separations."""
        blocks: list[tuple[float, float, int]] = []  # mean, weight, number of items that stand tight
        total = 0.0
        start: list[float] = []
        for item in items:
            total += self.before[item][1] if item in self.before else 0.0
            start.append(total)
            weight = sum(pull[2] for pull in self.pulls[item])
            wanted = sum((self.x[other] + shift) * pull for other, shift, pull in self.pulls[item])
            blocks.append((wanted / weight - total, weight, 1))
            while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
                (mean, mass, many), (last, weight, few) = blocks[-2], blocks[-1]
                blocks[-2:] = [((mean * mass + last * weight) / (mass + weight), mass + weight, many + few)]
        means = [mean for mean, _, many in blocks for _ in range(many)]
        self.x.update((item, mean + begin) for item, mean, begin in zip(items, means, start, strict=True))

    def _straighten(self) -> None:
        """Move nodes, and the points of an edge together, to where edges are straight, if there is room and it pays."""
        for item in self.x:
            self._move([item], [round(self.x[other] + shift) for other, shift, _ in self.pulls[item]])
        for chain in self.levels.chains:
            points = [link.lower for link in chain[:-1]]
            if points:
                ends = [round(self.x[end] + shift) for end, shift in (self._end(chain[0], points[0]), self._end(chain[-1], points[-1]))]
                self._move(points, [*ends, *(round(self.x[point]) for point in points)])

    def _end(self, link: Link, point: Item) -> tuple[Item, float]:
        node = link.upper if link.lower is point else link.lower
        return next((other, shift) for other, shift, _ in self.pulls[point] if other is node)

    def _move(self, items: Sequence[Item], wanted: Sequence[float]) -> None:
        """Put all `items` at the one of the `wanted` positions that costs least, unless staying costs less."""
        low = max((self.x[self.before[item][0]] + self.before[item][1] for item in items if item in self.before), default=-1e9)
        high = min((self.x[self.after[item][0]] - self.after[item][1] for item in items if item in self.after), default=1e9)
        stay = {item: self.x[item] for item in items}
        best, cheapest = stay, self._cost(items)
        for position in wanted:
            if low <= position <= high:
                self.x.update((item, float(position)) for item in items)
                cost = self._cost(items)
                if cost < cheapest:
                    best, cheapest = {item: self.x[item] for item in items}, cost
        self.x.update(stay)
        self.x.update(best)

    def _cost(self, items: Sequence[Item]) -> float:
        """How far the links at these items are from straight, each counted by its weight; any bend costs a bit more."""
        bends = [
            (abs(self.x[item] - self.x[other] - shift), weight) for item in items for other, shift, weight in self.pulls[item]
        ]
        return sum((bend + 6.0 * (bend > 0)) * weight for bend, weight in bends)
