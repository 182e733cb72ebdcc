"""Programs whose vector lanes are samples: lane i holds an element of the i-th sample of a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from syno.ir.coordinates import Array
from syno.lower.native.copies import Body, CopyAxis, copy_loops, merged
from syno.lower.native.layouts import (
    CACHE_LINE,
    Format,
    Layout,
    Shapes,
    Side,
    channel_steps,
    place_of_sample,
    reading,
    row_major,
    sides,
    writing,
)
from syno.lower.native.loop_code import LoopCode
from syno.lower.native.nests import Axis, NestPlan
from syno.lower.native.program import NO_EPILOGUE, Epilogue, Lanes
from syno.lower.native.source import Writer, constant_table

MOST_NEIGHBOURS = 4096  # entries of the table of their places in scratch
MANY_LINES = 8  # strides that are multiples of so many cache lines would share few sets of the cache


@dataclass(frozen=True, eq=False)
class SampleLanes(Lanes):
    """A program whose vector lanes are samples."""

    @property
    def samples_of_block(self) -> int:
        """The number of samples in a block, one for each lane."""
        return self.lanes

    @property
    def reads_in_place(self) -> bool:
        """Whether the first nest reads the caller's tensor directly, without a copy in scratch."""
        has_halo = any(axis.before or axis.after for axis in self.plan.nests[0].source)
        return self.input.format == "lanes" and not has_halo

    @property
    def writes_in_place(self) -> bool:
        """Whether the last nest writes the caller's tensor directly, without a copy in scratch."""
        return self.output.format == "lanes"

    def place(self, side: Side) -> str:
        """Return the C++ expression of the offset of block `number` in a tensor of the format "lanes"."""
        return f"number * {prod(extent for _, extent in side.own)} * LANES"

    def layouts(self) -> list[Layout]:
        """Return the layouts in scratch of the input, of each intermediate result, and of the output."""
        nests = self.plan.nests
        extents = nests[-1].target
        last = Layout(row_major(extents, self.lanes), 0, self.lanes * prod(extents))
        is_compact = [self.reads_in_place, *(False for _ in nests[1:])]
        return [*(_with_halo(nest.source, self.lanes, compact) for nest, compact in zip(nests, is_compact, strict=True)), last]

    def codes(self) -> list[LoopCode]:
        """Return the nests with their addresses."""
        nests, layouts = self.plan.nests, self.layouts()
        return [
            LoopCode(
                extents=tuple(loop.extent for loop in nest.loops),
                summed=tuple(number for number, loop in enumerate(nest.loops) if loop.is_summed),
                read=reading(nest, layouts[at]),
                write=writing(nest, layouts[at + 1]),
                factor_loops=None if nest.factor is None else nest.factor.loops,
                channel=channel_steps(nest, self.channel) if nest is nests[-1] else {},
                writes_far=nest is nests[-1] and self.writes_in_place,
                takes_maximum=self.plan.takes_maximum,
            )
            for at, nest in enumerate(nests)
        ]

    def pack(self, name: str, layout: Layout) -> tuple[str, list[str]]:
        """Return the C++ function that copies a block of the input into scratch, and the statements that call it."""
        out = Writer()
        if self.input.format == "lanes":
            own = row_major([extent for _, extent in self.input.own], self.lanes)
            axes = merged(map(CopyAxis, (extent for _, extent in self.input.own), own, layout.strides))
            copy_loops(out, axes, lambda outside, inside: [f"store(to + {inside}, load(x + {outside}));"], layout.origin)
            head = f"static void {name}_pack(const float* x, float* to, int part, int parts) {{"
            return "\n".join([head, *out.lines, "}"]), [f"{name}_pack(block, scratch, part, parts);"]
        axes = merged(CopyAxis(extent, stride, to) for (stride, extent), to in zip(self.input.own, layout.strides, strict=True))

        def side_by_side(outside: str, inside: str) -> list[str]:
            return [f"store(to + {inside}, load_unaligned(x + at[0] + {outside}));"]

        def apart(function: str, places: str) -> Body:
            return lambda outside, inside: [f"pack_{function}(x + {outside}, at, count, to + {inside}{places});"]

        table = _copy_samples(out, f"{name}_pack", axes, side_by_side, apart, self.lanes, layout.origin)
        head = f"static void {name}_pack(const float* x, const long* at, long count, float* to, int part, int parts) {{"
        call = ["long at[LANES];", f"const long count = {_places(self.input, 'at')};"]
        return "\n".join([*table, head, *out.lines, "}"]), [*call, f"{name}_pack(x, at, count, scratch, part, parts);"]

    def unpack(self, name: str, layout: Layout, place: str) -> tuple[str, list[str]]:
        """Return the C++ function that copies a block of the output out of scratch (at `place`), and its call."""
        out = Writer()
        axes = merged(
            CopyAxis(extent, stride, to) for (stride, extent), to in zip(self.output.own, layout.strides, strict=True)
        )

        def side_by_side(outside: str, inside: str) -> list[str]:
            first = f"at[0] + {outside}"
            return [f"End::store_result<LANES>(y + {first}, load(from + {inside}), residual + {first});"]

        def apart(function: str, places: str) -> Body:
            kind = function.replace("<", "<End, ") if "<" in function else f"{function}<End>"
            return lambda outside, inside: [
                f"unpack_{kind}(from + {inside}, at, count, y + {outside}, residual + {outside}{places});"
            ]

        table = _copy_samples(out, f"{name}_unpack", axes, side_by_side, apart, self.lanes, 0)
        head = [
            f"static void {name}_unpack(",
            "    const float* from, const long* at, long count, float* y, const float* residual, int part, int parts) {",
        ]
        call = ["long to[LANES];", f"const long kept = {_places(self.output, 'to')};"]
        call.append(f"{name}_unpack({place}, to, kept, y, residual, part, parts);")
        return "\n".join([*table, *head, *out.lines, "}"]), call


def sample_lanes(
    plan: NestPlan,
    shapes: Shapes,
    lanes: int,
    formats: tuple[Format, Format] = ("contiguous", "contiguous"),
    epilogue: Epilogue = NO_EPILOGUE,
) -> SampleLanes:
    """Return the program of a plan whose vector lanes are samples. Without pass-through axes there is one sample.

    Args:
        plan: the nests.
        shapes: shapes of the input and of the output.
        lanes: number of floats in a vector.
        formats: memory formats of the input and of the output.
        epilogue: the fused epilogue.
    """
    return SampleLanes(plan, lanes, *sides(plan, shapes, formats), epilogue)


def _with_halo(axes: Sequence[Axis], lanes: int, is_compact: bool) -> Layout:
    """Return the layout of a tensor with these axes and their halos, one vector for each position.

    Unless it is compact, a stride that is a multiple of many cache lines is increased by a line: otherwise the positions along
    the axis would fall into few sets of the cache.
    """
    strides: list[int] = []
    stride = lanes
    for axis in reversed(axes):
        strides.insert(0, stride)
        stride *= axis.stored
        if not is_compact and stride % (MANY_LINES * CACHE_LINE) == 0:
            stride += CACHE_LINE
    origin = sum(step * axis.before for step, axis in zip(strides, axes, strict=True))
    return Layout(tuple(strides), origin, stride)


def _neighbours(axes: Sequence[CopyAxis], lanes: int) -> tuple[list[CopyAxis], int, Array | None]:
    """Merge the innermost axes whose elements are contiguous in the caller's memory.

    Returns:
        The other (outer) axes; the number of contiguous elements, 0 if there is only one; and the place of each of these
        elements in scratch, or None if they are contiguous there, too.
    """
    outer, places = list(axes), np.zeros(1, np.int64)
    while outer and outer[-1].outside == len(places) and outer[-1].extent * len(places) <= MOST_NEIGHBOURS:
        axis = outer.pop()
        places = (axis.inside * np.arange(axis.extent)[:, None] + places).reshape(-1)
    if len(places) == 1:
        return list(axes), 0, None
    in_order = np.array_equal(places, lanes * np.arange(len(places)))
    return outer, len(places), None if in_order else places


def _copy_samples(
    out: Writer,
    name: str,
    axes: Sequence[CopyAxis],
    side_by_side: Body,
    apart: Callable[[str, str], Body],
    lanes: int,
    origin: int,
) -> list[str]:
    """Write the C++ loops that copy samples into or out of scratch, and return the lookup table that they use.

    Args:
        out: the writer of the function's lines.
        name: the name of the function.
        axes: the axes of a sample.
        side_by_side: the statements for samples that are contiguous in memory.
        apart: returns the statements for other samples, from the name of a function of `copies.h` and its last argument.
        lanes: number of floats in a vector.
        origin: the offset of a sample in scratch, in floats.
    """
    with out.block("if (are_neighbours(at))"):
        copy_loops(out, axes, side_by_side, origin)
        out.line("return;")
    outer, run, places = _neighbours(axes, lanes)
    if not run:
        copy_loops(out, axes, apart("element", ""), origin)
        return []
    copy_loops(out, outer, apart(f"run<{run}>", f", {'SideBySide{}' if places is None else f'{name}_table'}"), origin)
    return [] if places is None else [constant_table(f"{name}_table", places)]


def _places(side: Side, name: str) -> str:
    """Return a C++ call that stores the offsets of the samples of block `number`, and returns the number of samples."""
    return (
        f"places_of_samples(number, samples, {name}, [](long sample) -> long {{ return {place_of_sample(side, 'sample')}; }})"
    )
