"""The positions of everything in a drawing: the last steps of a layered layout. All lengths are in pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from syno.ir.drawing.columns import columns
from syno.ir.drawing.diagram import Diagram, Edge, Family, Group, Node, diagram
from syno.ir.drawing.levels import Item, Levels, Link, ordered_levels
from syno.ir.graph import PGraph

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
    """A rectangle: its left upper corner and its extent."""

    left: int
    top: int
    width: int
    height: int

    @property
    def right(self) -> int:
        """The right border."""
        return self.left + self.width

    @property
    def bottom(self) -> int:
        """The lower border."""
        return self.top + self.height

    @property
    def middle(self) -> int:
        """The horizontal middle."""
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
    """A whole drawing."""

    diagram: Diagram
    width: int
    height: int
    nodes: tuple[PlacedNode, ...]
    edges: tuple[PlacedEdge, ...]
    groups: tuple[tuple[Group, Box], ...]


def layout(graph: PGraph) -> Layout:
    """Return the layout of a drawing of `graph`."""
    picture = diagram(graph)
    return _Placing(picture, ordered_levels(picture)).layout()


def text_width(text: str, size: int, *, bold: bool = False) -> int:
    """Return a width in whole pixels that `text` rarely exceeds in the usual sans-serif fonts."""
    hundredths = sum(42 if letter in _NARROW else 90 if letter in _WIDE else 65 for letter in text)
    return -(-hundredths * size * (11 if bold else 10) // 1000)


def _width(item: Item) -> int:
    """Return the item's width, an even number, so that its middle is a whole number."""
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
    """Positions for ordered levels."""

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
        """Set the words at one side of a node in the order of the other ends of their edges, so that these do not cross."""
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
        """Return the layout: rows from top to bottom, then everything in them."""
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
        """Return top and bottom of each level with its groups. Edges that run far sideways get more room below."""
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

    def _group(self, group: Group, boxes: dict[Item, Box], bands: Sequence[tuple[int, int]]) -> tuple[Group, Box]:
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
