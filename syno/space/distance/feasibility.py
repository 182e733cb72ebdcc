"""Whether a state may still become an operator: the shape distance, and bounds of FLOPs on both sides.

Never says no to a state that can be completed.

Paper: section 5.4.
"""

from __future__ import annotations

from functools import cached_property

from syno.algebra import Size, product
from syno.ir import dim as dims
from syno.space.candidates import Candidates
from syno.space.complete import Completion
from syno.space.distance.abstraction import Abstraction, axis_order
from syno.space.distance.axes import UNREACHABLE
from syno.space.distance.distance import Distance
from syno.space.distance.flops import FlopsBound
from syno.space.distance.sums import SumSets
from syno.space.sizes import Usage
from syno.space.state import State


class Feasibility:
    """Answers for the states of one space; each found once."""

    def __init__(self, candidates: Candidates, completion: Completion, *, use_distance: bool) -> None:
        self.spec, self.sizes, self.rules = candidates.spec, candidates.sizes, candidates.rules
        self.candidates, self.completion, self.use_distance = candidates, completion, use_distance
        self.flops = FlopsBound(self.spec, self.sizes)
        self.least_flops = self.spec.budget.least_flops - self.spec.budget.rest_flops
        self.most_flops = self.spec.budget.most_flops - self.spec.budget.rest_flops
        self.abstract = Abstraction(self.spec, self.sizes, candidates.facts, self.rules, candidates)
        self.distance = Distance(
            self.spec,
            self.sizes,
            completion.wanted,
            completion.unordered,
            self.least_flops,
            self.most_flops,
            self.abstract.parting,
            self.abstract.ensured,
        )
        self._goal = product(completion.wanted)
        self._cheap_states: dict[State, bool] = {}

    @cached_property
    def root(self) -> State:
        """The output's axes."""
        return self.candidates.root()

    def distance_of(self, state: State, most: int | None = None) -> int:
        """How many more primitives the state needs at least; UNREACHABLE if that is above `most` (the depth left)."""
        left = self.spec.depth - state.steps
        most = left if most is None else most
        counts = state.ends.counts
        if not self.abstract.ensured.sums_come_first and counts.reductions < self.spec.occurrences.reductions:
            return 0  # a sum can come at any time, and make anything fit
        if counts.steps == counts.reductions and most <= left:
            found = self.sum_sets.distance_of(tuple(dim.size for dim in state.ends.sums))
            return found if found <= most else UNREACHABLE
        axes, limits = self.abstract(state, most)
        return self.distance(axes, limits, most)

    def iterations(self, state: State) -> int:
        """All loops of the operator, summed over the replaced layers: its FLOPs if all is done in one stage."""
        return self.sizes[product((*self.spec.output_sizes, *(dim.size for dim in state.ends.sums)))].total

    def without_budget(self, state: State) -> int:
        """The distance if FLOPs did not matter; UNREACHABLE if that is above the depth left."""
        left = self.spec.depth - state.steps
        axes, limits = self.abstract(state, left)
        free = Distance(
            self.spec,
            self.sizes,
            self.completion.wanted,
            self.completion.unordered,
            0,
            float("inf"),
            self.abstract.parting,
            self.abstract.ensured,
        )
        return free(axes, limits, left)

    def __call__(self, state: State) -> bool:
        """Whether the state may still become an operator, as far as the distance can tell."""
        if state.steps > self.spec.depth:
            return False
        if self.use_distance and not self._within_reach(state):  # first, as it rejects by far the most
            return False
        if self.flops.lower_bound(state) > self.most_flops:
            return False
        if not self.use_distance:
            return True
        if product(dim.size for dim in state.data) is not self._goal or not self.abstract.ensured.sums_come_first:
            return True
        return not self._cheap(state)

    def _cheap(self, state: State) -> bool:
        found = self._cheap_states.get(state)
        if found is None:
            found = self._cheap_states[state] = self.completion.cheap_forever(state)
        return found

    def _within_reach(self, state: State) -> bool:
        counts = state.ends.counts
        if counts.steps == counts.reductions and self.abstract.ensured.sums_come_first:  # cheaper than to find the least
            return self.sum_sets.leads_on(tuple(dim.size for dim in state.ends.sums))
        return self.distance_of(state) < UNREACHABLE

    @cached_property
    def sum_sets(self) -> SumSets:
        """The sets of reductions that lead somewhere."""
        base, limits = self.abstract(self.root, self.spec.depth)
        keys = {size: self.abstract.axis(dims.reduce(size), self.root) for size in self.sizes.sizes(self.sizes.none)}
        outputs, goal = product(self.spec.output_sizes), product(self.completion.wanted)
        live = product(axis.size for axis in base)
        room = tuple(self.sizes.limits)

        def distance(sums: tuple[Size, ...], reached: Size, usage: Usage) -> int:
            if not (live * reached / goal).is_legal:
                return UNREACHABLE
            left = self.spec.depth - len(sums)
            axes = tuple(sorted((*base, *(keys[size] for size in sums)), key=axis_order))
            now = limits._replace(
                merges=min(limits.merges, left),
                splits=min(limits.splits, left),
                shifts=min(limits.shifts, left),
                unfolds=min(limits.unfolds, left),
                repeats=min(limits.repeats, left),
                weights=min(limits.weights, left),
                iterations=self.sizes[outputs * reached].total,
                room=tuple(limit - used for limit, used in zip(room, usage, strict=True)),
            )
            return self.distance(axes, now, left)

        return SumSets(self.sizes, self.spec.occurrences.reductions, self.candidates.within_multiple, distance)
