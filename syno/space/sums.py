"""Which sets of reductions can begin an operator.

Reductions come first, and a set of them is all that the distance needs to know there. So the sets are gone through once,
without building any state; in ten thousand of them there are a few hundred that lead somewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from syno.algebra import ONE, Size
from syno.space.axes import UNREACHABLE
from syno.space.sizes import SizeTable, Usage

Sums = tuple[Size, ...]  # in the order of their enumeration


@dataclass
class SumSets:
    """The sets of reductions from which an operator may be reached, and the beginnings of those sets.

    Attributes:
        sizes: facts about sizes.
        most: the largest number of reductions.
        within: whether the product of all reductions is small enough.
        distance: the distance with just these reductions, which use up these occurrences; UNREACHABLE beyond the depth.
    """

    sizes: SizeTable
    most: int
    within: Callable[[Size], bool]
    distance: Callable[[Sums, Size, Usage], int]
    beginnings: dict[Sums, int] = field(default_factory=dict)  # with their distances, more reductions counted

    def __post_init__(self) -> None:
        self.options = self.sizes.sizes(self.sizes.none)
        self.place = {size: place for place, size in enumerate(self.options)}
        self._usage = [self.sizes.reduced(size) for size in self.options]
        self._explore((), tuple(range(len(self.options))), ONE, self.sizes.none)

    def distance_of(self, sums: Sums) -> int:
        """How many primitives these reductions, in any order, need at least; some may be reductions that come after them."""
        return self.beginnings.get(tuple(sorted(sums, key=self.place.__getitem__)), UNREACHABLE)

    def _explore(self, sums: Sums, places: tuple[int, ...], reached: Size, usage: Usage) -> int:
        """Go through the sets that go on with the options at `places`; an option that is too much now stays so."""
        least = self.distance(sums, reached, usage)
        if len(sums) < self.most:
            after = [
                place
                for place in places
                if self.sizes.fits(usage, self._usage[place]) and self.within(reached * self.options[place])
            ]
            for i, place in enumerate(after):
                used = tuple(a + b for a, b in zip(usage, self._usage[place], strict=True))
                size = self.options[place]
                least = min(least, 1 + self._explore((*sums, size), tuple(after[i:]), reached * size, used))
        if least < UNREACHABLE:
            self.beginnings[sums] = least
        return least
