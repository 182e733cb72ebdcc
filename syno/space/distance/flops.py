"""A lower bound on the FLOPs that any completion of a state needs.

Data flows from the input to the output. Windows and weights' own axes widen it, sums narrow it, and each round of sums
costs as many multiply-adds as the data has elements then. A sum has to wait for what widens the data above it, and all sums
under one weight wait for everything above any axis of that weight. The bound is the cheapest order of the sums that the
state has; what is yet to come is free.

Source: the published system's bound on FLOPs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

from syno.algebra import Size, product
from syno.space.sizes import SizeTable
from syno.space.spec import OperatorSpec
from syno.space.state import Ends, State

T = TypeVar("T")


@dataclass
class FlopsBound:
    """Bounds under one spec, for all layers together."""

    spec: OperatorSpec
    sizes: SizeTable
    _known: dict[tuple[object, ...], int] = field(default_factory=dict)  # by what `cheapest` is given

    def __post_init__(self) -> None:
        self._input = product(self.spec.input_sizes)

    def lower_bound(self, state: State) -> int:
        """Return the multiply-adds that the replaced layers need at least, for one batch."""
        ends = state.ends
        if not ends.increases or not ends.sums:
            return 0
        given = (
            tuple([dim.size for dim in ends.sums]),
            tuple([increase.size for increase in ends.increases]),
            tuple(waits(ends)),
            self._input / ends.strides,  # as if all that they skip was left out at the start
        )
        found = self._known.get(given)
        if found is None:
            found = self._known[given] = self.cheapest(*given)
        return found

    def cheapest(self, sums: Sequence[Size], increases: Sequence[Size], waits: Sequence[int], start: Size) -> int:
        """Return the multiply-adds of the cheapest order of sums.

        Args:
            sums: their domains.
            increases: by how much the data is widened.
            waits: for each sum, the increases that must come before it, as bits.
            start: the elements of the input.
        """
        everything = (1 << len(sums)) - 1

        def elements(done: int, chosen: int) -> int:
            """Return the elements of the data after the sums `done`, when it is wide enough for those `chosen` as well."""
            widened = 0
            for wait in _chosen(waits, done | chosen):
                widened |= wait
            return self.sizes[product((start, *_chosen(increases, widened))) / product(_chosen(sums, done))].total

        @cache
        def rest(done: int) -> int:
            """Return what the sums that are not `done` cost: those of the next round, and then the others."""
            best, pending = -1, everything & ~done
            chosen = pending
            while chosen:
                now = elements(done, chosen)
                if best < 0 or now < best:
                    later = now + rest(done | chosen)
                    best = later if best < 0 else min(best, later)
                chosen = (chosen - 1) & pending  # the next subset
            return max(best, 0)

        return rest(0)


def _chosen(items: Sequence[T], bits: int) -> list[T]:
    return [item for place, item in enumerate(items) if bits >> place & 1]


def waits(ends: Ends) -> list[int]:
    """Return, for each sum, what must widen the data before it, as bits."""
    found = dict.fromkeys(ends.sums, 0)
    for bit, increase in enumerate(ends.increases):
        for dim in increase.sums.union(*_chosen(ends.weight_sums, increase.tags >> 1)):
            found[dim] |= 1 << bit
    return list(found.values())
