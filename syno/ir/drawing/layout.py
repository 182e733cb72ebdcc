"""Layered layout of a drawing: the levels of nodes, their order in each level, and their columns. Lengths are in pixels.

Levels are counted from the top. Some hold nodes, those between them hold labels of edges. An edge has an item on every
level that it passes, so that nothing else is drawn there.

Source: Sugiyama, Tagawa, Toda, "Methods for Visual Understanding of Hierarchical System Structures", 1981.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise, permutations
from math import floor
from statistics import median_low

from syno.ir.drawing.diagram import Diagram, Edge, Family, Node, TensorAxes, diagram
from syno.ir.graph import PGraph

_SWEEPS = 6  # down and up, from each start
_PERMUTED = 4  # with at most so many tensors at the top, each order of them is a starting point
_PLACE = 8  # weight of a node's place relative to that of a port, which only sorts the edges of one node


@dataclass(eq=False)
class Item:
    """An item on a level: a node, or a point that an edge passes, `labelled` if the edge's label is there."""

    level: int
    node: Node | None = None
    group: TensorAxes | None = None
    edge: Edge | None = None
    labelled: bool = False


@dataclass(frozen=True, eq=False)
class Link:
    """A piece of an edge between neighbouring levels. A port is the position at a node's side, 0 at an end that is no node."""

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

    def stand(nodes: Sequence[Node], group: TensorAxes | None = None) -> None:
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
    """Return the level of an edge's label; None if an axis or a Reduce near one of its ends already shows the size."""
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
    """Return the number of pairs of links that cross; links that meet in one item do not cross."""
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
    """Return the best arrangement after some sweeps: units move to the mean place of their neighbours, then neighbours swap."""
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
    """Return `units` sorted by the mean place of their neighbours in the level `fixed`, or their own place without any."""
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


# Weights of links: in the middle of an edge (so that long edges become straight first), at the only edge of a node's side, at
# one of several edges.
_ALONG, _ALONE, _BESIDE = 8, 4, 2
_FUZZ = 1e-6  # makes rounding independent of the last digits of sums, which differ between versions of Python
Pulls = list[tuple[float, int]]  # where links would put an item, and their weights


def columns(
    levels: Levels, separation: Callable[[Item, Item], int], offset: Callable[[Item, int, bool], int]
) -> dict[Item, int]:
    """Return the x coordinate of the middle of every item, such that links are as straight as possible.

    Level by level, with the others fixed, items move to the weighted mean of the coordinates at which their links would be
    straight, and later to the weighted median.

    Args:
        levels: the items of each level in their order, and the links between them.
        separation: `(left, right)` -> the least distance of two neighbours in a level, in pixels.
        offset: `(item, port, above)` -> the distance from the item's middle at which a link meets it, in pixels.
    """
    links: dict[Item, list[tuple[Item, int, int]]] = {item: [] for items in levels.levels for item in items}
    for link in (link for chain in levels.chains for link in chain):
        shift = offset(link.lower, link.lower_port, True) - offset(link.upper, link.upper_port, False)
        ends = (link.upper.node, link.lower.node)
        several = (ends[0] and ends[0].roles_below) or (ends[1] and ends[1].roles_above)
        weight = _ALONG if ends == (None, None) else _BESIDE if several else _ALONE
        links[link.upper].append((link.lower, shift, weight))
        links[link.lower].append((link.upper, -shift, weight))
    starts = {
        item: start
        for items in levels.levels
        for item, start in zip(items, accumulate((separation(*pair) for pair in pairwise(items)), initial=0), strict=False)
    }
    x = dict.fromkeys(links, 0.0)
    for middle, sweeps, factor in _PHASES:
        for level, step in sweeps * [*((items, 1) for items in levels.levels), *((items, -1) for items in levels.levels[::-1])]:
            pulls = [
                [
                    (x[other] + shift - starts[item], weight * (factor if (item.level - other.level) * step > 0 else 1))
                    for other, shift, weight in links[item]
                ]
                for item in level
            ]
            for item, place in zip(level, _isotonic(pulls, middle), strict=True):
                x[item] = place + starts[item]
        x = {item: floor(place + 0.5 + _FUZZ) for item, place in x.items()}
    return {item: int(place) for item, place in x.items()}


def _isotonic(pulls: Sequence[Pulls], middle: Callable[[Pulls], float]) -> list[float]:
    """Return nondecreasing places close to the middles of the pulls of each item (isotonic regression).

    Neighbours whose middles are in the wrong order are merged into a block, whose place is the middle of all their pulls.
    """
    blocks: list[tuple[Pulls, float, int]] = []  # pulls of neighbours, their middle, number of neighbours
    for pull in pulls:
        blocks.append((pull, middle(pull), 1))
        while len(blocks) > 1 and blocks[-2][1] >= blocks[-1][1]:
            (left, _, many), (right, _, few) = blocks[-2:]
            blocks[-2:] = [(left + right, middle(left + right), many + few)]
    return [place for _, place, many in blocks for _ in range(many)]


def _mean(pulls: Pulls) -> float:
    return sum(place * weight for place, weight in pulls) / sum(weight for _, weight in pulls)


def _median(pulls: Pulls) -> float:
    return median_low([place for place, weight in pulls for _ in range(weight)])


# Means balance a drawing, medians straighten its edges. Each phase: the middle, the number of sweeps down and up, and a factor
# of the weights of links to the level that a sweep comes from, which makes chains of edges straight. Over the library's
# operators, edges are as short and as often straight as with exact positions, which need a maximum flow.
_PHASES = ((_mean, 60, 1), (_median, 4, 8), (_median, 2, 1))


TEXT, SMALL, TITLE = 13, 11, 17  # font sizes
LINE, LABEL = 16, 18  # heights of a line in a node, and of an edge's label
MARGIN = 20
HEAD, TITLE_GAP = 34, 10  # height of the drawing's title, and its distance from the id
PADDING, GROUP_PADDING, GROUP_TITLE = 6, 10, 22  # inside nodes and groups, and height of a group's title
GAP, EDGE_GAP, ROLE_GAP = 18, 12, 20  # least distance beside a node, between edges, between words of a node
_NARROW, _WIDE = frozenset("fijlrtI()[]{}/|!.,:;'*^ -"), frozenset("mwMWNOQG@%+")
_SLANTED = {Family.SHARE: 12, Family.UNFOLD: 12}  # width of each slanted side


@dataclass(frozen=True)
class Box:
    """A rectangle: its upper left corner and its extent, in pixels."""

    left: int
    top: int
    width: int
    height: int

    @property
    def right(self) -> int:
        """The x coordinate of the right border."""
        return self.left + self.width

    @property
    def bottom(self) -> int:
        """The y coordinate of the lower border."""
        return self.top + self.height

    @property
    def middle(self) -> int:
        """The x coordinate of the middle."""
        return self.left + self.width // 2


@dataclass(frozen=True)
class PlacedNode:
    """A node, with the words at its upper and at its lower side, each with its middle."""

    node: Node
    box: Box
    roles_above: tuple[tuple[str, int], ...]
    roles_below: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class PlacedEdge:
    """An edge: its vertical pieces `(x, top, bottom)`, downwards, and the box of its label if it has one."""

    edge: Edge
    pieces: tuple[tuple[int, int, int], ...]
    label: Box | None


@dataclass(frozen=True)
class Layout:
    """A drawing with the positions of all its parts."""

    diagram: Diagram
    width: int
    height: int
    nodes: tuple[PlacedNode, ...]
    edges: tuple[PlacedEdge, ...]
    groups: tuple[tuple[TensorAxes, Box], ...]


def layout(graph: PGraph) -> Layout:
    """Return the layout of a drawing of `graph`."""
    return _layout(diagram(graph))


@lru_cache(maxsize=256)  # most of the time of a page, and the page of a running search shows the same operators again
def _layout(picture: Diagram) -> Layout:
    return _Placing(picture, ordered_levels(picture)).layout()


def text_width(text: str, size: int, *, bold: bool = False) -> int:
    """Return a width in whole pixels that `text` rarely exceeds in the usual sans-serif fonts."""
    hundredths = sum(42 if letter in _NARROW else 90 if letter in _WIDE else 65 for letter in text)
    return -(-hundredths * size * (11 if bold else 10) // 1000)


def _width(item: Item) -> int:
    """Return the item's width in pixels, an even number, so that its middle is a whole number."""
    node = item.node
    if node is None:
        return _even(text_width(item.edge.size, TEXT) + 4) if item.labelled and item.edge else 0
    lines = [text_width(node.text, TEXT, bold=True), text_width(node.note, SMALL)]
    for roles in (node.roles_above, node.roles_below):
        lines.append(sum(text_width(role, SMALL) for role in roles) + ROLE_GAP * (len(roles) - 1))
    return _even(max(44, max(lines) + 20) + 2 * _SLANTED.get(node.family, 0))


def _even(length: int) -> int:
    return length + length % 2


def _height(item: Item) -> int:
    node = item.node
    if node is None:
        return LABEL if item.labelled else 0
    return 2 * PADDING + LINE * (1 + bool(node.note) + bool(node.roles_above) + bool(node.roles_below))


class _Placing:
    """Computes the positions of all parts of a drawing from ordered levels."""

    def __init__(self, picture: Diagram, levels: Levels) -> None:
        self.picture, self.levels = picture, levels
        self.ports: dict[tuple[Item, int, bool], int] = {}  # distance from the node's middle at which an edge meets it
        self.roles: dict[tuple[Item, bool], list[tuple[str, int]]] = {}
        place = {item: index for items in levels.levels for index, item in enumerate(items)}
        leads = {(chain[0].upper, chain[0].upper_port, False): place[chain[0].lower] for chain in levels.chains}
        leads |= {(chain[-1].lower, chain[-1].lower_port, True): place[chain[-1].upper] for chain in levels.chains}
        for item in place:
            for above in (True, False):
                self._place_ports(item, above, leads)
        self.x = columns(levels, self._separation, lambda *port: self.ports.get(port, 0))
        left = min((self.x[item] - self._reach(item) for item in self.x), default=0)
        self.x = {item: x - left + MARGIN for item, x in self.x.items()}

    def _place_ports(self, item: Item, above: bool, leads: dict[tuple[Item, int, bool], int]) -> None:
        """Order the role names at one side of a node like the other ends of their edges, so that the edges do not cross."""
        roles = () if item.node is None else item.node.roles_above if above else item.node.roles_below
        order = sorted(range(len(roles)), key=lambda port: leads[item, port, above])
        widths = [text_width(roles[port], SMALL) for port in order]
        left = -(sum(widths) + ROLE_GAP * (len(widths) - 1)) // 2
        words = self.roles[item, above] = []
        for port, width in zip(order, widths, strict=True):
            middle = self.ports[item, port, above] = left + width // 2
            words.append((roles[port], middle))
            left += width + ROLE_GAP

    def _separation(self, left: Item, right: Item) -> int:
        gap = GAP if left.node is not None or right.node is not None else EDGE_GAP
        if left.group is not right.group:
            gap += GROUP_PADDING * ((left.group is not None) + (right.group is not None))
        return (_width(left) + _width(right)) // 2 + gap

    def _reach(self, item: Item) -> int:
        return _width(item) // 2 + (GROUP_PADDING if item.group else 0)

    def layout(self) -> Layout:
        """Return the layout: the levels from top to bottom, then the nodes, edges and groups in them."""
        bands = self._bands()
        boxes = {item: self._box(item, bands[item.level]) for item in self.x}
        nodes = tuple(
            PlacedNode(item.node, box, self._words(item, above=True), self._words(item, above=False))
            for item, box in boxes.items()
            if item.node is not None
        )
        groups = tuple(self._group(group, boxes, bands) for group in (*self.picture.sources, *self.picture.output))
        edges = tuple(self._edge(chain, boxes, bands) for chain in self.levels.chains)
        right = max((self.x[item] + self._reach(item) for item in self.x), default=0)
        title = text_width(self.picture.title, TITLE, bold=True) + TITLE_GAP + text_width(self.picture.id, TEXT)
        width = max(right, MARGIN + title) + MARGIN
        return Layout(self.picture, width, bands[-1][1] + MARGIN, nodes, edges, groups)

    def _bands(self) -> list[tuple[int, int]]:
        """Return the top and the bottom of each level with its groups. Edges that run far sideways get more room below."""
        runs = [0] * len(self.levels.levels)
        for link in (link for chain in self.levels.chains for link in chain):
            runs[link.upper.level] = max(runs[link.upper.level], abs(self._start(link) - self._end(link)))
        bands = []
        top = MARGIN + HEAD
        for items, run in zip(self.levels.levels, runs, strict=True):
            height = max((_height(item) for item in items), default=0)
            if any(item.group for item in items):
                height += GROUP_TITLE + GROUP_PADDING
            bands.append((top, top + height))
            top += height + min(80, 20 + run // 6)
        return bands

    def _start(self, link: Link) -> int:
        return self.x[link.upper] + self.ports.get((link.upper, link.upper_port, False), 0)

    def _end(self, link: Link) -> int:
        return self.x[link.lower] + self.ports.get((link.lower, link.lower_port, True), 0)

    def _box(self, item: Item, band: tuple[int, int]) -> Box:
        width, height = _width(item), _height(item)
        top = (band[0] + band[1] - height) // 2
        if any(other.group for other in self.levels.levels[item.level]):  # axes stand in one line, beside the group's title
            top = band[1] - GROUP_PADDING - height if item.level == 0 else band[0] + GROUP_PADDING
        return Box(self.x[item] - width // 2, top, width, height)

    def _words(self, item: Item, *, above: bool) -> tuple[tuple[str, int], ...]:
        return tuple((role, self.x[item] + middle) for role, middle in self.roles[item, above])

    def _group(self, group: TensorAxes, boxes: dict[Item, Box], bands: Sequence[tuple[int, int]]) -> tuple[TensorAxes, Box]:
        members = [(item, box) for item, box in boxes.items() if item.group is group]
        left = min(box.left for _, box in members) - GROUP_PADDING
        right = max(box.right for _, box in members) + GROUP_PADDING
        top, bottom = bands[members[0][0].level]
        return group, Box(left, top, right - left, bottom - top)

    def _edge(self, chain: Sequence[Link], boxes: dict[Item, Box], bands: Sequence[tuple[int, int]]) -> PlacedEdge:
        def pieces() -> Iterator[tuple[int, int, int]]:
            first, last = chain[0], chain[-1]
            yield self._start(first), boxes[first.upper].bottom, bands[first.upper.level][1]
            for link in chain[:-1]:
                yield self.x[link.lower], *bands[link.lower.level]
            yield self._end(last), bands[last.lower.level][0], boxes[last.lower].top

        labels = [boxes[link.lower] for link in chain[:-1] if link.lower.labelled]
        return PlacedEdge(chain[0].edge, tuple(pieces()), labels[0] if labels else None)
