"""A pGraph as a self-contained SVG picture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from syno.ir.drawing.diagram import Family, TensorAxes
from syno.ir.drawing.layout import (
    LINE,
    MARGIN,
    PADDING,
    SMALL,
    TEXT,
    TITLE,
    TITLE_GAP,
    Box,
    Layout,
    PlacedEdge,
    PlacedNode,
    layout,
)
from syno.ir.graph import PGraph

# Line and area of each family: the palette of Okabe and Ito, which is safe for colour-blind readers, and its light tints.
_COLOURS = {
    Family.INPUT: ("#0072B2", "#D9EAF4"),
    Family.WEIGHT: ("#CC79A7", "#F7E9F1"),
    Family.OUTPUT: ("#333333", "#EEEEEE"),
    Family.VIEW: ("#56B4E9", "#E4F3FC"),
    Family.UNFOLD: ("#009E73", "#D9F0EA"),
    Family.SHARE: ("#E69F00", "#FCF1D9"),
    Family.REDUCE: ("#D55E00", "#F9E7D9"),
    Family.EXPAND: ("#8A8200", "#FDFBDC"),  # a darker yellow, which is visible on white
}
_INK, _FAINT, _LINE, _PAPER = "#1A1A1A", "#555555", "#5A5A5A", "#FFFFFF"
_ARROW = 7  # length and width of an arrow head
_BASELINE = 12  # from the top of a line of text
Look = dict[str, str | float]


def to_svg(graph: PGraph) -> str:
    """Return an SVG drawing of the operator. Data flows from the axes of input and weights down to output and Reduces.

    It needs no other file or program, and an operator has the same text everywhere. Sizes are on the edges and in the
    axes, the names of dims (`quotient`, `window`) in the operations. Hover over a node to see its meaning.

    >>> import syno
    >>> to_svg(syno.OPERATORS["matmul"]())[:4]
    '<svg'
    """
    return "\n".join(_document(layout(graph))) + "\n"


def _attributes(**attributes: str | float) -> str:
    """Return XML attributes, each after a space; `_` in a name becomes `-`."""
    return "".join(f" {name.replace('_', '-')}={quoteattr(str(value))}" for name, value in attributes.items())


def _text(text: str, x: int, y: int, **attributes: str | float) -> str:
    return f"<text{_attributes(x=x, y=y, **attributes)}>{escape(text)}</text>"


def _document(placed: Layout) -> Iterator[str]:
    picture, extent = placed.diagram, {"width": placed.width, "height": placed.height}
    view = _attributes(**extent, viewBox=f"0 0 {placed.width} {placed.height}", role="img")
    font = _attributes(font_family="Helvetica, Arial, 'DejaVu Sans', sans-serif", font_size=TEXT, text_anchor="middle")
    yield f'<svg xmlns="http://www.w3.org/2000/svg"{view}{font}>'
    yield f"<title>{escape(f'{picture.title} {picture.id}')}</title>"
    yield f"<desc>{escape(_description(placed))}</desc>"
    yield f"<rect{_attributes(**extent, rx=8, fill=_PAPER)}/>"  # pages may have a dark background
    title = f"<tspan{_attributes(font_size=TITLE, font_weight='bold')}>{escape(picture.title)}</tspan>"
    short_id = f"<tspan{_attributes(dx=TITLE_GAP, fill=_FAINT)}>{picture.id}</tspan>"
    yield f"<text{_attributes(x=MARGIN, y=MARGIN + _BASELINE, text_anchor='start', fill=_INK)}>{title}{short_id}</text>"
    for group, box in placed.groups:
        yield from _group(group, box)
    for edge in placed.edges:
        yield from _edge(edge)
    for node in placed.nodes:
        yield from _node(node)
    for edge in placed.edges:
        yield from _edge_label(edge)
    yield "</svg>"


def _description(placed: Layout) -> str:
    """Return a description of the picture in words, for screen readers."""
    tensors = "; ".join(f"{group.title} [{', '.join(node.text for node in group.nodes)}]" for group, _ in placed.groups)
    picture = placed.diagram
    primitives = ", ".join(node.text for node in (*reversed(picture.operations), *picture.reduces)) or "none"
    return f"The pGraph of {picture.title}; data flows downwards. {tensors}. Primitives from the top: {primitives}."


def _group(group: TensorAxes, box: Box) -> Iterator[str]:
    line, area = _COLOURS[group.family]
    frame = _attributes(x=box.left, y=box.top, width=box.width, height=box.height, rx=10)
    yield f"<rect{frame}{_attributes(fill=area, fill_opacity=0.45, stroke=line)}/>"
    baseline = box.bottom - 8 if group.family is Family.OUTPUT else box.top + 16
    yield _text(group.title, box.middle, baseline, fill=_INK, font_weight="bold")


def _node(placed: PlacedNode) -> Iterator[str]:
    node, box = placed.node, placed.box
    yield f"<g><title>{escape(node.tooltip)}</title>"
    yield _shape(node.family, box)
    faint: Look = {"fill": _FAINT, "font_size": SMALL}
    rows: list[tuple[tuple[tuple[str, int], ...], Look]] = [
        (placed.roles_above, faint),
        (((node.text, box.middle),), {"fill": _INK, "font_weight": "bold"}),
        (((node.note, box.middle),) if node.note else (), faint),
        (placed.roles_below, faint),
    ]
    baseline = box.top + PADDING + _BASELINE
    for words, look in rows:
        for word, middle in words:
            yield _text(word, middle, baseline, **look)
        baseline += LINE if words else 0
    yield "</g>"


def _shape(family: Family, box: Box) -> str:
    line, area = _COLOURS[family]
    paint = _attributes(fill=area, stroke=line, stroke_width=1.6, stroke_linejoin="round")
    left, top, right, bottom, waist = box.left, box.top, box.right, box.bottom, box.top + box.height // 2
    if family is Family.SHARE:
        corners = [
            (left + 10, top),
            (right - 10, top),
            (right, waist),
            (right - 10, bottom),
            (left + 10, bottom),
            (left, waist),
        ]
    elif family is Family.UNFOLD:
        corners = [(left + 22, top), (right - 22, top), (right, bottom), (left, bottom)]
    else:
        radius = 14 if family.is_axis else 0 if family is Family.REDUCE else 6
        dashes = _attributes(stroke_dasharray="5 3") if family is Family.EXPAND else ""
        return f"<rect{_attributes(x=left, y=top, width=box.width, height=box.height, rx=radius)}{paint}{dashes}/>"
    points = " ".join(f"{x},{y}" for x, y in corners)
    return f"<polygon{_attributes(points=points)}{paint}/>"


def _edge(placed: PlacedEdge) -> Iterator[str]:
    colour = _COLOURS[Family.WEIGHT][0] if placed.edge.is_weight else _LINE
    yield f"<path{_attributes(d=_path(placed), fill='none', stroke=colour, stroke_width=1.5)}/>"
    x, _, tip = placed.pieces[-1]
    head = f"M{x} {tip}l-{_ARROW / 2} -{_ARROW}h{_ARROW}z"
    yield f"<path{_attributes(d=head, fill=colour)}/>"


def _path(placed: PlacedEdge) -> str:
    """Return an SVG path for an edge: straight down each piece, with curves between them and gaps for label and arrow head."""
    *pieces, (at, begin, tip) = placed.pieces
    end = tip - _ARROW + 1
    x, y, _ = pieces[0]
    parts = [f"M{x} {y}"]
    for column, top, bottom in (*pieces, (at, min(begin, end), end)):
        if column != x:
            half = (y + top) // 2
            parts.append(f"C{x} {half} {column} {half} {column} {top}")
        elif top > y:
            parts.append(f"V{top}")
        if placed.label is not None and top == placed.label.top:
            parts.append(f"M{column} {bottom}")
        elif bottom > top:
            parts.append(f"V{bottom}")
        x, y = column, bottom
    return re.sub(r"(V\d+)+(V\d+)", r"\2", "".join(parts))  # join straight lines


def _edge_label(placed: PlacedEdge) -> Iterator[str]:
    if placed.label is not None:
        halo: Look = {"stroke": _PAPER, "stroke_width": 4, "stroke_linejoin": "round", "paint_order": "stroke"}
        yield _text(placed.edge.size, placed.label.middle, placed.label.top + _BASELINE + 1, fill=_INK, **halo)
