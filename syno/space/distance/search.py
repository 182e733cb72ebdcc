"""The search for the cheapest assignment: the least number of primitives between a relaxed state and an operator.

Paper: section 5.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import product as combinations
from operator import attrgetter
from typing import NamedTuple

from syno.algebra import ONE, Size, Trait, VariableKind, product
from syno.space.distance.assignment import Assignment, InputGroup
from syno.space.distance.conditions import (
    ended_usage,
    ends_adjacent,
    joins_two_large_sums,
    may_end,
    shared_axes_fit,
    splits_allowed,
    weighted_usage,
    weights_large_enough,
    windows_fit,
    within_flops,
)
from syno.space.distance.problem import UNREACHABLE, Axis, DistanceGoal, Limits
from syno.space.distance.reading import ReadingBound
from syno.space.sizes import SizeTable

# The cost of an assignment: the least number of primitives, or None if rules or limits forbid the assignment.
#
# The surplus of a group is cut off by a Merge and then ended. A Merge goes on an axis of the output, on
# a remainder, above a Shift of small pieces, or above a window larger than the piece. The rules on views leave no other place.
#
# Paper: section 5.4.


class CutCost(NamedTuple):
    """Extra cost of a Merge that cuts off a surplus: numbers of further Merges, and of further primitives (Merges included)."""

    merges: int
    primitives: int


AT_ONCE = CutCost(0, 0)  # a Merge that rules allow on the axis as it is
ABOVE_SHIFT = CutCost(0, 1)  # a Shift first: rules keep Merges off Splits and Shares, not off a Shift of small blocks
AFTER_MERGE = CutCost(1, 1)  # a Merge elsewhere first, whose pieces can then be cut


class Removal(NamedTuple):
    """One way to end a group's surplus, with its cost.

    Attributes:
        merges, primitives: numbers of Merges and primitives besides contractions and the Merge that cuts the surplus off.
        ended: the size that a weight ends.
        windows, repeats: numbers of windows and repeats that the surplus becomes.
    """

    merges: int
    primitives: int
    ended: Size = ONE
    windows: int = 0
    repeats: int = 0


class Needed(NamedTuple):
    """Numbers of primitives, Merges and Splits that an assignment needs besides contractions, with one removal per surplus."""

    primitives: int
    merges: int
    splits: int


def least_primitives(assignment: Assignment, cost: int, most: int) -> int | None:
    """Return the primitives that the assignment needs besides its contractions; None if it is impossible or above `most`.

    Args:
        assignment: an assignment with a case for every axis, and a number of contractions.
        cost: sum of the costs of the cases, those of pieces as if two or more contractions followed.
        most: the largest cost of interest.
    """
    for axis in assignment.parted:
        pieces = axis.endings.pieces
        cost += pieces.with_contractions(assignment.contractions) - pieces.more_contractions
    choices = [removals(assignment, group) for group in assignment.groups if not group.is_whole]
    possible = [needed for ways in combinations(*choices) if (needed := _primitives_needed(assignment, cost, ways)) is not None]
    least = min((needed.primitives for needed in possible), default=UNREACHABLE)
    if least > most:
        return None
    if not _has_conflicts(assignment) and not (assignment.contractions and not weights_large_enough(assignment)):
        return least
    # One Merge and one Split may exchange parts of two axes, after which the conditions are met: two primitives more.
    if least + 2 > most or not _may_exchange(assignment):
        return None
    left = assignment.limits.left
    exchanged = (n.primitives + 2 for n in possible if n.merges < left.merges and n.splits < left.splits)
    return min(exchanged, default=None)


def _primitives_needed(assignment: Assignment, cost: int, removals: tuple[Removal, ...]) -> Needed | None:
    """Return the primitives that the assignment needs with these removals of surpluses; None if they exceed the limits."""
    limits, left, ended = assignment.limits, assignment.limits.left, assignment.ended
    outer = product((limits.outer, *(axis.size for axis in ended if axis.is_outer), *(way.ended for way in removals)))
    if assignment.sizes[outer].highest > assignment.spec.contractions.largest_outer:
        return None
    more = 0  # further pieces to cut off, so that each weight has a dim to end
    if assignment.ensured.weights_are_matmuls:
        ends = len(ended) + 2 * len(assignment.parted) + sum(way.ended is not ONE for way in removals)
        more = max(0, assignment.contractions - ends)
    merges = _merges(assignment) + more + sum(way.merges for way in removals)
    splits = sum(len(group.members) - 1 for group in assignment.groups)
    repeats = len(assignment.repeated) + sum(way.repeats for way in removals)
    if merges > left.merges or splits > left.splits or repeats > left.repeats:
        return None
    unfolds = len(assignment.windows) + sum(way.windows for way in removals)
    if unfolds > left.unfolds and unfolds - left.unfolds > left.splits - splits:  # Splits join windows
        return None
    if assignment.contractions == 1 and limits.conflicts.ended and ends_adjacent(assignment):
        return None
    return Needed(cost + more + sum(way.primitives for way in removals), merges, splits)


def _merges(assignment: Assignment) -> int:
    """Return the number of Merges that the cases need: to cut blocks into axes, axes into pieces, and surpluses off."""
    return assignment.base + len(assignment.parted) + len(assignment.surpluses)


def _has_conflicts(assignment: Assignment) -> bool:
    """Return whether rules or limits on occurrences exclude the assignment for the axes as they are."""
    if (assignment.windows and not windows_fit(assignment)) or weighted_usage(assignment) is None:
        return True
    if assignment.contractions == 1 and joins_two_large_sums(assignment):
        return True
    for group in assignment.whole_groups:
        if group.goal in assignment.goal.unordered and any(axis.is_misordered for axis in group.members):
            return True
    return not (shared_axes_fit(assignment) if assignment.contractions else splits_allowed(assignment))


def _may_exchange(assignment: Assignment) -> bool:
    """Return whether one more Merge and one more Split may exchange parts of axes, so that all conditions are met."""
    shifts, weights = assignment.limits.left.shifts, assignment.contractions
    if not assignment.ensured.merges_below_joins:
        return True
    if any(axis.cuts.now or (shifts and axis.cuts.above_shift) for axis in assignment.axes):
        return True
    is_fresh = weights or any(axis.is_fresh for axis in assignment.axes)
    if shifts and is_fresh and any(axis.cuts.above_split for axis in assignment.axes):
        return True
    return bool(assignment.windows) and any(axis.cuts.above_window <= weights for axis in assignment.axes)


def removals(assignment: Assignment, group: InputGroup) -> list[Removal]:
    """Return the ways to end a group's surplus; without a surplus, the way to cut its block into axes."""
    surplus, left, ways = group.surplus, assignment.limits.left, list[Removal]()
    if surplus is ONE:
        return [Removal(*cut) for cut in [_cost_of_cut(assignment, group, ended=False)] if cut is not None]
    facts = assignment.sizes[surplus]
    window = left.unfolds and facts.can_be_window
    repeat = left.repeats and facts.highest <= assignment.spec.repeats.largest
    if (window or repeat) and (cut := _cost_of_cut(assignment, group, ended=False)) is not None:
        if window:
            ways.append(Removal(cut.merges, cut.primitives + 1, windows=1))
        if repeat:
            ways.append(Removal(cut.merges, cut.primitives + 1, repeats=1))
    if (
        assignment.contractions
        and may_end(assignment, surplus)
        and (cut := _cost_of_cut(assignment, group, ended=True)) is not None
    ):
        ways.append(Removal(*cut, ended=surplus))
    if _merges(assignment) < left.merges and any(_may_be_cut(assignment, axis) for axis in group.members):
        pieces = assignment.goal.pieces(surplus).with_contractions(assignment.contractions)
        if pieces < UNREACHABLE:
            ways.append(Removal(1, pieces))
    return ways


def _cost_of_cut(assignment: Assignment, group: InputGroup, *, ended: bool) -> CutCost | None:
    """Return the extra cost of the Merge that cuts the surplus off a group, or cuts its block; None if no Merge can.

    `ended` says that a weight ends the surplus.
    """
    members, surplus = group.members, group.surplus
    if not assignment.ensured.merges_below_joins:
        return AT_ONCE
    if len(group.block) > 1:
        return AT_ONCE if any(_may_be_cut(assignment, axis) for axis in members) else None
    parts = [axis for axis in members if _divides(assignment, surplus, axis.size)]
    if any(surplus in axis.cuts.now for axis in parts) or _cut_above_window(assignment, group, ended):
        return AT_ONCE
    if assignment.limits.left.shifts and _cut_above_shift(assignment, members, parts, surplus):
        return ABOVE_SHIFT
    many = sum(bool(axis.cuts.now) or axis.cuts.above_window <= assignment.contractions for axis in members) > 1
    return AFTER_MERGE if many or any(axis.cuts.now for axis in parts) else None


def _may_be_cut(assignment: Assignment, axis: Axis) -> bool:
    """Return whether any Merge may cut the axis, or an axis made of it by further primitives."""
    return bool(axis.cuts.now) or axis.cuts.above_shift or axis.cuts.above_window <= assignment.contractions


def _divides(assignment: Assignment, surplus: Size, whole: Size) -> bool:
    """Return whether a Merge within the limits may cut the surplus off an axis of size `whole`."""
    if whole is surplus:
        return False
    kept = whole / surplus
    return assignment.sizes[kept].is_legal and assignment.has_room(assignment.sizes.merged(surplus, kept))


def _cut_above_window(assignment: Assignment, group: InputGroup, ended: bool) -> bool:
    """Return whether a Merge above an Unfold may cut the surplus off; rules may demand a piece smaller than the window."""
    members, surplus, ensured, sizes = group.members, group.surplus, assignment.ensured, assignment.sizes
    # other pieces may be windows, or end with a weight
    beside = bool(assignment.parted) or any(g is not group and g.surplus is not ONE for g in assignment.groups)
    if not (assignment.windows or beside):
        return False
    # whether a weight may come before the window: it needs an axis to end
    weighted = assignment.contractions > ended and (beside or bool(assignment.ended))
    wholes = {axis.size for axis in members if axis.cuts.above_window <= (assignment.contractions if weighted else 0)}
    if weighted or not ensured.unfolds_below_splits:
        wholes |= {
            axis.size * whole
            for place, axis in enumerate(members)
            if axis.cuts.above_window <= assignment.contractions
            for whole in _products(members[:place] + members[place + 1 :])
        }
    anything = beside or not ensured.slid_blocks_are_small
    window = product(axis.size for axis in assignment.windows)
    return any(
        anything or any(sizes[block / window].lowest < 1 for block in (surplus, whole / surplus))
        for whole in wholes
        if _divides(assignment, surplus, whole)
    )


def _products(axes: list[Axis]) -> set[Size]:
    """Return the products of all non-empty subsets of the axes."""
    wholes = {ONE}
    for axis in axes:
        wholes |= {whole * axis.size for whole in wholes}
    return wholes - {ONE}


def _cut_above_shift(assignment: Assignment, members: list[Axis], parts: list[Axis], surplus: Size) -> bool:
    """Return whether a Merge above a Shift may cut the surplus off, where rules demand that one of the two pieces is small."""

    def is_small(whole: Size) -> bool:
        kept = assignment.sizes[whole / surplus]
        return kept.is_legal and min(kept.highest, assignment.sizes[surplus].highest) <= assignment.goal.shift_pattern

    if any(axis.cuts.above_shift and is_small(axis.size) for axis in parts):
        return True
    return any(
        is_small(minor.size * whole)
        for minor in members
        if minor.cuts.above_split
        for whole in _products([axis for axis in members if axis is not minor])
    )


# The blocks of the input's axes, and the surpluses of the groups.
#
# Paper: section 5.4.

Blocks = list[tuple[Size, ...]]  # the input's axes in blocks


class Surplus(NamedTuple):
    """Facts about a surplus, which is a product of axes divided by the product of a block."""

    primaries: int  # 1 if a positive power of a primary variable is in it, else 0
    anything: int  # 1 if a positive power of any variable is in it, else 0
    is_undefined: bool  # whether a primary variable is in its denominator
    lack: int  # the code of the part with primary variables in the denominator


class Surpluses(dict[int, Surplus]):
    """Facts about surpluses by the code of their size, each computed once.

    Multiplying sizes is the search's most frequent operation. With codes it is an integer addition, and facts are a look-up.
    """

    def __missing__(self, code: int) -> Surplus:
        size = Size.of_code(code)
        kinds = [variable.kind for variable, exponent in size.exponents if exponent > 0]
        lack = Size({v: e for v, e in size.exponents if e < 0 and v.kind is VariableKind.PRIMARY})
        surplus = self[code] = Surplus(
            int(VariableKind.PRIMARY in kinds), int(bool(kinds)), size.trait is Trait.UNDEFINED, lack.code
        )
        return surplus


class Legality(dict[int, bool]):
    """Tells whether coefficients that may still join a group can make its surplus legal or 1, by the sum of the codes."""

    def __init__(self, sizes: SizeTable) -> None:
        super().__init__()
        self._sizes = sizes

    def __missing__(self, code: int) -> bool:
        facts = self._sizes[Size.of_code(code)]
        is_legal = self[code] = facts.is_legal or facts.is_one
        return is_legal


def different_partitions(items: list[Size]) -> list[Blocks]:
    """Return the distinct partitions of the items into blocks, those with the most blocks first."""
    distinct: dict[tuple[tuple[Size, ...], ...], Blocks] = {}
    for partition in partitions(items):
        distinct.setdefault(tuple(sorted(partition)), partition)
    return sorted(distinct.values(), key=len, reverse=True)


def partitions(items: list[Size]) -> Iterator[Blocks]:
    """Yield every partition of the items into blocks."""
    if not items:
        yield []
        return
    first = items[0]
    for partition in partitions(items[1:]):
        yield [(first,), *partition]
        for i, block in enumerate(partition):
            yield [*partition[:i], (first, *block), *partition[i + 1 :]]


BY_HARDNESS = attrgetter("hardness")


class InputAxes(NamedTuple):
    """The sizes of input axes that are formed together, and of the axes that form them."""

    wanted: tuple[Size, ...]
    axes: tuple[Size, ...]  # the axes that form them
    rest: Size  # the surplus, which is cut off and ended


class CheapestAssignment(NamedTuple):
    """The assignment with the fewest primitives, as sizes."""

    steps: int
    contractions: int
    groups: tuple[InputAxes, ...]
    windows: tuple[Size, ...]
    repeated: tuple[Size, ...]
    ended: tuple[Size, ...]  # by weights

    @classmethod
    def of(cls, assignment: Assignment, steps: int) -> CheapestAssignment:
        """Return a copy of the current assignment as sizes, with its number of primitives."""
        chosen = (tuple(axis.size for axis in axes) for axes in (assignment.windows, assignment.repeated, assignment.ended))
        groups = (InputAxes(g.block, tuple(axis.size for axis in g.members), g.surplus) for g in assignment.groups)
        return cls(steps, assignment.contractions, tuple(groups), *chosen)


class _Answer(NamedTuple):
    """The result of a search up to `most` primitives; a distance above `most` is unknown."""

    distance: int
    most: int


@dataclass
class ShapeDistance:
    """Cached shape distances to one goal."""

    goal: DistanceGoal
    reading: ReadingBound | None = None
    _known: dict[tuple[tuple[int, ...], Limits], _Answer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._wanted = product(self.goal.wanted)
        partitions = different_partitions(sorted(self.goal.wanted, key=str))
        self.partitions = [[(block, product(block), -product(block).code) for block in blocks] for blocks in partitions]
        self.surpluses, self.legality = Surpluses(), Legality(self.goal.sizes)
        self.narrow = (
            self.reading if self.reading is not None and self.reading.is_narrow else None
        )  # the narrow bound, which allows no surplus

    def __call__(self, axes: tuple[Axis, ...], limits: Limits, most: int) -> int:
        """Return the distance of a state with these sorted axes and limits; UNREACHABLE if it is above `most`."""
        if most < 0:
            return UNREACHABLE
        # Numbers stand for axes: a tuple of small integers is hashed much faster than one of axes with 16 fields.
        key = tuple([axis.number for axis in axes]), limits
        answer = self._known.get(key)
        if answer is None or (answer.distance > answer.most and most > answer.most):
            cheapest = self.cheapest(axes, limits, most)
            answer = self._known[key] = _Answer(UNREACHABLE if cheapest is None else cheapest.steps, most)
        return answer.distance if answer.distance <= most else UNREACHABLE

    def cheapest(self, axes: tuple[Axis, ...], limits: Limits, most: int) -> CheapestAssignment | None:
        """Return the cheapest assignment within `most` primitives; None if there is none."""
        excess = product(axis.size for axis in axes) / self._wanted
        if excess.trait is Trait.UNDEFINED or excess.trait is Trait.ILLEGAL_COEFFICIENT or len(axes) < 1:
            return None
        return _BranchAndBound(self, axes, limits, most).run()


class Case(IntEnum):
    """The case of an axis. Equal axes take cases in ascending order, so that no assignment is tried twice."""

    WEIGHT = 0  # a weight ends it
    INPUT = 1  # it becomes part of a group of the input's axes
    WINDOW = 2
    REPEAT = 3
    PIECES = 4  # it is cut into pieces, each of which ends as a window, as a repeat, or by a weight


class _BranchAndBound:
    """Branch and bound over the partitions of the input's axes into blocks, and the cases of the state's axes."""

    def __init__(self, distance: ShapeDistance, axes: tuple[Axis, ...], limits: Limits, most: int) -> None:
        self.distance, self.unsorted_axes, self.limits, self.surpluses = distance, axes, limits, distance.surpluses
        self.axes = sorted(axes, key=BY_HARDNESS)
        self.with_primaries = sum(axis.size.trait is Trait.GENERAL for axis in axes)
        self.most = most
        self.narrow = distance.narrow
        self.costly = [
            0
        ]  # number of axes, from each index on, that no weight can end: each costs a primitive, or begins a group
        for axis in reversed(self.axes):
            self.costly.append(self.costly[-1] + (axis.endings.weight > limits.left.contractions))
        self.costly.reverse()
        self.supply = [0]  # code of the product of the axes, from each index on
        for axis in reversed(self.axes):
            self.supply.append(self.supply[-1] + axis.size.code)
        self.supply.reverse()
        self.best: CheapestAssignment | None = None

    def run(self) -> CheapestAssignment | None:
        """Return the cheapest assignment within the limit; None if there is none."""
        # Partitions with most blocks come first: they need the fewest Merges, and a low cost found early prunes the others.
        for partition in self.distance.partitions:
            self.empty = len(partition)  # groups without members
            base = len(self.distance.goal.wanted) - self.empty  # Merges that cut blocks into axes
            self.most_cuts = self.limits.left.merges - base  # Merges that may cut off surpluses and pieces
            if self.most_cuts < 0 or (base and self.narrow is not None):
                break
            if len(self.axes) >= self.empty:
                self.assignment = Assignment(self.distance.goal, self.unsorted_axes, self.limits, partition)
                self.groups = self.assignment.groups
                self._assign(0, base, 0, int(self.limits.needs_weight))
        return self.best

    def _assign(
        self, index: int, cost: int, cuts: int, contractions: int, last: Case = Case.WEIGHT, last_group: int = 0
    ) -> None:
        """Choose a case for the axis at `index`, and recursively for those after it.

        Args:
            index: index of the axis.
            cost: primitives that the cases so far need, besides contractions.
            cuts: the Merges among them that cut off surpluses and pieces.
            contractions: least number of contractions that the cases so far need.
            last, last_group: case and group of the previous axis; an equal axis takes none before them.
        """
        # Each empty group still takes an axis, and each axis that neither a weight ends nor a group takes costs a primitive.
        if len(self.axes) - index < self.empty or cost + contractions + max(0, self.costly[index] - self.empty) > self.most:
            return
        chosen, supply, surpluses = self.assignment, self.supply[index], self.surpluses
        if index < self.with_primaries:
            for group in self.groups:
                supply += surpluses[group.code].lack
            if surpluses[supply].is_undefined:  # not enough of a primary for all groups
                return
        if index == self.with_primaries:  # the remaining axes are coefficients, which only enlarge a surplus
            now, legality = len(chosen.parted), self.distance.legality
            for group in self.groups:
                surplus = surpluses[group.code]
                if surplus.is_undefined or (surplus.anything and self.narrow is not None):
                    return
                now += surplus.anything
            if now > self.most_cuts:
                return
            cost, cuts = cost + now - cuts, now
            for group in self.groups:
                if group.code and not legality[group.code + supply]:
                    return
        if index == len(self.axes):
            self._complete(cost, contractions)
            return
        axis, left = self.axes[index], self.limits.left
        if index == 0 or axis.number != self.axes[index - 1].number:
            last, last_group = Case.WEIGHT, 0
        endings = axis.endings
        if last is Case.WEIGHT and endings.weight <= left.contractions:
            chosen.ended.append(axis)
            self._assign(index + 1, cost, cuts, max(contractions, endings.weight))
            chosen.ended.pop()
        if last <= Case.INPUT and not axis.is_strided:
            self._join(index, cost, cuts, contractions, last_group)
        if last <= Case.WINDOW and endings.window <= 1 and len(chosen.windows) < left.unfolds + left.splits:
            chosen.windows.append(axis)
            self._assign(index + 1, cost + 1, cuts, contractions, Case.WINDOW)
            chosen.windows.pop()
        if last <= Case.REPEAT and endings.repeat:
            chosen.repeated.append(axis)
            self._assign(index + 1, cost + 1, cuts, contractions, Case.REPEAT)
            chosen.repeated.pop()
        if endings.pieces.more_contractions < UNREACHABLE and cuts < self.most_cuts:
            chosen.parted.append(axis)
            self._assign(index + 1, cost + endings.pieces.more_contractions, cuts + 1, contractions, Case.PIECES)
            chosen.parted.pop()

    def _join(self, index: int, cost: int, cuts: int, contractions: int, first: int) -> None:
        """Add the axis at `index` to each possible group, from group number `first` on, and continue with the next axis."""
        axis, empty, surpluses = self.axes[index], self.empty, self.surpluses
        counted = 1 if index >= self.with_primaries else 0  # the field of a Surplus that says whether a cut is needed
        tried = set()
        for number, group in enumerate(self.groups):
            members, before = group.members, group.code
            if not members:
                if group.goal in tried:  # equal to an empty group that was tried
                    continue
                tried.add(group.goal)
            if number < first:
                continue
            if axis.is_open:
                if members and not members[0].is_open:
                    continue
            elif members or len(group.block) > 1 or axis.size is not group.goal:
                continue
            after = before + axis.size.code
            cut = surpluses[after][counted] - surpluses[before][counted]
            if cuts + cut > self.most_cuts:
                continue
            if self.narrow is not None and (cut > 0 or not self.narrow.may_join(group, axis)):
                continue
            group.code = after
            self.empty = empty - (not members)
            members.append(axis)
            self._assign(index + 1, cost + (len(members) > 1) + cut, cuts + cut, contractions, Case.INPUT, number)
            members.pop()
            group.code = before
        self.empty = empty

    def _complete(self, cost: int, contractions: int) -> None:
        """Evaluate a complete assignment with each number of contractions; store it as `best` if it is the cheapest so far."""
        chosen, limits, sizes, reading = self.assignment, self.limits, self.assignment.sizes, self.distance.reading
        if chosen.windows and not limits.left.unfolds:
            return
        for group in self.groups:
            group.surplus = ONE
            if group.code:
                group.surplus = Size.of_code(group.code)
                if not (sizes[group.surplus].is_legal and group.members[0].is_open):
                    return
        if ended_usage(chosen) is None:
            return
        # The largest number of contractions first: if it fails, every smaller number fails, too.
        chosen.contractions = limits.left.contractions
        if not all(group.is_whole or removals(chosen, group) for group in self.groups):  # fewer contractions allow no more
            return
        for number in range(max(contractions, int(limits.needs_weight)), limits.left.contractions + 1):
            chosen.contractions = number
            primitives = least_primitives(chosen, cost, self.most - number) if within_flops(chosen) else None
            if primitives is not None and primitives + number <= self.most:
                if reading is not None and not reading.allows(chosen):  # whatever the number of contractions
                    return
                self.most = primitives + number - 1  # from here on, only cheaper assignments matter
                self.best = CheapestAssignment.of(chosen, primitives + number)
