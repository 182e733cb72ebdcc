"""The support of an operator: the set of input elements on which an output element depends.

It is exact, and follows from the index map alone. No weight is taken to be zero; positions beyond a border are not read.

>>> import syno
>>> found = support(syno.OPERATORS["conv2d"](), {"N": 1, "C_in": 2, "C_out": 2, "H": 5}, at=(0, 0, 0, 2))
>>> found.shape, found[0, 1].astype(int).tolist()
((1, 2, 5, 5), [[0, 1, 1, 1, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from syno.algebra import Valuation
from syno.base.errors import LoweringError, ShapeError, SizeError
from syno.ir.coordinates import Array, Indices
from syno.ir.dim import Dim, Operation
from syno.ir.graph import PGraph
from syno.ir.primitives import UNFOLD

# The relation between positions of an operator's output and the positions of its input, or of weights, that they depend on.
#
# The relation is exact for the sizes at hand. From the output upwards, through Table 1, it is followed which values the
# coordinates take together: a table of rows, without repetitions. A row counts where every window lies inside the borders. A
# coordinate that nothing above needs is dropped from its table, and coordinates that have nothing to do with each other are in
# tables of their own. So nothing is left out, and yet the loops over features and weights, which rarely touch a position, cost
# little. Weights count as not zero, and products of different weights never cancel.

MOST_ROWS = 20_000_000  # of one table
REMEMBERED = 16_384  # steps
LARGEST_KEY = 2**62  # of rows as one number, so that products of two extents still fit int64

Column = Dim | int  # a dim's coordinate; or the position along an output axis, by the axis's number, from which a row comes
Table = dict[Column, Array]  # columns of equal length: values that coordinates take together


@dataclass(frozen=True)
class Relation:
    """The relation of output positions to the input positions they depend on: all combinations of one row of each table.

    Attributes:
        tables: tables with a column of positions for some axes of tensors (keys: dims) and for the output axes (keys: numbers)
            on which these depend. No axis is in two tables. If a table has no rows, nothing is read.
        border: tables with columns of output axes only: the positions at which some summand is zero, since a window reaches
            beyond a border.
        is_empty: whether every summand is zero, so that no output element depends on any input element.
    """

    tables: tuple[Table, ...]
    border: tuple[Table, ...] = ()
    is_empty: bool = False


def relation(
    graph: PGraph,
    valuation: Valuation,
    at: Mapping[int, int] | None = None,
    *,
    applied: int = 1,
    follow: Collection[int] = (),
    targets: Sequence[Dim] | None = None,
    most_rows: int | None = None,
    steps: Steps | None = None,
) -> Relation:
    """Return the relation of output positions to the input positions they depend on.

    Args:
        graph: the operator.
        valuation: values of all of its variables (`graph.valuation`).
        at: fixed positions along output axes, by the axes' numbers; along other axes, all positions are included.
        applied: number of applications of the operator, each to its own output.
        follow: numbers of the output axes whose positions get columns in the tables.
        targets: axes of tensors whose positions are returned; None: the input's. Other axes require `applied` to be 1.
        most_rows: the largest number of rows of one table; None: `MOST_ROWS`.
        steps: cache of steps from earlier calls at the same valuation, which this call uses and extends.

    Raises SizeError if the operator is applied several times, and the output's shape is not the input's; LoweringError if too
    many combinations of coordinates would have to be followed.
    """
    if applied > 1:
        _check_repeatable(graph, valuation)
    given, border = at or {}, list[Table]()
    tables: list[Table] = []
    for axis, dim in enumerate(graph.output):
        positions = np.arange(valuation.integer(dim.size)) if axis not in given else np.array([given[axis]])
        tables.append({dim: positions} | ({axis: positions} if axis in follow else {}))
    passage = Passage(graph, valuation, graph.input if targets is None else targets, most_rows or MOST_ROWS, steps)
    for time in range(applied):
        if time:  # the input of one application is the output of the one before it
            renamed: dict[Column, Column] = dict(zip(graph.input, graph.output, strict=True))
            tables = [{renamed.get(name, name): column for name, column in table.items()} for table in tables]
        tables = passage.through(tables, border)
    is_empty = passage.is_empty or any(not len(column) for table in tables for column in table.values())
    return Relation(tuple(tables), tuple(border), is_empty)


class Step(NamedTuple):
    """The result of going through one operation: the table of the coordinates above it.

    Attributes:
        rows: the table of the coordinates that later steps need; empty if none are needed.
        border: the output positions at which a window reaches beyond a border; empty if there are none, or no axes are
            followed.
        is_zero: whether every summand is zero, since all windows lie beyond a border.
    """

    rows: Table
    border: Table
    is_zero: bool


Steps: TypeAlias = dict[tuple[Any, ...], Step]  # by the operation and the tables below it


class Passage:
    """A pass through an operator that computes tables of coordinates from its output up to its input."""

    def __init__(
        self,
        graph: PGraph,
        valuation: Valuation,
        targets: Sequence[Dim],
        most_rows: int = MOST_ROWS,
        steps: Steps | None = None,
    ) -> None:
        self.graph, self.valuation, self.targets, self.most_rows, self.steps = graph, valuation, targets, most_rows, steps
        self.operations, self.needed = relevant(graph, targets)
        self.is_empty = False

    def through(self, tables: list[Table], border: list[Table]) -> list[Table]:
        """Return the tables of the input's coordinates, and add to `border` the rows that windows cut off at borders."""
        tables = [kept for table in tables if (kept := self._project(table))]
        for operation in self.operations:
            step = self._step(operation, self._taken(tables, operation.bottoms))
            if step.border:
                border.append(step.border)
            if step.is_zero:
                self.is_empty = True
                return [{dim: np.empty(0, np.int64) for dim in self.targets}]
            if step.rows:
                tables.append(step.rows)
        for dim in self.targets:  # a sum over a whole axis
            if not any(dim in table for table in tables):
                tables.append({dim: np.arange(self.valuation.integer(dim.size))})
        return tables

    def _step(self, operation: Operation, parts: Sequence[Table]) -> Step:
        """Return the step through an operation (from the cache if possible), from the tables of the coordinates below it."""
        if self.steps is None:
            return self._computed(operation, parts)
        needed = [dim for dim in chain(operation.tops, *parts) if dim in self.needed]
        key = (operation, *needed, *((name, column.tobytes()) for part in parts for name, column in part.items()))
        if key not in self.steps:
            if len(self.steps) >= REMEMBERED:
                self.steps.clear()
            self.steps[key] = self._computed(operation, parts)
        return self.steps[key]

    def _computed(self, operation: Operation, parts: Sequence[Table]) -> Step:
        """Compute the step through an operation by the index map of its primitive (Table 1)."""
        rows, indices = self._join(parts), Indices(self.valuation)
        tops = operation.index(indices, [rows[below] for below in operation.bottoms])
        for below in operation.bottoms:
            del rows[below]
        rows |= zip(operation.tops, tops, strict=True)
        if operation.primitive is not UNFOLD:
            return Step(self._project(rows), {}, is_zero=False)
        inside, cut = indices.inside, dict[Column, Array]()
        if not inside.all():
            cut = {name: column[~inside] for name, column in rows.items() if isinstance(name, int)}
            rows = {name: column[inside] for name, column in rows.items()}
        is_zero = not cut and not inside.all() and not inside.any()
        return Step(self._project(rows, always=True), self._distinct_rows(cut) if cut else cut, is_zero)

    def _project(self, table: Table, *, always: bool = False) -> Table:
        """Return the table reduced to the columns that later steps need, with each row once."""
        kept = {name: column for name, column in table.items() if isinstance(name, int) or name in self.needed}
        return self._distinct_rows(kept) if kept and (always or len(kept) < len(table)) else kept

    def _taken(self, tables: list[Table], dims: Iterable[Dim]) -> list[Table]:
        """Return the tables that contain these dims, and remove them from `tables`; a dim in none has all positions."""
        parts: list[Table] = []
        for dim in dims:
            if any(dim in part for part in parts):
                continue
            place = next((at for at, table in enumerate(tables) if dim in table), None)
            parts.append({dim: np.arange(self.valuation.integer(dim.size))} if place is None else tables.pop(place))
        return parts

    def _join(self, parts: Sequence[Table]) -> Table:
        """Return the product of tables: one table of all combinations of their rows."""
        if len(parts) == 1:
            return dict(parts[0])
        lengths = [len(next(iter(part.values()))) for part in parts]
        if (rows := prod(lengths)) > self.most_rows:
            raise LoweringError(
                f"{self.graph!r}: to tell what it reads, {rows} combinations of coordinates would be followed, more than "
                f"{self.most_rows}; give smaller sizes"
            )
        joined: Table = {}
        for number, part in enumerate(parts):
            each, times = prod(lengths[number + 1 :]), prod(lengths[:number])
            joined |= {name: np.tile(np.repeat(column, each), times) for name, column in part.items()}
        return joined

    def _distinct_rows(self, table: Table) -> Table:
        """Return the table with each row once."""
        if len(next(iter(table.values()))) < 2:
            return table
        extents = [self._extent(name) for name in table]
        # A mark for every combination is faster than sorting, as long as there are not many more combinations than rows.
        if len(table) == 1 or prod(extents) <= 8 * len(next(iter(table.values()))) + 1024:
            held = np.zeros(extents, bool)
            held[tuple(table.values())] = True
            return dict(zip(table, np.nonzero(held), strict=True))
        key, bound = np.zeros((), np.int64), 1
        for column, extent in zip(table.values(), extents, strict=True):
            if bound * extent > LARGEST_KEY:  # small ranks, so that the product fits
                key = np.unique(key, return_inverse=True)[1].reshape(key.shape)
                bound = int(key.max(initial=0)) + 1
            key, bound = key * extent + column, bound * extent
        once = np.unique(key, return_index=True)[1]
        return {name: column[once] for name, column in table.items()}

    def _extent(self, name: Column) -> int:
        return self.valuation.integer(self.graph.output[name].size if isinstance(name, int) else name.size)


def relevant(graph: PGraph, targets: Iterable[Dim]) -> tuple[list[Operation], set[Dim]]:
    """Return the operations that compute the targets' coordinates or conditions, from the output up, and the dims they need."""
    operations: dict[Operation, None] = {operation: None for operation in graph.operations if operation.primitive is UNFOLD}
    needed = set(targets)
    waiting = [*needed, *(below for operation in operations for below in operation.bottoms)]
    while waiting:
        dim = waiting.pop()
        needed.add(dim)
        if (operation := dim.operation) is not None and operation.bottoms and operation not in operations:
            operations[operation] = None
            waiting += operation.bottoms
    return sorted(operations, key=lambda operation: operation.tops[0].height), needed


def support(graph: PGraph, values: Mapping[str, int], at: Sequence[int] | None = None, applied: int = 1) -> Array:
    """Return the elements of the input on which one element of the output depends.

    Args:
        graph: the operator.
        values: a value for each of its variables that has no default.
        at: the position of the output element; by default the middle of every axis.
        applied: 1, or 2 for the operator applied to its own output, as neighbouring layers apply it; or more.

    Returns:
        A boolean array of the input's shape.

    Raises:
        ShapeError: `at` is no position of the output.
        SizeError: a size that does not divide, or the output's shape is not the input's, but `applied` is more than 1.
        ValuationError: a variable without a value.
        LoweringError: too many combinations of coordinates would have to be followed.
    """
    valuation = graph.valuation(values)
    shape = tuple(valuation.integer(dim.size) for dim in graph.input)
    found = relation(graph, valuation, dict(enumerate(_position(graph, valuation, at))), applied=applied)
    elements = np.full(shape, not found.is_empty)
    for table in () if found.is_empty else found.tables:
        axes = [axis for axis, dim in enumerate(graph.input) if dim in table]
        part = np.zeros([shape[axis] for axis in axes], bool)
        part[tuple(table[graph.input[axis]] for axis in axes)] = True
        elements &= part.reshape([length if axis in axes else 1 for axis, length in enumerate(shape)])
    return elements


def _position(graph: PGraph, valuation: Valuation, at: Sequence[int] | None) -> tuple[int, ...]:
    """Return the position of the output element; None means the middle. ShapeError if it is no position of the output."""
    shape = tuple(valuation.integer(dim.size) for dim in graph.output)
    position = tuple(length // 2 for length in shape) if at is None else tuple(at)
    if len(position) != len(shape) or not all(0 <= one < length for one, length in zip(position, shape, strict=True)):
        raise ShapeError(f"{list(position)} is no position of the output of {graph!r}, whose shape is {list(shape)}")
    return position


def _check_repeatable(graph: PGraph, valuation: Valuation) -> None:
    """Raise SizeError unless the output has the shape of the input, so that the operator can be applied to its own output."""
    shapes = [[valuation.integer(dim.size) for dim in dims] for dims in (graph.input, graph.output)]
    if shapes[0] != shapes[1]:
        raise SizeError(
            f"{graph!r} cannot be applied to its own output: its input has shape {shapes[0]}, its output {shapes[1]}; give "
            "sizes for which they are equal"
        )


def windows_inside(graph: PGraph, valuation: Valuation) -> float:
    """Return the share of all windows' positions that lie inside the input, not in zero padding."""
    windows = [[valuation.numel([dim.size]) for dim in one.bottoms] for one in graph.operations if one.primitive is UNFOLD]
    return prod(share_inside(length, window, length, padding=window // 2) for length, window in windows)


def share_inside(length: int, window: int, made: int, padding: int, stride: int = 1, dilation: int = 1) -> float:
    """Return the share of the positions of all windows along an axis of this length that lie inside the axis."""
    places = (at * stride + tap * dilation - padding for at in range(made) for tap in range(window))
    return sum(0 <= place < length for place in places) / max(made * window, 1)
