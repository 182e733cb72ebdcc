"""A nest with its addresses in memory: what schedules are made for, and code is written from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from syno.ir.coordinates import Array


@dataclass(frozen=True, eq=False)
class Address:
    """Where in memory an iteration of a nest reads or writes, in floats: a constant, a step for each loop, and tables."""

    constant: int
    steps: Mapping[int, int]
    tables: tuple[tuple[tuple[int, ...], Array], ...] = ()

    def depends_on(self, loop: int) -> bool:
        """Return whether the address changes along the loop."""
        return bool(self.steps.get(loop)) or any(loop in loops for loops, _ in self.tables)


@dataclass(frozen=True, eq=False)
class LoopCode:
    """What is written of a nest.

    Attributes:
        extents: of the loops.
        summed: the numbers of the summed loops.
        read, write: the addresses; a vector lies there.
        factor_loops: the loops that the factor depends on; None if there is none.
        channel: the step of each loop in the number of the output's channel.
        is_aligned: whether vectors are read at multiples of their length.
        writes_aligned: whether they are written there.
        writes_far: whether they are written into the caller's memory, which no cache near the processor holds.
        takes_maximum: whether a result is the largest of its summands, none below zero, in place of their sum.
        masks: the loop over the vectors of a plane, and for each of them which lanes hold positions; None if all do.
    """

    extents: tuple[int, ...]
    summed: tuple[int, ...]
    read: Address
    write: Address
    factor_loops: tuple[int, ...] | None
    channel: Mapping[int, int] = field(default_factory=dict)
    is_aligned: bool = True
    writes_aligned: bool = True
    writes_far: bool = False
    takes_maximum: bool = False
    masks: tuple[int, Array] | None = None
