"""The loop nest of an operator: what it computes, one summand at a time."""

from __future__ import annotations

from collections.abc import Sequence

from syno.algebra import Expression, Size
from syno.ir.coordinates import index_map
from syno.ir.graph import PGraph


def _access(tensor: str, indices: Sequence[Expression]) -> str:
    return f"{tensor}[{', '.join(map(_text, indices))}]"


def _text(index: Expression) -> str:
    return index.text(lambda size: _extent(size).replace(" ", ""))


def _extent(size: Size) -> str:
    return size.integer_text(name=str)  # people read this, so variables have their own names


def expression(graph: PGraph) -> str:
    """One line: `y[i0, i1] = sum(r0) x[i0, r0] * w1[r0, i1]`, with the conditions for borders if there are any."""
    reads, conditions = _reads_and_conditions(graph)
    loops = ", ".join(graph.labels[dim] for dim in graph.reduces)
    written = f"y[{', '.join(graph.labels[dim] for dim in graph.output)}]"
    where = f"  where {' and '.join(conditions)}" if conditions else ""
    return f"{written} = {f'sum({loops}) ' if loops else ''}{' * '.join(reads)}{where}"


def loop_nest(graph: PGraph) -> str:
    """The operator as nested loops over output axes and reductions, in Python's notation."""
    reads, conditions = _reads_and_conditions(graph)
    lines: list[str] = []
    depth = 0
    for dim in graph.output:
        lines.append(f"{'  ' * depth}for {graph.labels[dim]} in range({_extent(dim.size)}):")
        depth += 1
    written = f"y[{', '.join(graph.labels[dim] for dim in graph.output)}]"
    lines.append(f"{'  ' * depth}{written} = 0")
    for dim in graph.reduces:
        lines.append(f"{'  ' * depth}for {graph.labels[dim]} in range({_extent(dim.size)}):")
        depth += 1
    if conditions:
        lines.append(f"{'  ' * depth}if {' and '.join(conditions)}:")
        depth += 1
    lines.append(f"{'  ' * depth}{written} += {' * '.join(reads)}")
    return "\n".join(lines) + "\n"


def _reads_and_conditions(graph: PGraph) -> tuple[list[str], list[str]]:
    at = index_map(graph)
    reads = [_access("x", at.input)] + [_access(f"w{number}", axes) for number, axes in enumerate(at.weights, 1)]
    return reads, [f"0 <= {_text(index)} < {_extent(extent)}" for index, extent in at.conditions]
