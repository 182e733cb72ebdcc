"""Shape distance: how many more primitives a partial operator needs at least.

It looks at sizes only. Each live axis has one of four fates: it becomes part of an axis of the input (together with
others, by Splits; cut apart before, by Merges), it is taken in as the window of an Unfold, it is expanded as a repeat, or
a weight ends it. The distance is the least cost over all choices of fates; one Contraction may end any number of axes.
A choice that a rule forbids may be counted, a possible one never is left out: the distance is never above the truth.

Paper: section 5.4 (shape distance). The published system's differs: it charges a step for each axis that a contraction
ends, and forgets which axes a Merge may cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from syno.algebra import ONE, Size, Trait
from syno.space.sizes import SizeTable, Usage
from syno.space.spec import OperatorSpec

UNREACHABLE = 1_000


class Axis(NamedTuple):
    """What the distance knows of a live dim."""

    size: Size
    slack: int  # how many more primitives may stand above it
    cut: bool  # whether a Merge can cut it now
    shift: bool  # whether a Shift can go on it, so that a Merge can cut what is above
    fold: int  # contractions before a window can slide over it: 0, 1, or UNREACHABLE
    minor: bool  # whether a Shift can go above a Split with it as minor
    endings: int  # contractions after which a weight may have ended it: 1, 2, or UNREACHABLE
    window: int  # contractions before it can be a window by itself: 0, 1, or UNREACHABLE
    repeat: bool  # whether an Expand can end it
    strided: bool  # whether it must end as a window or a repeat, because a Stride skips elements


class Limits(NamedTuple):
    """What may still be used; numbers above the depth left are cut to it."""

    merges: int
    splits: int
    shifts: int
    unfolds: int
    repeats: int
    weights: int
    needs_weight: bool  # at least one contraction must come
    room: Usage  # occurrences left
    beside: tuple[tuple[int, int], ...]  # places of axes that one weight may not end together


class Group(NamedTuple):
    """Axes of the input that are made together, and one way to do it: for `explain`."""

    wanted: tuple[Size, ...]
    axes: tuple[Size, ...]
    rest: Size  # what is too much, and has to be cut off and ended


class Grouping(NamedTuple):
    """The cheapest choice of fates."""

    steps: int
    contractions: int
    groups: tuple[Group, ...]
    windows: tuple[Size, ...]
    repeated: tuple[Size, ...]
    ended: tuple[Size, ...]  # by weights


@dataclass
class Distance:
    """Distances under one spec, each found once."""

    spec: OperatorSpec
    sizes: SizeTable
    wanted: tuple[Size, ...]
    small_blocks: bool = True  # whether a Merge above a Shift cuts off small blocks only
    _known: dict[tuple[tuple[Axis, ...], Limits], tuple[int, int]] = field(default_factory=dict)  # distance, searched up to

    def __post_init__(self) -> None:
        order = sorted(range(len(self.wanted)), key=lambda i: str(self.wanted[i]))
        self._goal = _product(self.wanted)
        self.shift_pattern = self.spec.windows.shift_pattern if self.small_blocks else float("inf")
        partitions = [[tuple(self.wanted[i] for i in block) for block in partition] for partition in _partitions(tuple(order))]
        # with the number of Merges that part the axes of blocks, fewest first
        self._partitions = sorted(((len(order) - len(partition), partition) for partition in partitions), key=lambda pair: pair[0])

    def __call__(self, axes: tuple[Axis, ...], limits: Limits, most: int) -> int:
        """The distance, or UNREACHABLE if it is above `most`. `axes` are sorted."""
        if most < 0:
            return UNREACHABLE
        key = (axes, limits)
        found = self._known.get(key)
        if found is not None and (found[0] <= found[1] or most <= found[1]):
            return found[0] if found[0] <= most else UNREACHABLE
        grouping = self.grouping(axes, limits, most)
        result = UNREACHABLE if grouping is None else grouping.steps
        self._known[key] = (result, most)
        return result

    def grouping(self, axes: tuple[Axis, ...], limits: Limits, most: int) -> Grouping | None:
        """The cheapest choice of fates within `most` steps, or None."""
        best: Grouping | None = None
        excess = _product(tuple(axis.size for axis in axes)) / self._goal
        if excess.trait is Trait.UNDEFINED or excess.trait is Trait.ILLEGAL_COEFFICIENT or len(axes) < 1:
            return None
        for contractions in range(int(limits.needs_weight), min(limits.weights, 2) + 1):
            for base, partition in self._partitions:
                if base > limits.merges:
                    break
                search = _Search(self, axes, limits, partition, contractions, (best.steps - 1 if best else most) - contractions)
                best = search.run() or best
        return best

    def fits(self, room: Usage, usage: Usage) -> bool:
        """Whether that many occurrences are left."""
        return all(used <= left for used, left in zip(usage, room, strict=True))


class _Search:
    """Branch and bound over the fates of the axes, for one partition of the input's axes and a number of contractions."""

    def __init__(
        self,
        distance: Distance,
        axes: tuple[Axis, ...],
        limits: Limits,
        partition: list[tuple[Size, ...]],
        contractions: int,
        most: int,
    ) -> None:
        self.distance, self.limits, self.partition, self.contractions = distance, limits, partition, contractions
        self.sizes = distance.sizes
        self.given = axes
        self.axes = sorted(axes, key=lambda axis: axis.size.trait is not Trait.GENERAL)  # primaries decide most
        self.with_primaries = sum(axis.size.trait is Trait.GENERAL for axis in axes)
        self.base = sum(len(block) - 1 for block in partition)  # Merges that part the axes of a block
        self.goal = [_product(block) for block in partition]
        self.most = most
        self.best: Grouping | None = None
        self.members: list[list[Axis]] = [[] for _ in partition]
        self.rest: list[Size] = [ONE / goal for goal in self.goal]
        self.windows: list[Axis] = []
        self.repeated: list[Axis] = []
        self.ended: list[Axis] = []

    def run(self) -> Grouping | None:
        if self.base <= min(self.limits.merges, self.most) and len(self.axes) >= len(self.partition):
            self._assign(0, self.base)
        return self.best

    def _assign(self, index: int, cost: int) -> None:
        """Choose the fate of axis `index`; `cost` is what those chosen so far need."""
        if cost > self.most:
            return
        if index == self.with_primaries and any(rest.trait is Trait.UNDEFINED for rest in self.rest):
            return
        if index == len(self.axes):
            self._complete(cost)
            return
        axis = self.axes[index]
        if len(self.axes) - index < sum(not members for members in self.members):
            return
        if self.contractions and axis.endings <= self.contractions:
            self.ended.append(axis)
            self._assign(index + 1, cost)
            self.ended.pop()
        for group in self._groups(axis):
            members, rest = self.members[group], self.rest[group]
            members.append(axis)
            self.rest[group] = rest * axis.size
            self._assign(index + 1, cost + (len(members) > 1))
            members.pop()
            self.rest[group] = rest
        if axis.window <= 1 and len(self.windows) < self.limits.unfolds + self.limits.splits:
            self.windows.append(axis)
            self._assign(index + 1, cost + 1)
            self.windows.pop()
        if axis.repeat:
            self.repeated.append(axis)
            self._assign(index + 1, cost + 1)
            self.repeated.pop()

    def _groups(self, axis: Axis) -> Iterator[int]:
        if axis.strided:
            return
        seen = set()
        for group, members in enumerate(self.members):
            if not members:
                if self.goal[group] in seen:  # an equal group is as empty
                    continue
                seen.add(self.goal[group])
            if axis.slack > 0:
                if not members or members[0].slack > 0:
                    yield group
            elif not members and len(self.partition[group]) == 1 and axis.size is self.goal[group]:
                yield group

    def _complete(self, cost: int) -> None:
        limits = self.limits
        merges, unfolds, repeats, ended = self.base, len(self.windows), len(self.repeated), len(self.ended)
        if unfolds and not limits.unfolds:
            return
        if unfolds and not self.contractions and all(axis.window for axis in self.windows):
            return  # bare sums are no windows, but together with another axis they may be
        splits = sum(len(members) - 1 for members in self.members)
        for group, members in enumerate(self.members):
            if not members:
                return
            rest = self.rest[group]
            if rest is not ONE:
                facts = self.sizes[rest]
                if not facts.is_legal or (members[0].slack <= 0):
                    return
                merges += 1
                cost += 1
                if self.contractions and self.may_end(rest):
                    ended += 1
                elif facts.highest <= self.distance.spec.windows.largest and (facts.is_odd or not self.distance.spec.windows.odd):
                    unfolds += 1
                    cost += 1
                elif limits.repeats and facts.highest <= self.distance.spec.repeats.largest:
                    repeats += 1
                    cost += 1
                else:
                    return
            if rest is not ONE or len(self.partition[group]) > 1:
                extra = self._cutting(group)
                merges += extra // 2
                cost += extra % 2 + extra // 2
            if cost > self.most:
                return
        if merges > limits.merges or ended < self.contractions or splits > limits.splits or repeats > limits.repeats:
            return
        if unfolds > limits.unfolds and unfolds - limits.unfolds > limits.splits - splits:
            return
        if self.windows and not self._windows_fit():
            return
        if self.contractions == 1 and limits.beside and self._ends_neighbours():
            return
        if self.contractions and self._largest_weight() < self.distance.spec.contractions.least_elements:
            cost += 2  # only another piece of an axis could make a weight large enough: it is cut off, and dealt with
            if merges == limits.merges:
                return
        if cost > self.most or (self.ended and not self._room_to_end()):
            return
        self.most = cost - 1
        self.best = Grouping(
            cost + self.contractions,
            self.contractions,
            tuple(
                Group(block, tuple(axis.size for axis in members), rest)
                for block, members, rest in zip(self.partition, self.members, self.rest, strict=True)
            ),
            tuple(axis.size for axis in self.windows),
            tuple(axis.size for axis in self.repeated),
            tuple(axis.size for axis in self.ended),
        )

    def _windows_fit(self) -> bool:
        """Whether each window has an axis to slide over."""
        if any(rest is not ONE for rest in self.rest):  # pieces that are cut off may be such axes
            return True
        ratio = self.distance.spec.windows.least_ratio
        positions = {axis.size for members in self.members for axis in members if axis.fold <= self.contractions}
        for goal, members in zip(self.goal, self.members, strict=True):
            if self.contractions and len(members) > 1 and any(axis.fold <= 1 for axis in members):
                positions.add(goal)  # joined, weighted, then slid over
        return all(any(self.sizes[size / axis.size].lowest >= ratio for size in positions) for axis in self.windows)

    def _ends_neighbours(self) -> bool:
        ended = {id(axis) for axis in self.ended}
        return any(id(self.given[i]) in ended and id(self.given[j]) in ended for i, j in self.limits.beside)

    def _cutting(self, group: int) -> int:
        """What it takes to cut something off the group: 0, 1 for a Shift, 2 for another Merge, UNREACHABLE."""
        members, rest = self.members[group], self.rest[group]
        if len(self.partition[group]) > 1:
            parts = members
        else:
            parts = [axis for axis in members if axis.size is rest or self.sizes[axis.size / rest].is_legal]
        if any(axis.cut or (axis.fold <= self.contractions and self.windows) for axis in parts):
            return 0
        if self.limits.shifts and self._cut_above_shift(members, parts, rest):
            return 1
        return 2 if sum(axis.cut or axis.fold <= self.contractions for axis in members) > 1 else UNREACHABLE

    def _cut_above_shift(self, members: list[Axis], parts: list[Axis], rest: Size) -> bool:
        """Whether a Merge may cut off the rest above a Shift, where one of the two pieces must be small."""
        if any(axis.shift and self._small_cut(axis.size, rest) for axis in parts):
            return True
        for minor in members:
            if not minor.minor:
                continue
            others = [axis.size for axis in members if axis is not minor]
            wholes = {minor.size}
            for size in others:
                wholes |= {whole * size for whole in wholes}
            wholes.discard(minor.size)
            if any(self._small_cut(whole, rest) for whole in wholes):
                return True
        return False

    def _small_cut(self, whole: Size, rest: Size) -> bool:
        kept = self.sizes[whole / rest]
        return kept.is_legal and min(kept.highest, self.sizes[rest].highest) <= self.distance.shift_pattern

    def may_end(self, size: Size) -> bool:
        return self.distance.fits(self.limits.room, self.sizes[size].shared)

    def _largest_weight(self) -> float:
        """The elements of a weight with every axis that it may have, in the smallest layer."""
        total = ONE
        for axis in self.axes:
            if self.may_end(axis.size):
                total = total * axis.size
        for group, members in enumerate(self.members):
            if self.rest[group] is not ONE and not any(self.may_end(axis.size) for axis in members):
                total = total * self.rest[group]
        return self.sizes[total].lowest

    def _room_to_end(self) -> bool:
        total = [0] * len(self.limits.room)
        for axis in self.ended:
            for i, used in enumerate(self.sizes[axis.size].shared):
                total[i] += used * axis.endings
        return self.distance.fits(self.limits.room, tuple(total))


def _product(sizes: tuple[Size, ...]) -> Size:
    result = ONE
    for size in sizes:
        result = result * size
    return result


def _partitions(items: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for partition in _partitions(rest):
        yield [(first,), *partition]
        for i, block in enumerate(partition):
            yield [*partition[:i], (first, *block), *partition[i + 1 :]]
