"""Levels of a drawing, and the order within each: the first two steps of a layered layout.

Levels are counted from the top. Some hold nodes, those between them hold labels of edges. An edge has an item on every
level that it passes, so that nothing else is drawn there.

Source: Sugiyama, Tagawa, Toda, "Methods for Visual Understanding of Hierarchical System Structures", 1981.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

from syno.ir.drawing.diagram import Diagram, Edge, Group, Node

_SWEEPS = 6  # down and up, from each start
_PERMUTED = 4  # with at most so many tensors at the top, every order of them is a start
_PLACE = 8  # weight of a place beside that of a port, which only sorts the edges of one node


@dataclass(eq=False)
class Item:
    """An item on a level: a node, or a point that an edge passes, `labelled` if the edge's label is there."""

    level: int
    node: Node | None = None
    group: Group | None = None
    edge: Edge | None = None
    labelled: bool = False


@dataclass(frozen=True, eq=False)
class Link:
    """A piece of an edge between neighbouring levels; a port is 0 if that end is not a node."""

    edge: Edge
    upper: Item
    upper_port: int
    lower: Item
    lower_port: int


Unit = tuple[Item, ...]  # items that stay together in this order: the axes of one tensor, or a single item
Arrangement = list[list[Unit]]  # the units of each level, from left to right


@dataclass(frozen=True)
class Levels:
    """The items of each level, from left to right, and each edge as its links, from top to bottom."""

    levels: tuple[tuple[Item, ...], ...]
    chains: tuple[tuple[Link, ...], ...]


def ordered_levels(picture: Diagram) -> Levels:
    """Return the levels, ordered so that few edges cross. A diagram has the same levels in every process."""
    units, chains = _levels(picture)
    gaps: list[list[Link]] = [[] for _ in units]
    for chain in chains:
        for link in chain:
            gaps[link.upper.level].append(link)
    natural = units[0]
    starts = permutations(natural) if len(natural) <= _PERMUTED else iter((natural, natural[::-1]))
    candidates = (_improved([list(start), *units[1:]], gaps) for start in starts)
    best = min(candidates, key=lambda arrangement: sum(_all_crossings(arrangement, gaps)))  # the first of equally good ones
    return Levels(tuple(tuple(_items(level)) for level in best), tuple(chains))


def _rows(picture: Diagram) -> dict[str, int]:
    """Return the row of each node: the length of its longest path down; axes of input and weights are in the top row."""
    rows = {node.name: 0 for node in picture.nodes}
    for node in picture.operations:  # bottom-up: what lies below is settled
        rows[node.name] = 1 + max(rows[edge.lower.name] for edge in picture.edges if edge.upper is node)
    top = 1 + max(rows.values(), default=0)
    return rows | {node.name: top for group in picture.sources for node in group.nodes}


def _levels(picture: Diagram) -> tuple[Arrangement, list[tuple[Link, ...]]]:
    rows = _rows(picture)
    last = 2 * max(rows.values(), default=0)
    even = {name: last - 2 * row for name, row in rows.items()}
    label = {edge.label: _label_level(edge, even[edge.upper.name], even[edge.lower.name]) for edge in picture.edges}
    used = sorted({*range(0, last + 1, 2), *(level for level in label.values() if level is not None)})
    number = {level: index for index, level in enumerate(used)}  # levels for labels only where there are any
    units: Arrangement = [[] for _ in used]
    standing: dict[str, Item] = {}

    def stand(nodes: Sequence[Node], group: Group | None = None) -> None:
        unit = tuple(Item(number[even[node.name]], node=node, group=group) for node in nodes)
        standing.update(zip((node.name for node in nodes), unit, strict=True))
        units[unit[0].level].append(unit)

    for group in (*picture.sources, *picture.output):
        stand(group.nodes, group)
    for node in (*picture.operations, *picture.reduces):
        stand([node])
    chains = []
    for edge in picture.edges:
        upper, lower = standing[edge.upper.name], standing[edge.lower.name]
        passed = range(upper.level + 1, lower.level)
        points = [Item(level, edge=edge, labelled=used[level] == label[edge.label]) for level in passed]
        for point in points:
            units[point.level].append((point,))
        ports = [edge.upper_port, *(0 for _ in points)], [*(0 for _ in points), edge.lower_port]
        chains.append(
            tuple(Link(edge, *ends) for ends in zip([upper, *points], ports[0], [*points, lower], ports[1], strict=True))
        )
    return units, chains


def _label_level(edge: Edge, upper: int, lower: int) -> int | None:
    """Return the level of an edge's label; None if an axis or a Reduce near one of its ends shows the size already."""
    if edge.upper.family.is_end and edge.lower.family.is_end:
        return None
    if edge.upper.family.is_end:
        return lower - 1 if lower - upper > 2 else None
    return upper + 1 if lower - upper > 2 or not edge.lower.family.is_end else None


def _items(units: Sequence[Unit]) -> Iterator[Item]:
    return (item for unit in units for item in unit)


def _places(units: Sequence[Unit]) -> dict[Item, int]:
    return {item: place for place, item in enumerate(_items(units))}


def _crossings(upper: Sequence[Unit], lower: Sequence[Unit], links: Sequence[Link]) -> int:
    """Return how many pairs of links cross; links that meet in an item do not."""
    above, below = _places(upper), _places(lower)
    seen: list[int] = []
    count = 0
    for _, end in sorted((above[link.upper], below[link.lower]) for link in links):
        count += len(seen) - bisect_right(seen, end)
        insort(seen, end)
    return count


def _all_crossings(arrangement: Arrangement, gaps: Sequence[Sequence[Link]]) -> list[int]:
    return [_crossings(arrangement[i], arrangement[i + 1], gaps[i]) for i in range(len(arrangement) - 1)]


def _improved(arrangement: Arrangement, gaps: Sequence[Sequence[Link]]) -> Arrangement:
    """Return the best result of some sweeps: units move to the mean place of their neighbours, then neighbours swap."""
    best, fewest = arrangement, -1
    current = list(arrangement)
    for _ in range(_SWEEPS):
        for order in (range(1, len(current)), range(len(current) - 2, -1, -1)):
            previous = -1 if order.step == 1 else 1
            for level in order:
                fixed = level + previous
                current[level] = _by_barycenter(current[level], current[fixed], gaps[min(level, fixed)])
        current = _swapped(current, gaps)
        count = sum(_all_crossings(current, gaps))
        if fewest < 0 or count < fewest:
            best, fewest = list(current), count
    return best


def _by_barycenter(units: list[Unit], fixed: list[Unit], links: Sequence[Link]) -> list[Unit]:
    """Return `units` sorted by the mean place of their neighbours in the level `fixed`, or their own without any."""
    places, own = _places(fixed), _places(units)
    pulls: dict[Item, list[int]] = {item: [] for item in own}
    for link in links:
        if link.upper in places:
            pulls[link.lower].append(_PLACE * places[link.upper] + link.upper_port)
        else:
            pulls[link.upper].append(_PLACE * places[link.lower] + link.lower_port)

    def barycenter(unit: Unit) -> Fraction:
        found = [pull for item in unit for pull in pulls[item]]
        return Fraction(sum(found), len(found)) if found else Fraction(_PLACE * own[unit[0]])

    return sorted(units, key=barycenter)


def _swapped(arrangement: Arrangement, gaps: Sequence[Sequence[Link]]) -> Arrangement:
    """Return the arrangement after swapping neighbours as long as that removes crossings."""
    current = list(arrangement)

    def around(level: int, units: list[Unit]) -> int:
        above = _crossings(current[level - 1], units, gaps[level - 1]) if level else 0
        return above + (_crossings(units, current[level + 1], gaps[level]) if level + 1 < len(current) else 0)

    changed = True
    while changed:
        changed = False
        for level in range(len(current)):
            for index in range(len(current[level]) - 1):
                units = list(current[level])
                units[index : index + 2] = units[index + 1], units[index]
                if around(level, units) < around(level, current[level]):
                    current[level], changed = units, True
    return current
