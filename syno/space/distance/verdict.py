"""What a choice of fates costs, or that rules and limits forbid it.

Paper: section 5.4.
"""

from __future__ import annotations

from itertools import product as combinations
from typing import NamedTuple

from syno.algebra import ONE, Size, product
from syno.space.distance.axes import UNREACHABLE, Group, Grouping
from syno.space.distance.choice import Choice
from syno.space.distance.cutting import cutting
from syno.space.distance.joining import splits_allowed, sums_left_apart, windows_fit
from syno.space.distance.weighing import ends_neighbours, inner_dims_fit, may_end, weighed, weights_large_enough


def steps(choice: Choice, cost: int, most: int) -> int | None:
    """What the fates need beside contractions, with this number of those; None if it cannot be or is more than `most`."""
    for axis in choice.parted:
        cost += axis.parts[min(choice.contractions, 2)] - axis.parts.more  # `cost` has the rest already
    rests = [
        _rest_fates(choice, group)
        for group, rest in enumerate(choice.rest)
        if rest is not ONE or len(choice.partition[group]) > 1
    ]
    found = [total for fates in combinations(*rests) if (total := _total(choice, cost, fates)) is not None]
    least = min((needed for needed, _, _ in found), default=UNREACHABLE)
    if least > most:
        return None
    if not _conflict(choice) and not (choice.contractions and not weights_large_enough(choice)):
        return least
    if least + 2 > most or not _may_exchange(choice):
        return None
    limits = choice.limits
    exchanged = (needed + 2 for needed, merges, splits in found if merges < limits.merges and splits < limits.splits)
    return min(exchanged, default=None)


class RestFate(NamedTuple):
    """How what is too much in a group goes.

    Attributes:
        merges, cost: Merges, and primitives beside contractions, that it takes beyond the Merge that cuts it off.
        size: what of it a weight ends.
        windows, repeats: into how many it goes.
    """

    merges: int
    cost: int
    size: Size = ONE
    windows: int = 0
    repeats: int = 0


def _total(choice: Choice, cost: int, fates: tuple[RestFate, ...]) -> tuple[int, int, int] | None:
    """Primitives beside contractions, Merges, and Splits; None if that is beyond the limits."""
    limits = choice.limits
    outer = product((limits.outer, *(axis.size for axis in choice.ended if axis.widens), *(fate.size for fate in fates)))
    if choice.sizes[outer].highest > choice.spec.contractions.largest_outer:
        return None
    ended = len(choice.ended) + 2 * len(choice.parted) + sum(fate.size is not ONE for fate in fates)
    more = (
        max(0, choice.contractions - ended) if choice.distance.ensured.weights_are_matmuls else 0
    )  # what is cut off for a weight to end
    cuts = sum(rest is not ONE for rest in choice.rest)  # `cost` has them already
    merges = choice.base + len(choice.parted) + cuts + more + sum(fate.merges for fate in fates)
    splits = sum(len(members) - 1 for members in choice.members)
    repeats = len(choice.repeated) + sum(fate.repeats for fate in fates)
    if merges > limits.merges or splits > limits.splits or repeats > limits.repeats:
        return None
    unfolds = len(choice.windows) + sum(fate.windows for fate in fates)
    if unfolds > limits.unfolds and unfolds - limits.unfolds > limits.splits - splits:
        return None
    if choice.contractions == 1 and limits.beside and ends_neighbours(choice):
        return None
    return cost + more + sum(fate.cost for fate in fates), merges, splits


def _conflict(choice: Choice) -> bool:
    """Whether rules keep the axes as they are from these fates."""
    if (choice.windows and not windows_fit(choice)) or weighed(choice) is None:
        return True
    if choice.contractions == 1 and sums_left_apart(choice):
        return True
    for block, rest, members in zip(choice.partition, choice.rest, choice.members, strict=True):
        if rest is ONE and choice.distance.is_unordered(block) and any(axis.misordered for axis in members):
            return True
    return not (inner_dims_fit(choice) if choice.contractions else splits_allowed(choice))


def _may_exchange(choice: Choice) -> bool:
    """Whether a Merge that is not needed otherwise, and a Split, may put another axis in the place of one."""
    if not choice.distance.ensured.merges_below_joins:
        return True
    fresh = choice.contractions or any(axis.fresh for axis in choice.given)
    if any(axis.cuts for axis in choice.given) or (choice.limits.shifts and any(axis.shift for axis in choice.given)):
        return True
    if choice.limits.shifts and fresh and any(axis.minor for axis in choice.given):
        return True
    return bool(choice.windows) and any(axis.fold <= choice.contractions for axis in choice.given)


def _rest_fates(choice: Choice, group: int) -> list[RestFate]:
    """The ways in which what is too much in a group may go, and what it takes to cut it off (see `cutting`)."""
    rest, spec = choice.rest[group], choice.spec
    if rest is ONE:  # a block of several axes, to be parted
        extra = cutting(choice, group, False)
        return [] if extra == UNREACHABLE else [RestFate(extra // 2, (extra + 1) // 2)]
    facts, found = choice.sizes[rest], []
    if (extra := cutting(choice, group, False)) < UNREACHABLE:
        if facts.can_be_window and choice.limits.unfolds:
            found.append(RestFate(extra // 2, (extra + 1) // 2 + 1, windows=1))
        if choice.limits.repeats and facts.highest <= spec.repeats.largest:
            found.append(RestFate(extra // 2, (extra + 1) // 2 + 1, repeats=1))
    if choice.contractions and may_end(choice, rest) and (extra := cutting(choice, group, True)) < UNREACHABLE:
        found.append(RestFate(extra // 2, (extra + 1) // 2, rest))
    cuts = choice.base + len(choice.parted) + sum(rest is not ONE for rest in choice.rest)
    if cuts < choice.limits.merges and any(
        axis.cuts or axis.shift or axis.fold <= choice.contractions for axis in choice.members[group]
    ):
        pieces = choice.distance.parting(rest)[min(choice.contractions, 2)]
        if pieces < UNREACHABLE:
            found.append(RestFate(1, pieces))
    return found


def grouping(choice: Choice, steps: int) -> Grouping:
    """The choice as a value, with the primitives that it needs."""
    return Grouping(
        steps,
        choice.contractions,
        tuple(
            Group(block, tuple(axis.size for axis in members), rest)
            for block, members, rest in zip(choice.partition, choice.members, choice.rest, strict=True)
        ),
        tuple(axis.size for axis in choice.windows),
        tuple(axis.size for axis in choice.repeated),
        tuple(axis.size for axis in choice.ended),
    )
