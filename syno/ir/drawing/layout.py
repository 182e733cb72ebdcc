"""Where everything in a drawing goes: the last steps of a layered layout. All lengths are in pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from syno.ir.drawing.columns import Columns
from syno.ir.drawing.diagram import Diagram, Edge, Family, Group, Node, diagram
from syno.ir.drawing.levels import Item, Levels, Link, ordered_levels
from syno.ir.graph import PGraph

TEXT, SMALL, TITLE = 13, 11, 17  # font sizes
LINE = 16  # height of a line of text
MARGIN = 20
HEAD = 34  # height of the title
GROUP_TITLE, GROUP_PADDING = 22, 10
GAP, EDGE_GAP, ROLE_GAP = 18, 14, 14  # least distance beside a node, between edges, between words of a node
_NARROW, _WIDE = frozenset("fijlrtI()[]{}/|!.,:;'*^ -"), frozenset("mwMWNOQG@%+")
_SLANTED = {Family.SHARE: 12, Family.UNFOLD: 12}  # how much room the sides of the shape take


@dataclass(frozen=True)
class Box:
    """A rectangle: its left upper corner and its extent."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """The right border."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """The lower border."""
        return self.top + self.height

    @property
    def middle(self) -> float:
        """The horizontal middle."""
        return self.left + self.width / 2


@dataclass(frozen=True)
class PlacedNode:
    """A node, with the words at its upper and at its lower side, each with its middle."""

    node: Node
    box: Box
    roles_above: tuple[tuple[str, float], ...]
    roles_below: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class PlacedEdge:
    """An edge: the vertical pieces `(x, top, bottom)` it is drawn through, downwards, and the box of its label if any."""

    edge: Edge
    pieces: tuple[tuple[float, float, float], ...]
    label: Box | None


@dataclass(frozen=True)
class Layout:
    """A whole drawing."""

    diagram: Diagram
    width: float
    height: float
    nodes: tuple[PlacedNode, ...]
    edges: tuple[PlacedEdge, ...]
    groups: tuple[tuple[Group, Box], ...]


def layout(graph: PGraph) -> Layout:
    """The layout of a drawing of `graph`."""
    picture = diagram(graph)
    return _Placing(picture, ordered_levels(picture)).layout()


def text_width(text: str, size: int, *, bold: bool = False) -> float:
    """A width that `text` hardly exceeds in any of the usual sans-serif fonts."""
    ems = sum(0.42 if letter in _NARROW else 0.9 if letter in _WIDE else 0.65 for letter in text)
    return ems * size * (1.1 if bold else 1.0)


def _width(item: Item) -> float:
    if item.node is None:
        return text_width(item.edge.size, TEXT) + 4 if item.labelled and item.edge else 0.0
    node = item.node
    lines = [text_width(node.text, TEXT, bold=True), text_width(node.note, SMALL)]
    for roles in (node.roles_above, node.roles_below):
        lines.append(sum(text_width(role, SMALL) for role in roles) + ROLE_GAP * (len(roles) - 1))
    sides = 2 * _SLANTED.get(node.family, 0)
    return 2 * round((max(44, max(lines) + 20) + sides) / 2)


def _height(item: Item) -> float:
    if item.node is None:
        return LINE + 2 if item.labelled else 0
    node = item.node
    return 12 + LINE * (1 + bool(node.note) + bool(node.roles_above) + bool(node.roles_below))


class _Placing:
    """Turns ordered levels into positions."""

    def __init__(self, picture: Diagram, levels: Levels) -> None:
        self.picture, self.levels = picture, levels
        self.ports: dict[tuple[Item, int, bool], float] = {}  # where an edge meets a node, from its middle
        self.roles: dict[tuple[Item, bool], list[tuple[str, float]]] = {}
        place = {item: index for items in levels.levels for index, item in enumerate(items)}
        leads = {(chain[0].upper, chain[0].upper_port, False): place[chain[0].lower] for chain in levels.chains}
        leads |= {(chain[-1].lower, chain[-1].lower_port, True): place[chain[-1].upper] for chain in levels.chains}
        for item in place:
            for above in (True, False):
                self._place_ports(item, above, leads)
        self.x = Columns(levels, self._separation, lambda *port: self.ports.get(port, 0.0)).x
        left = min((self.x[item] - self._reach(item) for item in self.x), default=0.0)
        self.x = {item: x - left + MARGIN for item, x in self.x.items()}

    def _place_ports(self, item: Item, above: bool, leads: dict[tuple[Item, int, bool], int]) -> None:
        """The words at one side of a node, in the order of where their edges lead, so that these do not cross."""
        roles = () if item.node is None else item.node.roles_above if above else item.node.roles_below
        order = sorted(range(len(roles)), key=lambda port: leads[item, port, above])
        widths = [text_width(roles[port], SMALL) for port in order]
        left = -(sum(widths) + ROLE_GAP * (len(widths) - 1)) / 2
        words = self.roles[item, above] = []
        for port, width in zip(order, widths, strict=True):
            middle = self.ports[item, port, above] = float(round(left + width / 2))
            words.append((roles[port], middle))
            left += width + ROLE_GAP

    def _separation(self, left: Item, right: Item) -> float:
        gap = GAP if left.node is not None or right.node is not None else EDGE_GAP
        if left.group is not right.group:
            gap += GROUP_PADDING * ((left.group is not None) + (right.group is not None))
        return float(round(_width(left) / 2 + _width(right) / 2 + gap))

    def _reach(self, item: Item) -> float:
        return _width(item) / 2 + (GROUP_PADDING if item.group else 0)

    def layout(self) -> Layout:
        """The layout: rows from top to bottom, then everything in them."""
        bands, bottom = self._bands()
        boxes = {item: self._box(item, bands[item.level]) for item in self.x}
        nodes = tuple(
            PlacedNode(item.node, box, self._words(item, above=True), self._words(item, above=False))
            for item, box in boxes.items()
            if item.node is not None
        )
        groups = tuple(self._group(group, boxes, bands) for group in (*self.picture.sources, *self.picture.output))
        edges = tuple(self._edge(chain, boxes, bands) for chain in self.levels.chains)
        right = max((self.x[item] + self._reach(item) for item in self.x), default=0.0)
        title = text_width(self.picture.title, TITLE, bold=True) + text_width(self.picture.id, TEXT) + 12
        width = max(right, MARGIN + title) + MARGIN
        return Layout(self.picture, float(round(width)), bottom + MARGIN, nodes, edges, groups)

    def _bands(self) -> tuple[list[tuple[float, float]], float]:
        """Top and bottom of each level, with what belongs to its groups; and the bottom of all."""
        tilts = [0.0] * len(self.levels.levels)
        for chain in self.levels.chains:
            for link in chain:
                tilts[link.upper.level] = max(tilts[link.upper.level], abs(self._end(link, True) - self._end(link, False)))
        bands = []
        y = float(MARGIN + HEAD)
        for level, items in enumerate(self.levels.levels):
            height = float(max((_height(item) for item in items), default=0))
            if any(item.group for item in items):
                height += GROUP_TITLE + GROUP_PADDING
            bands.append((y, y + height))
            y += height + float(round(min(48.0, 15 + 0.12 * tilts[level])))
        return bands, bands[-1][1]

    def _end(self, link: Link, upper: bool) -> float:
        if upper:
            return self.x[link.upper] + self.ports.get((link.upper, link.upper_port, False), 0.0)
        return self.x[link.lower] + self.ports.get((link.lower, link.lower_port, True), 0.0)

    def _box(self, item: Item, band: tuple[float, float]) -> Box:
        width, height = _width(item), _height(item)
        top = (band[0] + band[1] - height) / 2
        if item.level == 0:
            top = band[1] - GROUP_PADDING - height
        elif item.level == len(self.levels.levels) - 1:
            top = band[0] + GROUP_PADDING
        return Box(self.x[item] - width / 2, top, width, height)

    def _words(self, item: Item, *, above: bool) -> tuple[tuple[str, float], ...]:
        return tuple((role, self.x[item] + middle) for role, middle in self.roles[item, above])

    def _group(self, group: Group, boxes: dict[Item, Box], bands: Sequence[tuple[float, float]]) -> tuple[Group, Box]:
        members = [(item, box) for item, box in boxes.items() if item.group is group]
        left = min(box.left for _, box in members) - GROUP_PADDING
        right = max(box.right for _, box in members) + GROUP_PADDING
        top, bottom = bands[members[0][0].level]
        return group, Box(left, top, right - left, bottom - top)

    def _edge(self, chain: Sequence[Link], boxes: dict[Item, Box], bands: Sequence[tuple[float, float]]) -> PlacedEdge:
        def pieces() -> Iterator[tuple[float, float, float]]:
            first, last = chain[0], chain[-1]
            yield self._end(first, True), boxes[first.upper].bottom, bands[first.upper.level][1]
            for link in chain[:-1]:
                yield self.x[link.lower], *bands[link.lower.level]
            yield self._end(last, False), bands[last.lower.level][0], boxes[last.lower].top

        labels = [boxes[link.lower] for link in chain[:-1] if link.lower.labelled]
        edge = next(link.lower.edge for link in chain if link.lower.edge)
        return PlacedEdge(edge, tuple(pieces()), labels[0] if labels else None)
