"""A pGraph as a self-contained SVG picture."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from syno.ir.drawing.diagram import Family, Group
from syno.ir.drawing.layout import MARGIN, SMALL, TEXT, TITLE, Box, Layout, PlacedEdge, PlacedNode, layout, text_width
from syno.ir.graph import PGraph

# Okabe and Ito's palette, which the colour-blind can tell apart: line and, mixed with white, area.
_COLOURS = {
    Family.INPUT: ("#0072B2", "#D9EAF4"),
    Family.WEIGHT: ("#CC79A7", "#F7E9F1"),
    Family.OUTPUT: ("#333333", "#EEEEEE"),
    Family.VIEW: ("#56B4E9", "#E4F3FC"),
    Family.UNFOLD: ("#009E73", "#D9F0EA"),
    Family.SHARE: ("#E69F00", "#FCF1D9"),
    Family.REDUCE: ("#D55E00", "#F9E7D9"),
    Family.EXPAND: ("#8A8200", "#FDFBDC"),
}
_INK, _FAINT, _LINE, _PAPER = "#1A1A1A", "#555555", "#5A5A5A", "#FFFFFF"
_ARROW = 7  # length of an arrow head


def to_svg(graph: PGraph) -> str:
    """An SVG drawing of the operator: data flows from the axes of input and weights down to the output and the Reduces.

    It needs no other file or program, and the same operator gives the same text everywhere.
    """
    return "\n".join(_document(layout(graph))) + "\n"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0").replace("-0", "0") if abs(value) < 0.05 else f"{value:.1f}".removesuffix(".0")


def _attributes(**given: str | float) -> str:
    pairs = ((name.replace("_", "-"), _number(value) if isinstance(value, (int, float)) else value) for name, value in given.items())
    return "".join(f' {name}="{escape(value, {chr(34): "&quot;"})}"' for name, value in pairs)


def _text(text: str, x: float, y: float, **given: str | float) -> str:
    return f"<text{_attributes(x=x, y=y, **given)}>{escape(text)}</text>"


def _document(placed: Layout) -> Iterator[str]:
    width, height = _number(placed.width), _number(placed.height)
    title = f"{placed.diagram.title} {placed.diagram.id}"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" font-family="Helvetica, Arial, \'DejaVu Sans\', sans-serif" font-size="{TEXT}" text-anchor="middle">'
    )
    yield f"<title>{escape(title)}</title>"
    yield f"<desc>{escape(_description(placed))}</desc>"
    yield f'<rect width="{width}" height="{height}" rx="8" fill="{_PAPER}"/>'
    name_width = text_width(placed.diagram.title, TITLE, bold=True)
    baseline = MARGIN + TITLE - 3
    yield (
        f'<text{_attributes(x=MARGIN, y=baseline, text_anchor="start", fill=_INK)}>'
        f'<tspan font-size="{TITLE}" font-weight="bold">{escape(placed.diagram.title)}</tspan>'
        f'<tspan dx="10" fill="{_FAINT}">{escape(placed.diagram.id)}</tspan></text>'
    )
    for group, box in placed.groups:
        yield from _group(group, box)
    for edge in placed.edges:
        yield from _edge(edge)
    for node in placed.nodes:
        yield from _node(node)
    for edge in placed.edges:
        yield from _edge_label(edge)
    yield "</svg>"
    assert name_width >= 0


def _description(placed: Layout) -> str:
    """What the picture shows, in words, for those who cannot see it."""
    shapes = {group.title: ", ".join(node.text for node in group.nodes) for group, _ in placed.groups}
    tensors = "; ".join(f"{title} [{shape}]" for title, shape in shapes.items())
    steps = ", ".join(node.text for node in (*reversed(placed.diagram.operations), *placed.diagram.reduces))
    return f"The pGraph of {placed.diagram.title}, data flowing downwards. {tensors}. Primitives, from the top: {steps or 'none'}."


def _group(group: Group, box: Box) -> Iterator[str]:
    line, area = _COLOURS[group.family]
    frame = _attributes(x=box.left, y=box.top, width=box.width, height=box.height, rx=10, fill=area, stroke=line)
    yield f'<rect{frame} fill-opacity="0.45"/>'
    baseline = box.bottom - 8 if group.family is Family.OUTPUT else box.top + 16
    yield _text(group.title, box.middle, baseline, fill=_INK, font_weight="bold")


def _node(placed: PlacedNode) -> Iterator[str]:
    node, box = placed.node, placed.box
    yield f"<g><title>{escape(node.tooltip)}</title>"
    yield _shape(node.family, box)
    y = box.top + 6
    for word, middle in placed.roles_above:
        yield _text(word, middle, y + 11, font_size=SMALL, fill=_FAINT)
    y += 16 if placed.roles_above else 0
    yield _text(node.text, box.middle, y + 12.5, fill=_INK, font_weight="bold")
    y += 16
    if node.note:
        yield _text(node.note, box.middle, y + 11, font_size=SMALL, fill=_FAINT)
    for word, middle in placed.roles_below:
        yield _text(word, middle, y + 11, font_size=SMALL, fill=_FAINT)
    yield "</g>"


def _shape(family: Family, box: Box) -> str:
    line, area = _COLOURS[family]
    paint = _attributes(fill=area, stroke=line, stroke_width=1.6)
    left, top, right, bottom, middle = box.left, box.top, box.right, box.bottom, box.top + box.height / 2
    if family is Family.SHARE:
        corners = [(left + 10, top), (right - 10, top), (right, middle), (right - 10, bottom), (left + 10, bottom), (left, middle)]
    elif family is Family.UNFOLD:
        corners = [(left + 22, top), (right - 22, top), (right, bottom), (left, bottom)]
    else:
        radius = box.height / 2 if family.is_axis else 0 if family is Family.REDUCE else 6
        dash = ' stroke-dasharray="5 3"' if family is Family.EXPAND else ""
        frame = _attributes(x=left, y=top, width=box.width, height=box.height, rx=radius)
        return f"<rect{frame}{paint}{dash}/>"
    points = " ".join(f"{_number(x)},{_number(y)}" for x, y in corners)
    return f'<polygon points="{points}"{paint} stroke-linejoin="round"/>'


def _edge(placed: PlacedEdge) -> Iterator[str]:
    colour = _COLOURS[Family.WEIGHT][0] if placed.edge.is_weight else _LINE
    x, _, tip = placed.pieces[-1]
    yield f'<path d="{_path(placed)}"{_attributes(fill="none", stroke=colour, stroke_width=1.5)}/>'
    head = f"M{_number(x)} {_number(tip)}l-3.5 -{_ARROW}h7z"
    yield f'<path d="{head}" fill="{colour}"/>'


def _path(placed: PlacedEdge) -> str:
    """Straight down each piece, curved between them; vertical where a piece has a length, else with the mean slope."""
    x, top, _ = placed.pieces[0]
    parts = [f"M{_number(x)} {_number(top)}"]
    pieces = [*placed.pieces[:-1], (placed.pieces[-1][0], placed.pieces[-1][1], placed.pieces[-1][2] - _ARROW + 1)]
    slopes = [0.0]
    for (x0, _, y0), (x1, y1, y2), (x2, y3, _) in zip(pieces, pieces[1:], pieces[2:], strict=False):
        before, after = (x1 - x0) / (y1 - y0), (x2 - x1) / (y3 - y2)
        slopes.append((x2 - x0) / (y3 - y0) if y1 == y2 and before * after > 0 else 0.0)
    slopes.append(0.0)
    for index, (x, top, bottom) in enumerate(pieces):
        if index:
            x0, _, y0 = pieces[index - 1]
            third = (top - y0) / 2.2
            if x == x0 and slopes[index] == slopes[index - 1] == 0:
                parts.append(f"V{_number(top)}")
            else:
                control = (x0 + slopes[index - 1] * third, y0 + third, x - slopes[index] * third, top - third, x, top)
                parts.append("C" + " ".join(map(_number, control)))
        if bottom > top:
            parts.append(f"V{_number(bottom)}")
    return "".join(parts)


def _edge_label(placed: PlacedEdge) -> Iterator[str]:
    if placed.label is not None:
        halo = _attributes(fill=_INK, stroke=_PAPER, stroke_width=5, stroke_linejoin="round", paint_order="stroke")
        yield f"<text{_attributes(x=placed.label.middle, y=placed.label.top + 13)}{halo}>{escape(placed.edge.size)}</text>"
