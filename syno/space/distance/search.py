"""The search for the cheapest assignment: the least number of primitives between a relaxed state and an operator.

Paper: section 5.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from operator import attrgetter
from typing import NamedTuple

from syno.algebra import ONE, Size, Trait, product
from syno.space.distance.assignment import Assignment
from syno.space.distance.conditions import ended_usage, within_flops
from syno.space.distance.cost import least_primitives, removals
from syno.space.distance.problem import UNREACHABLE, Axis, Goal, Limits
from syno.space.distance.reading import ReadingBound
from syno.space.distance.surpluses import Legality, Surpluses, different_partitions

BY_HARDNESS = attrgetter("hardness")


class InputAxes(NamedTuple):
    """Axes of the input that are made together, as sizes."""

    wanted: tuple[Size, ...]
    axes: tuple[Size, ...]  # what they are made of
    rest: Size  # what is too much, and has to be cut off and ended


class CheapestAssignment(NamedTuple):
    """The assignment with the fewest primitives, as sizes of axes."""

    steps: int
    contractions: int
    groups: tuple[InputAxes, ...]
    windows: tuple[Size, ...]
    repeated: tuple[Size, ...]
    ended: tuple[Size, ...]  # by weights

    @classmethod
    def of(cls, assignment: Assignment, steps: int) -> CheapestAssignment:
        """Return the assignment as it is now, with the primitives that it needs."""
        chosen = (tuple(axis.size for axis in axes) for axes in (assignment.windows, assignment.repeated, assignment.ended))
        groups = (InputAxes(g.block, tuple(axis.size for axis in g.members), g.surplus) for g in assignment.groups)
        return cls(steps, assignment.contractions, tuple(groups), *chosen)


class _Answer(NamedTuple):
    """The distance found by a search up to `most` primitives; if it is larger, it is unknown."""

    distance: int
    most: int


@dataclass
class ShapeDistance:
    """Shape distances to one goal, each found once."""

    goal: Goal
    reading: ReadingBound | None = None
    _known: dict[tuple[tuple[int, ...], Limits], _Answer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._wanted = product(self.goal.wanted)
        found = different_partitions(sorted(self.goal.wanted, key=str))
        self.partitions = [[(block, product(block), -product(block).code) for block in blocks] for blocks in found]
        self.surpluses, self.legality = Surpluses(), Legality(self.goal.sizes)
        self.narrow = self.reading if self.reading is not None and self.reading.is_narrow else None  # allows no surplus

    def __call__(self, axes: tuple[Axis, ...], limits: Limits, most: int) -> int:
        """Return the distance, or UNREACHABLE if it is above `most`. `axes` are sorted."""
        if most < 0:
            return UNREACHABLE
        key = tuple([axis.number for axis in axes]), limits
        found = self._known.get(key)
        if found is None or (found.distance > found.most and most > found.most):
            cheapest = self.cheapest(axes, limits, most)
            found = self._known[key] = _Answer(UNREACHABLE if cheapest is None else cheapest.steps, most)
        return found.distance if found.distance <= most else UNREACHABLE

    def cheapest(self, axes: tuple[Axis, ...], limits: Limits, most: int) -> CheapestAssignment | None:
        """Return the cheapest assignment within `most` primitives; None if there is none."""
        excess = product(axis.size for axis in axes) / self._wanted
        if excess.trait is Trait.UNDEFINED or excess.trait is Trait.ILLEGAL_COEFFICIENT or len(axes) < 1:
            return None
        return _BranchAndBound(self, axes, limits, most).run()


class Case(IntEnum):
    """The use of an axis. Equal axes take their cases in this order, so that no assignment is tried twice."""

    WEIGHT = 0  # a weight ends it
    INPUT = 1  # it becomes part of a group of the input's axes
    WINDOW = 2
    REPEAT = 3
    PIECES = 4  # it is cut into pieces, each of which ends as a window, as a repeat, or by a weight


class _BranchAndBound:
    """Branch and bound: over the partitions of the input's axes into blocks made together, and the cases of the axes."""

    def __init__(self, distance: ShapeDistance, axes: tuple[Axis, ...], limits: Limits, most: int) -> None:
        self.distance, self.given, self.limits, self.surpluses = distance, axes, limits, distance.surpluses
        self.axes = sorted(axes, key=BY_HARDNESS)
        self.with_primaries = sum(axis.size.trait is Trait.GENERAL for axis in axes)
        self.most = most
        self.narrow = distance.narrow
        self.costly = [0]  # axes from each place on that no weight can end: each costs a primitive, or begins a group
        for axis in reversed(self.axes):
            self.costly.append(self.costly[-1] + (axis.endings.weight > limits.left.contractions))
        self.costly.reverse()
        self.supply = [0]  # the code of the product of the axes from each place on
        for axis in reversed(self.axes):
            self.supply.append(self.supply[-1] + axis.size.code)
        self.supply.reverse()
        self.best: CheapestAssignment | None = None

    def run(self) -> CheapestAssignment | None:
        """Return the cheapest assignment, if one is cheap enough."""
        for partition in self.distance.partitions:  # those with the fewest Merges first
            self.empty = len(partition)  # groups without members
            base = len(self.distance.goal.wanted) - self.empty  # Merges that part the blocks
            self.most_cuts = self.limits.left.merges - base  # Merges that may cut off surpluses and pieces
            if self.most_cuts < 0 or (base and self.narrow is not None):
                break
            if len(self.axes) >= self.empty:
                self.assignment = Assignment(self.distance.goal, self.given, self.limits, partition)
                self.groups = self.assignment.groups
                self._assign(0, base, 0, int(self.limits.needs_weight))
        return self.best

    def _assign(
        self, index: int, cost: int, cuts: int, contractions: int, last: Case = Case.WEIGHT, last_group: int = 0
    ) -> None:
        """Choose a case for axis `index` and for those after it.

        Args:
            index: of the axis.
            cost: primitives besides contractions that the cases so far need.
            cuts: those of them that are Merges which cut off surpluses and pieces.
            contractions: that the cases so far need.
            last, last_group: case and group of the axis before; an equal axis does not go below them.
        """
        if len(self.axes) - index < self.empty or cost + contractions + max(0, self.costly[index] - self.empty) > self.most:
            return
        chosen, supply, surpluses = self.assignment, self.supply[index], self.surpluses
        if index < self.with_primaries:
            for group in self.groups:
                supply += surpluses[group.code].lack
            if surpluses[supply].is_undefined:  # not enough of a primary for all groups
                return
        if index == self.with_primaries:  # what follows are coefficients, which only make a surplus larger
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
        if endings.pieces.more < UNREACHABLE and cuts < self.most_cuts:
            chosen.parted.append(axis)
            self._assign(index + 1, cost + endings.pieces.more, cuts + 1, contractions, Case.PIECES)
            chosen.parted.pop()

    def _join(self, index: int, cost: int, cuts: int, contractions: int, first: int) -> None:
        """Make the axis part of each group from number `first` on that it may be part of."""
        axis, empty, surpluses = self.axes[index], self.empty, self.surpluses
        counted = 1 if index >= self.with_primaries else 0  # the field of a Surplus that says whether a cut is needed
        tried = set()
        for number, group in enumerate(self.groups):
            members, before = group.members, group.code
            if not members:
                if group.goal in tried:  # an equal group is as empty
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
        """Take the assignment for the best if it may be made with some number of contractions, and is cheaper."""
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
        chosen.contractions = limits.left.contractions
        if not all(group.is_whole or removals(chosen, group) for group in self.groups):  # fewer contractions allow no more
            return
        for number in range(max(contractions, int(limits.needs_weight)), limits.left.contractions + 1):
            chosen.contractions = number
            primitives = least_primitives(chosen, cost, self.most - number) if within_flops(chosen) else None
            if primitives is not None and primitives + number <= self.most:
                if reading is not None and not reading.allows(chosen):  # whatever the number of contractions
                    return
                self.most = primitives + number - 1
                self.best = CheapestAssignment.of(chosen, primitives + number)
