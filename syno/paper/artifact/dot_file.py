"""The nodes and edges of a `graph.dot` of the published system, checked one by one.

The DOT language has much that the published drawings lack, and pydot takes exponential time for nested brackets and quadratic
time for many statements. A file with more than drawings need is refused before pydot reads it, in time linear in its length.

A node is a primitive (`op_...`), a reduction (`reduce_...`), an axis of the output (`out_0`), of the input (`in_0_0`) or
of a weight (`in_1_0`). An edge is a dim, drawn in the direction of the data and labelled `size (from->to)`: `from` says
which of the two dims below a Split or an Unfold it is, `to` which of the two above a Merge or a Share (`L` or `R`, in the
order of Table 1).

Source: the drawings in the artifact of the paper (ASPLOS'25).
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pydot

from syno.algebra import Size, VariableTable
from syno.algebra.limits import MOST_DOT_CHARACTERS, shortened
from syno.base.errors import ParseError, SynoError, suggestion
from syno.ir.primitives import REDUCE, TABLE

SIDES = {0: (), 1: ("",), 2: ("L", "R")}  # how an edge's label tells so many dims apart
_NUMBER = r"0|[1-9][0-9]{0,3}"
_NAME = re.compile(rf"op_\w+|reduce_\w+|out_(?P<output>{_NUMBER})|in_(?P<tensor>{_NUMBER})_(?P<axis>{_NUMBER})", re.ASCII)
_EDGE_LABEL = re.compile(r"(\S+)(?: \(([LR]?)->([LR]?)\))?")
_AXIS_LABEL = re.compile(r"(\S+)\(([0-9]{1,4})\)")
_PRIMITIVES = [name for name in TABLE if name != REDUCE.name]
_DEFAULTS = ("node", "edge", "graph")  # statements that set attributes for all
MOST_NAMES = 400  # outside of attributes: nodes, both ends of edges; the published drawings have up to 125
MOST_TOKENS = 3_000
MOST_SUBGRAPHS = 60
DEEPEST = 3  # a graph, clusters in it
_TOKEN = re.compile(r'("[^"\\]*"|->|[A-Za-z0-9_.]+|[\[\]{};,=])\s*')


@dataclass(frozen=True)
class DotNode:
    """A node.

    Attributes:
        name: Its name in the file.
        label: Its label.
        above, below: The names of the dims that it must have there, in the order of Table 1.
        axis: (index,) for an axis of the output; (tensor, index) for one of the input, which is tensor 0, or of a weight.
        size: The size of an axis.
    """

    name: str
    label: str
    above: tuple[str, ...]
    below: tuple[str, ...]
    axis: tuple[int, ...] = ()
    size: Size | None = None

    def __str__(self) -> str:
        return f'node {shortened(self.name)} [label="{shortened(self.label)}"]'


@dataclass(frozen=True)
class DotEdge:
    """A dim, between the node above it (`source`) and the one below it (`target`)."""

    source: DotNode
    target: DotNode
    size: Size
    source_side: str
    target_side: str
    label: str

    def __str__(self) -> str:
        return _edge_text(self.source.name, self.target.name, self.label)


@dataclass(frozen=True)
class DotFile:
    """All nodes by name, and the edges above and below each node by their side."""

    nodes: Mapping[str, DotNode] = field(default_factory=dict)
    above: Mapping[str, dict[str, DotEdge]] = field(default_factory=dict)
    below: Mapping[str, dict[str, DotEdge]] = field(default_factory=dict)


def parse_dot_file(text: str, variables: VariableTable) -> DotFile:
    """Return the nodes and edges of a `graph.dot`; sizes are read with `variables`.

    Raises ParseError that names the node or the edge: one that is no legal one by itself or whose end does not exist,
    two edges for the same dim of a node.
    """
    check_dot_text(text)
    declared, drawn = _statements(text)
    nodes: dict[str, DotNode] = {}
    for name, label in declared:
        if label:  # without a label it is only mentioned, as in { rank = same; out_0; }
            node = _node(name, label, variables)
            if nodes.setdefault(name, node) != node:
                raise ParseError(f'{node}: it already has the label "{nodes[name].label}"')
    for name, _ in declared:
        if name not in nodes and name not in _DEFAULTS:
            raise ParseError(f"node {name}: it has no label that says what it is")
    file = DotFile(nodes, {name: {} for name in nodes}, {name: {} for name in nodes})
    for source, target, label in drawn:
        edge = _edge(source, target, label, nodes, variables)
        _attach(edge, file.below[source], edge.source, edge.source_side, edge.source.below, "out of")
        _attach(edge, file.above[target], edge.target, edge.target_side, edge.target.above, "into")
    return file


@lru_cache(maxsize=128)  # pydot takes a tenth of a second for a file, and published files come in equal copies
def _statements(text: str) -> tuple[list[tuple[str, str]], list[tuple[str, str, str]]]:
    """Return nodes (name, label) and edges (source, target, label), subgraphs included. An absent label is empty."""
    said = io.StringIO()  # pydot prints what is wrong and returns None
    try:
        with (
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
            warnings.catch_warnings(action="ignore", category=DeprecationWarning),  # pydot's own, about its parser
        ):
            graphs = pydot.graph_from_dot_data(text)
    except Exception as error:
        raise ParseError(f"not in the DOT language: {type(error).__name__}: {shortened(str(error), 300)}") from error
    if graphs is None:
        lines = said.getvalue().strip().splitlines() or ["nothing can be read in it"]
        raise ParseError(f"not in the DOT language: {shortened(lines[-1], 300)}")
    if len(graphs) != 1 or graphs[0].get_type() != "digraph" or not text.rstrip().endswith("}"):
        raise ParseError(f"it must hold one digraph and nothing after it; it has {len(graphs)} of type {graphs[0].get_type()}")
    nodes: list[tuple[str, str]] = []
    edges: list[tuple[str, str, str]] = []
    pending: list[Any] = [graphs[0]]
    while pending:
        graph = pending.pop()
        pending += graph.get_subgraphs()
        nodes += [(_unquoted(node.get_name()), _unquoted(node.get("label"))) for node in graph.get_nodes()]
        for edge in graph.get_edges():
            ends = (edge.get_source(), edge.get_destination())
            if not all(isinstance(end, str) for end in ends):
                raise ParseError("an edge from or to a subgraph; write one edge for each pair of nodes")
            edges.append((_unquoted(ends[0]), _unquoted(ends[1]), _unquoted(edge.get("label"))))
    return nodes, edges


def _unquoted(text: object) -> str:
    return str(text or "").removeprefix('"').removesuffix('"')


def _node(name: str, label: str, variables: VariableTable) -> DotNode:
    where = f'node {shortened(name)} [label="{shortened(label)}"]'
    match = _NAME.fullmatch(name)
    if not match:
        raise ParseError(f"{where}: a node is named op_..., reduce_..., out_0 (an axis) or in_0_0 (tensor, axis)")
    if match["output"] or match["tensor"]:
        axis = tuple(int(number) for number in match.group("output", "tensor", "axis") if number)
        size = _axis_size(label, axis[-1], where, variables)
        above, below = (("data",), ()) if match["output"] else ((), ("data",))
        return DotNode(name, label, above, below, axis, size)
    if name.startswith("reduce_"):
        if label != "Sum":
            raise ParseError(f'{where}: unknown reduction "{label}"; there is: Sum')
        return DotNode(name, label, REDUCE.tops, REDUCE.bottoms)
    if label not in _PRIMITIVES:
        allowed = ", ".join(_PRIMITIVES)
        raise ParseError(f'{where}: unknown primitive "{label}"; there are: {allowed}.{suggestion(label, _PRIMITIVES)}')
    return DotNode(name, label, TABLE[label].tops, TABLE[label].bottoms)


def _axis_size(label: str, index: int, where: str, variables: VariableTable) -> Size:
    match = _AXIS_LABEL.fullmatch(label)
    if not match or int(match[2]) != index:
        raise ParseError(f'{where}: the label of an axis is its size and its number, as in "C_out({index})"')
    return _size(match[1], where, variables)


def _edge(source: str, target: str, label: str, nodes: Mapping[str, DotNode], variables: VariableTable) -> DotEdge:
    where = _edge_text(source, target, label)
    for end in (source, target):
        if end not in nodes:
            raise ParseError(f'{where}: node "{end}" is not declared.{suggestion(end, nodes)}')
    match = _EDGE_LABEL.fullmatch(label)
    if not match:
        raise ParseError(f'{where}: the label of an edge is "size" or "size (from->to)", as in "k_1 (R->L)"')
    edge = DotEdge(nodes[source], nodes[target], _size(match[1], where, variables), match[2] or "", match[3] or "", label)
    for node in (edge.source, edge.target):
        if node.axis and node.size is not edge.size:
            raise ParseError(f"{where}: its size is {edge.size}, but that of {node} is {node.size}")
    return edge


def _edge_text(source: str, target: str, label: str) -> str:
    return f'edge {shortened(source)} -> {shortened(target)} [label="{shortened(label)}"]'


def _size(text: str, where: str, variables: VariableTable) -> Size:
    try:
        return variables.size(text)
    except SynoError as error:
        raise ParseError(f"{where}: {error}") from error


def _attach(edge: DotEdge, others: dict[str, DotEdge], node: DotNode, side: str, dims: Sequence[str], way: str) -> None:
    """Store `edge` as the dim that its `side` says, among the `dims` that lead into or out of `node`."""
    if not dims:
        raise ParseError(f"{edge}: no edge may lead {way} {node}")
    if side not in SIDES[len(dims)]:
        allowed = f"L ({dims[0]}) or R ({dims[1]})" if len(dims) == 2 else "nothing"
        arrow = "before" if way == "out of" else "after"
        raise ParseError(
            f"{edge}: {side or 'nothing'} is {arrow} the arrow of its label; it leads {way} {node}, so write {allowed}"
        )
    if others.setdefault(side, edge) is not edge:
        raise ParseError(f"{edge}: it leads {way} {node} where {others[side]} already does")


def check_dot_text(text: str) -> None:
    """Raise ParseError for a text that is larger than any drawing of an operator, or has other syntax than these."""
    if len(text) > MOST_DOT_CHARACTERS:
        raise ParseError(f"{len(text)} characters; a drawing has at most {MOST_DOT_CHARACTERS}")
    names = tokens = subgraphs = depth = 0
    in_attributes = False
    position = len(text) - len(text.lstrip())
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match:
            raise ParseError(f'not in the DOT language of drawings: "{shortened(text[position:].splitlines()[0], 40)}"')
        token, position = match[1], match.end()
        tokens += 1
        in_attributes = token == "[" or (in_attributes and token != "]")
        names += not in_attributes and token not in "[]{};,=->"
        subgraphs += token == "{"
        depth += (token == "{") - (token == "}")
        counts = (
            ("names of nodes", names, MOST_NAMES),
            ("words and signs", tokens, MOST_TOKENS),
            ("subgraphs", subgraphs, MOST_SUBGRAPHS),
            ("braces inside each other", depth, DEEPEST),
        )
        for what, count, most in counts:
            if count > most:
                raise ParseError(f"more than {most} {what}, which are the most that a drawing has")
