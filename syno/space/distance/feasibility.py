"""The test whether a state may still become an operator, by the shape distance and by bounds of FLOPs on both sides.

Paper: section 5.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from syno.algebra import Size, product
from syno.ir import dim as dims
from syno.space.candidates import Candidates
from syno.space.complete import Completion
from syno.space.distance.flops import FlopsBound
from syno.space.distance.problem import UNREACHABLE, Allowance, Goal, total
from syno.space.distance.relaxation import Relaxation, axis_order
from syno.space.distance.search import CheapestAssignment, ShapeDistance
from syno.space.rules.guarantees import Guarantees
from syno.space.sizes import SizeTable, Usage
from syno.space.state import State


class Feasibility:
    """Answers for the states of one space. It never says no to a state that can be completed.

    Attributes:
        least_flops, most_flops: of the replaced layers.
    """

    def __init__(self, candidates: Candidates, completion: Completion, *, use_distance: bool) -> None:
        self.spec, self.sizes, rules = candidates.spec, candidates.sizes, candidates.rules
        self.candidates, self.completion, self.use_distance = candidates, completion, use_distance
        self.flops = FlopsBound(self.spec, self.sizes)
        self.least_flops = self.spec.budget.least_flops - self.spec.budget.rest_flops
        self.most_flops = self.spec.budget.most_flops - self.spec.budget.rest_flops
        self.ensured = Guarantees.of(rules)
        wanted, unordered = completion.wanted, completion.unordered
        goal = Goal(self.spec, self.sizes, self.ensured, wanted, unordered, self.least_flops, self.most_flops)
        self.relax = Relaxation(goal, candidates)
        self.distance = ShapeDistance(goal)
        self._wanted = product(wanted)
        self._cheap_states: dict[State, bool] = {}

    def distance_of(self, state: State, most: int | None = None) -> int:
        """Return the least number of primitives that the state needs; UNREACHABLE if above `most` (the depth left)."""
        left = self.spec.depth - state.steps
        most = left if most is None else most
        if not self.ensured.sums_come_first and state.ends.counts.reductions < self.spec.occurrences.reductions:
            return 0  # a sum can come at any time, and make anything fit
        if self._has_only_sums(state) and most <= left:
            found = self.sum_sets.distance_of(tuple(dim.size for dim in state.ends.sums))
            return found if found <= most else UNREACHABLE
        return self.distance(*self.relax(state, most), most)

    def cheapest(self, state: State) -> CheapestAssignment | None:
        """Return the cheapest assignment of the state's axes; None if no operator is within the depth left."""
        left = self.spec.depth - state.steps
        return self.distance.cheapest(*self.relax(state, left), left)

    def iterations(self, state: State) -> int:
        """Return the FLOPs of the operator in one stage: all loops, summed over the replaced layers."""
        return self.sizes[product((*self.spec.output_sizes, *(dim.size for dim in state.ends.sums)))].total

    def without_budget(self, state: State) -> int:
        """Return the distance if FLOPs did not matter; UNREACHABLE if that is above the depth left."""
        left = self.spec.depth - state.steps
        free = ShapeDistance(replace(self.distance.goal, least_flops=0, most_flops=float("inf")))
        return free(*self.relax(state, left), left)

    def __call__(self, state: State) -> bool:
        """Return whether the state may still become an operator."""
        if state.steps > self.spec.depth:
            return False
        if self.use_distance and not self._within_reach(state):  # first, as it rejects by far the most
            return False
        if self.flops.lower_bound(state) > self.most_flops:
            return False
        if not self.use_distance:
            return True
        if product(dim.size for dim in state.data) is not self._wanted or not self.ensured.sums_come_first:
            return True
        return not self._is_cheap(state)

    def _is_cheap(self, state: State) -> bool:
        """Return whether all that the state can become has too few FLOPs."""
        found = self._cheap_states.get(state)
        if found is None:
            found = self._cheap_states[state] = self.completion.cheap_forever(state)
        return found

    def _has_only_sums(self, state: State) -> bool:
        counts = state.ends.counts
        return counts.steps == counts.reductions

    def _within_reach(self, state: State) -> bool:
        if self._has_only_sums(state) and self.ensured.sums_come_first:  # cheaper than to find the least
            return self.sum_sets.leads_on(tuple(dim.size for dim in state.ends.sums))
        return self.distance_of(state) < UNREACHABLE

    @cached_property
    def sum_sets(self) -> SumSets:
        """The sets of reductions that lead somewhere."""
        root = self.candidates.root()
        base, limits = self.relax(root, self.spec.depth)
        axes_of = {size: self.relax.axis(dims.reduce(size), root) for size in self.sizes.sizes(self.sizes.none)}
        outputs, start = product(self.spec.output_sizes), product(axis.size for axis in base) / self._wanted

        def distance(sums: Sums, reached: Size, usage: Usage) -> int:
            if not (start * reached).is_legal:
                return UNREACHABLE
            depth = self.spec.depth - len(sums)
            axes = tuple(sorted((*base, *(axes_of[size] for size in sums)), key=axis_order))
            now = limits._replace(
                left=Allowance(*(min(number, depth) for number in limits.left)),
                iterations=self.sizes[outputs * reached].total,
                room=tuple(limit - used for limit, used in zip(self.sizes.limits, usage, strict=True)),
            )
            return self.distance(axes, now, depth)

        return SumSets(self.sizes, self.spec.occurrences.reductions, self.candidates.within_multiple, distance)


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
