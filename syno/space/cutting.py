"""Cutting off what is too much: whether a Merge can, and what else that takes.

A Merge goes on an axis of the output, on a remainder, above a Shift of small pieces, or above a window larger than the
piece. The rules on views leave no other place.

Paper: section 5.4.
"""

from __future__ import annotations

from syno.algebra import Size
from syno.space.axes import UNREACHABLE, Axis
from syno.space.choice import Choice


def cutting(choice: Choice, group: int, ended: bool) -> int:
    """What it takes to cut something off the group: 0, 1 for a Shift, 2 for another Merge, UNREACHABLE.

    `ended` says that a weight ends what is cut off.
    """
    members, rest = choice.members[group], choice.rest[group]
    if choice.distance.free_cuts:
        return 0
    if len(choice.partition[group]) > 1:
        return 0 if any(axis.cuts or axis.shift or axis.fold <= choice.contractions for axis in members) else UNREACHABLE
    parts = [axis for axis in members if _divides(choice, rest, axis.size)]
    if any(rest in axis.cuts for axis in parts):
        return 0
    if choice.windows and any(_cut_above_window(choice, axis, rest, ended, len(members) == 1) for axis in members):
        return 0
    if choice.limits.shifts and _cut_above_shift(choice, members, parts, rest):
        return 1
    return 2 if sum(bool(axis.cuts) or axis.fold <= choice.contractions for axis in members) > 1 else UNREACHABLE


def _divides(choice: Choice, rest: Size, whole: Size) -> bool:
    if whole is rest:
        return False
    kept = whole / rest
    return choice.sizes[kept].is_legal and choice.distance.fits(choice.limits.room, choice.sizes.merged(rest, kept))


def _cut_above_window(choice: Choice, axis: Axis, rest: Size, ended: bool, single: bool) -> bool:
    """Whether a Merge may cut off the rest above an Unfold, where one of the two pieces is smaller than the window."""
    if axis.fold > choice.contractions:
        return False
    if axis.fold and (not choice.ended or (ended and choice.contractions < 2)):
        return False  # the weight that comes first needs an axis to end, too
    whole = axis.size if single or not axis.fold else None
    if whole is not None and not _divides(choice, rest, whole):
        return False
    if not choice.distance.small_blocks:
        return True
    blocks = [rest] if whole is None else [rest, whole / rest]
    if whole is None and axis.fold:
        return True  # several axes joined before
    return any(choice.sizes[block / window.size].lowest < 1 for block in blocks for window in choice.windows)


def _cut_above_shift(choice: Choice, members: list[Axis], parts: list[Axis], rest: Size) -> bool:
    """Whether a Merge may cut off the rest above a Shift, where one of the two pieces must be small."""
    if any(axis.shift and _small_cut(choice, axis.size, rest) for axis in parts):
        return True
    for minor in members:
        if not minor.minor:
            continue
        others = [axis.size for axis in members if axis is not minor]
        wholes = {minor.size}
        for size in others:
            wholes |= {whole * size for whole in wholes}
        wholes.discard(minor.size)
        if any(_small_cut(choice, whole, rest) for whole in wholes):
            return True
    return False


def _small_cut(choice: Choice, whole: Size, rest: Size) -> bool:
    kept = choice.sizes[whole / rest]
    return kept.is_legal and min(kept.highest, choice.sizes[rest].highest) <= choice.distance.shift_pattern
