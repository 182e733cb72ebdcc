"""Causality: whether an output position of an operator depends on a later input position of the sequence.

The answer is exact for the given sizes: it is computed from all pairs of an output position and an input position on which it
depends if no weight is zero (`syno.ir.support`).

>>> from syno.ir.builder import Builder
>>> build = Builder("N, L, C; k=3", name="window")
>>> n, l, c = build.output("N, L, C")
>>> (j,) = build.contract(inner=build.reduce("k"))
>>> print(leak(build.finish([n, build.unfold(l, j), c]), "L", {"N": 1, "L": 8, "C": 4}))
output position 0 along L depends on input position 1, which is read at i1 + r0 - k//2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from syno.algebra import Valuation
from syno.base.errors import SpecError
from syno.ir.coordinates import Array, index_map
from syno.ir.graph import PGraph
from syno.ir.support import relation


@dataclass(frozen=True)
class Leak:
    """The first output position that depends on a later input position.

    Attributes:
        axis: the variable that is the axis' length, or "axis 1".
        output: the position in the output.
        input: the latest input position on which it depends.
        index: the index expression at which the input is read, as `syno.expression` writes it.
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
        axis: the variable that is the axis' length, such as "seq_len"; or the numbers of the axis in the output and the input.
        values: a value for each of the operator's variables that has no default.

    Raises:
        SpecError: there is no such axis, or its lengths in the output and in the input differ.
        ValuationError, SizeError: a value is missing or does not divide.
        LoweringError: too many combinations of coordinates would have to be enumerated.
    """
    valuation = graph.valuation(values)
    out, into = _axes(graph, axis)
    start, target = graph.output[out], graph.input[into]
    if valuation.integer(start.size) != valuation.integer(target.size):
        raise SpecError(f"{graph!r}: output axis {out} has size {start.size}, input axis {into} has size {target.size}")
    if start is target:
        return None
    outputs, inputs = _dependences(graph, valuation, out, into)
    later = inputs > outputs
    if not later.any():
        return None
    first = int(outputs[later].min())
    latest = int(inputs[outputs == first].max())
    name = axis if isinstance(axis, str) else f"axis {out}"
    return Leak(name, first, latest, str(index_map(graph).input[into]))


def _axes(graph: PGraph, axis: str | tuple[int, int]) -> tuple[int, int]:
    """Return the number of the axis in the output and in the input; SpecError if it is not unique."""
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


def _dependences(graph: PGraph, valuation: Valuation, out: int, into: int) -> tuple[Array, Array]:
    """Return all pairs of an output position and an input position on which it depends, as two arrays of equal length."""
    target = graph.input[into]
    found = relation(graph, valuation, follow=[out], targets=[target])
    tables = found.tables
    if found.is_empty:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    columns = [next(table[name] for table in tables if name in table) for name in (out, target)]
    if any(out in table and target in table for table in tables):
        return columns[0], columns[1]
    grid = np.indices([len(column) for column in columns])
    return columns[0][grid[0].ravel()], columns[1][grid[1].ravel()]
