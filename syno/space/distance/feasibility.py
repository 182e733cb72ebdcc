"""The test whether a state may still become an operator, by the shape distance and by bounds of FLOPs on both sides.

Paper: section 5.4.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from operator import attrgetter

from syno.algebra import Size, product
from syno.ir import dim as dims
from syno.space.candidates import Candidates
from syno.space.complete import Completion
from syno.space.distance import DISTANCES, OtherDistance
from syno.space.distance.flops import FlopsBound
from syno.space.distance.joins import Joins
from syno.space.distance.problem import UNREACHABLE, Allowance, Goal
from syno.space.distance.reading import ReadingBound
from syno.space.distance.relaxation import Relaxation
from syno.space.distance.search import CheapestAssignment, ShapeDistance
from syno.space.distance.sums import Sums, SumSets
from syno.space.options import DistanceKind
from syno.space.rules.guarantees import Guarantees
from syno.space.sizes import Usage
from syno.space.state import State
from syno.space.steps import SPLIT, CandidateStep


class Feasibility:
    """Answers for the states of one space. With this project's distance, it never says no to a state that can be completed.

    Attributes:
        kind: the distance that is used, or "none".
        least_flops, most_flops: of the replaced layers.
    """

    def __init__(self, candidates: Candidates, completion: Completion, *, use_distance: bool, is_narrow: bool = False) -> None:
        self.spec, self.sizes, rules = candidates.spec, candidates.sizes, candidates.rules
        self.candidates, self.completion = candidates, completion
        self.kind: DistanceKind = self.spec.distance if use_distance else "none"
        self.other: OtherDistance | None = None
        if self.kind not in ("exact", "none"):
            self.other = DISTANCES.find(self.kind)(candidates, completion.wanted)
        self.flops = FlopsBound(self.spec, self.sizes)
        self.least_flops = self.spec.budget.least_flops - self.spec.budget.rest_flops
        self.most_flops = self.spec.budget.most_flops - self.spec.budget.rest_flops
        self.ensured = Guarantees.of(rules)
        wanted, unordered = completion.wanted, completion.unordered
        goal = Goal(self.spec, self.sizes, self.ensured, wanted, unordered, self.least_flops, self.most_flops)
        asks = self.spec.reads is not None and self.ensured.sums_come_first
        self.reading = ReadingBound(completion.requirements, self.sizes, is_narrow) if asks else None
        self.relax = Relaxation(goal, candidates, self.reading)
        self.distance = ShapeDistance(goal, self.reading)
        quick = self.kind == "exact" and self.ensured.sums_come_first
        narrow = self.reading if is_narrow else None
        self.joins = Joins(goal, narrow) if quick else None  # with other distances it might say no where they do not
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
        if self.other is not None:
            return self.other(state, most)
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
        if self.kind != "none" and not self._within_reach(state):  # first, as it rejects by far the most
            return False
        flops = self.flops.lower_bound(state)
        if flops > self.most_flops:
            return False
        if self.kind != "exact":
            return True
        if product(dim.size for dim in state.data) is not self._wanted or not self.ensured.sums_come_first:
            return True
        return not self._is_cheap(state, flops)

    def after(self, step: CandidateStep) -> State | None:
        """Return the state after a step if it may still become an operator, else None."""
        if step.kind == SPLIT and self.joins is not None and not self.joins.allow(step):
            return None
        state = step.taken()
        return state if self(state) else None

    def _is_cheap(self, state: State, bound: float) -> bool:
        """Return whether all that the state can become has too few FLOPs."""
        found = self._cheap_states.get(state)
        if found is None:
            found = self._cheap_states[state] = self.completion.cheap_forever(state, bound)
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
        by_order = attrgetter("order")
        outputs, start = product(self.spec.output_sizes), product(axis.size for axis in base) / self._wanted

        def distance(sums: Sums, reached: Size, usage: Usage) -> int:
            if not (start * reached).is_legal:
                return UNREACHABLE
            depth = self.spec.depth - len(sums)
            if self.other is not None:
                return self.other.of_sums(root, sums, depth)
            axes = tuple(sorted((*base, *(axes_of[size] for size in sums)), key=by_order))
            now = limits._replace(
                left=Allowance(*(min(number, depth) for number in limits.left)),
                iterations=self.sizes[outputs * reached].total,
                room=tuple(limit - used for limit, used in zip(self.sizes.limits, usage, strict=True)),
            )
            return self.distance(axes, now, depth)

        return SumSets(self.sizes, self.spec.occurrences.reductions, self.candidates.within_multiple, distance)
