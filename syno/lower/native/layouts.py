"""Layouts of tensors in the caller's memory and in the scratch buffer, and the addresses at which nests read and write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from syno.ir.coordinates import Array
from syno.lower.native.loop_code import Address
from syno.lower.native.nests import Nest, NestPlan
from syno.lower.native.source import linear

CACHE_LINE = 16  # number of floats
Shapes: TypeAlias = tuple[Sequence[int], Sequence[int]]  # of the input and of the output
Format: TypeAlias = Literal["contiguous", "channels_last", "lanes"]


@dataclass(frozen=True, eq=False)
class Layout:
    """The layout of a tensor in the scratch buffer, in floats.

    Attributes:
        strides: the stride of each axis.
        origin: the offset of the first element that is not in a halo.
        size: the length of the tensor including halos and gaps.
    """

    strides: tuple[int, ...]
    origin: int
    size: int


def in_lines(count: int) -> int:
    """Return a number of floats, rounded up to whole cache lines."""
    return -(-count // CACHE_LINE) * CACHE_LINE


def row_major(extents: Sequence[int], unit: int) -> tuple[int, ...]:
    """Return the row-major strides of a tensor whose last axis has the stride `unit`."""
    strides, stride = [], unit
    for extent in reversed(extents):
        strides.append(stride)
        stride *= extent
    return tuple(reversed(strides))


def reading(nest: Nest, layout: Layout) -> Address:
    """Return the address at which a nest reads its source tensor, which has this layout."""
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
    """Return the address at which a nest writes its target tensor, which has this layout."""
    steps: dict[int, int] = {}
    for loops, stride in zip(nest.written, layout.strides, strict=True):
        for loop in reversed(loops):
            steps[loop] = stride
            stride *= nest.loops[loop].extent
    return Address(layout.origin, steps)


def channel_steps(nest: Nest, axis: int | None) -> dict[int, int]:
    """Return the step of each loop, by its number, in the index along an axis of the target; {} for None."""
    steps: dict[int, int] = {}
    step = 1
    for loop in reversed(nest.written[axis]) if axis is not None else ():
        steps[loop] = step
        step *= nest.loops[loop].extent
    return steps


@dataclass(frozen=True)
class Side:
    """The input or output tensor in the caller's memory.

    Attributes:
        format: "lanes", or one of PyTorch's memory formats.
        through: (stride, extent) of each pass-through axis; the first extent is the batch size.
        own: (stride, extent) of each other axis.
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
    """Return the input and the output of a plan with these shapes and formats in the caller's memory."""
    entering, leaving = ([axes[side] for axes in plan.through] for side in (0, 1))
    input_side = _side(formats[0], shapes[0], entering, plan.inputs)
    if plan.strides:
        extents = [axis.extent for axis in plan.nests[0].source]
        own = zip(input_side.own, plan.strides, extents, strict=True)
        input_side = replace(input_side, own=tuple((step * stride, extent) for (step, _), stride, extent in own))
    return input_side, _side(formats[1], shapes[1], leaving, plan.outputs)


def place_of_sample(side: Side, sample: str) -> str:
    """Return the C++ expression of the offset of a sample in the caller's tensor."""
    steps, number = [], sample
    for stride, extent in reversed(side.through[1:]):
        steps.append((stride, f"({number} % {extent})"))
        number = f"({number} / {extent})"
    return linear([*steps, *((stride, number) for stride, _ in side.through[:1])])
