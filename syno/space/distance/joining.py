"""Whether Splits and Unfolds can make what a choice of fates asks for.

Paper: section 5.4.
"""

from __future__ import annotations

from syno.algebra import ONE, Size
from syno.space.distance.axes import Axis
from syno.space.distance.choice import Choice


def windows_fit(choice: Choice) -> bool:
    """Whether each window has an axis to slide over; without another weight, bare sums have to join a window for it."""
    ensured = choice.distance.ensured
    positions = {axis.size for members in choice.members for axis in members if axis.fold <= choice.contractions}
    for goal, (_, rest, members) in zip(choice.goal, choice.groups, strict=True):
        if choice.contractions and len(members) > 1 and any(axis.fold <= 1 for axis in members):
            positions.add(goal)  # joined, weighted, then slid over
        if not ensured.unfolds_below_splits and len(members) > 1:
            positions.add(goal)
        if rest is not ONE:
            positions |= {rest, *(axis.size / rest for axis in members if choice.sizes[axis.size / rest].is_legal)}
            if len(members) > 1 and (choice.limits.shifts or choice.contractions):
                return True  # pieces of axes joined before
    pieces = [rest for rest in choice.rest if rest is not ONE]
    for axis in choice.windows:
        if choice.contractions or not axis.window:
            sizes = [axis.size]
        elif choice.parted:
            continue
        else:
            others = (o for o in choice.windows if o is not axis and not (ensured.adjacent_stay_apart and o.window))
            sizes = [axis.size * size for size in (*pieces, *(o.size for o in others))]
        if not any(_slides(choice, size, positions) for size in sizes):
            return False
    return True


def _slides(choice: Choice, window: Size, positions: set[Size]) -> bool:
    options = choice.spec.windows
    if choice.sizes[window].highest > options.largest:
        return False
    return any(choice.sizes[size / window].lowest >= options.least_ratio for size in positions)


def splits_allowed(choice: Choice) -> bool:
    """Whether Splits can make the groups although no weight comes any more."""
    fresh_window = any(axis.fresh for axis in choice.windows)
    for i, j in choice.limits.apart:
        a, b = choice.given[i], choice.given[j]
        if _together(choice, a, b) and not (choice.windows and (a.fold == 0 or b.fold == 0)):
            return False
    for i, j in choice.limits.touching:
        a, b = choice.given[i], choice.given[j]
        if _together(choice, a, b, alone=True) and not (choice.windows and (a.fold == 0 or b.fold == 0)):
            return False
    return all(
        len(members) < 2 or any(axis.fresh for axis in members) or (fresh_window and any(axis.fold == 0 for axis in members))
        for members in _uncut(choice)
    )


def sums_left_apart(choice: Choice) -> bool:
    """Whether two sums are to be joined that need a weight both: the same one keeps them apart as well."""
    pairs = ((choice.given[i], choice.given[j]) for i, j in choice.limits.touching)
    return any(a.must_weigh and b.must_weigh and _together(choice, a, b, alone=True) for a, b in pairs)


def _uncut(choice: Choice) -> list[list[Axis]]:
    """The groups from which nothing is cut off, so that their axes are joined as they are."""
    groups = zip(choice.partition, choice.rest, choice.members, strict=True)
    return [members for block, rest, members in groups if rest is ONE and len(block) == 1]


def _together(choice: Choice, a: Axis, b: Axis, alone: bool = False) -> bool:
    """Whether they, whichever of equal axes they are, are joined just as they are, with nothing else if `alone`."""
    alike = sum(axis in (a, b) for axis in choice.given)
    return any(
        sum(axis in (a, b) for axis in members) == alike and (not alone or len(members) == 2) for members in _uncut(choice)
    )
