"""The elements of the input that an output element reads, in numbers: how many positions, how far away, in which orientation.

The numbers are exact for the sizes at hand (`syno.ir.relation`). They speak of the inner output elements: those for which no
window leaves its axis, and those in the middle third. An operator may read differently at different ones (after a Merge, at
even and odd positions): then the least and the most are given.

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
from math import prod

from syno.algebra import Size
from syno.ir.axis_pattern import AxisPattern, Group
from syno.ir.example_sizes import example_values
from syno.ir.graph import PGraph
from syno.ir.relation import relation
from syno.ir.support import check_repeatable

MOST_PATTERN_ROWS = 2_000_000  # of one table: for all output elements at once
SHAPES = {0: "one position", 1: "a line", 2: "a square"}  # by the number of axes with several positions


@dataclass(frozen=True)
class ReadPattern:
    """The elements of the input that an output element depends on.

    Attributes:
        values: the sizes for which all numbers hold.
        applied: how often the operator is applied, to its own output from the second time on.
        axes: for each axis of the input.
        places: the axes that are places rather than features: rows and columns of a picture, else all axes that have the same
            size in the input and in the output.
        position_counts: the least and the most positions along all places together that an inner output element reads.
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
        """Whether one position, a line or a square is read: by how many of the places several positions are read along."""
        wide = sum(self.axes[place].most > 1 for place in self.places)
        return SHAPES.get(wide, f"several positions of {wide} axes")

    @property
    def is_full(self) -> bool:
        """Whether every combination of the positions along the places is read."""
        return self.position_counts[0] == prod(self.axes[place].least for place in self.places)

    @property
    def exchanged(self) -> tuple[tuple[int, int], ...]:
        """Pairs of axes that follow each other's output axis, such as rows and columns."""
        follows = {one.axis: one.follows for one in self.axes}
        pairs = ((one, other) for one, other in follows.items() if other is not None and one < other)
        return tuple((one, other) for one, other in pairs if follows.get(other) == one)

    @property
    def is_transposed(self) -> bool:
        """Whether a place follows another output axis, which takes a copy of the data. FLOPs do not count it, latency does."""
        return any(self.axes[place].follows not in (None, place) for place in self.places)


def read_pattern(graph: PGraph, values: Mapping[str, int] | None = None, applied: int = 1) -> ReadPattern:
    """Return what an output element reads of the input.

    Args:
        graph: the operator.
        values: of variables; primaries without one get an example (`example_values`).
        applied: 1, or 2 for the operator applied to its own output, as neighbouring layers apply it; or more.

    Raises:
        SizeError: a size that does not divide, or the output's shape is not the input's, but `applied` is more than 1.
        ValuationError: a coefficient without a value.
        LoweringError: too many combinations of coordinates would have to be followed.
    """
    known = example_values(graph, values)
    valuation = graph.valuation(known)
    if applied > 1:
        check_repeatable(graph, valuation)
    read, written = ([valuation.integer(dim.size) for dim in dims] for dims in (graph.input, graph.output))
    found = relation(graph, valuation, applied=applied, follow=range(len(written)), most_rows=MOST_PATTERN_ROWS)
    groups = [Group.of(graph, found, table, (read, written)) for table in found.tables if table]
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
    """Return the share of each weight's elements that some output element uses. Arguments and errors: see `read_pattern`."""
    valuation = graph.valuation(example_values(graph, values))
    shares = []
    for weight in graph.weights:
        found = relation(graph, valuation, targets=weight)
        used = 0 if found.is_empty else prod(len(next(iter(table.values()))) for table in found.tables)
        shares.append(Fraction(used, valuation.numel(dim.size for dim in weight)))
    return tuple(shares)


def place_axes(graph: PGraph) -> tuple[int, ...]:
    """Return the numbers of the input axes that are places: rows and columns of a picture, else those that the output has."""
    sizes, last = [dim.size for dim in graph.input], len(graph.input) - 1
    if is_picture(sizes):
        return (last - 1, last)
    if len(sizes) != len(graph.output):
        return ()
    return tuple(axis for axis, dim in enumerate(graph.output) if dim.size is sizes[axis])


def is_picture(sizes: Sequence[Size]) -> bool:
    """Return whether the last two axes, and no others, have the same size: rows and columns."""
    return len(sizes) > 1 and sizes[-1] is sizes[-2] and sizes.count(sizes[-1]) == 2
