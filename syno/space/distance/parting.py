"""Axes of which nothing reaches the input: cut into pieces that end each in its own way.

A piece is taken in as a window, is expanded, or a weight ends it.

Paper: section 5.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from syno.algebra import Size
from syno.space.distance.axes import UNREACHABLE, Parts
from syno.space.sizes import SizeTable
from syno.space.spec import OperatorSpec

MOST_CUTS = 2  # Merges on one axis that are looked into


@dataclass
class Parting:
    """What it takes to part axes, each size looked into once.

    Attributes:
        spec, sizes: of the space.
        apart: whether one weight cannot end all pieces of an axis.
    """

    spec: OperatorSpec
    sizes: SizeTable
    apart: bool
    _known: dict[tuple[Size, tuple[Size, ...] | None], Parts] = field(default_factory=dict)

    def __call__(self, size: Size, first: tuple[Size, ...] | None = None) -> Parts:
        """Primitives beside contractions, Merges included, with no, one, and more contractions; UNREACHABLE if impossible.

        Args:
            size: of the axis.
            first: the pieces that the first Merge may make; any if not given.
        """
        found = self._known.get((size, first))
        if found is None:
            found = self._known[size, first] = self._find(size, first)
        return found

    def _find(self, size: Size, first: tuple[Size, ...] | None) -> Parts:
        least = [UNREACHABLE] * 3
        for pieces in self._cuts(size, first, MOST_CUTS):
            taken = [self._is_taken(piece) for piece in pieces]  # as windows or repeats
            ended = [self._is_ended(piece) for piece in pieces]
            cuts = len(pieces) - 1
            if all(taken):
                least[0] = min(least[0], cuts + len(pieces))
            if all(a or b for a, b in zip(taken, ended, strict=True)):
                others = ended.count(False)
                one = max(others, int(self.apart))
                if others or any(taken) or not one:
                    least[1] = min(least[1], cuts + one)
                least[2] = min(least[2], cuts + others)
        return Parts(*least)

    def _cuts(self, size: Size, first: tuple[Size, ...] | None, most: int) -> Iterator[tuple[Size, ...]]:
        for block, _ in self.sizes.divisors(size):
            other = size / block
            if first is not None and block not in first:
                continue
            yield block, other
            if most > 1:
                yield from ((block, *pieces) for pieces in self._cuts(other, None, most - 1))
                yield from ((other, *pieces) for pieces in self._cuts(block, None, most - 1))

    def _is_ended(self, piece: Size) -> bool:
        facts = self.sizes[piece]
        return facts.highest <= self.spec.contractions.largest_outer and self.sizes.fits(self.sizes.none, facts.shared)

    def _is_taken(self, piece: Size) -> bool:
        facts = self.sizes[piece]
        return facts.can_be_window or 1 < self.spec.repeats.largest >= facts.highest
