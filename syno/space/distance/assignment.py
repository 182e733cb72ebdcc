"""An assignment of cases to the axes of a relaxed state, which the search for the shape distance changes in place.

Paper: section 5.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from syno.algebra import ONE, Size
from syno.space.distance.problem import Axis, DistanceGoal, Limits
from syno.space.sizes import Usage

Block = tuple[tuple[Size, ...], Size, int]  # axes of the input that are made together, their product, minus the code of that


@dataclass(slots=True, eq=False)
class InputGroup:
    """A block of axes of the input that are made together, by Splits of its members and then Merges.

    Attributes:
        block: the sizes of the input's axes.
        goal: their product.
        code: that of the surplus, which changes with every member.
        members: the axes that it is made of.
        surplus: the product of the members over the goal, once all are known. If it is not 1, it is cut off and ended.
    """

    block: tuple[Size, ...]
    goal: Size
    code: int
    members: list[Axis] = field(default_factory=list)
    surplus: Size = ONE

    @property
    def is_whole(self) -> bool:
        """Whether the members are joined as they are: to one axis of the input, with nothing cut off."""
        return self.surplus is ONE and len(self.block) == 1


class Assignment:
    """A case for each axis of a state. The search changes it in place.

    Attributes:
        goal, limits: of the problem.
        axes: in the order to which `limits.conflicts` refers.
        groups: the input's axes, and the axes that become part of them.
        windows, repeated, ended, parted: the axes that become windows, are repeated, are ended by weights, end in pieces.
        contractions: how many are still to come.
        base: the number of Merges that part the input's axes in a block.
    """

    def __init__(self, goal: DistanceGoal, axes: tuple[Axis, ...], limits: Limits, partition: list[Block]) -> None:
        self.goal, self.axes, self.limits = goal, axes, limits
        self.spec, self.sizes, self.ensured = goal.spec, goal.sizes, goal.ensured
        self.groups = [InputGroup(*block) for block in partition]
        self.base = len(goal.wanted) - len(partition)
        self.windows: list[Axis] = []
        self.repeated: list[Axis] = []
        self.ended: list[Axis] = []
        self.parted: list[Axis] = []
        self.contractions = 0

    @property
    def surpluses(self) -> list[Size]:
        """The sizes that must be cut off, one for each group that has too much."""
        return [group.surplus for group in self.groups if group.surplus is not ONE]

    @property
    def whole_groups(self) -> list[InputGroup]:
        """Groups without surplus: their axes can be joined without a Merge that cuts one of them first."""
        return [group for group in self.groups if group.is_whole]

    def has_room(self, usage: Usage) -> bool:
        """Return whether that many occurrences of each variable are left."""
        return fits(self.limits.room, usage)


def fits(room: Usage, usage: Usage) -> bool:
    """Return whether `room` has as many occurrences of each variable as `usage`."""
    for used, left in zip(usage, room, strict=True):  # noqa: SIM110  (all() is slower)
        if used > left:
            return False
    return True


def total(*usages: Usage) -> Usage:
    """Return the occurrences of all together."""
    return tuple(map(sum, zip(*usages, strict=True)))
