"""The support of an operator: the elements of its input on which an element of its output depends.

It is exact, and comes from the index map alone. Weights count as not zero. Beyond a border nothing is read.

>>> import syno
>>> found = support(syno.OPERATORS["conv2d"](), {"N": 1, "C_in": 2, "C_out": 2, "H": 5}, at=(0, 0, 0, 2))
>>> found.shape, found[0, 1].astype(int).tolist()
((1, 2, 5, 5), [[0, 1, 1, 1, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from syno.algebra import Valuation
from syno.base.errors import ShapeError, SizeError
from syno.ir.coordinates import Array
from syno.ir.graph import PGraph
from syno.ir.relation import Table, relation


@dataclass(frozen=True)
class Factor:
    """Positions along some axes of the input. The support is the product of its factors, one for each group of axes.

    Attributes:
        axes: numbers of input axes, in ascending order.
        positions: each position once, of shape [positions, axes].
    """

    axes: tuple[int, ...]
    positions: Array


def support(graph: PGraph, values: Mapping[str, int], at: Sequence[int] | None = None, applied: int = 1) -> Array:
    """Return the elements of the input on which one element of the output depends.

    Args:
        graph: the operator.
        values: a value for each of its variables that has no default.
        at: the position of the output's element; by default the middle of every axis.
        applied: 1, or 2 for the operator applied to its own output, as neighbouring layers apply it; or more.

    Returns:
        Booleans of the input's shape.

    Raises:
        ShapeError: `at` is no position of the output.
        SizeError: a size that does not divide, or the output's shape is not the input's, but `applied` is more than 1.
        ValuationError: a variable without a value.
        LoweringError: too many combinations of coordinates would have to be followed.
    """
    valuation = graph.valuation(values)
    shape = tuple(valuation.integer(dim.size) for dim in graph.input)
    found = np.ones(shape, bool)
    for factor in factors(graph, values, at, applied):
        part = np.zeros([shape[axis] for axis in factor.axes], bool)
        part[tuple(factor.positions.T)] = True
        found &= part.reshape([length if axis in factor.axes else 1 for axis, length in enumerate(shape)])
    return found


def factors(graph: PGraph, values: Mapping[str, int], at: Sequence[int] | None = None, applied: int = 1) -> tuple[Factor, ...]:
    """Return the support as a product: for each group of axes that depend on each other, the positions along them.

    It needs much less memory than the elements themselves. Arguments and errors are those of `support`.
    """
    valuation = graph.valuation(values)
    shape = tuple(valuation.integer(dim.size) for dim in graph.output)
    position = tuple(length // 2 for length in shape) if at is None else tuple(at)
    if len(position) != len(shape) or not all(0 <= one < length for one, length in zip(position, shape, strict=True)):
        raise ShapeError(f"{list(position)} is no position of the output of {graph!r}, whose shape is {list(shape)}")
    if applied > 1:
        check_repeatable(graph, valuation)
    found = relation(graph, valuation, dict(enumerate(position)), applied=applied)
    return tuple(_factor(graph, table) for table in found.tables)


def check_repeatable(graph: PGraph, valuation: Valuation) -> None:
    """Raise SizeError unless the output has the shape of the input, so that the operator can be applied to its own output."""
    shapes = [[valuation.integer(dim.size) for dim in dims] for dims in (graph.input, graph.output)]
    if shapes[0] != shapes[1]:
        raise SizeError(
            f"{graph!r} cannot be applied to its own output: its input has shape {shapes[0]}, its output {shapes[1]}; give "
            "sizes for which they are equal"
        )


def _factor(graph: PGraph, table: Table) -> Factor:
    axes = {axis: table[dim] for axis, dim in enumerate(graph.input) if dim in table}
    return Factor(tuple(axes), np.stack(list(axes.values()), axis=1))
