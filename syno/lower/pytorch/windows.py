"""Windows: from an Unfold down to the weight's axes and reductions over which its neighbours are summed."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

from syno.algebra import ONE, Size
from syno.ir.dim import Dim, Operation
from syno.ir.primitives import SHARE, SHIFT, SPLIT, STRIDE, UNFOLD
from syno.lower.cut import Structure


@dataclass(frozen=True)
class Window:
    """The window of an Unfold, as the primitives between it and its leaves cut it up.

    Attributes:
        unfold: the Unfold.
        kernel: the dim whose positions are the taps of a kernel: the window itself, or what a Stride thins it to.
        dilation: the distance of the taps.
        leaves: the dims that views lead to from `kernel`, each to be shared with a weight or summed.
    """

    unfold: Operation
    kernel: Dim
    dilation: Size
    leaves: tuple[Dim, ...]

    @property
    def axis(self) -> Dim:
        """The axis that the window moves along, before."""
        return self.unfold.tops[0]

    @property
    def position(self) -> Dim:
        """The axis that the window moves along, after."""
        return self.unfold.bottoms[0]

    @property
    def dilation_argument(self) -> str:
        """The dilation as the last argument of a generated call; empty if it is 1."""
        return "" if self.dilation is ONE else f", {self.dilation.integer_text()}"


def window_of(unfold: Operation) -> Window:
    """Return the window of `unfold`, down to the first dims below which no Split, Shift or Stride lies."""
    window = unfold.bottoms[1]
    operation = window.operation
    if operation is not None and operation.primitive is STRIDE:
        assert isinstance(operation.parameter, Size)
        return Window(unfold, operation.bottoms[0], operation.parameter, tuple(_leaves(operation.bottoms[0])))
    return Window(unfold, window, ONE, tuple(_leaves(window)))


def _leaves(dim: Dim) -> Iterator[Dim]:
    operation = dim.operation
    if operation is not None and operation.primitive in (SPLIT, SHIFT):
        for below in operation.bottoms:
            yield from _leaves(below)
    else:
        yield dim


def split_leaves(dim: Dim) -> list[Dim]:
    """Return the dims into which the Splits below `dim` cut it; `dim` itself if there are none."""
    operation = dim.operation
    if operation is None or operation.primitive is not SPLIT:
        return [dim]
    return [leaf for below in operation.bottoms for leaf in split_leaves(below)]


def unfold_above(structure: Structure, dim: Dim) -> Operation | None:
    """Return the Unfold whose window has `dim` as a leaf, or None."""
    operation = structure.above.get(dim)
    while operation is not None and operation.primitive in (SPLIT, SHIFT, STRIDE):
        dim = operation.tops[0]
        operation = structure.above.get(dim)
    if operation is None or operation.primitive is not UNFOLD or operation.bottoms[1] is not dim:
        return None
    return operation


def share_at(leaf: Dim, weight: int) -> Operation | None:
    """Return the Share of `weight` that has `leaf` as its data side, or None."""
    operation = leaf.operation
    if operation is None or operation.primitive is not SHARE or leaf.position != 0 or operation.parameter != weight:
        return None
    return operation


def carried_out_for(structure: Structure, available: Set[Dim], dim: Dim) -> set[Operation]:
    """Return the operations that must be carried out to get `dim` from the axes `available`."""
    if dim in available:
        return set()
    operation = structure.above.get(dim)
    if operation is None:
        return set()
    return {operation}.union(*(carried_out_for(structure, available, top) for top in operation.tops))
