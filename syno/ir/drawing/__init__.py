"""Pictures of a pGraph: Graphviz text, and an SVG with a layout of our own that needs no other program."""

from syno.ir.drawing.diagram import to_dot
from syno.ir.drawing.svg import to_svg

__all__ = ["to_dot", "to_svg"]
