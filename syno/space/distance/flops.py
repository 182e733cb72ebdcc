"""A lower bound of the FLOPs that any completion of a state needs.

Data flows from the input to the output. Windows and weights' own axes widen it, sums narrow it, and each round of sums
costs as much as the data is wide then. A sum has to wait for what widens the data above it, and all sums under one
weight wait for everything above any axis of that weight. The bound is the cheapest order; what is yet to come is free.

Source: the published system's bound on FLOPs.
"""

from __future__ import annotations

from dataclasses import dataclass

from syno.algebra import Size, product
from syno.ir.dim import Dim
from syno.space.sizes import SizeTable
from syno.space.spec import OperatorSpec
from syno.space.state import Ends, State


@dataclass
class FlopsBound:
    """Bounds under one spec, for all layers together."""

    spec: OperatorSpec
    sizes: SizeTable

    def __post_init__(self) -> None:
        self._input = product(self.spec.input_sizes)

    def lower_bound(self, state: State) -> int:
        """Multiply-adds that the replaced layers need at least, for one batch."""
        ends = state.ends
        if not ends.increases or not ends.sums:
            return 0
        return self.cheapest(
            [dim.size for dim in ends.sums],
            [increase.size for increase in ends.increases],
            waits(ends),
            self._input / ends.strides,  # as if all that they skip was left out at the start
        )

    def cheapest(self, sums: list[Size], increases: list[Size], waits: list[int], start: Size | None = None) -> int:
        """The cheapest order of sums.

        Args:
            sums: their domains.
            increases: by how much the data is widened.
            waits: for each sum, the increases that must come before it, as bits.
            start: the elements of the input; those of the spec's if not given.
        """
        begin = self._input if start is None else start
        everything = (1 << len(sums)) - 1
        known: dict[int, int] = {everything: 0}

        def width(done: int, applied: int) -> Size:
            result = begin
            for bit, size in enumerate(increases):
                if applied >> bit & 1:
                    result = result * size
            for bit, size in enumerate(sums):
                if done >> bit & 1:
                    result = result / size
            return result

        def applied(done: int) -> int:
            result = 0
            for bit, wait in enumerate(waits):
                if done >> bit & 1:
                    result |= wait
            return result

        def rest(done: int) -> int:
            if done not in known:
                pending = everything & ~done
                best, chosen = -1, pending
                while chosen:
                    after = done | chosen
                    now = self.sizes[width(done, applied(after))].total
                    if best < 0 or now < best:
                        later = now + rest(after)
                        best = later if best < 0 else min(best, later)
                    chosen = (chosen - 1) & pending
                known[done] = best
            return known[done]

        return rest(0)


def waits(ends: Ends) -> list[int]:
    """For each sum, what must widen the data before it, as bits."""
    result = [0] * len(ends.sums)
    place: dict[Dim, int] = {dim: position for position, dim in enumerate(ends.sums)}
    for bit, increase in enumerate(ends.increases):
        for dim in increase.sums:
            result[place[dim]] |= 1 << bit
        for weight, sums in enumerate(ends.weight_sums, 1):
            if increase.tags >> weight & 1:
                for dim in sums:
                    result[place[dim]] |= 1 << bit
    return result
