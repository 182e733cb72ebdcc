"""A pGraph as Graphviz text."""

from __future__ import annotations

from collections.abc import Iterable

from syno.ir.drawing.diagram import Diagram, Edge, Family, Group, Node, diagram
from syno.ir.graph import PGraph

_SHAPES = {
    Family.INPUT: "box, style=rounded",
    Family.WEIGHT: "box, style=rounded",
    Family.OUTPUT: "box, style=rounded",
    Family.VIEW: "box",
    Family.UNFOLD: "trapezium",
    Family.SHARE: "hexagon",
    Family.REDUCE: "box, peripheries=2",
    Family.EXPAND: "box, style=dashed",
}


def to_dot(graph: PGraph) -> str:
    """Graphviz text of the operator: data flows from the axes of input and weights down to the output and the Reduces.

    Every dim is one edge, labelled by its size and by what it is to the operations at its ends: `k (window -> data)`.
    """
    picture = diagram(graph)
    lines = [f"digraph {_quoted(picture.title)} {{"]
    lines += [f"  label={_quoted(f'{picture.title} {picture.id}')}; labelloc=t; rankdir=TB; newrank=true;"]
    lines += ['  node [fontname="sans-serif"]; edge [fontname="sans-serif", fontsize=11];']
    for group in (*picture.sources, *picture.output):
        lines += _cluster(group)
    lines += [f"  {_node(node)}" for node in (*picture.operations, *picture.reduces)]
    lines += _ranks(picture)
    lines += [f"  {_edge(edge)}" for edge in picture.edges]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _node(node: Node) -> str:
    text = f"{node.note}:{node.text}" if node.family is Family.OUTPUT else node.text
    return f"{_quoted(node.name)} [label={_quoted(text)}, shape={_SHAPES[node.family]}];"


def _cluster(group: Group) -> list[str]:
    head = f"  subgraph {_quoted(f'cluster_{group.name}')} {{ label={_quoted(group.title)}; style=rounded;"
    return [head, *(f"    {_node(node)}" for node in group.nodes), "  }"]


def _ranks(picture: Diagram) -> list[str]:
    """The axes of input and weights in one rank, those of the output and the Reduces in another."""

    def rank(kind: str, nodes: Iterable[Node]) -> str:
        return f"  {{ rank={kind}; {' '.join(f'{_quoted(node.name)};' for node in nodes)} }}"

    tops = [node for group in picture.sources for node in group.nodes]
    bottoms = [*(node for group in picture.output for node in group.nodes), *picture.reduces]
    return [rank(kind, nodes) for kind, nodes in (("source", tops), ("sink", bottoms)) if nodes]


def _edge(edge: Edge) -> str:
    roles = f" ({' -> '.join(edge.roles)})" if edge.roles else ""
    return f"{_quoted(edge.upper.name)} -> {_quoted(edge.lower.name)} [label={_quoted(edge.size + roles)}];"
