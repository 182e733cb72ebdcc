"""Cutting off what is too much: whether a Merge can, and what else that takes.

A Merge goes on an axis of the output, on a remainder, above a Shift of small pieces, or above a window larger than the
piece. The rules on views leave no other place.

Paper: section 5.4.
"""

from __future__ import annotations

from syno.algebra import ONE, Size, product
from syno.space.distance.axes import UNREACHABLE, Axis
from syno.space.distance.choice import Choice


def cutting(choice: Choice, group: int, ended: bool) -> int:
    """What it takes to cut something off the group: 0, 1 for a Shift, 2 for another Merge, UNREACHABLE.

    `ended` says that a weight ends what is cut off.
    """
    members, rest = choice.members[group], choice.rest[group]
    if not choice.distance.ensured.merges_below_joins:
        return 0
    if len(choice.partition[group]) > 1:
        return 0 if any(axis.cuts or axis.shift or axis.fold <= choice.contractions for axis in members) else UNREACHABLE
    parts = [axis for axis in members if _divides(choice, rest, axis.size)]
    if any(rest in axis.cuts for axis in parts):
        return 0
    if _cut_above_window(choice, group, ended):
        return 0
    if choice.limits.shifts and _cut_above_shift(choice, members, parts, rest):
        return 1
    many = sum(bool(axis.cuts) or axis.fold <= choice.contractions for axis in members) > 1
    return 2 if many or any(axis.cuts for axis in parts) else UNREACHABLE


def _divides(choice: Choice, rest: Size, whole: Size) -> bool:
    if whole is rest:
        return False
    kept = whole / rest
    return choice.sizes[kept].is_legal and choice.distance.fits(choice.limits.room, choice.sizes.merged(rest, kept))


def _cut_above_window(choice: Choice, group: int, ended: bool) -> bool:
    """Whether a Merge may cut off the rest above an Unfold, where one of the two pieces is smaller than the window."""
    members, rest, ensured = choice.members[group], choice.rest[group], choice.distance.ensured
    beside = choice.cuts_beside(group)  # other pieces may be windows, or end with a weight
    if not (choice.windows or beside):
        return False
    weighted = choice.contractions > ended and (beside or bool(choice.ended))  # a weight comes first: it needs an axis to end
    wholes = {axis.size for axis in members if axis.fold <= (choice.contractions if weighted else 0)}
    if weighted or not ensured.unfolds_below_splits:
        wholes |= {
            axis.size * whole
            for place, axis in enumerate(members)
            if axis.fold <= choice.contractions
            for whole in _joined(members[:place] + members[place + 1 :])
        }
    window = product(axis.size for axis in choice.windows)
    return any(
        beside
        or not ensured.slid_blocks_are_small
        or any(choice.sizes[block / window].lowest < 1 for block in (rest, whole / rest))
        for whole in wholes
        if _divides(choice, rest, whole)
    )


def _joined(axes: list[Axis]) -> set[Size]:
    """What one or more of the axes are together."""
    wholes = {ONE}
    for axis in axes:
        wholes |= {whole * axis.size for whole in wholes}
    return wholes - {ONE}


def _cut_above_shift(choice: Choice, members: list[Axis], parts: list[Axis], rest: Size) -> bool:
    """Whether a Merge may cut off the rest above a Shift, where one of the two pieces must be small."""
    if any(axis.shift and _small_cut(choice, axis.size, rest) for axis in parts):
        return True
    for minor in members:
        if not minor.minor:
            continue
        wholes = {minor.size * whole for whole in _joined([axis for axis in members if axis is not minor])}
        if any(_small_cut(choice, whole, rest) for whole in wholes):
            return True
    return False


def _small_cut(choice: Choice, whole: Size, rest: Size) -> bool:
    kept = choice.sizes[whole / rest]
    return kept.is_legal and min(kept.highest, choice.sizes[rest].highest) <= choice.distance.shift_pattern
