"""The two published shape distances, which can be chosen in place of this project's (`distance: paper | published` of a spec).

Both group the sizes of the live axes (left-hand side) with the sizes of the input's axes (right-hand side). A group of `l` axes
that become `r` axes of the input takes `l - 1` Splits and `r - 1` Merges. The distance is the least cost over all groupings.
They differ in the cost of what is too much, and in what else they look at:

=============  ==================================================  =======================================================
distance       cost                                                what else excludes a state
=============  ==================================================  =======================================================
``paper``      the sum of `l + r - 2` over the groups, and 1 if    nothing; axes that no group takes are covered by the 1
               the two sides have different numbers of elements
``published``  in each group `l + r - 2`, and 2 more (a Merge and  the limits of Merges, Splits, and of Unfolds and
               an Unfold or Expand) if it has too much; 1 for      Expands; axes that nothing may stand on; axes that a
               each axis that no group takes                       Stride has left; sums that are too large; parity
=============  ==================================================  =======================================================

Neither is a lower bound. The authors' program charges a step for each axis that one Contraction may end together with others,
and neither knows which rules and options forbid what a grouping needs. So both lose operators near the depth limit, and keep
states that no operator is made of. `syno ablate distance` measures how many.

Not reproduced of the program: what it concludes for axes without an order, and that it proposes no Contraction where the
distance is equal to the steps left. FLOPs are bounded as for every distance.

Paper: section 5.4; the `published` distance is that of the authors' program.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from syno.algebra import Size, product
from syno.paper.distances.groupings import UNLIMITED, Formula, LiveAxis, Remaining, least_cost
from syno.space.candidates import Candidates
from syno.space.distance.problem import UNREACHABLE
from syno.space.rules.order import pools_much
from syno.space.state import State


@dataclass
class PublishedDistance:
    """One of the two published distances for the states of a space, each found once.

    Attributes:
        candidates: of the space.
        wanted: the sizes of the input's axes, those bound to the output's left out.
        formula: which of the two.
    """

    candidates: Candidates
    wanted: tuple[Size, ...]
    formula: Formula
    _known: dict[tuple[tuple[LiveAxis, ...], Remaining, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.spec, self.sizes, self.facts = self.candidates.spec, self.candidates.sizes, self.candidates.facts
        self._product = product(self.wanted)

    def __call__(self, state: State, most: int) -> int:
        """Return the distance of a state; UNREACHABLE if it is above `most`, the primitives left."""
        longest, remaining = self.spec.occurrences.chain_length, self.limits(state, most)
        axes = tuple(sorted(LiveAxis(dim.size, longest - self.facts[dim].height) for dim in state.data))
        if self.formula == "paper":
            return self.of(axes, remaining, most)
        strided = [dim for dim in state.data if self.facts[dim].discards]
        if strided:
            if remaining.ends <= 0 or any(longest <= self.facts[dim].height for dim in strided):
                return UNREACHABLE
            remaining = remaining._replace(ends=remaining.ends - 1)
        if state.ends.counts.weights >= self.spec.occurrences.tensors - 1 and not self._may_do_without_weights(state):
            return UNREACHABLE
        found = self.of(axes, remaining, most - len(strided))
        return found + len(strided) if found < UNREACHABLE else UNREACHABLE

    def of_sums(self, root: State, sums: tuple[Size, ...], depth: int) -> int:
        """Return the distance of the state after these reductions, from which `depth` primitives are left."""
        room = self.spec.occurrences.chain_length
        live = (*(LiveAxis(dim.size, room) for dim in root.data), *(LiveAxis(size, room - 1) for size in sums))
        return self.of(tuple(sorted(live)), self.limits(root, depth), depth)

    def limits(self, state: State, most: int) -> Remaining:
        """Return how many primitives of each kind may still be used from a state, at most `most`."""
        if self.formula == "paper":
            return UNLIMITED
        counts, limits = state.ends.counts, self.spec.occurrences

        def left(used: int, limit: int | None) -> int:
            return most if limit is None else min(most, limit - used)

        repeats = left(counts.repeats, limits.expands) if self.spec.repeats.largest > 1 else 0
        unfolds = left(counts.unfolds, limits.unfolds)
        return Remaining(left(counts.merges, limits.merges), left(counts.splits, limits.splits), unfolds + repeats)

    def of(self, axes: tuple[LiveAxis, ...], left: Remaining, most: int) -> int:
        """Return the distance of sorted axes; UNREACHABLE if it is above `most`."""
        if most < 0:
            return UNREACHABLE
        known = self._known.get((axes, left, most))
        if known is None:
            known = self._known[axes, left, most] = least_cost(axes, self.wanted, self.formula, most, left)
        return known

    def _may_do_without_weights(self, state: State) -> bool:
        """Return whether no sum needs another weight, and odd windows alone can take away what is too much."""
        if pools_much(state, self.facts, self.spec):
            return False
        odd_only = self.spec.windows.odd and self.spec.repeats.largest <= 1
        surplus = product(dim.size for dim in state.data) / self._product
        return not odd_only or self.sizes[surplus].is_odd
