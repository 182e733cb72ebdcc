"""The diagram of a pGraph, independent of a layout: nodes, edges and groups; and its Graphviz text.

Data flows down: the axes of the input and of the weights are at the top, those of the output and the Reduces at the
bottom. Every dim is exactly one edge.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from syno.algebra import Size
from syno.base.errors import GraphError
from syno.ir.dim import Dim, Operation
from syno.ir.graph import PGraph
from syno.ir.primitives import EXPAND, MERGE, REDUCE, SHARE, SHIFT, SPLIT, STRIDE, UNFOLD


class Family(Enum):
    """The kind of a node; each kind has its own shape and colour."""

    INPUT = "input"
    WEIGHT = "weight"
    OUTPUT = "output"
    VIEW = "view"
    UNFOLD = "unfold"
    SHARE = "share"
    REDUCE = "reduce"
    EXPAND = "expand"

    @property
    def is_axis(self) -> bool:
        """Whether nodes of this kind are axes of a tensor."""
        return self in (Family.INPUT, Family.WEIGHT, Family.OUTPUT)

    @property
    def is_end(self) -> bool:
        """Whether nodes of this kind have only one edge, and show its size: axes and Reduces."""
        return self.is_axis or self is Family.REDUCE


@dataclass(frozen=True)
class Node:
    """An operation, or an axis of a tensor.

    Attributes:
        name: a unique name that depends on the operator's content only.
        family: the kind of node.
        text, note: the main line, and a smaller line below it.
        tooltip: the meaning of the node, in words.
        roles_above, roles_below: the names of the edges at the upper and the lower side, from left to right, if several.
    """

    name: str
    family: Family
    text: str
    note: str = ""
    tooltip: str = ""
    roles_above: tuple[str, ...] = ()
    roles_below: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edge:
    """A dim as an edge: from the node above it (`upper`, at `upper_port` of that node's lower side) to the node below it."""

    label: str
    size: str
    upper: Node
    upper_port: int
    lower: Node
    lower_port: int

    @property
    def roles(self) -> tuple[str, ...]:
        """The names of the dim (as "window") in the operations at its upper and lower end, if these have several dims there."""
        above = self.upper.roles_below[self.upper_port : self.upper_port + 1]
        below = self.lower.roles_above[self.lower_port : self.lower_port + 1]
        return above + below

    @property
    def is_weight(self) -> bool:
        """Whether the dim is an axis of a weight."""
        return self.upper.family is Family.WEIGHT


@dataclass(frozen=True)
class TensorAxes:
    """The axes of one tensor, as nodes that are drawn together."""

    name: str
    title: str
    family: Family
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Diagram:
    """All nodes, edges and groups of a drawing. `operations` are bottom-up; groups without axes are left out."""

    title: str
    id: str
    sources: tuple[TensorAxes, ...]
    operations: tuple[Node, ...]
    output: tuple[TensorAxes, ...]
    reduces: tuple[Node, ...]
    edges: tuple[Edge, ...]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, from top to bottom."""
        axes = [node for group in self.sources for node in group.nodes]
        ends = [node for group in self.output for node in group.nodes]
        return (*axes, *reversed(self.operations), *ends, *self.reduces)


def diagram(graph: PGraph) -> Diagram:
    """Return the nodes, edges and groups of `graph`, in an order that depends on its content only."""
    label = graph.labels
    above: dict[Dim, tuple[Node, int]] = {}
    below: dict[Dim, tuple[Node, int]] = {}

    def axes(name: str, title: str, family: Family, dims: tuple[Dim, ...]) -> tuple[TensorAxes, ...]:
        nodes = []
        ends = below if family is Family.OUTPUT else above
        for index, dim in enumerate(dims):
            note = label[dim] if family is Family.OUTPUT else ""
            tooltip = f"axis {index} of {title}: {label[dim]}:{dim.size}"
            nodes.append(Node(f"{name}_{index}", family, dim.size.fraction_text, note, tooltip))
            ends[dim] = (nodes[-1], 0)
        return (TensorAxes(name, title, family, tuple(nodes)),) if nodes else ()

    output = axes("output", "output y", Family.OUTPUT, graph.output)
    reduces = []
    for dim in graph.reduces:
        tooltip = f"{label[dim]}:{dim.size}, {REDUCE.rule}: {REDUCE.meaning}"
        reduces.append(Node(f"Reduce_{label[dim]}", Family.REDUCE, f"Reduce {dim.size.fraction_text}", label[dim], tooltip))
        below[dim] = (reduces[-1], 0)
    operations = []
    for operation in graph.operations:
        node = _operation_node(operation, label[operation.bottoms[0]])
        operations.append(node)
        above |= {dim: (node, port) for port, dim in enumerate(operation.bottoms)}
        below |= {dim: (node, port) for port, dim in enumerate(operation.tops)}
    sources = axes("input", "input x", Family.INPUT, graph.input)
    for number, weight in enumerate(graph.weights, 1):
        sources += axes(f"w{number}", f"w{number}", Family.WEIGHT, weight)
    edges = tuple(Edge(label[dim], dim.size.fraction_text, *above[dim], *below[dim]) for dim in label)
    return Diagram(graph.name, graph.id[:8], sources, tuple(operations), output, tuple(reduces), edges)


def _operation_node(operation: Operation, below: str) -> Node:
    primitive = operation.primitive
    return Node(
        name=f"{primitive.name}_{below}",
        family=FAMILIES[primitive.name],
        text=_operation_text(operation),
        tooltip=f"{primitive.rule}: {primitive.meaning}",
        roles_above=primitive.tops if len(primitive.tops) > 1 else (),
        roles_below=primitive.bottoms if len(primitive.bottoms) > 1 else (),
    )


def _operation_text(operation: Operation) -> str:
    """Return the primitive with its parameter: `Merge g`, `Shift +1`, `Share w1`, `Unfold`."""
    name = operation.primitive.name
    match operation.parameter:
        case int(weight) if operation.primitive is SHARE:
            return f"{name} w{weight}"
        case int(amount):
            return f"{name} {amount:+d}"
        case Size() as size:
            return f"{name} {size.fraction_text}"
        case None:
            return name
        case other:
            raise GraphError(f"{name} cannot be drawn with the parameter {other!r}; a parameter is a size or a number")


_VIEWS = (SPLIT, MERGE, SHIFT, STRIDE)
FAMILIES = {UNFOLD.name: Family.UNFOLD, SHARE.name: Family.SHARE, EXPAND.name: Family.EXPAND}
FAMILIES |= {primitive.name: Family.VIEW for primitive in _VIEWS}
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
    """Return Graphviz text of the operator. Data flows from the axes of input and weights down to output and Reduces.

    Every dim is one edge. Its label has its size and its names in the operations at its ends, as `k (window -> data)`.

    >>> import syno
    >>> to_dot(syno.OPERATORS["matmul"]()).splitlines()[0]
    'digraph "matmul" {'
    """
    picture = diagram(graph)
    lines = [f"digraph {_quoted(picture.title)} {{"]
    lines += [f"  label={_quoted(f'{picture.title} {picture.id}')}; labelloc=t; rankdir=TB; newrank=true;"]
    lines += ['  node [fontname="sans-serif"]; edge [fontname="sans-serif", fontsize=11];']
    for group in (*picture.sources, *picture.output):
        lines += _cluster(group)
    lines += [f"  {_dot_node(node)}" for node in (*picture.operations, *picture.reduces)]
    lines += _ranks(picture)
    lines += [f"  {_dot_edge(edge)}" for edge in picture.edges]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _dot_node(node: Node) -> str:
    text = f"{node.note}:{node.text}" if node.family is Family.OUTPUT else node.text
    return f"{_quoted(node.name)} [label={_quoted(text)}, shape={_SHAPES[node.family]}];"


def _cluster(group: TensorAxes) -> list[str]:
    head = f"  subgraph {_quoted(f'cluster_{group.name}')} {{ label={_quoted(group.title)}; style=rounded;"
    return [head, *(f"    {_dot_node(node)}" for node in group.nodes), "  }"]


def _ranks(picture: Diagram) -> list[str]:
    """Return Graphviz text for two ranks: the axes of input and weights, and those of the output with the Reduces."""

    def rank(kind: str, nodes: Iterable[Node]) -> str:
        return f"  {{ rank={kind}; {' '.join(f'{_quoted(node.name)};' for node in nodes)} }}"

    tops = [node for group in picture.sources for node in group.nodes]
    bottoms = [*(node for group in picture.output for node in group.nodes), *picture.reduces]
    return [rank(kind, nodes) for kind, nodes in (("source", tops), ("sink", bottoms)) if nodes]


def _dot_edge(edge: Edge) -> str:
    roles = f" ({' -> '.join(edge.roles)})" if edge.roles else ""
    return f"{_quoted(edge.upper.name)} -> {_quoted(edge.lower.name)} [label={_quoted(edge.size + roles)}];"
