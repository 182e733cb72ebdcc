"""The nodes and edges of a `graph.dot` of the published system, checked one by one.

This parser reads only the part of the DOT language that the published drawings use, in time linear in the length of a file.
(Parsers of the whole language take a tenth of a second for a drawing, and exponential time for nested brackets.) It refuses
files with other syntax, or with more names or nesting than drawings have.

A node is a primitive (`op_...`), a reduction (`reduce_...`), an axis of the output (`out_0`), of the input (`in_0_0`) or
of a weight (`in_1_0`). An edge is a dim, drawn in the direction of the data and labelled `size (from->to)`: `from` says
which of the two dims below a Split or an Unfold it is, `to` which of the two above a Merge or a Share (`L` or `R`, in the
order of Table 1).

Source: the drawings in the artifact of the paper (ASPLOS'25).
"""

from __future__ import annotations

import graphlib
import re
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from syno.algebra import Size, VariableTable
from syno.algebra.limits import MOST_DOT_CHARACTERS, MOST_HEIGHT, shortened
from syno.base.errors import ParseError, SynoError, suggestion
from syno.ir.dim import Dim, Operation, output_axis, reduce
from syno.ir.graph import PGraph
from syno.ir.primitives import EXPAND, MERGE, REDUCE, SHARE, SHIFT, STRIDE, TABLE, Parameter
from syno.ir.rewriting import renumbered

SIDES = {0: (), 1: ("",), 2: ("L", "R")}  # how an edge's label tells so many dims apart
_NUMBER = r"0|[1-9][0-9]{0,3}"
_NAME = re.compile(rf"op_\w+|reduce_\w+|out_(?P<output>{_NUMBER})|in_(?P<tensor>{_NUMBER})_(?P<axis>{_NUMBER})", re.ASCII)
_EDGE_LABEL = re.compile(r"(\S+)(?: \(([LR]?)->([LR]?)\))?")
_AXIS_LABEL = re.compile(r"(\S+)\(([0-9]{1,4})\)")
_PRIMITIVES = [name for name in TABLE if name != REDUCE.name]
_EDGE_OF_SUBGRAPH = "an edge from or to a subgraph; write one edge for each pair of nodes"
_DEFAULTS = ("node", "edge", "graph")  # statements that set attributes for all
MOST_NAMES = 400  # outside of attributes: nodes, both ends of edges; the published drawings have up to 125
MOST_TOKENS = 3_000
MOST_SUBGRAPHS = 60
DEEPEST = 3  # a graph, clusters in it
_TOKEN = re.compile(r'("[^"\\]*"|->|[A-Za-z0-9_.]+|[\[\]{};,=])\s*')
_SIGNS = frozenset(("", "->", *"[]{};,="))  # what names nothing; the empty one is the end


class _Token(NamedTuple):
    """A token (word or sign) of a drawing, and the number of its line."""

    text: str
    line: int


@dataclass(frozen=True)
class DotNode:
    """A node.

    Attributes:
        name: Its name in the file.
        label: Its label.
        above, below: The names of the dims that the node must have above and below it, in the order of Table 1.
        axis: (index,) for an axis of the output; (tensor, index) for an axis of the input (tensor 0) or of a weight (from 1).
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
    """The parsed file: all nodes by name, and for each node the edges above and below it by the side (`L`, `R` or "")."""

    nodes: Mapping[str, DotNode] = field(default_factory=dict)
    above: Mapping[str, dict[str, DotEdge]] = field(default_factory=dict)
    below: Mapping[str, dict[str, DotEdge]] = field(default_factory=dict)


def parse_dot_file(text: str, variables: VariableTable) -> DotFile:
    """Return the nodes and edges of a `graph.dot`; sizes are read with `variables`.

    Raises ParseError, which names the node or the edge, for an illegal node or edge, an edge whose end does not exist, or two
    edges for the same dim of a node.
    """
    declared, drawn = _statements(_tokens(text))
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


def _statements(tokens: deque[_Token]) -> tuple[list[tuple[str, str]], list[tuple[str, str, str]]]:
    """Return nodes (name, label) and edges (source, target, label), subgraphs included. An absent label is empty."""
    nodes: list[tuple[str, str]] = []
    edges: list[tuple[str, str, str]] = []
    kind = _take(tokens, "digraph", "graph")
    _take_name_of_graph(tokens)
    depth = 1
    while depth:
        token = tokens[0].text
        if token in ("{", "subgraph"):
            if tokens.popleft().text == "subgraph":
                _take_name_of_graph(tokens)
            depth += 1
        elif token == "}":
            tokens.popleft()
            depth -= 1
            if tokens[0].text == "->":
                raise ParseError(_EDGE_OF_SUBGRAPH)
        elif token == ";":
            tokens.popleft()
        else:
            _read_statement(tokens, nodes, edges)
    others = sum(token.text in ("digraph", "graph") for token in tokens)
    if kind != "digraph" or len(tokens) > 1:
        raise ParseError(f"it must hold one digraph and nothing after it; it has {1 + others} of type {kind}")
    return nodes, edges


def _read_statement(tokens: deque[_Token], nodes: list[tuple[str, str]], edges: list[tuple[str, str, str]]) -> None:
    """Read a node, edges from node to node, or an attribute of the graph."""
    ends = [_take(tokens)]
    if tokens[0].text == "=":
        tokens.popleft()
        _take(tokens)
        return
    while tokens[0].text == "->":
        tokens.popleft()
        if tokens[0].text in ("{", "subgraph"):
            raise ParseError(_EDGE_OF_SUBGRAPH)
        ends.append(_take(tokens))
    label = _attributes(tokens).get("label", "")
    if len(ends) == 1:
        nodes.append((ends[0], label))
    edges += [(source, target, label) for source, target in pairwise(ends)]


def _attributes(tokens: deque[_Token]) -> dict[str, str]:
    """Read the attributes in brackets after a node or an edge; {} if there are none."""
    attributes: dict[str, str] = {}
    while tokens[0].text == "[":
        tokens.popleft()
        while tokens[0].text != "]":
            name = _take(tokens)
            _take(tokens, "=")
            attributes[name] = _take(tokens)
            if tokens[0].text in (",", ";"):
                tokens.popleft()
        tokens.popleft()
    return attributes


def _take_name_of_graph(tokens: deque[_Token]) -> None:
    if tokens[0].text != "{":
        _take(tokens)
    _take(tokens, "{")


def _take(tokens: deque[_Token], *wanted: str) -> str:
    """Remove and return the next token without its quotes: one of `wanted`, or any name if `wanted` is empty.

    Raises ParseError, with the line, for any other token. The empty token at the end is never removed.
    """
    token = tokens[0]
    if token.text not in wanted if wanted else token.text in _SIGNS:
        expected, there = " or ".join(wanted) or "a name", shortened(token.text) or "the end"
        raise ParseError(f"not in the DOT language: Expected {expected}, found {there} (line:{token.line})")
    return _unquoted(tokens.popleft().text)


def _unquoted(text: str) -> str:
    return text.removeprefix('"').removesuffix('"')


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
    """Store `edge` among a node's edges under the dim that `side` names, one of the node's `dims`; ParseError if taken."""
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


def _tokens(text: str) -> deque[_Token]:
    """Return the tokens of a text, and an empty one at its end.

    Raises ParseError for a text larger than any drawing of an operator, or with other syntax than the drawings'.
    """
    if len(text) > MOST_DOT_CHARACTERS:
        raise ParseError(f"{len(text)} characters; a drawing has at most {MOST_DOT_CHARACTERS}")
    tokens: deque[_Token] = deque()
    names = subgraphs = depth = 0
    in_attributes = False
    position = len(text) - len(text.lstrip())
    line = 1 + text.count("\n", 0, position)
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match:
            raise ParseError(f'not in the DOT language of drawings: "{shortened(text[position:].splitlines()[0], 40)}"')
        token, position = match[1], match.end()
        tokens.append(_Token(token, line))
        line += match[0].count("\n")
        in_attributes = token == "[" or (in_attributes and token != "]")
        names += not in_attributes and token not in _SIGNS
        subgraphs += token == "{"
        depth += (token == "{") - (token == "}")
        counts = (
            ("names of nodes", names, MOST_NAMES),
            ("words and signs", len(tokens), MOST_TOKENS),
            ("subgraphs", subgraphs, MOST_SUBGRAPHS),
            ("braces inside each other", depth, DEEPEST),
        )
        for what, count, most in counts:
            if count > most:
                raise ParseError(f"more than {most} {what}, which are the most that a drawing has")
    tokens.append(_Token("", line))
    return tokens


# A reader of pGraphs from the `graph.dot` of the published system.
#
# In the file a node is named by an address, so neither names nor the order of lines mean anything here: files that differ
# in nothing else give pGraphs with equal ids.
#
# Source: the drawings in the artifact of the paper (ASPLOS'25).


LONGEST_MESSAGE = 1_000  # characters: messages quote what was given
SHIFT_AMOUNT = 1  # the published system has no other; the file does not say it


def read_dot(path: Path, variables: VariableTable, name: str = "operator") -> PGraph:
    """Return the operator that a `graph.dot` draws.

    Reductions of equal domain are numbered in the order in which they are reached from the axes of the input, then from the
    axes of the weights.

    Args:
        path: The file.
        variables: The variables that its sizes are written in; the file does not say which are primary.
        name: The pGraph's name.

    Raises:
        ParseError: the file cannot be read, or draws no operator. The message names the file and the node or edge.
    """
    try:
        with path.open("rb") as opened:
            text = opened.read(4 * MOST_DOT_CHARACTERS + 1).decode("utf-8")
    except (OSError, ValueError) as error:
        raise ParseError(f"{path}: cannot be read as text: {error}") from error
    return parse_dot(text, variables, name, str(path))


def parse_dot(text: str, variables: VariableTable, name: str = "operator", source: str = "dot text") -> PGraph:
    """Return the operator that the text of a `graph.dot` draws, as `read_dot` does; errors name `source`."""
    try:
        file = parse_dot_file(text, variables)
        _check_all_edges(file)
        _check_no_cycle(file)
        return _Reader(file).graph(name, variables)
    except SynoError as error:
        raise ParseError(f"{source}: {shortened(str(error), LONGEST_MESSAGE)}") from error


def _check_all_edges(file: DotFile) -> None:
    """Raise ParseError if a node lacks an edge for one of its dims."""
    for node in file.nodes.values():
        for way, edges, dims in (
            ("out of", file.below[node.name], node.below),
            ("into", file.above[node.name], node.above),
        ):
            sides = SIDES[len(dims)]
            for side, dim in zip(sides, dims, strict=True):
                if side not in edges:
                    needs = " and ".join(f"{s or 'unmarked'} ({d})" for s, d in zip(sides, dims, strict=True))
                    raise ParseError(f"{node}: no edge leads {way} it as its {side or 'only'} ({dim}); it needs: {needs}")


def _check_no_cycle(file: DotFile) -> None:
    """Raise ParseError for a cycle, or for a path so long that building its dims by recursion would fail."""
    below = {name: [edge.target.name for edge in edges.values()] for name, edges in file.below.items()}
    try:
        from_below = list(graphlib.TopologicalSorter(below).static_order())
    except graphlib.CycleError as error:
        raise ParseError(f"the edges form a cycle: {' -> '.join(reversed(error.args[1]))}") from None
    height: dict[str, int] = {}
    for name in from_below:
        height[name] = 1 + max((height[other] for other in below[name]), default=0)
        if height[name] > MOST_HEIGHT + 2:  # the axes of output and input are nodes, too
            raise ParseError(f"node {name}: more than {MOST_HEIGHT} primitives lie below it, which are the most allowed")


class _Reader:
    """Builder of a drawing's dims, each after the dims below it."""

    def __init__(self, file: DotFile) -> None:
        self.file = file
        self.dims: dict[DotEdge, Dim] = {}
        self.operations: dict[str, Operation] = {}
        self.reduces: Counter[Size] = Counter()

    def graph(self, name: str, variables: VariableTable) -> PGraph:
        nodes = self.file.nodes.values()
        output = _numbered({node.axis[0]: node for node in nodes if len(node.axis) == 1}, "out_{}")
        axes: dict[int, dict[int, DotNode]] = defaultdict(dict)
        for node in nodes:
            if len(node.axis) == 2:
                axes[node.axis[0]][node.axis[1]] = node
        input_axes, *weights = (_numbered(axes[tensor], f"in_{tensor}_{{}}") for tensor in range(max(axes, default=0) + 1))
        input_dims = tuple(self._dim(self._only_edge(node)) for node in input_axes)
        weight_dims = tuple(tuple(self._weight_axis(self._only_edge(node)) for node in weight) for weight in weights)
        expansions = tuple(self._dim(self._only_edge(node)) for node in nodes if node.label == EXPAND.name)
        output_dims = tuple(self._dim(self._only_edge(node)) for node in output)
        return renumbered(PGraph(output_dims, input_dims, weight_dims, expansions, name, variables.defaults))

    def _only_edge(self, node: DotNode) -> DotEdge:
        return (self.file.below if node.below else self.file.above)[node.name][""]

    def _weight_axis(self, edge: DotEdge) -> Dim:
        if edge.target.label != SHARE.name or edge.target_side != "R":
            raise ParseError(f"{edge}: an axis of a weight must lead into a Share, as its R (weight)")
        return self._dim(edge)

    def _dim(self, edge: DotEdge) -> Dim:
        if edge not in self.dims:
            try:
                dim = self._new_dim(edge)
            except ParseError:
                raise
            except SynoError as error:
                raise ParseError(f"{edge.target}: {error}") from error
            if dim.size is not edge.size:
                raise ParseError(f"{edge}: its size is {edge.size}, but it is the {dim!r}")
            self.dims[edge] = dim
        return self.dims[edge]

    def _new_dim(self, edge: DotEdge) -> Dim:
        node = edge.target
        if node.axis:
            return output_axis(node.axis[0], edge.size)
        if not node.below:
            self.reduces[edge.size] += 1
            return reduce(edge.size, self.reduces[edge.size] - 1)
        if node.name not in self.operations:
            bottoms = tuple(self._dim(self.file.below[node.name][side]) for side in SIDES[len(node.below)])
            self.operations[node.name] = Operation(TABLE[node.label], self._parameter(node), bottoms)
        return self.operations[node.name].tops[SIDES[len(node.above)].index(edge.target_side)]

    def _parameter(self, node: DotNode) -> Parameter:
        above = self.file.above[node.name]
        if node.label == MERGE.name:
            return above["R"].size
        if node.label == STRIDE.name:
            return above[""].size / self.file.below[node.name][""].size
        if node.label == SHIFT.name:
            return SHIFT_AMOUNT
        if node.label == SHARE.name:
            weight = above["R"].source
            if len(weight.axis) < 2 or not weight.axis[0]:
                raise ParseError(f"{above['R']}: the R (weight) of a Share must come from an axis of a weight, as in_1_0")
            return weight.axis[0]
        return None


def _numbered(axes: dict[int, DotNode], name: str) -> list[DotNode]:
    """Return the axes of one tensor in order; ParseError if there are none, or a number is missing."""
    for index in range(max(axes, default=0) + 1):
        if index not in axes:
            raise ParseError(f"there is no node {name.format(index)}: axes and tensors are numbered from 0 without a gap")
    return [axes[index] for index in range(len(axes))]
