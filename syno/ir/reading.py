"""The positions at which an operator reads each axis of its input: the output axis they follow, and the displacement.

This is the symbolic description: expressions that hold for all sizes, read off the index map, for texts that say how an
operator moves data (`syno.report.operators.words`). It knows the usual forms of an index; for others `output` is None. The
numeric one (`syno.ir.read_pattern` and `syno.ir.support`) is exact for one set of sizes, whatever the form: it counts
positions, also of an operator applied twice, for requirements and for what an output depends on. Neither follows from the
other: numbers at some sizes prove no expression, and different reductions may lead to the same position.

An index such as `((i2 + r1 - k//2) + 1) % H` is a position along an output axis (`i2`) that is displaced twice: by
`r1 - k//2`, where positions beyond the border are zero, and by 1, around the border. Other indices are kept as they are.

>>> from syno.ir.builder import Builder
>>> build = Builder("H; k=3", name="window")
>>> (y,) = build.output("H")
>>> (r,) = build.contract(inner=build.reduce("k"))
>>> (axis,) = readings(build.finish([build.unfold(y, r)]))
>>> axis.output, [str(step.offset) for step in axis.steps], axis.displacements({"k": 3})
(0, ['r0 - k//2'], ((-1, 0, 1),))
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from math import prod

import numpy as np

from syno.algebra import ONE, Expression, Size, Valuation
from syno.algebra.terms import Guard, Iterator, Quotient, Remainder, Term, Terms, divides, only_atom
from syno.base.errors import SizeError, ValuationError
from syno.ir.coordinates import index_map
from syno.ir.graph import PGraph

MOST_COMBINATIONS = 1_000_000  # of values of reductions for which displacements are computed


class Border(Enum):
    """The treatment of positions that a displacement moves beyond the ends of the axis."""

    NONE = "none"  # there are no such positions
    ZERO = "zero"  # zero is read there
    AROUND = "around"  # they enter again at the other end


@dataclass(frozen=True)
class Displacement:
    """One displacement along an axis.

    Attributes:
        offset: the distance, an expression of reductions and constants.
        border: the treatment of positions beyond the ends.
        condition: for `Border.ZERO`, an index and an extent: zero is read unless 0 <= index < extent. Otherwise None.
    """

    offset: Expression
    border: Border
    condition: tuple[Expression, Size] | None = None


@dataclass(frozen=True)
class AxisReading:
    """The positions at which an operator reads one axis of its input.

    If `output` is not None, the position is `scale * (i // repeat)`, where i is the index along this output axis, displaced by
    each of `steps` in turn. The first step is nearest to the output, so data passes the last step first.

    Attributes:
        axis: the number of the input axis.
        size: the length of the axis.
        index: the position as an expression, as in the operator's index map.
        output: the number of the output axis that the position follows; None if it follows none, or in another form.
        scale: the distance in the input for one step along the output axis (the stride).
        repeat: the number of neighbours along the output axis that read the same position.
        steps: the displacements.
        is_every: whether each output element reads every position of the axis once, in a sum.
        outputs, reductions: the output axes and the names of the reductions in the index.
        extents: the lengths of all reductions of the operator, by name.
    """

    axis: int
    size: Size
    index: Expression
    output: int | None
    scale: Size
    repeat: Size
    steps: tuple[Displacement, ...]
    is_every: bool
    outputs: tuple[int, ...]
    reductions: tuple[str, ...]
    extents: Mapping[str, Size]

    @property
    def is_block(self) -> bool:
        """Whether each output element reads every position of a block of length `scale` once, in a sum."""
        (offset, border) = (self.steps[0].offset, self.steps[0].border) if len(self.steps) == 1 else (Expression(), None)
        is_sum = bool(offset.terms) and all(_is_iterator(term) for term in offset.terms)
        return border is Border.NONE and is_sum and offset.extent is self.scale

    def displacements(self, values: Mapping[str, int]) -> tuple[tuple[int, ...], ...] | None:
        """Return the different displacements of each step, in ascending order, for these values of the variables.

        Returns None if a variable in an offset has no value, or if there are too many combinations of reductions.
        """
        found = [_values(step.offset, self.extents, values) for step in self.steps]
        return None if any(one is None for one in found) else tuple(one for one in found if one is not None)


def readings(graph: PGraph) -> tuple[AxisReading, ...]:
    """Return the reading of each axis of the operator's input, in the order of the axes."""
    outputs = {graph.labels[dim]: axis for axis, dim in enumerate(graph.output)}
    extents = {graph.labels[dim]: dim.size for dim in graph.reduces}
    at = index_map(graph)
    return tuple(
        _reading(axis, dim.size, index, outputs, extents)
        for axis, (dim, index) in enumerate(zip(graph.input, at.input, strict=True))
    )


def _reading(axis: int, size: Size, index: Expression, outputs: Mapping[str, int], extents: Mapping[str, Size]) -> AxisReading:
    names = index.iterators
    follows = _follows(index, outputs)
    output, scale, repeat, steps = follows or (None, ONE, ONE, ())
    return AxisReading(
        axis=axis,
        size=size,
        index=index,
        output=output,
        scale=scale,
        repeat=repeat,
        steps=steps,
        is_every=bool(names)
        and names.isdisjoint(outputs)
        and index.extent is size
        and all(_is_iterator(term) for term in index.terms),
        outputs=tuple(sorted(outputs[name] for name in names if name in outputs)),
        reductions=tuple(name for name in extents if name in names),
        extents=extents,
    )


def _follows(index: Expression, outputs: Mapping[str, int]) -> tuple[int, Size, Size, tuple[Displacement, ...]] | None:
    """Return (output axis, scale, repeat, steps) of an index, as in `AxisReading`; None if the index has another form."""
    border, inner, axis = Border.NONE, index, None
    match index.only_atom:
        case Guard(guarded, extent):
            border, inner, axis = Border.ZERO, Expression(guarded), extent
        case Remainder(numerator, extent):
            border, inner, axis = Border.AROUND, Expression(numerator), extent
        case Iterator(name, _):
            return (outputs[name], ONE, ONE, ()) if name in outputs else None
        case Quotient(numerator, divisor) if isinstance(atom := only_atom(numerator), Iterator) and atom.name in outputs:
            return outputs[atom.name], ONE, divisor, ()
    inner = _without_quotient(inner, outputs)
    moving, fixed = _parted(inner.terms, outputs)
    if len(moving) != 1:
        return None
    (count, scale, atom) = moving[0]
    position = Expression(((1, ONE, atom),))
    if count != 1 or (axis is not None and (scale is not ONE or position.extent is not axis)):
        return None
    if not fixed and border is Border.NONE and position == index:
        return None  # no displacement found: another form
    before = _follows(position, outputs)
    if before is None or (border is Border.NONE and before[3]):
        return None  # the borders of the inner steps are not the ends of this axis
    output, inner_scale, repeat, steps = before
    condition = (inner, axis) if border is Border.ZERO and axis is not None else None
    own = (Displacement(Expression(fixed), border, condition),) if fixed or condition else ()
    return output, scale * inner_scale, repeat, (*steps, *own)


def _without_quotient(index: Expression, outputs: Collection[str]) -> Expression:
    """Rewrite `(s*x + e) // s` to `x + e//s` if only x depends on the output's position; return other indices unchanged."""
    atom = index.only_atom
    if not isinstance(atom, Quotient):
        return index
    moving, fixed = _parted(atom.numerator, outputs)
    if not moving or not all(divides(atom.divisor, size) for _, size, _ in moving):
        return index
    return (
        Expression(tuple((count, size / atom.divisor, one) for count, size, one in moving)) + Expression(fixed) // atom.divisor
    )


def _parted(terms: Terms, outputs: Collection[str]) -> tuple[Terms, Terms]:
    """Split the terms of a sum into those that depend on the output's position, and the others."""
    moving = tuple(term for term in terms if not Expression((term,)).iterators.isdisjoint(outputs))
    return moving, tuple(term for term in terms if term not in moving)


def _is_iterator(term: Term) -> bool:
    return term[0] == 1 and isinstance(term[2], Iterator)


def _values(offset: Expression, extents: Mapping[str, Size], values: Mapping[str, int]) -> tuple[int, ...] | None:
    """Return the different values of an offset over all reductions, ascending; None if a variable has no value."""
    names = [name for name in extents if name in offset.iterators]
    try:
        valuation = Valuation(values)
        lengths = [valuation.integer(extents[name]) for name in names]
        if prod(lengths) > MOST_COMBINATIONS:
            return None
        grid = np.indices(lengths).reshape(len(names), -1) if names else ()
        found = offset.evaluate(dict(zip(names, grid, strict=True)), valuation)
    except (SizeError, ValuationError):
        return None
    return tuple(int(one) for one in np.unique(found))
