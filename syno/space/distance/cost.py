"""The cost of an assignment: the primitives that it needs at least, or that rules and limits forbid it.

What a group has too much of, its surplus, is cut off by a Merge and then ended. A Merge goes on an axis of the output, on
a remainder, above a Shift of small pieces, or above a window larger than the piece. The rules on views leave no other place.

Paper: section 5.4.
"""

from __future__ import annotations

from itertools import product as combinations
from typing import NamedTuple

from syno.algebra import ONE, Size, product
from syno.space.distance.assignment import Assignment, InputGroup
from syno.space.distance.conditions import (
    ends_adjacent,
    joins_two_large_sums,
    may_end,
    shared_axes_fit,
    splits_allowed,
    weighted_usage,
    weights_large_enough,
    windows_fit,
)
from syno.space.distance.problem import UNREACHABLE, Axis


class CutCost(NamedTuple):
    """The extra cost of a Merge that cuts something off: other Merges, and primitives (these Merges included)."""

    merges: int
    primitives: int


AT_ONCE, ABOVE_SHIFT, AFTER_MERGE = CutCost(0, 0), CutCost(0, 1), CutCost(1, 1)


class Removal(NamedTuple):
    """One way in which a group's surplus goes.

    Attributes:
        merges, primitives: what it takes besides contractions and the Merge that cuts the surplus off.
        ended: the size of what a weight ends.
        windows, repeats: how many of each the surplus becomes.
    """

    merges: int
    primitives: int
    ended: Size = ONE
    windows: int = 0
    repeats: int = 0


class Needed(NamedTuple):
    """Primitives besides contractions that an assignment needs with one way for each surplus; Merges and Splits of them."""

    primitives: int
    merges: int
    splits: int


def least_primitives(assignment: Assignment, cost: int, most: int) -> int | None:
    """Return the primitives that the assignment needs besides its contractions; None if it is impossible or above `most`.

    Args:
        assignment: with a case for every axis, and a number of contractions.
        cost: the sum of what the cases cost, with pieces counted as if two or more contractions came.
        most: the largest cost of interest.
    """
    for axis in assignment.parted:
        pieces = axis.endings.pieces
        cost += pieces.given(assignment.contractions) - pieces.more
    choices = [removals(assignment, group) for group in assignment.groups if not group.is_whole]
    found = [needed for ways in combinations(*choices) if (needed := _needed(assignment, cost, ways)) is not None]
    least = min((needed.primitives for needed in found), default=UNREACHABLE)
    if least > most:
        return None
    if not _conflicts(assignment) and not (assignment.contractions and not weights_large_enough(assignment)):
        return least
    if least + 2 > most or not _may_exchange(assignment):
        return None
    left = assignment.limits.left
    exchanged = (n.primitives + 2 for n in found if n.merges < left.merges and n.splits < left.splits)
    return min(exchanged, default=None)


def _needed(assignment: Assignment, cost: int, removals: tuple[Removal, ...]) -> Needed | None:
    """Return what the assignment needs if surpluses go in these ways; None if that is beyond the limits."""
    limits, left, ended = assignment.limits, assignment.limits.left, assignment.ended
    outer = product((limits.outer, *(axis.size for axis in ended if axis.is_outer), *(way.ended for way in removals)))
    if assignment.sizes[outer].highest > assignment.spec.contractions.largest_outer:
        return None
    more = 0  # what else is cut off, so that each weight has something to end
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
    """Return the Merges that the cases need: to part blocks, to cut axes into pieces, and to cut surpluses off."""
    return assignment.base + len(assignment.parted) + len(assignment.surpluses)


def _conflicts(assignment: Assignment) -> bool:
    """Return whether rules or occurrences keep the axes, as they are, from these cases."""
    if (assignment.windows and not windows_fit(assignment)) or weighted_usage(assignment) is None:
        return True
    if assignment.contractions == 1 and joins_two_large_sums(assignment):
        return True
    for group in assignment.whole_groups:
        if group.goal in assignment.goal.unordered and any(axis.is_misordered for axis in group.members):
            return True
    return not (shared_axes_fit(assignment) if assignment.contractions else splits_allowed(assignment))


def _may_exchange(assignment: Assignment) -> bool:
    """Return whether one more Merge and one more Split may put other axes in the place of these."""
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
    """Return the ways in which a group's surplus may go; without a surplus, the way to part its block."""
    surplus, left, found = group.surplus, assignment.limits.left, list[Removal]()
    if surplus is ONE:
        return [Removal(*cut) for cut in [_cut(assignment, group, ended=False)] if cut is not None]
    facts = assignment.sizes[surplus]
    window = left.unfolds and facts.can_be_window
    repeat = left.repeats and facts.highest <= assignment.spec.repeats.largest
    if (window or repeat) and (cut := _cut(assignment, group, ended=False)) is not None:
        if window:
            found.append(Removal(cut.merges, cut.primitives + 1, windows=1))
        if repeat:
            found.append(Removal(cut.merges, cut.primitives + 1, repeats=1))
    if assignment.contractions and may_end(assignment, surplus) and (cut := _cut(assignment, group, ended=True)) is not None:
        found.append(Removal(*cut, ended=surplus))
    if _merges(assignment) < left.merges and any(_may_be_cut(assignment, axis) for axis in group.members):
        pieces = assignment.goal.pieces(surplus).given(assignment.contractions)
        if pieces < UNREACHABLE:
            found.append(Removal(1, pieces))
    return found


# ---- Merges ----------------------------------------------------------------------------------------------------------


def _cut(assignment: Assignment, group: InputGroup, *, ended: bool) -> CutCost | None:
    """Return what it takes to cut the surplus off a group, or to part its block; None if no Merge can.

    `ended` says that a weight ends what is cut off.
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
    """Return whether some Merge may cut the axis, or what stands on it."""
    return bool(axis.cuts.now) or axis.cuts.above_shift or axis.cuts.above_window <= assignment.contractions


def _divides(assignment: Assignment, surplus: Size, whole: Size) -> bool:
    """Return whether a Merge within the limits may cut the surplus off an axis of that size."""
    if whole is surplus:
        return False
    kept = whole / surplus
    return assignment.sizes[kept].is_legal and assignment.has_room(assignment.sizes.merged(surplus, kept))


def _cut_above_window(assignment: Assignment, group: InputGroup, ended: bool) -> bool:
    """Return whether a Merge may cut the surplus off above an Unfold, where one of the two pieces is below the window."""
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
    """Return what one or more of the axes are together."""
    wholes = {ONE}
    for axis in axes:
        wholes |= {whole * axis.size for whole in wholes}
    return wholes - {ONE}


def _cut_above_shift(assignment: Assignment, members: list[Axis], parts: list[Axis], surplus: Size) -> bool:
    """Return whether a Merge may cut the surplus off above a Shift, where one of the two pieces must be small."""

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
