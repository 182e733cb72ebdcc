"""Sources of a coordinate: the number of positions of sums, and the output axes, on which it depends."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from syno.algebra import Valuation
from syno.ir.dim import Dim
from syno.ir.primitives import REDUCE


class Source(NamedTuple):
    """The sums and the output axes on which a coordinate depends."""

    positions: int  # upper bound on the number of values that it takes for one output element
    outputs: int  # the output axes that it depends on, as a bit mask


UNKNOWN = Source(1, 0)  # of all dims, for a spec without a reading requirement


@dataclass
class Sources:
    """Cache of the sources of dims, at one valuation.

    A sum takes as many values as its size, an axis of the output one. Any other dim takes at most the product of the numbers of
    the dims below it, and at most as many as its size.
    """

    row: Valuation
    _known: dict[Dim, Source] = field(default_factory=dict)

    def __getitem__(self, dim: Dim) -> Source:
        source = self._known.get(dim)
        if source is None:
            source = self._known[dim] = self._find(dim)
        return source

    def _find(self, dim: Dim) -> Source:
        operation, size = dim.operation, self.row.fraction(dim.size)
        if operation is None:
            return Source(1, 1 << dim.position)
        if operation.primitive is REDUCE:
            return Source(int(size), 0)
        return joined([self[bottom] for bottom in operation.bottoms], int(size))


def joined(sources: list[Source], most: int | None = None) -> Source:
    """Return the source of a coordinate that is computed from others with these sources, and takes at most `most` values."""
    outputs = 0
    for source in sources:
        outputs |= source.outputs
    positions = prod(source.positions for source in sources)
    return Source(positions if most is None else min(positions, most), outputs)
