"""The sets of reductions that can begin an operator.

Paper: section 5.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from syno.algebra import Size, product
from syno.space.distance.assignment import total
from syno.space.distance.problem import UNREACHABLE
from syno.space.sizes import SizeTable, Usage

Sums = tuple[Size, ...]  # in the order of their enumeration


@dataclass
class SumSets:
    """The sets of reductions that can begin an operator.

    Reductions come first, and the distance needs to know nothing else there. So sets are examined without building any
    state, and only when asked for: of ten thousand sets a few hundred lead somewhere.

    Attributes:
        sizes: facts about sizes.
        most: the largest number of reductions.
        within: whether the product of all reductions is small enough.
        distance: the distance with just these reductions, their product and their occurrences; or UNREACHABLE.
    """

    sizes: SizeTable
    most: int
    within: Callable[[Size], bool]
    distance: Callable[[Sums, Size, Usage], int]
    _least: dict[Sums, int] = field(default_factory=dict)
    _leads: dict[Sums, bool] = field(default_factory=dict)
    _next: dict[Sums, list[Size]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._place = {size: place for place, size in enumerate(self.sizes.sizes(self.sizes.none))}
        self._usage = {size: self.sizes.reduced(size) for size in self._place}

    def leads_on(self, sums: Sums) -> bool:
        """Return whether an operator may be reached from these reductions, in any order, or with later ones."""
        sums = self._sorted(sums)
        found = self._leads.get(sums)
        if found is None:
            found = self._leads[sums] = self._distance(sums) < UNREACHABLE or any(map(self.leads_on, self._longer(sums)))
        return found

    def distance_of(self, sums: Sums) -> int:
        """Return how many primitives these reductions, in any order, need at least, later reductions included."""
        sums = self._sorted(sums)
        found = self._least.get(sums)
        if found is None:
            more = (1 + self.distance_of(longer) for longer in self._longer(sums))
            found = self._least[sums] = min(self._distance(sums), min(more, default=UNREACHABLE), UNREACHABLE)
        return found

    def _sorted(self, sums: Sums) -> Sums:
        return tuple(sorted(sums, key=self._place.__getitem__))

    def _distance(self, sums: Sums) -> int:
        return self.distance(sums, product(sums), self._used(sums))

    def _used(self, sums: Sums) -> Usage:
        return total(self.sizes.none, *(self._usage[size] for size in sums))

    def _longer(self, sums: Sums) -> Iterator[Sums]:
        """Yield the sets with one more, which is not before the last."""
        return ((*sums, size) for size in self._after(sums)) if len(sums) < self.most else iter(())

    def _after(self, sums: Sums) -> list[Size]:
        """Return what may come next: not before the last, and nothing that was too much before."""
        found = self._next.get(sums)
        if found is None:
            last, before = (self._place[sums[-1]], self._after(sums[:-1])) if sums else (0, list(self._place))
            used, reached = self._used(sums), product(sums)
            found = self._next[sums] = [
                size
                for size in before
                if self._place[size] >= last and self.sizes.fits(used, self._usage[size]) and self.within(reached * size)
            ]
        return found
