"""Programs whose vectors lie across the positions of a plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from syno.base.errors import LoweringError
from syno.ir.coordinates import Array
from syno.lower.native.kernel import Writer
from syno.lower.native.loop_code import Address, LoopCode
from syno.lower.native.nests import NestPlan
from syno.lower.native.program import (
    CACHE_LINE,
    NO_EPILOGUE,
    CopyAxis,
    Epilogue,
    Format,
    Lanes,
    Layout,
    Shapes,
    Side,
    channel_steps,
    copy_loops,
    in_lines,
    merged,
    reading,
    row_major,
    sides,
    statements_after,
    writing,
)  # fmt: skip

COPY_ROW = """\
template <long LENGTH>
static inline void copy_row(const float* x, float* to) {
  long first = 0;
  for (; first + LANES <= LENGTH; first += LANES) store_unaligned(to + first, load_unaligned(x + first));
  if (LENGTH % LANES) store_first<LENGTH % LANES>(to + first, load_first<LENGTH % LANES>(x + first));
}"""
FINISH_ROW = """\
template <long WIDTH>
static inline void finish_part(const float* from, float* y, const float* residual) {
  Vector value = load_first<WIDTH>(from);
@END@
  store_first<WIDTH>(y, value);
}
template <long LENGTH>
static inline void finish_row(const float* from, float* y, const float* residual) {
  long first = 0;
  for (; first + LANES <= LENGTH; first += LANES) finish_part<LANES>(from + first, y + first, residual + first);
  if (LENGTH % LANES) finish_part<LENGTH % LANES>(from + first, y + first, residual + first);
}"""


@dataclass(frozen=True)
class PlaneAxis:
    """An axis that every nest reads at its own position plus an offset.

    Attributes:
        extent: its positions.
        pitch: floats from one position to the next, in every tensor of the program.
        sources: which axis of each nest's source it is; after them, which of the output.
        loops: the loop of each nest over it.
    """

    extent: int
    pitch: int
    sources: tuple[int, ...]
    loops: tuple[int, ...]


def _follow(plan: NestPlan, axis: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return which axis of each nest's source an axis of the output is, and the loops over it; None if it is not one axis."""
    sources, loops = [axis], list[int]()
    for nest in reversed(plan.nests):
        written = nest.written[sources[0]]
        if len(written) != 1:
            return None
        loop = written[0]
        if nest.factor is not None and loop in nest.factor.loops:
            return None
        found = [(at, term) for at, one in enumerate(nest.source) for term in one.index if loop in term.loops]
        if len(found) != 1:
            return None
        at, term = found[0]
        if term.step != 1 or nest.source[at].extent != nest.loops[loop].extent:
            return None
        sources.insert(0, at)
        loops.insert(0, loop)
    return tuple(sources), tuple(loops)


def _plane(plan: NestPlan, channel: int | None) -> tuple[PlaneAxis, ...]:
    """Return the axes of the plane, from the outermost: the last ones of the output that every nest reads with an offset.

    The axis of channels is none of them: what is multiplied and added for each channel is one number for all of a vector.
    """
    found: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for axis in reversed(range(len(plan.outputs))):
        followed = None if plan.outputs[axis] == channel else _follow(plan, axis)
        if followed is None or any(set(followed[0][:1]) & set(other[0][:1]) for other in found):
            break
        found.insert(0, followed)
    axes: list[PlaneAxis] = []
    pitch = 1
    for sources, loops in reversed(found):
        halos = [(nest.source[at].before, nest.source[at].after) for nest, at in zip(plan.nests, sources, strict=False)]
        extent = plan.nests[-1].target[sources[-1]]
        axes.insert(0, PlaneAxis(extent, pitch, sources, loops))
        pitch *= extent + max(max(halo) for halo in halos)  # zeros behind a row are those ahead of the next one
    return tuple(axes)


@dataclass(frozen=True, eq=False)
class PlaneLanes(Lanes):
    """A program whose vectors lie across the positions of a plane.

    Attributes:
        plane: its axes, from the outermost.
    """

    plane: tuple[PlaneAxis, ...]

    @property
    def positions(self) -> int:
        """From the first position of the plane to behind the last one, with the halos between rows."""
        return sum((axis.extent - 1) * axis.pitch for axis in self.plane) + 1

    @property
    def vectors(self) -> int:
        """The vectors that hold these positions."""
        return -(-self.positions // self.lanes)

    def layouts(self) -> list[Layout]:
        """Return the layout of the input, of each intermediate result, and of the output."""
        nests = self.plan.nests
        found = []
        for at in range(len(nests) + 1):
            last = at == len(nests)
            pitches = {axis.sources[at]: axis.pitch for axis in self.plane}
            halos = {} if last else {axis: (one.before, one.after) for axis, one in enumerate(nests[at].source)}
            ahead, behind = (sum(halos[axis][end] * pitch for axis, pitch in pitches.items()) if halos else 0 for end in (0, 1))
            ahead = -(-ahead // self.lanes) * self.lanes
            size = in_lines(ahead + self.vectors * self.lanes + behind)
            if size % 1024 == 0:
                size += CACHE_LINE  # planes a multiple of 4 KiB apart would share the same lines of the cache
            extents = nests[-1].target if last else [axis.stored for axis in nests[at].source]
            others = [axis for axis in range(len(extents)) if axis not in pitches]
            strides = dict(zip(others, row_major([extents[axis] for axis in others], size), strict=True)) | pitches
            origin = ahead + sum(strides[axis] * halos[axis][0] for axis in others if halos)
            total = size * prod(extents[axis] for axis in others) + self.lanes
            found.append(Layout(tuple(strides[axis] for axis in range(len(extents))), origin, total))
        return found

    def codes(self) -> list[LoopCode]:
        """Return what is written of each nest. The loop over the innermost axis becomes that over vectors; the others go."""
        nests, layouts = self.plan.nests, self.layouts()
        codes = []
        for at, nest in enumerate(nests):
            loops = [axis.loops[at] for axis in self.plane]
            extents = [1 if number in loops else loop.extent for number, loop in enumerate(nest.loops)]
            extents[loops[-1]] = self.vectors
            read, write = reading(nest, layouts[at]), writing(nest, layouts[at + 1])
            steps = [{**address.steps, **dict.fromkeys(loops, 0), loops[-1]: self.lanes} for address in (read, write)]
            last = at == len(nests) - 1
            needed = not last and any(
                nests[at + 1].source[axis.sources[at + 1]].before or nests[at + 1].source[axis.sources[at + 1]].after
                for axis in self.plane
            )
            codes.append(
                LoopCode(
                    extents=tuple(extents),
                    summed=tuple(number for number, loop in enumerate(nest.loops) if loop.is_summed),
                    read=Address(read.constant, steps[0], read.tables),
                    write=Address(write.constant, steps[1]),
                    factor_loops=None if nest.factor is None else nest.factor.loops,
                    channel=channel_steps(nest, self.channel) if last else {},
                    is_aligned=False,
                    masks=(loops[-1], self._masks()) if needed else None,
                )
            )
        return codes

    def _masks(self) -> Array:
        """Return, for each vector and lane, all bits set where the lane holds a position, and none in a halo."""
        places = np.zeros(1, np.int64)
        for axis in self.plane:
            places = (places[:, None] + axis.pitch * np.arange(axis.extent)).reshape(-1)
        held = np.zeros(self.vectors * self.lanes, np.int32)
        held[places] = -1
        return held.reshape(self.vectors, self.lanes)

    def pack(self, name: str, layout: Layout) -> tuple[str, list[str]]:
        """Return the function that brings a sample of the input into scratch, and the statements that call it."""
        out = Writer()
        axes = merged(CopyAxis(extent, stride, to) for (stride, extent), to in zip(self.input.own, layout.strides, strict=True))
        if _has_rows(axes):
            run = axes.pop().extent
            copy_loops(out, axes, lambda outside, inside: [f"copy_row<{run}>(x + {outside}, to + {inside});"], layout.origin)
        else:
            copy_loops(out, axes, lambda outside, inside: [f"to[{inside}] = x[{outside}];"], layout.origin)
        head = f"static void {name}_pack(const float* x, float* to, int part, int parts) {{"
        call = [f"{name}_pack(x + {_place(self.input)}, scratch, part, parts);"]
        return "\n".join([COPY_ROW, head, *out.lines, "}"]), call

    def unpack(self, name: str, layout: Layout, place: int) -> tuple[str, list[str]]:
        """Return the same for the output, which begins at `place` in scratch."""
        out = Writer()
        axes = merged(
            CopyAxis(extent, stride, to) for (stride, extent), to in zip(self.output.own, layout.strides, strict=True)
        )
        end = [f"  {line}" for line in statements_after(self.epilogue, "load_first<WIDTH>(residual)")]
        if _has_rows(axes):
            run = axes.pop().extent
            copy_loops(
                out,
                axes,
                lambda outside, inside: [f"finish_row<{run}>(from + {inside}, y + {outside}, residual + {outside});"],
                layout.origin,
            )
        else:
            copy_loops(
                out,
                axes,
                lambda outside, inside: [
                    f"Vector value = {{from[{inside}]}};",
                    *statements_after(self.epilogue, f"Vector{{residual[{outside}]}}"),
                    f"y[{outside}] = value[0];",
                ],
                layout.origin,
            )
        head = f"static void {name}_unpack(const float* from, float* y, const float* residual, int part, int parts) {{"
        where = _place(self.output)
        call = [f"{name}_unpack(scratch + {place}, y + {where}, residual + {where}, part, parts);"]
        return "\n".join([FINISH_ROW.replace("@END@", "\n".join(end)), head, *out.lines, "}"]), call


def plane_lanes(
    plan: NestPlan,
    shapes: Shapes,
    lanes: int,
    formats: tuple[Format, Format] = ("contiguous", "contiguous"),
    epilogue: Epilogue = NO_EPILOGUE,
) -> PlaneLanes:
    """Return the program of a plan with vectors across a plane. The arguments are those of `sample_lanes`.

    Raises LoweringError if the nests do not read the last axes at their own positions plus offsets.
    """
    plane = _plane(plan, epilogue.channel)
    if not plane:
        raise LoweringError("the last axes are not read at their own positions plus offsets")
    return PlaneLanes(plan, lanes, *sides(plan, shapes, formats), epilogue, plane)


def _has_rows(axes: Sequence[CopyAxis]) -> bool:
    """Return whether neighbours along the innermost axis are neighbours in both memories."""
    return bool(axes) and (axes[-1].outside, axes[-1].inside) == (1, 1)


def _place(side: Side) -> str:
    """Return where sample `number` begins."""
    terms, divisor = [], 1
    for stride, extent in reversed(side.through[1:]):
        terms.append(f"number / {divisor} % {extent} * {stride}")
        divisor *= extent
    if side.through:
        terms.append(f"number / {divisor} * {side.through[0][0]}")
    return " + ".join(terms) or "0"
