"""One pGraph for all that differ only in how reductions are numbered and how weights are laid out.

Both are free choices, which a pGraph's id depends on: numbers tell reductions of one size apart, and the axes of a weight
may come in any order. Here they are made by what the dims mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from syno.algebra import Size
from syno.ir.dim import Dim, Operation, reduce
from syno.ir.graph import PGraph


def renumbered(graph: PGraph) -> PGraph:
    """The same operator, its reductions numbered as the axes of the input, then those of the weights, lead down to them."""
    order = _Order()
    order.meet(graph.input)
    for weight in graph.weights:
        order.meet(weight)
    order.meet_sorted(graph.expansions)
    return _rebuilt(graph, order, graph.weights)


def normal_form(graph: PGraph) -> PGraph:
    """The same operator, with the axes of its weights in an order of their own and reductions numbered to match.

    A weight's axes are those that stand on the output first, by its axes; then those that stand on reductions which the
    input reads, in the order of its axes: a convolution's weight is [C_out, C_in, k, k]. Two pGraphs have the same normal
    form if only numbers and layouts tell them apart; exceptions would need reductions that the input does not read, and
    that nothing below the axes of weights tells apart.
    """
    order = _Order()
    order.meet(graph.input)
    weights = [order.meet_sorted(weight) for weight in graph.weights]
    order.meet_sorted(graph.expansions)
    return _rebuilt(graph, order, weights)


class _Order:
    """Reductions in the order in which they are met."""

    def __init__(self) -> None:
        self.position: dict[Dim, int] = {}

    def meet(self, dims: Iterable[Dim]) -> None:
        """Walk down from each of `dims`."""
        for dim in dims:
            if dim.is_reduce:
                self.position.setdefault(dim, len(self.position))
            elif dim.operation is not None:
                self.meet(dim.operation.bottoms)

    def meet_sorted(self, dims: Iterable[Dim]) -> tuple[Dim, ...]:
        """Walk down from each of `dims`, and return them: always the first by `_key`, which tells more as more are met."""
        waiting, done = list(dims), []
        while waiting:
            first = min(waiting, key=self._key)
            waiting.remove(first)
            self.meet([first])
            done.append(first)
        return tuple(done)

    def _key(self, dim: Dim) -> tuple[list[tuple[int, int]], str]:
        """The output axes and reductions that `dim` stands on, and how it does. Reductions not met yet are alike."""
        standing_on: list[tuple[int, int]] = []
        text = self._text(dim, standing_on)
        return sorted(standing_on), text

    def _text(self, dim: Dim, standing_on: list[tuple[int, int]]) -> str:
        if dim.operation is None:
            standing_on.append((0, dim.position))
            return f"i{dim.position}"
        if dim.is_reduce:
            position = self.position.get(dim, len(self.position))
            standing_on.append((1, position))
            return f"r{position}:{dim.size}"
        operation = dim.operation
        below = ", ".join(self._text(bottom, standing_on) for bottom in operation.bottoms)
        return f"{operation.primitive.tops[dim.position]} of {operation.primitive}({below}; {operation.parameter})"


def _rebuilt(graph: PGraph, order: _Order, weights: Iterable[tuple[Dim, ...]]) -> PGraph:
    """The operator on reductions numbered in that order, with the axes of its weights as given."""
    numbers: Counter[Size] = Counter()
    new: dict[Dim, Dim] = {}
    for dim in order.position:
        new[dim] = reduce(dim.size, numbers[dim.size])
        numbers[dim.size] += 1

    def rebuild(dim: Dim) -> Dim:
        if dim not in new:
            operation = dim.operation
            if operation is None:
                return dim
            bottoms = tuple(rebuild(bottom) for bottom in operation.bottoms)
            new[dim] = Operation(operation.primitive, operation.parameter, bottoms).tops[dim.position]
        return new[dim]

    def rebuild_all(dims: Iterable[Dim]) -> tuple[Dim, ...]:
        return tuple(rebuild(dim) for dim in dims)

    layouts = tuple(rebuild_all(weight) for weight in weights)
    return PGraph(graph.output, rebuild_all(graph.input), layouts, rebuild_all(graph.expansions), graph.name, graph.defaults)
