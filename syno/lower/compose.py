"""Contracting two weights with each other, ahead of the data.

For inference weights are constants. An operator that multiplies with two weights in turn can then multiply with one that
is computed once; whether that is faster depends on sizes and machine. What computes the one from the two is again a
linear operator, so it is written in the same language: its input is one weight, its weight the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from syno.base.errors import GraphError
from syno.base.files import LONGEST_NAME
from syno.ir.dim import Dim, Operation, output_axis, share
from syno.ir.graph import PGraph
from syno.ir.primitives import EXPAND, SHARE, SHIFT, SPLIT
from syno.ir.structure import Rebuilt, numbered
from syno.lower.cut import Structure


@dataclass(frozen=True)
class Composition:
    """Two weights as one.

    Attributes:
        graph: the operator with one weight less; the composed weight is its last one, the others keep their order.
        recipe: computes the composed weight; its input is weight `above`, its only weight is weight `below`.
        above, below: numbers of the weights composed, in the operator before.
    """

    graph: PGraph
    recipe: PGraph
    above: int
    below: int

    def kept(self, weights: int) -> list[int]:
        """Return the numbers, in the original operator, of the weights that are not composed."""
        return [number for number in range(1, weights + 1) if number not in (self.above, self.below)]


def compositions(graph: PGraph) -> Iterator[Composition]:
    """Return every way to compose two weights of the operator."""
    numbers = range(1, len(graph.weights) + 1)
    for below in numbers:
        for above in numbers:
            if above != below:
                found = compose(graph, above, below)
                if found is not None:
                    yield found


def compose(graph: PGraph, above: int, below: int) -> Composition | None:
    """Compose weights `above` and `below`. Return None where more than reshapes and rotations lie between them."""
    return _Composer(graph, above, below).composition()


class _Composer:
    """The composition of two weights. A root is a dim on which Shares stand; the new weight has one axis per needed root."""

    def __init__(self, graph: PGraph, above: int, below: int) -> None:
        self.graph, self.above, self.below = graph, above, below
        self.structure = Structure(graph)
        self.pair = (above, below)

    def composition(self) -> Composition | None:
        if self._lies_under(self.above, self.below):
            return None
        if self.above < self.below and not self._lies_under(self.below, self.above):
            return None  # independent of each other: the other way round will do
        below_roots = [self._root(self._bottom(axis)) for axis in self.graph.weights[self.below - 1]]
        above_roots: list[Dim] = []
        for axis in self.graph.weights[self.above - 1]:
            for root in self._roots_under(self._bottom(axis)):
                if root not in below_roots and root.operation is not None and not root.is_reduce:
                    return None
                above_roots.append(root)
        if len(set(below_roots)) < len(below_roots) or len(set(above_roots)) < len(above_roots):
            return None
        roots = [*below_roots, *(root for root in above_roots if root not in below_roots)]
        only_weights = [root for root in roots if root.is_reduce and self._is_weight_only(root)]
        axes = [root for root in roots if root not in only_weights]
        if not axes:
            return None
        try:
            recipe = self._recipe(below_roots, axes, only_weights)
            return Composition(self._with_one_weight(axes, only_weights), recipe, self.above, self.below)
        except GraphError:  # a Stride or another rule of the language stands in the way
            return None

    def _lies_under(self, lower: int, upper: int) -> bool:
        """Return whether some Share of weight `lower` lies below one of weight `upper`."""
        return any(upper in self.structure.weights_above(share.tops[0]) for share in self.structure.shares[lower])

    @staticmethod
    def _bottom(axis: Dim) -> Dim:
        assert axis.operation is not None
        return axis.operation.bottoms[0]

    @staticmethod
    def _root(dim: Dim) -> Dim:
        while dim.primitive is SHARE and dim.operation is not None:
            dim = dim.operation.bottoms[0]
        return dim

    def _roots_under(self, dim: Dim) -> Iterator[Dim]:
        root = self._root(dim)
        if root.primitive in (SPLIT, SHIFT) and root.operation is not None:
            for below in root.operation.bottoms:
                yield from self._roots_under(below)
        else:
            yield root

    def _is_weight_only(self, root: Dim) -> bool:
        """Return whether only the two weights are read at `root`, neither the data nor a third weight."""
        operation: Operation | None = self.structure.above[root]
        while operation is not None and operation.primitive is SHARE and operation.parameter in self.pair:
            operation = self.structure.above.get(operation.tops[0])
        return operation is not None and operation.primitive is EXPAND

    def _recipe(self, below_roots: Sequence[Dim], axes: Sequence[Dim], only_weights: Sequence[Dim]) -> PGraph:
        """Return the operator that maps the weight above to the composed weight, with the weight below as its weight."""
        start = {root: output_axis(index, root.size) for index, root in enumerate(axes)}
        start |= numbered(only_weights)
        shares = {root: share(start[root], 1) for root in below_roots}
        at = {root: shares[root][0] if root in shares else start[root] for root in (*axes, *only_weights)}
        new = Rebuilt(at, _without_share)
        axes_of_input = tuple(new[self._bottom(axis)] for axis in self.graph.weights[self.above - 1])
        expansions = tuple(at[root] for root in at if root not in new)
        output = tuple(start[root] for root in axes)
        sides = tuple(shares[root][1] for root in below_roots)
        name = f"{self.graph.name[:LONGEST_NAME]}_weight"
        return PGraph(output, axes_of_input, (sides,), expansions, name, self.graph.defaults)

    def _with_one_weight(self, axes: Sequence[Dim], only_weights: Sequence[Dim]) -> PGraph:
        """Return the operator with the two weights' Shares replaced by those of the composed weight."""
        others = [number for number in range(1, len(self.graph.weights) + 1) if number not in self.pair]
        renumbered = {number: position for position, number in enumerate(others, 1)}
        loops = numbered(dim for dim in self.graph.reduces if dim not in only_weights)

        def read_at(root: Dim, new: Dim) -> Dim:
            """The composed weight is read at each root, once for both."""
            return share(new, len(others) + 1)[0] if root in axes else new

        def rebuild(operation: Operation, bottoms: tuple[Dim, ...]) -> tuple[Dim, ...]:
            parameter = operation.parameter
            if operation.primitive is SHARE and isinstance(parameter, int):
                if parameter in self.pair:
                    return bottoms
                parameter = renumbered[parameter]
            tops = Operation(operation.primitive, parameter, bottoms).tops
            return tuple(read_at(dim, top) for dim, top in zip(operation.tops, tops, strict=True))

        bare = {dim: dim for dim in self.graph.output} | loops
        new = Rebuilt({dim: read_at(dim, fresh) for dim, fresh in bare.items()}, rebuild)
        weights = [tuple(new[dim] for dim in self.graph.weights[number - 1]) for number in others]
        composed = [new[root].operation for root in axes]
        weights.append(tuple(operation.tops[1] for operation in composed if operation is not None))
        return replace(
            self.graph,
            input=tuple(new[dim] for dim in self.graph.input),
            weights=tuple(weights),
            expansions=tuple(new[dim] for dim in self.graph.expansions if self._root(dim) not in only_weights),
        )


def _without_share(operation: Operation, bottoms: tuple[Dim, ...]) -> tuple[Dim, ...]:
    if operation.primitive is SHARE:
        return bottoms
    return Operation(operation.primitive, operation.parameter, bottoms).tops
