"""An assignment of cases to the axes of a relaxed state, mutated in place by the search for the shape distance.

Paper: section 5.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from syno.algebra import ONE, Size
from syno.space.distance.problem import Axis, DistanceGoal, Limits
from syno.space.sizes import Usage

Block = tuple[tuple[Size, ...], Size, int]  # axes of the input, their product, and its code negated


@dataclass(slots=True, eq=False)
class InputGroup:
    """A block of input axes that are formed together: Splits join the members, Merges cut the result into the block's axes.

    Attributes:
        block: the sizes of the input's axes in the block.
        goal: the product of these sizes.
        code: code of the surplus's size, updated with every member.
        members: the state's axes that are joined.
        surplus: product of the members divided by `goal`, set once all members are known. If it is not 1, a Merge cuts it off.
    """

    block: tuple[Size, ...]
    goal: Size
    code: int
    members: list[Axis] = field(default_factory=list)
    surplus: Size = ONE

    @property
    def is_whole(self) -> bool:
        """Whether the joined members are exactly one axis of the input, with nothing to cut off."""
        return self.surplus is ONE and len(self.block) == 1


class Assignment:
    """A case for each axis of a state. The search mutates it in place.

    Attributes:
        goal, limits: goal and limits of the problem.
        axes: the state's axes, in the order of the indices in `limits.conflicts`.
        groups: the input's axes, with the state's axes that become part of them.
        windows, repeated, ended, parted: the axes with the cases WINDOW, REPEAT, WEIGHT and PIECES.
        contractions: number of contractions still to come.
        base: number of Merges that cut blocks into the input's axes.
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
        """The surpluses, which must be cut off: one size for each group that has one."""
        return [group.surplus for group in self.groups if group.surplus is not ONE]

    @property
    def whole_groups(self) -> list[InputGroup]:
        """Groups without surplus that form one axis of the input: they need no Merge."""
        return [group for group in self.groups if group.is_whole]

    def has_room(self, usage: Usage) -> bool:
        """Return whether the remaining occurrences of each variable cover `usage`."""
        return fits(self.limits.room, usage)


def fits(room: Usage, usage: Usage) -> bool:
    """Return whether `usage` is at most `room` for each variable."""
    for used, left in zip(usage, room, strict=True):  # noqa: SIM110  (all() is slower)
        if used > left:
            return False
    return True


def total(*usages: Usage) -> Usage:
    """Return the sum of several usages, for each variable."""
    return tuple(map(sum, zip(*usages, strict=True)))
