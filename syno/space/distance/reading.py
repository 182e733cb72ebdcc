"""A bound on what an operator can read: it leaves out assignments that cannot meet the spec's requirement.

Once the sums of an operator are there, nothing else lets one element of the output depend on more positions: every primitive
after them takes coordinates to coordinates. So the positions along an axis of the input, for one element of the output, are at
most the product of those of the live dims that it is made of. A sum has as many positions as it is long, an axis of the output
one, and what is made of dims at most the product of theirs, and at most its own size.

Applied twice, an axis of the input depends on axes of the output, and each of these is an axis of the input of the operator
below, read at so many positions. So the positions after two applications are at most those after one, times those after one of
every axis of the output that the axis depends on.

In an assignment, an axis of the input is made of the members of its group. Windows are slid over some group, whichever that
is, so they count in every group, as does all from which a window may still be cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from syno.algebra import ONE, Size
from syno.ir.dim import Dim
from syno.ir.primitives import REDUCE
from syno.space.distance.problem import Assignment, Axis, Source
from syno.space.requirements import Requirements


@dataclass
class ReadingBound:
    """The bound for one requirement. Numbers of positions are those at the smallest sizes at which operators are checked."""

    requirements: Requirements
    _sources: dict[Dim, Source] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found = self.requirements
        assert found.reads is not None
        spec, self.reads, self._row = found.spec, found.reads, found.rows[0]
        self._needed = {spec.table.size(name): least for name, least in self.reads.positions.items()}
        bound = {into for _, into in spec.bound_axes}
        unordered = [size for axis, size in enumerate(spec.input_sizes) if axis in spec.unordered_input - bound]
        self._all = {size: self._row.integer(size) for size in unordered} if self.reads.channels == "all" else {}
        self._inputs = spec.input_sizes

    def source(self, dim: Dim) -> Source:
        """Return the positions and the axes of the output that a dim's coordinate comes from."""
        known = self._sources.get(dim)
        if known is None:
            known = self._sources[dim] = self._found(dim)
        return known

    def _found(self, dim: Dim) -> Source:
        operation, size = dim.operation, self._row.fraction(dim.size)
        if operation is None:
            return Source(1, 1 << dim.position)
        if operation.primitive is REDUCE:
            return Source(int(size), 0)
        below = [self.source(bottom) for bottom in operation.bottoms]
        outputs = 0
        for source in below:
            outputs |= source.outputs
        return Source(min(prod(source.positions for source in below), int(size)), outputs)

    def allows(self, assignment: Assignment) -> bool:
        """Return whether an operator of this assignment may meet the requirement."""
        once = [self._read(assignment, place) for place in range(len(assignment.groups))]
        if self.reads.applied > 1:
            most: dict[Size, int] = {}
            for group, source in zip(assignment.groups, once, strict=True):
                for size in group.block:
                    most[size] = max(most.get(size, 1), source.positions)
            reached = [
                source.positions * prod(most.get(size, 1) for axis, size in enumerate(self._inputs) if source.outputs >> axis & 1)
                for source in once
            ]
        else:
            reached = [source.positions for source in once]
        return self._is_enough(assignment, reached)

    def _is_enough(self, assignment: Assignment, reached: list[int]) -> bool:
        pairs = list(zip(assignment.groups, reached, strict=True))
        if any(number < self._all.get(size, 0) for group, number in pairs for size in group.block):
            return False
        for needed, least in self._needed.items():
            found = [number for group, number in pairs for size in group.block if size is needed]
            if (max if self.reads.along == "any" else min)(found) < least:
                return False
        return True

    def _read(self, assignment: Assignment, place: int) -> Source:
        """Return what the axes of a group may read at most."""
        positions, outputs = 1, 0
        axes: list[Axis] = [*assignment.groups[place].members, *assignment.windows, *assignment.parted]
        for number, group in enumerate(assignment.groups):
            if number != place and group.surplus is not ONE:
                axes += group.members
        for axis in axes:
            positions *= axis.source.positions
            outputs |= axis.source.outputs
        return Source(positions, outputs)
