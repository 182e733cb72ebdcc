"""The sources of a coordinate: on how many positions of sums, and on which axes of the output, it depends."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from syno.algebra import Valuation
from syno.ir.dim import Dim
from syno.ir.primitives import REDUCE


class Source(NamedTuple):
    """The sources of a coordinate."""

    positions: int  # the most values that it takes for one element of the output
    outputs: int  # the axes of the output that it depends on, as bits


UNKNOWN = Source(1, 0)  # of all dims if nothing is required of what is read


@dataclass
class Sources:
    """Cache of the sources of dims (the values that an element depends on), at one valuation.

    A sum takes as many values as it is long, an axis of the output one. A dim takes at most as many as those below it together,
    and at most as many as its size.
    """

    row: Valuation
    _known: dict[Dim, Source] = field(default_factory=dict)

    def __getitem__(self, dim: Dim) -> Source:
        found = self._known.get(dim)
        if found is None:
            found = self._known[dim] = self._find(dim)
        return found

    def _find(self, dim: Dim) -> Source:
        operation, size = dim.operation, self.row.fraction(dim.size)
        if operation is None:
            return Source(1, 1 << dim.position)
        if operation.primitive is REDUCE:
            return Source(int(size), 0)
        return joined([self[bottom] for bottom in operation.bottoms], int(size))


def joined(sources: list[Source], most: int | None = None) -> Source:
    """Return the source of a coordinate that is computed from several others, and takes at most `most` values."""
    outputs = 0
    for source in sources:
        outputs |= source.outputs
    positions = prod(source.positions for source in sources)
    return Source(positions if most is None else min(positions, most), outputs)
