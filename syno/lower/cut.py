"""The cut: the dims that are the axes of the data tensor at a point of lowering.

Lowering goes from the top (input) to the bottom (output). The cut starts as the input's axes; each primitive that is carried
out replaces the dims above it by the dims below it. Only primitives that a required dim depends on are carried out.

Paper: section 6.1 (lowering).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

from syno.ir.dim import Dim, Operation
from syno.ir.graph import PGraph
from syno.ir.primitives import EXPAND, SHARE


class Structure:
    """An index of a pGraph for lowering: the operation above each dim, and the weights on which the dim depends."""

    def __init__(self, graph: PGraph) -> None:
        self.graph = graph
        self.above: dict[Dim, Operation] = {dim: op for op in graph.operations for dim in op.bottoms}
        self._weights: dict[Dim, frozenset[int]] = {}

    @cached_property
    def shares(self) -> dict[int, tuple[Operation, ...]]:
        """The Shares of each weight, by the weight's number, in the order of its axes."""
        return {
            number: tuple(dim.operation for dim in weight if dim.operation is not None)
            for number, weight in enumerate(self.graph.weights, 1)
        }

    def weights_above(self, dim: Dim) -> frozenset[int]:
        """Return the numbers of the weights that have been multiplied into the data above `dim`."""
        weights = self._weights.get(dim)
        if weights is None:
            operation = self.above.get(dim)
            if operation is None:
                weights = frozenset((dim.operation.parameter,)) if dim.is_weight_side and dim.operation else frozenset()  # type: ignore[arg-type]
            else:
                weights = frozenset[int]().union(*(self.weights_above(top) for top in operation.tops))
            self._weights[dim] = weights
        return weights

    def is_expanded(self, dim: Dim) -> bool:
        """Return whether an Expand lies directly above `dim`, so that it indexes no tensor."""
        operation = self.above.get(dim)
        return operation is not None and operation.primitive is EXPAND

    def reads_share_of(self, dim: Dim, weight: int) -> bool:
        """Return whether a Share of `weight` lies above `dim`."""
        operation = self.above.get(dim)
        if operation is None:
            return False
        if operation.primitive is SHARE and operation.parameter == weight:
            return True
        return any(self.reads_share_of(top, weight) for top in operation.tops)


class Cut:
    """The dims of the data tensor at one point of lowering. It is cheap to copy, since the planner tries many orders."""

    def __init__(self, structure: Structure, dims: Iterable[Dim]) -> None:
        self.structure = structure
        self.dims = set(dims)

    def copy(self) -> Cut:
        """Return an independent copy of the cut."""
        return Cut(self.structure, self.dims)

    def include(self, dim: Dim, carry_out: Callable[[Operation], None] | None = None) -> None:
        """Carry out operations until `dim` is in the cut, and call `carry_out` with each of them in order."""
        if dim in self.dims:
            return
        operation = self.structure.above[dim]
        for top in operation.tops:
            self.include(top, carry_out)
            self.dims.remove(top)
        self.dims.update(operation.bottoms)
        if carry_out is not None:
            carry_out(operation)
