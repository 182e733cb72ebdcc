"""The positions along one axis of the input that output elements read, from the relation between output and input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

import numpy as np

from syno.ir.coordinates import Array
from syno.ir.graph import PGraph
from syno.ir.relation import Relation, Table


@dataclass(frozen=True)
class AxisPattern:
    """The positions along one axis of the input that an output element reads.

    Attributes:
        axis: its number.
        length: of the axis.
        follows: the output axis that the positions follow: they lie at fixed offsets from the output's position along it. None
            if the output's position does not matter, or not in this way.
        is_mirrored: whether they follow from the other end: position i of the output reads around the i-th from the end.
        offsets: the offsets that some inner output element reads, ascending; around the border if that is nearer.
        common: the offsets that every inner output element reads.
        least, most: how many different positions an inner output element reads.
        least_anywhere: how many every output element reads at least, those at the border included.
    """

    axis: int
    length: int
    follows: int | None
    is_mirrored: bool
    offsets: tuple[int, ...]
    common: tuple[int, ...]
    least: int
    most: int
    least_anywhere: int

    @property
    def is_every(self) -> bool:
        """Whether every output element reads every position."""
        return self.least_anywhere == self.length

    @property
    def is_centred(self) -> bool:
        """Whether every inner output element reads its own position and, if it reads several, its neighbours on both sides."""
        needed = {0} if self.most == 1 else {-1, 0, 1}
        return self.follows == self.axis and not self.is_mirrored and needed <= {*self.common}

    @property
    def share(self) -> Fraction:
        """The share of the positions that an inner output element reads at least."""
        return Fraction(self.least, self.length)

    @property
    def behind(self) -> int:
        """The distance of the first position before the output's own; 0 if none lies before."""
        return max(0, -min(self.offsets, default=0))

    @property
    def ahead(self) -> int:
        """The distance of the last position after the output's own; 0 if none lies after."""
        return max(0, *self.offsets, 0)


@dataclass(frozen=True)
class Group:
    """One table of the relation: some input axes and the output axes on which they depend, with one entry for each row.

    Attributes:
        axes: the positions along each input axis, by its number.
        starts: the output's positions, by the number of the axis.
        output: a number for each combination of the output's positions.
        outputs: how many combinations there are; some may read nothing and have no row.
        is_inner: whether the row is that of an inner output element; of any, if there is no inner one.
        shapes: the lengths of the input's axes, and of the output's.
    """

    axes: Mapping[int, Array]
    starts: Mapping[int, Array]
    output: Array
    outputs: int
    is_inner: Array
    shapes: tuple[Sequence[int], Sequence[int]]

    @classmethod
    def of(cls, graph: PGraph, found: Relation, table: Table, shapes: tuple[Sequence[int], Sequence[int]]) -> Group:
        """Return the group of one of the relation's tables. It needs all output axes to be followed."""
        starts = {name: column for name, column in table.items() if isinstance(name, int)}
        rows = len(next(iter(table.values())))
        is_inner = np.ones(rows, bool)
        for border in found.border:
            cut = {axis: column for axis, column in border.items() if isinstance(axis, int)}
            if cut.keys() <= starts.keys():
                outer = np.any([_is_outer(column, shapes[1][axis]) for axis, column in cut.items()], axis=0)
                cut = {axis: column[outer] for axis, column in cut.items()}
                is_inner &= ~np.isin(_numbers({axis: starts[axis] for axis in cut}, shapes[1]), _numbers(cut, shapes[1]))
        return cls(
            axes={axis: table[dim] for axis, dim in enumerate(graph.input) if dim in table},
            starts=starts,
            output=np.unique(_numbers(starts, shapes[1]), return_inverse=True)[1] if starts else np.zeros(rows, np.int64),
            outputs=prod(shapes[1][start] for start in starts),
            is_inner=is_inner if is_inner.any() else ~is_inner,
            shapes=shapes,
        )

    def counts(self, axes: Sequence[int]) -> tuple[int, int, int]:
        """Return the least and the most positions along some axes for inner output elements, and the least for all.

        Elements that read nothing do not count.
        """
        if not len(self.output):
            return 0, 0, 0
        if not axes:
            return 1, 1, 1
        elements = prod(self.shapes[0][axis] for axis in axes)
        pairs = np.unique(self.output * elements + _numbers({axis: self.axes[axis] for axis in axes}, self.shapes[0]))
        outputs, counts = np.unique(pairs // elements, return_counts=True)
        of_inner = counts[np.isin(outputs, self.output[self.is_inner])]
        return int(of_inner.min()), int(of_inner.max()), int(counts.min())

    def lacks(self) -> tuple[bool, bool]:
        """Return whether some inner output elements read nothing along its axes, and whether some output elements do."""
        starts = self.starts.keys()
        lengths = [self.shapes[1][start] for start in starts]
        present = np.unique(_numbers(self.starts, self.shapes[1])) if starts else np.arange(len(self.output[:1]))
        if len(present) == self.outputs:
            return False, False
        missing = np.unravel_index(np.setdiff1d(np.arange(self.outputs), present), lengths)
        outer = [_is_outer(column, length) for column, length in zip(missing, lengths, strict=True)]
        return not np.any(outer, axis=0).all(), True

    def used(self) -> Fraction:
        """Return the share of the positions along its axes that some output element reads."""
        if not self.axes:
            return Fraction(bool(len(self.output)))
        found = np.unique(_numbers(self.axes, self.shapes[0]))
        return Fraction(len(found), prod(self.shapes[0][axis] for axis in self.axes))

    def pattern(self, axis: int) -> AxisPattern:
        """Return the positions along one axis."""
        least, most, anywhere = self.counts([axis])
        length = self.shapes[0][axis]
        found = AxisPattern(axis, length, None, False, (), (), least, most, anywhere)
        ways = [
            (offsets, start, is_mirrored)
            for start in sorted(self.starts, key=lambda start: start != axis)  # of equal ones, the axis itself
            for is_mirrored in (False, True)
            if (offsets := self._offsets(axis, start, is_mirrored)) is not None
        ]
        if not ways or (found.is_every and length > 1):
            return found
        offsets, start, is_mirrored = min(ways, key=lambda way: len(np.unique(way[0])))
        different = np.unique(offsets)
        if (
            len(different) > 2 * most
        ):  # a block of n positions, read as a whole, has 2 n - 1 offsets; more follow no output axis
            return found
        pairs = np.unique(self.output[self.is_inner] * length + offsets - different.min())
        times = np.bincount(pairs % length, minlength=length)[different - different.min()]
        common = different[times == len(np.unique(pairs // length))]
        return replace(
            found,
            follows=start,
            is_mirrored=is_mirrored,
            offsets=tuple(different.tolist()),
            common=tuple(common.tolist()),
        )

    def _offsets(self, axis: int, start: int, is_mirrored: bool) -> Array | None:
        """Return the distance of each inner row from the output's position along an axis, if that has the same length."""
        length = self.shapes[0][axis]
        if self.shapes[1][start] != length:
            return None
        own = self.starts[start][self.is_inner]
        distance = self.axes[axis][self.is_inner] - (length - 1 - own if is_mirrored else own)
        nearest: Array = (distance + length // 2) % length - length // 2  # around the border if that is nearer
        return nearest


def _is_outer(positions: Array, length: int) -> Array:
    """Return whether positions lie in the first or the last third of an axis.

    Windows within blocks are cut at the end of each block: those in the middle are no border.
    """
    outer: Array = (positions < length // 3) | (positions >= length - length // 3)
    return outer


def _numbers(columns: Mapping[int, Array], shape: Sequence[int]) -> Array:
    """Return positions along some axes of a tensor as one number."""
    numbers: Array = np.ravel_multi_index(tuple(columns.values()), tuple(shape[axis] for axis in columns))
    return numbers
