"""The operator language: primitives, dims, pGraphs, their text, loop nests and drawings."""

from syno.ir.graph import PGraph


def _picture(graph: PGraph) -> str:
    """Return the picture of a pGraph that notebooks show in place of its repr."""
    from syno.ir.drawing import to_svg  # takes most of a second to import

    return to_svg(graph)


PGraph._repr_svg_ = _picture
