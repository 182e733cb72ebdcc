"""A choice of fates for the axes of a state, as it is being made.

Paper: section 5.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from syno.algebra import ONE, Size, product
from syno.space.distance.axes import Axis, Limits
from syno.space.sizes import SizeTable
from syno.space.spec import OperatorSpec

if TYPE_CHECKING:
    from syno.space.distance.distance import Distance


@dataclass
class Choice:
    """Which axes of the input are made of which axes of the state, and what becomes of the others.

    Attributes:
        distance: whose question this is.
        given: the axes in the order in which `limits` refers to them.
        limits: what may still be used.
        partition: the input's axes in blocks; the axes of a block are made together, and parted by Merges.
        contractions: how many weights are still to come.
        members: the axes that each block is made of.
        rest: for each block, the product of its members over that of its axes: what is to be cut off and ended.
        windows, repeated, ended: the axes that become windows, that are expanded, that weights end.
        parted: the axes that are cut into pieces which become windows, are expanded, or ended by weights.
    """

    distance: Distance
    given: tuple[Axis, ...]
    limits: Limits
    partition: list[tuple[Size, ...]]
    contractions: int = 0
    windows: list[Axis] = field(default_factory=list)
    repeated: list[Axis] = field(default_factory=list)
    ended: list[Axis] = field(default_factory=list)
    parted: list[Axis] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.spec: OperatorSpec = self.distance.spec
        self.sizes: SizeTable = self.distance.sizes
        self.base = sum(len(block) - 1 for block in self.partition)  # Merges that part the axes of a block
        self.goal = [product(block) for block in self.partition]
        self.members: list[list[Axis]] = [[] for _ in self.partition]
        self.rest: list[Size] = [ONE / goal for goal in self.goal]

    @property
    def groups(self) -> Iterator[tuple[tuple[Size, ...], Size, list[Axis]]]:
        """Each block with its rest and its members."""
        return zip(self.partition, self.rest, self.members, strict=True)

    def cuts_beside(self, group: int) -> bool:
        """Whether something is cut off elsewhere: pieces that may be windows, or end with a weight."""
        return bool(self.parted) or any(rest is not ONE for other, rest in enumerate(self.rest) if other != group)
