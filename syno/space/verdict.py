"""What a choice of fates costs, or that rules and limits forbid it.

Paper: section 5.4.
"""

from __future__ import annotations

from syno.algebra import ONE, product
from syno.space.axes import UNREACHABLE, Group, Grouping
from syno.space.choice import Choice
from syno.space.cutting import cutting
from syno.space.joining import splits_allowed, sums_left_apart, windows_fit
from syno.space.weighing import ends_neighbours, inner_dims_fit, may_end, weights_large_enough


def steps(choice: Choice, cost: int) -> int | None:
    """What the fates need beside contractions, with this number of those; None if it cannot be."""
    limits = choice.limits
    merges, unfolds, repeats, ended = choice.base, len(choice.windows), len(choice.repeated), len(choice.ended)
    outer = product((limits.outer, *(axis.size for axis in choice.ended if axis.widens)))
    for group, rest in enumerate(choice.rest):
        if rest is ONE and len(choice.partition[group]) == 1:
            continue
        if rest is not ONE:
            merges += 1  # `cost` has it already
        fate, extra = _rest_fate(choice, group)
        if fate is None:
            return None
        merges += extra // 2
        cost += extra % 2 + extra // 2
        ended += fate == "ended"
        outer = outer * rest if fate == "ended" else outer
        unfolds += fate == "window"
        repeats += fate == "repeat"
        cost += fate in ("window", "repeat")
    if choice.sizes[outer].highest > choice.spec.contractions.largest_outer:
        return None
    splits = sum(len(members) - 1 for members in choice.members)
    if ended < choice.contractions:  # a weight ends something, be it a piece that is cut off for it
        merges += choice.contractions - ended
        cost += choice.contractions - ended
    if merges > limits.merges or splits > limits.splits or repeats > limits.repeats:
        return None
    if unfolds > limits.unfolds and unfolds - limits.unfolds > limits.splits - splits:
        return None
    if _conflict(choice):
        if merges == limits.merges or splits == limits.splits or not _may_exchange(choice):
            return None
        cost += 2
    if choice.contractions == 1 and limits.beside and ends_neighbours(choice):
        return None
    if choice.contractions and not weights_large_enough(choice):
        if merges == limits.merges or not _may_exchange(choice):
            return None
        cost += 2  # only another piece of an axis could make the weights larger: it is cut off, and dealt with
    return cost


def _conflict(choice: Choice) -> bool:
    """Whether rules keep the axes as they are from these fates."""
    if choice.windows and not windows_fit(choice):
        return True
    if choice.contractions == 1 and sums_left_apart(choice):
        return True
    for block, rest, members in zip(choice.partition, choice.rest, choice.members, strict=True):
        if rest is ONE and choice.distance.is_unordered(block) and any(axis.misordered for axis in members):
            return True
    return not (inner_dims_fit(choice) if choice.contractions else splits_allowed(choice))


def _may_exchange(choice: Choice) -> bool:
    """Whether a Merge that is not needed otherwise, and a Split, may put another axis in the place of one."""
    if choice.distance.free_cuts:
        return True
    fresh = choice.contractions or any(axis.fresh for axis in choice.given)
    if any(axis.cuts for axis in choice.given) or (choice.limits.shifts and any(axis.shift for axis in choice.given)):
        return True
    if choice.limits.shifts and fresh and any(axis.minor for axis in choice.given):
        return True
    return bool(choice.windows) and any(axis.fold <= choice.contractions for axis in choice.given)


def _rest_fate(choice: Choice, group: int) -> tuple[str | None, int]:
    """How what is too much in a group goes, and what it takes to cut it off (see `_cutting`)."""
    rest, spec = choice.rest[group], choice.spec
    if rest is ONE:  # a block of several axes, to be parted
        extra = cutting(choice, group, False)
        return (None if extra == UNREACHABLE else "parted"), extra
    facts = choice.sizes[rest]
    fates = []
    if choice.contractions and may_end(choice, rest):
        fates.append("ended")
    if facts.highest <= spec.windows.largest and (facts.is_odd or not spec.windows.odd) and choice.limits.unfolds:
        fates.append("window")
    if choice.limits.repeats and facts.highest <= spec.repeats.largest:
        fates.append("repeat")
    costs = [(cutting(choice, group, fate == "ended"), fate) for fate in fates]
    costs = [(extra, fate) for extra, fate in costs if extra < UNREACHABLE]
    if not costs:
        return None, 0
    extra, fate = min(costs, key=lambda pair: pair[0] + (pair[1] != "ended"))
    return fate, extra


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
