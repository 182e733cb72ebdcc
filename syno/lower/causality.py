"""The test whether an operator on sequences reads positions later than the one that it computes.

The answer is exact for the sizes at hand. From the output upwards, through Table 1, it is followed which values the
coordinates take together: a table of rows, without repetitions. A row counts where every window lies inside the borders; a
coordinate that nothing above needs is dropped from the table, and coordinates that have nothing to do with each other are in
tables of their own. So nothing is left out, and yet the loops over features and weights, which rarely touch a position, cost
nothing. What is left in the end are the pairs of an output position and an input position that it depends on, for weights
that are not zero: products of different weights, and sums of equal ones, never cancel.

>>> from syno.ir.builder import Builder
>>> build = Builder("N, L, C; k=3", name="window")
>>> n, l, c = build.output("N, L, C")
>>> (j,) = build.contract(inner=build.reduce("k"))
>>> print(leak(build.finish([n, build.unfold(l, j), c]), "L", {"N": 1, "L": 8, "C": 4}))
output position 0 along L depends on input position 1, which is read at i1 + r0 - k//2
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from syno.algebra import Valuation
from syno.base.errors import LoweringError, SpecError
from syno.ir.coordinates import index_map
from syno.ir.dim import Dim, Operation
from syno.ir.graph import PGraph
from syno.ir.primitives import UNFOLD
from syno.lower.interpreter import Array, Indices

Table = dict[Dim, Array]  # columns of equal length: values that coordinates take together
MOST_ROWS = 20_000_000  # of one table


@dataclass(frozen=True)
class Leak:
    """The first output position that depends on a later input position.

    Attributes:
        axis: what sizes it, or "axis 1".
        output: the position in the output.
        input: the latest position in the input that it depends on.
        index: the coordinate of the input there, as `syno.expression` writes it.
    """

    axis: str
    output: int
    input: int
    index: str

    def __str__(self) -> str:
        return (
            f"output position {self.output} along {self.axis} depends on input position {self.input}, "
            f"which is read at {self.index}"
        )


def leak(graph: PGraph, axis: str | tuple[int, int], values: Mapping[str, int] | None = None) -> Leak | None:
    """Return the first output position that depends on a later input position, or None if there is none.

    Args:
        graph: the operator.
        axis: the variable that sizes the axis, such as "seq_len"; or which axis of the output, and which of the input.
        values: a value for each of the operator's variables that has no default.

    Raises:
        SpecError: there is no such axis, or its lengths in the output and in the input differ.
        ValuationError, SizeError: a value is missing or does not divide.
        LoweringError: too many combinations of coordinates would have to be followed.
    """
    valuation = graph.valuation(values)
    out, into = _axes(graph, axis)
    start, target = graph.output[out], graph.input[into]
    if valuation.integer(start.size) != valuation.integer(target.size):
        raise SpecError(f"{graph!r}: output axis {out} has size {start.size}, input axis {into} has size {target.size}")
    if start is target:
        return None
    pairs = _dependences(graph, valuation, start, target)
    later = pairs[1] > pairs[0]
    if not later.any():
        return None
    first = int(pairs[0][later].min())
    latest = int(pairs[1][pairs[0] == first].max())
    name = axis if isinstance(axis, str) else f"axis {out}"
    return Leak(name, first, latest, str(index_map(graph).input[into]))


def _axes(graph: PGraph, axis: str | tuple[int, int]) -> tuple[int, int]:
    """Return the number of the axis in the output, and in the input."""
    found = []
    for end, (title, dims) in enumerate((("output", graph.output), ("input", graph.input))):
        if isinstance(axis, str):
            fitting, given = [at for at, dim in enumerate(dims) if str(dim.size) == axis], f"of size {axis}"
        else:
            fitting, given = [at for at in range(len(dims)) if at == axis[end]], f"number {axis[end]}"
        if len(fitting) != 1:
            count = f"{len(fitting)} axes" if fitting else "no axis"
            raise SpecError(f"{graph!r}: its {title} has {count} {given}; give the numbers of two axes, (output, input)")
        found += fitting
    return found[0], found[1]


def _dependences(graph: PGraph, valuation: Valuation, start: Dim, target: Dim) -> tuple[Array, Array]:
    """Return all pairs of an output position and an input position that it depends on, as two arrays."""
    relevant, needed = _relevant(graph, target)
    tables: list[Table] = []
    for operation in graph.operations:
        if operation not in relevant:
            continue
        rows = _joined(tables, operation.bottoms, valuation, graph)
        indices = Indices(valuation)
        tops = operation.index(indices, [rows[below] for below in operation.bottoms])
        if not indices.inside.any():  # every summand is zero
            return np.empty(0, np.int64), np.empty(0, np.int64)
        gone = set(operation.bottoms) - {start}
        rows = {**rows, **dict(zip(operation.tops, tops, strict=True))}
        kept = {dim: column for dim, column in rows.items() if dim is start or (dim in needed and dim not in gone)}
        if kept:
            tables.append(_distinct(kept, indices.inside))
    rows = _joined(tables, (start, target), valuation, graph)
    return rows[start], rows[target]


def _relevant(graph: PGraph, target: Dim) -> tuple[set[Operation], set[Dim]]:
    """Return the operations that compute the target's coordinate or a condition, and the dims that they need."""
    operations = {operation for operation in graph.operations if operation.primitive is UNFOLD}
    needed: set[Dim] = set()
    waiting = [target, *(below for operation in operations for below in operation.bottoms)]
    while waiting:
        dim = waiting.pop()
        needed.add(dim)
        if dim.operation is not None and dim.operation.bottoms:
            operations.add(dim.operation)
            waiting += [below for below in dim.operation.bottoms if below not in needed]
    return operations, needed


def _joined(tables: list[Table], dims: Iterable[Dim], valuation: Valuation, graph: PGraph) -> Table:
    """Return one table with these dims: the tables that hold them, removed from `tables`, and every combination of rows."""
    parts: list[Table] = []
    for dim in dims:
        if any(dim in part for part in parts):
            continue
        place = next((at for at, table in enumerate(tables) if dim in table), None)
        parts.append({dim: np.arange(valuation.integer(dim.size))} if place is None else tables.pop(place))
    lengths = [len(next(iter(part.values()))) for part in parts]
    if prod(lengths) > MOST_ROWS:
        raise LoweringError(
            f"{graph!r}: to tell whether it reads ahead, {prod(lengths)} combinations of coordinates would be followed, more "
            f"than {MOST_ROWS}; give smaller sizes"
        )
    grid = np.indices(lengths).reshape(len(parts), -1)
    return {dim: column[at] for part, at in zip(parts, grid, strict=True) for dim, column in part.items()}


def _distinct(table: Table, inside: Array) -> Table:
    """Return the rows that lie inside the borders, each once."""
    held = {dim: column[np.broadcast_to(inside, column.shape)] for dim, column in table.items()}
    key: Array = np.zeros((), np.int64)
    for column in held.values():
        rank = np.unique(key, return_inverse=True)[1].reshape(key.shape)  # small, so that the product fits
        key = rank * (int(column.max()) + 1) + column
    once = np.unique(key, return_index=True)[1]
    return {dim: column[once] for dim, column in held.items()}
