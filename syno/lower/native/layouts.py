"""Where the elements of tensors lie: in the caller's formats, and in scratch; and the addresses at which nests use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from syno.ir.coordinates import Array
from syno.lower.native.loop_code import Address
from syno.lower.native.nests import Nest, NestPlan
from syno.lower.native.source import linear

CACHE_LINE = 16  # floats
Shapes: TypeAlias = tuple[Sequence[int], Sequence[int]]  # of the input and of the output
Format: TypeAlias = Literal["contiguous", "channels_last", "lanes"]


@dataclass(frozen=True, eq=False)
class Layout:
    """A tensor in scratch.

    Attributes:
        strides: floats between neighbours along each axis.
        origin: the place of the first position that is no halo.
        size: floats in all.
    """

    strides: tuple[int, ...]
    origin: int
    size: int


def in_lines(count: int) -> int:
    """Return a number of floats, rounded up to whole lines of the cache."""
    return -(-count // CACHE_LINE) * CACHE_LINE


def row_major(extents: Sequence[int], unit: int) -> tuple[int, ...]:
    """Return the strides of a tensor whose last axis has neighbours `unit` floats apart."""
    strides, stride = [], unit
    for extent in reversed(extents):
        strides.append(stride)
        stride *= extent
    return tuple(reversed(strides))


def reading(nest: Nest, layout: Layout) -> Address:
    """Return the addresses at which a nest reads a tensor of this layout."""
    constant, steps = layout.origin, dict[int, int]()
    tables: dict[tuple[int, ...], Array] = {}
    for axis, stride in zip(nest.source, layout.strides, strict=True):
        for term in axis.index:
            if not term.loops:
                constant += stride * int(term.table)
            elif term.step is not None:
                steps[term.loops[0]] = steps.get(term.loops[0], 0) + stride * term.step
            else:
                tables[term.loops] = tables.get(term.loops, 0) + stride * term.table
    return Address(constant, steps, tuple(tables.items()))


def writing(nest: Nest, layout: Layout) -> Address:
    """Return the addresses at which a nest writes a tensor of this layout."""
    steps: dict[int, int] = {}
    for loops, stride in zip(nest.written, layout.strides, strict=True):
        for loop in reversed(loops):
            steps[loop] = stride
            stride *= nest.loops[loop].extent
    return Address(layout.origin, steps)


def channel_steps(nest: Nest, axis: int | None) -> dict[int, int]:
    """Return the step of each loop in the position along an axis of the target."""
    steps: dict[int, int] = {}
    step = 1
    for loop in reversed(nest.written[axis]) if axis is not None else ():
        steps[loop] = step
        step *= nest.loops[loop].extent
    return steps


@dataclass(frozen=True)
class Side:
    """The input or the output as callers have it.

    Attributes:
        format: "lanes", or one of PyTorch's memory formats.
        through: the stride and the extent of each axis that stays as it is; the first extent is that of the batch.
        own: the same of the other axes.
    """

    format: Format
    through: tuple[tuple[int, int], ...]
    own: tuple[tuple[int, int], ...]


def _side(format: Format, shape: Sequence[int], through: Sequence[int], own: Sequence[int]) -> Side:  # noqa: A002
    order = list(range(len(shape)))
    if format == "channels_last":
        order = [0, *order[2:], 1]
    strides = dict(zip(order, row_major([shape[axis] for axis in order], 1), strict=True))
    return Side(format, *(tuple((strides[axis], shape[axis]) for axis in axes) for axes in (through, own)))


def sides(plan: NestPlan, shapes: Shapes, formats: tuple[Format, Format]) -> tuple[Side, Side]:
    """Return the input and the output of a plan as callers have them."""
    entering, leaving = ([axes[side] for axes in plan.through] for side in (0, 1))
    given = _side(formats[0], shapes[0], entering, plan.inputs)
    if plan.strides:
        extents = [axis.extent for axis in plan.nests[0].source]
        own = zip(given.own, plan.strides, extents, strict=True)
        given = replace(given, own=tuple((step * stride, extent) for (step, _), stride, extent in own))
    return (
        given,
        _side(formats[1], shapes[1], leaving, plan.outputs),
    )


def place_of_sample(side: Side, sample: str) -> str:
    """Return the expression of where a sample begins in the caller's tensor."""
    steps, number = [], sample
    for stride, extent in reversed(side.through[1:]):
        steps.append((stride, f"({number} % {extent})"))
        number = f"({number} / {extent})"
    return linear([*steps, *((stride, number) for stride, _ in side.through[:1])])
