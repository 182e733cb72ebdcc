"""One pGraph for all that differ only in how reductions are numbered and how weights are laid out.

Both are free choices, which a pGraph's id depends on: numbers tell reductions of one size apart, and the axes of a weight
may come in any order. Here the rest of the operator decides them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from syno.ir.dim import Dim, Rebuilt, content_id, numbered
from syno.ir.graph import PGraph, bare_below


def renumbered(graph: PGraph) -> PGraph:
    """The same operator, its reductions numbered as the axes of the input, then those of the weights, lead down to them."""
    order = _Order(graph)
    for dims in (graph.input, *graph.weights):
        order.meet(dims)
    order.meet_sorted(graph.expansions)
    return graph.mapped(Rebuilt(numbered(order.position)))


def normal_form(graph: PGraph) -> PGraph:
    """The same operator, with the axes of its weights in an order of their own and reductions numbered to match.

    A weight's axes are those that stand on axes of the output, in their order; then those that stand on reductions which
    the input reads, in the order of its axes; then others: a convolution's weight is [C_out, C_in, k, k]. The order of
    the weights stays. Two pGraphs have normal forms with equal ids if only numbers and layouts tell them apart.
    """
    order = _Order(graph)
    order.meet(graph.input)
    weights = [order.meet_sorted(weight) for weight in graph.weights]
    order.meet_sorted(graph.expansions)
    return graph.mapped(Rebuilt(numbered(order.position)), weights=weights)


class _Order:
    """The reductions of a graph in the order in which they are met."""

    def __init__(self, graph: PGraph) -> None:
        self.graph = graph
        self.position: dict[Dim, int] = {}
        self.standing: dict[Dim, Counter[Dim]] = {}
        self.above = {dim: operation for operation in graph.operations for dim in operation.bottoms}

    def meet(self, dims: Iterable[Dim]) -> None:
        """Walk down from each of `dims`."""
        for bare in bare_below(dims):
            if bare.is_reduce:
                self.position.setdefault(bare, len(self.position))

    def meet_sorted(self, dims: Iterable[Dim]) -> tuple[Dim, ...]:
        """Walk down from each of `dims`, in an order that the operator gives. Returns them in that order."""
        waiting, done = list(dims), []
        while waiting:
            color = self._colors()
            first = min(waiting, key=lambda dim: (self._place(dim), dim.height, color[dim]))
            waiting.remove(first)
            self.meet([first])
            done.append(first)
        return tuple(done)

    def _place(self, dim: Dim) -> list[tuple[int, int, bool, int]]:
        """The output axes, then the reductions that `dim` stands on; those not met yet are last, and alike.

        They compare as the sorted lists do in which each occurs as often as `dim` stands on it. There can be 2**20 of one, so
        each is listed once, with its count: of two lists that begin alike, one that has more of the same comes before one that
        goes on with something larger, and after one that ends.
        """
        places: Counter[tuple[int, int]] = Counter()
        for bare, count in self._standing_on(dim).items():
            place = (1, self.position.get(bare, len(self.position))) if bare.is_reduce else (0, bare.position)
            places[place] += count
        last = max(places, default=None)
        return [(*place, place != last, places[place] if place == last else -places[place]) for place in sorted(places)]

    def _standing_on(self, dim: Dim) -> Counter[Dim]:
        """The output axes and reductions below `dim`, and how often they occur."""
        if dim not in self.standing:
            bare = dim.operation is None or dim.is_reduce
            below = Counter([dim]) if bare else Counter[Dim]()
            for bottom in () if bare or dim.operation is None else dim.operation.bottoms:
                below.update(self._standing_on(bottom))
            self.standing[dim] = below
        return self.standing[dim]

    def _colors(self) -> dict[Dim, str]:
        """An id for each dim, equal for those that nothing around them tells apart.

        Every dim starts with what it is by itself, and takes in what its neighbours are until that divides no further
        (color refinement).
        """
        color = {dim: self._own(dim) for dim in self.graph.labels}
        color |= {dim: f"{color[dim]} input {axis}" for axis, dim in enumerate(self.graph.input)}
        known = 0
        while len(set(color.values())) > known:
            known = len(set(color.values()))
            color = {dim: content_id(color[dim], *self._around(dim, color)) for dim in color}
        return color

    def _own(self, dim: Dim) -> str:
        if dim.is_reduce:
            return f"reduction {dim.size} {self.position.get(dim, '')}"
        return dim.id if dim.operation is None else f"{dim.position} of {dim.operation.primitive} {dim.operation.parameter}"

    def _around(self, dim: Dim, color: dict[Dim, str]) -> list[str]:
        below = [color[bottom] for bottom in dim.operation.bottoms] if dim.operation is not None else []
        operation = self.above.get(dim)
        if operation is None:
            return below
        neighbours = [color[other] for other in (*operation.bottoms, *operation.tops)]
        return [*below, f"{operation.bottoms.index(dim)} into {operation.primitive}", *neighbours]
