"""Which sets of reductions can begin an operator.

Reductions come first, and a set of them is all that the distance needs to know there. So sets are looked into without
building any state, and only as far as somebody asks: in ten thousand of them there are a few hundred that lead somewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from syno.algebra import Size, product
from syno.space.distance.axes import UNREACHABLE
from syno.space.sizes import SizeTable, Usage

Sums = tuple[Size, ...]  # in the order of their enumeration


@dataclass
class SumSets:
    """The sets of reductions from which an operator may be reached, and the beginnings of those sets.

    Attributes:
        sizes: facts about sizes.
        most: the largest number of reductions.
        within: whether the product of all reductions is small enough.
        distance: the distance with just these reductions, whose product and occurrences come with them; UNREACHABLE
            beyond the depth.
    """

    sizes: SizeTable
    most: int
    within: Callable[[Size], bool]
    distance: Callable[[Sums, Size, Usage], int]
    _alone: dict[Sums, int] = field(default_factory=dict)  # without reductions that come after them
    _least: dict[Sums, int] = field(default_factory=dict)
    _leads: dict[Sums, bool] = field(default_factory=dict)
    _places: dict[Sums, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.options = self.sizes.sizes(self.sizes.none)
        self.place = {size: place for place, size in enumerate(self.options)}
        self._usage = [self.sizes.reduced(size) for size in self.options]

    def leads_on(self, sums: Sums) -> bool:
        """Whether an operator may be reached from these reductions, in any order, or with more that come after them."""
        sums = self._sorted(sums)
        found = self._leads.get(sums)
        if found is None:
            found = self._distance(sums) < UNREACHABLE or any(map(self.leads_on, self._longer(sums)))
            self._leads[sums] = found
        return found

    def distance_of(self, sums: Sums) -> int:
        """How many primitives these reductions, in any order, need at least; some may be reductions that come after them."""
        sums = self._sorted(sums)
        found = self._least.get(sums)
        if found is None:
            more = (1 + self.distance_of(longer) for longer in self._longer(sums))
            found = self._least[sums] = min(self._distance(sums), min(more, default=UNREACHABLE), UNREACHABLE)
        return found

    def _sorted(self, sums: Sums) -> Sums:
        return tuple(sorted(sums, key=self.place.__getitem__))

    def _distance(self, sums: Sums) -> int:
        found = self._alone.get(sums)
        if found is None:
            found = self._alone[sums] = self.distance(sums, product(sums), self._used(sums))
        return found

    def _used(self, sums: Sums) -> Usage:
        usages = [self.sizes.none, *(self._usage[self.place[size]] for size in sums)]
        return tuple(map(sum, zip(*usages, strict=True)))

    def _longer(self, sums: Sums) -> Iterator[Sums]:
        """The sets with one more, which is not before the last."""
        return ((*sums, self.options[place]) for place in self._after(sums)) if len(sums) < self.most else iter(())

    def _after(self, sums: Sums) -> list[int]:
        """The places of what may come next: not before the last, and of what was not too much before."""
        found = self._places.get(sums)
        if found is None:
            last = self.place[sums[-1]] if sums else 0
            before = self._after(sums[:-1]) if sums else range(len(self.options))
            used, reached = self._used(sums), product(sums)
            found = self._places[sums] = [
                place
                for place in before
                if place >= last and self.sizes.fits(used, self._usage[place]) and self.within(reached * self.options[place])
            ]
        return found
