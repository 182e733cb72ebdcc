"""A reader of pGraphs from the `graph.dot` of the published system.

In the file a node is named by an address, so neither names nor the order of lines mean anything here: files that differ
in nothing else give pGraphs with equal ids.

Source: the drawings in the artifact of the paper (ASPLOS'25).
"""

from __future__ import annotations

import graphlib
from collections import Counter, defaultdict
from pathlib import Path

from syno.algebra import Size, VariableTable
from syno.algebra.limits import MOST_DOT_CHARACTERS, MOST_HEIGHT, shortened
from syno.base.errors import ParseError, SynoError
from syno.ir.dim import Dim, Operation, output_axis, reduce
from syno.ir.graph import PGraph
from syno.ir.primitives import EXPAND, MERGE, SHARE, SHIFT, STRIDE, TABLE, Parameter
from syno.ir.rewriting import renumbered
from syno.paper.artifact.dot_file import SIDES, DotEdge, DotFile, DotNode, parse_dot_file

LONGEST_MESSAGE = 1_000  # characters: messages quote what was given
SHIFT_AMOUNT = 1  # the published system has no other; the file does not say it


def read_dot(path: Path, variables: VariableTable, name: str = "operator") -> PGraph:
    """Return the operator that a `graph.dot` draws.

    Reductions of equal domain are numbered in the order in which the axes of the input, then those of the weights, lead
    down to them.

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
    """Raise ParseError for a cycle, or for a way down that is too long: dims are built down it by recursion."""
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
    """Builds the dims of a drawing, each one after those below it."""

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
    """Return the axes of one tensor in order; ParseError if there is none, or a gap."""
    for index in range(max(axes, default=0) + 1):
        if index not in axes:
            raise ParseError(f"there is no node {name.format(index)}: axes and tensors are numbered from 0 without a gap")
    return [axes[index] for index in range(len(axes))]
