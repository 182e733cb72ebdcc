"""A loop nest with its addresses in memory: the input of schedules and of the code writer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from syno.ir.coordinates import Array


@dataclass(frozen=True, eq=False)
class Address:
    """The offset, in floats, at which an iteration of a nest reads or writes: constant + sum of step * index + table lookups.

    Attributes:
        constant: the offset of the first iteration.
        steps: the step of each loop, by its number.
        tables: for each irregular term, the numbers of its loops and a table over them.
    """

    constant: int
    steps: Mapping[int, int]
    tables: tuple[tuple[tuple[int, ...], Array], ...] = ()

    def depends_on(self, loop: int) -> bool:
        """Return whether the address depends on the loop's index."""
        return bool(self.steps.get(loop)) or any(loop in loops for loops, _ in self.tables)


@dataclass(frozen=True, eq=False)
class LoopCode:
    """A loop nest as the code writer needs it.

    Attributes:
        extents: the number of iterations of each loop.
        summed: the numbers of the summed loops.
        read, write: the addresses of the vectors that an iteration loads and stores.
        factor_loops: the loops on which the factor depends; None if there is no factor.
        channel: the step of each loop in the index of the output's channel.
        is_aligned: whether loads are aligned to the length of a vector.
        writes_aligned: whether stores are aligned to the length of a vector.
        writes_far: whether results are stored in the caller's memory, which the caches do not hold.
        takes_maximum: whether a result is the maximum of its summands, all at least zero, instead of their sum.
        masks: the loop over the vectors of a plane, and for each vector which lanes hold positions; None if all do.
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
