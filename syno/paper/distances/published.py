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

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from syno.algebra import ONE, Size, Trait, Variable, VariableKind, product
from syno.space.candidates import Candidates
from syno.space.distance.problem import UNREACHABLE
from syno.space.rules.order import pools_much
from syno.space.state import State

# The search for the cheapest grouping of live axes with axes of the input, by either of the two published formulas.
#
# Paper: section 5.4.


Formula = Literal["paper", "published"]


class LiveAxis(NamedTuple):
    """A live axis: its size, and how many more primitives may stand above it."""

    size: Size
    room: int


class Remaining(NamedTuple):
    """The numbers of primitives that may still be used; `ends` are Unfolds and Expands together."""

    merges: int
    splits: int
    ends: int


UNLIMITED = Remaining(UNREACHABLE, UNREACHABLE, UNREACHABLE)


def least_cost(
    axes: Sequence[LiveAxis], wanted: Sequence[Size], formula: Formula, most: int = UNREACHABLE, left: Remaining = UNLIMITED
) -> int:
    """Return the cost of the cheapest grouping; UNREACHABLE if it is above `most`, or there is none.

    Args:
        axes: the live axes.
        wanted: the sizes of the input's axes, each with one primary variable.
        formula: `paper` looks at the sizes alone, `published` also at `left` and the room of the axes.
        most: the most primitives that count.
        left: the primitives of each kind that may still be used.
    """
    surplus = product(axis.size for axis in axes) / product(wanted)
    if not axes or surplus.trait in (Trait.UNDEFINED, Trait.ILLEGAL_COEFFICIENT):
        return UNREACHABLE
    if formula == "paper":
        axes, left = [LiveAxis(axis.size, UNREACHABLE) for axis in axes], UNLIMITED
    return _Groupings(axes, wanted, formula, most, left, int(formula == "paper" and surplus is not ONE)).least()


@dataclass(slots=True, eq=False)
class _Group:
    """Axes that become axes of the input together; without any axis of the input, they end."""

    rest: Size  # the product of the axes over that of the input's
    count: int = 1  # of axes
    wanted: int = 0  # of axes of the input
    is_direct: bool = False  # one axis as it is, on which nothing may stand


class _Groupings:
    """The search over all groupings: first a group for each axis of the input, then one for each axis that is left."""

    def __init__(
        self, axes: Sequence[LiveAxis], wanted: Sequence[Size], formula: Formula, most: int, left: Remaining, base: int
    ) -> None:
        self.axes = sorted(axes, key=lambda axis: (axis.size.code, axis.room))
        self.wanted, self.formula, self.left, self.base = wanted, formula, left, base
        self.primaries = [_primary(size) for size in wanted]
        self.groups: list[_Group] = []
        self.taken = [False] * len(axes)
        self.best = most + 1

    def least(self) -> int:
        """Return the least cost, or UNREACHABLE."""
        most = self.best
        self._want(0, 0, 0)
        return self.best if self.best < most else UNREACHABLE

    def _want(self, number: int, splits: int, merges: int) -> None:
        """Choose a group for axis `number` of the input and for those after it."""
        if splits > self.left.splits or merges > self.left.merges or splits + merges + self.base >= self.best:
            return
        if number == len(self.wanted):
            self._place(0, splits, merges, 0)
            return
        size, variable = self.wanted[number], self.primaries[number]
        for group in self.groups:
            if group.is_direct:
                continue
            if group.rest.exponent(variable) > 0:
                self._joined(group, size, None, number, splits, merges + 1)
            else:
                for place in self._free(variable):
                    if self.axes[place].room > 0:
                        self._joined(group, size, place, number, splits + 1, merges + 1)
        for place in self._free(variable):
            axis = self.axes[place]
            if axis.room > 0 or axis.size is size:
                self.groups.append(_Group(axis.size / size, wanted=1, is_direct=axis.room <= 0))
                self.taken[place] = True
                self._want(number + 1, splits, merges)
                self.taken[place] = False
                self.groups.pop()

    def _joined(self, group: _Group, size: Size, place: int | None, number: int, splits: int, merges: int) -> None:
        """Let a group become one more axis of the input, with one more axis where `place` gives one."""
        rest = group.rest
        group.rest, group.wanted = rest / size, group.wanted + 1
        if place is not None:
            group.rest, group.count, self.taken[place] = group.rest * self.axes[place].size, group.count + 1, True
        self._want(number + 1, splits, merges)
        if place is not None:
            group.count, self.taken[place] = group.count - 1, False
        group.rest, group.wanted = rest, group.wanted - 1

    def _free(self, variable: Variable) -> list[int]:
        """Return the axes in no group yet that have the variable; of equal ones the first."""
        free: dict[LiveAxis, int] = {}
        for place, axis in enumerate(self.axes):
            if not self.taken[place] and axis.size.exponent(variable) > 0:
                free.setdefault(axis, place)
        return list(free.values())

    def _place(self, place: int, splits: int, merges: int, alone: int) -> None:
        """Choose a group for each axis from `place` on that has none: alone, to end, or with others."""
        ends = alone if self.formula == "published" else 0
        if splits > self.left.splits or ends > self.left.ends or splits + merges + ends + self.base >= self.best:
            return
        while place < len(self.axes) and self.taken[place]:
            place += 1
        if place == len(self.axes):
            self._complete(splits, merges, ends)
            return
        axis = self.axes[place]
        if axis.room <= 0:
            return
        self.groups.append(_Group(axis.size))
        self._place(place + 1, splits, merges, alone + 1)
        self.groups.pop()
        for group in list(self.groups):
            rest = group.rest
            group.rest, group.count = rest * axis.size, group.count + 1
            self._place(place + 1, splits + 1, merges, alone)
            group.rest, group.count = rest, group.count - 1

    def _complete(self, splits: int, merges: int, ends: int) -> None:
        """Take the grouping for the best if every group is legal, and it is cheaper."""
        if any(group.rest.trait in (Trait.UNDEFINED, Trait.ILLEGAL_COEFFICIENT) for group in self.groups):
            return
        if self.formula == "published":
            cut = sum(group.wanted > 0 and group.rest is not ONE for group in self.groups)
            merges, ends = merges + cut, ends + cut
            if merges > self.left.merges or ends > self.left.ends:
                return
        self.best = min(self.best, splits + merges + ends + self.base)


def _primary(size: Size) -> Variable:
    return next(variable for variable, _ in size.exponents if variable.kind is VariableKind.PRIMARY)


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
        """Return the number of primitives of each kind that may still be used from a state, at most `most`."""
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
