"""The receptive field of an output element in numbers: the number of positions read, their offsets, and their orientation.

The numbers are exact for one set of sizes (`syno.ir.support`).
`syno.ir.reading` has expressions that hold for all sizes. Most numbers are of inner output elements: those whose windows stay
within the axes, and those in the middle third. An operator may read differently at different elements (after a Merge, at even
and odd positions); then the smallest and the largest number are reported.

>>> import syno
>>> found = read_pattern(syno.OPERATORS["conv2d"](), applied=2)
>>> found.axes[2].offsets, found.axes[2].follows, found.axes[1].is_every
((-2, -1, 0, 1, 2), 2, True)
>>> found.position_counts, found.exchanged, found.shape
((25, 25), (), 'a square')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm, prod

import numpy as np

from syno.algebra import Size, Variable, VariableKind
from syno.ir.coordinates import Array
from syno.ir.graph import PGraph
from syno.ir.support import Relation, Table, relation

# The least lengths of axes that the output has, too, and of others, at which an operator without sizes is looked at: small, but
# large enough to tell its windows from whole axes.
LENGTH, CHANNELS = 32, 16


def example_values(graph: PGraph, values: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return a value for each variable of the operator: from `values`, else the default, else an example for primary variables.

    Examples make all sizes whole numbers. Corresponding axes of output and input get equal lengths if these are variables.
    Coefficients without a value are left out, since they determine which positions are read.
    """
    known = {**graph.variables.defaults, **(values or {})}
    free = [
        variable for name, variable in graph.variables.items() if name not in known and variable.kind is VariableKind.PRIMARY
    ]
    factors = dict.fromkeys(free, 1)
    for size in graph.sizes:
        below = prod(known.get(variable.name, 1) ** -exponent for variable, exponent in size.exponents if exponent < 0)
        for variable, exponent in size.exponents:
            if variable in factors and exponent > 0:
                least = next(factor for factor in range(1, below + 1) if factor**exponent % below == 0)
                factors[variable] = lcm(factors[variable], least)
    kept = {variable for one, other in zip(graph.output, graph.input, strict=False) if one.size is other.size
            for variable in one.size.variables}  # fmt: skip
    found: dict[str, int] = {}
    for variable in free:
        factor = lcm(*(factors[one] for one in _alike(graph, variable) if one in factors))
        least = LENGTH if variable in kept else CHANNELS
        found[variable.name] = factor * -(-least // factor)
    return {**known, **found}


def _alike(graph: PGraph, variable: Variable) -> set[Variable]:
    """Return this variable, and those at the same axis of the other tensor if output and input have as many axes."""
    found = {variable}
    if len(graph.output) == len(graph.input):
        for one, other in zip(graph.output, graph.input, strict=True):
            pair = {*one.size.variables, *other.size.variables}
            if variable in pair and all(len(dim.size.exponents) == 1 and dim.size.exponents[0][1] == 1 for dim in (one, other)):
                found |= pair
    return found


@dataclass(frozen=True)
class AxisPattern:
    """The positions along one axis of the input that an output element reads.

    Attributes:
        axis: the number of the input axis.
        length: the length of the axis.
        follows: the output axis that the positions follow: they lie at fixed offsets from the output's position along it. None
            if the output's position does not matter, or not in this way.
        is_mirrored: whether they follow in reverse: position i of the output reads around the i-th position from the end.
        offsets: the offsets that some inner output element reads, ascending; across the border if that is shorter.
        common: the offsets that every inner output element reads.
        least, most: the smallest and the largest number of different positions that an inner output element reads.
        least_anywhere: the smallest number of positions that any output element reads, including those at the border.
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
        """Whether every output element reads every position of the axis."""
        return self.least_anywhere == self.length

    @property
    def is_centred(self) -> bool:
        """Whether every inner output element reads its own position and, if it reads several, its neighbours on both sides."""
        needed = {0} if self.most == 1 else {-1, 0, 1}
        return self.follows == self.axis and not self.is_mirrored and needed <= {*self.common}

    @property
    def share(self) -> Fraction:
        """The smallest share of the axis' positions that an inner output element reads."""
        return Fraction(self.least, self.length)


@dataclass(frozen=True)
class RelationTable:
    """One table of a `Relation`, by columns: positions along some input axes and the output axes on which they depend.

    Attributes:
        axes: the positions along each input axis, by its number.
        starts: the positions along each output axis, by its number.
        output: for each row, the combination of output positions as one number.
        outputs: the number of such combinations; some may read nothing and have no row.
        is_inner: for each row, whether the output element is an inner one; true for all rows if there is none.
        shapes: the shapes of the input and of the output.
    """

    axes: Mapping[int, Array]
    starts: Mapping[int, Array]
    output: Array
    outputs: int
    is_inner: Array
    shapes: tuple[Sequence[int], Sequence[int]]

    @classmethod
    def of(cls, graph: PGraph, relation: Relation, table: Table, shapes: tuple[Sequence[int], Sequence[int]]) -> RelationTable:
        """Return one of a relation's tables by columns. The relation must follow all output axes."""
        starts = {name: column for name, column in table.items() if isinstance(name, int)}
        rows = len(next(iter(table.values())))
        is_inner = np.ones(rows, bool)
        for border in relation.border:
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
        """Return the smallest and the largest number of positions that inner output elements read along some axes.

        A third number is the smallest over all output elements.

        Output elements that read nothing are left out.
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
        """Return whether some inner output element, and whether some output element, reads nothing along the table's axes."""
        starts = self.starts.keys()
        lengths = [self.shapes[1][start] for start in starts]
        present = np.unique(_numbers(self.starts, self.shapes[1])) if starts else np.arange(len(self.output[:1]))
        if len(present) == self.outputs:
            return False, False
        missing = np.unravel_index(np.setdiff1d(np.arange(self.outputs), present), lengths)
        outer = [_is_outer(column, length) for column, length in zip(missing, lengths, strict=True)]
        return not np.any(outer, axis=0).all(), True

    def used(self) -> Fraction:
        """Return the share of the positions along the table's input axes that some output element reads."""
        if not self.axes:
            return Fraction(bool(len(self.output)))
        found = np.unique(_numbers(self.axes, self.shapes[0]))
        return Fraction(len(found), prod(self.shapes[0][axis] for axis in self.axes))

    def pattern(self, axis: int) -> AxisPattern:
        """Return the pattern of the positions read along one input axis."""
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
        """Return, for each inner row, the offset from the output position along axis `start`; None if lengths differ."""
        length = self.shapes[0][axis]
        if self.shapes[1][start] != length:
            return None
        own = self.starts[start][self.is_inner]
        distance = self.axes[axis][self.is_inner] - (length - 1 - own if is_mirrored else own)
        nearest: Array = (distance + length // 2) % length - length // 2  # around the border if that is nearer
        return nearest


def _is_outer(positions: Array, length: int) -> Array:
    """Return whether positions lie near an end of an axis: in its first or last third.

    Windows within blocks are cut at the end of each block: those in the middle are no border.
    """
    outer: Array = (positions < length // 3) | (positions >= length - length // 3)
    return outer


def _numbers(columns: Mapping[int, Array], shape: Sequence[int]) -> Array:
    """Return the flat index (row-major) of positions along some axes of a tensor of this shape."""
    numbers: Array = np.ravel_multi_index(tuple(columns.values()), tuple(shape[axis] for axis in columns))
    return numbers


MOST_PATTERN_ROWS = 2_000_000  # of one table: for all output elements at once
SHAPES = {0: "one position", 1: "a line", 2: "a square"}  # by the number of axes with several positions


@dataclass(frozen=True)
class ReadPattern:
    """The elements of the input that an output element depends on.

    Attributes:
        values: the sizes for which all numbers hold.
        applied: number of applications of the operator, each to its own output.
        axes: the pattern along each axis of the input.
        places: the numbers of the spatial axes: rows and columns of a picture, else all axes that have the same size in the
            input and in the output.
        position_counts: the smallest and the largest number of positions, over all spatial axes together, that an inner
            output element reads.
        used: the share of the input's elements that some output element reads.
    """

    values: Mapping[str, int]
    applied: int
    axes: tuple[AxisPattern, ...]
    places: tuple[int, ...]
    position_counts: tuple[int, int]
    used: Fraction

    @property
    def shape(self) -> str:
        """The shape of the positions read: "one position", "a line" or "a square", by the number of axes with several."""
        wide = sum(self.axes[place].most > 1 for place in self.places)
        return SHAPES.get(wide, f"several positions of {wide} axes")

    @property
    def is_full(self) -> bool:
        """Whether every combination of the positions along the spatial axes is read."""
        return self.position_counts[0] == prod(self.axes[place].least for place in self.places)

    @property
    def exchanged(self) -> tuple[tuple[int, int], ...]:
        """Pairs of input axes each of which follows the output axis of the other, such as rows and columns when transposed."""
        follows = {one.axis: one.follows for one in self.axes}
        pairs = ((one, other) for one, other in follows.items() if other is not None and one < other)
        return tuple((one, other) for one, other in pairs if follows.get(other) == one)

    @property
    def is_transposed(self) -> bool:
        """Whether a spatial axis follows another output axis, which takes a copy of the data: latency, but no FLOPs."""
        return any(self.axes[place].follows not in (None, place) for place in self.places)


def read_pattern(graph: PGraph, values: Mapping[str, int] | None = None, applied: int = 1) -> ReadPattern:
    """Return the elements of the input that an output element reads.

    Args:
        graph: the operator.
        values: values of variables; primary variables without a value get an example (`example_values`).
        applied: 1, or 2 for the operator applied to its own output, as neighbouring layers apply it; or more.

    Raises:
        SizeError: a size that does not divide, or the output's shape is not the input's, but `applied` is more than 1.
        ValuationError: a coefficient without a value.
        LoweringError: too many combinations of coordinates would have to be followed.
    """
    known = example_values(graph, values)
    valuation = graph.valuation(known)
    read, written = ([valuation.integer(dim.size) for dim in dims] for dims in (graph.input, graph.output))
    found = relation(graph, valuation, applied=applied, follow=range(len(written)), most_rows=MOST_PATTERN_ROWS)
    groups = [RelationTable.of(graph, found, table, (read, written)) for table in found.tables if table]
    axes = [next(group for group in groups if axis in group.axes).pattern(axis) for axis in range(len(read))]
    places = place_axes(graph)
    counts = [group.counts([place for place in places if place in group.axes]) for group in groups]
    least, most = (prod(count[end] for count in counts) for end in (0, 1))
    lacks = [group.lacks() for group in groups]
    if any(somewhere for _, somewhere in lacks):
        axes = [replace(one, least_anywhere=0) for one in axes]
    if any(inside for inside, _ in lacks):
        least, axes = 0, [replace(one, least=0, common=()) for one in axes]
    used = prod((group.used() for group in groups), start=Fraction(not found.is_empty))
    return ReadPattern(known, applied, tuple(axes), places, (least, most), used)


def weights_used(graph: PGraph, values: Mapping[str, int] | None = None) -> tuple[Fraction, ...]:
    """Return the share of each weight's elements that some output element uses. Arguments, errors: as in `read_pattern`."""
    valuation = graph.valuation(example_values(graph, values))
    shares = []
    for weight in graph.weights:
        found = relation(graph, valuation, targets=weight)
        used = 0 if found.is_empty else prod(len(next(iter(table.values()))) for table in found.tables)
        shares.append(Fraction(used, valuation.numel(dim.size for dim in weight)))
    return tuple(shares)


def place_axes(graph: PGraph) -> tuple[int, ...]:
    """Return the numbers of the spatial input axes: rows and columns of a picture, else axes that the output also has."""
    sizes, last = [dim.size for dim in graph.input], len(graph.input) - 1
    if is_picture(sizes):
        return (last - 1, last)
    if len(sizes) != len(graph.output):
        return ()
    return tuple(axis for axis, dim in enumerate(graph.output) if dim.size is sizes[axis])


def is_picture(sizes: Sequence[Size]) -> bool:
    """Return whether the last two axes, and no others, have the same size: rows and columns."""
    return len(sizes) > 1 and sizes[-1] is sizes[-2] and sizes.count(sizes[-1]) == 2
