"""Programs whose vectors lie across the positions of a plane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from syno.base.errors import LoweringError
from syno.ir.coordinates import Array
from syno.lower.native.kernel import Writer
from syno.lower.native.loop_code import Address, LoopCode
from syno.lower.native.nests import Axis, Nest, NestPlan, Term, axis_of
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
        rotations: of the input and of the output: what is stored at position p is their element at p + rotation, modulo the
            extent.
    """

    extent: int
    pitch: int
    sources: tuple[int, ...]
    loops: tuple[int, ...]
    rotations: tuple[int, int]


@dataclass(frozen=True, eq=False)
class _Reading:
    """How a nest reads an axis of a plane, where its loop and its source may be stored rotated.

    Attributes:
        source: the axis of the source.
        loop: the loop over the axis.
        axis: the axis, with the positions that are stored.
        rotation: how far what is read is rotated against the loop.
        stored: rotations of what is written and of what is read, if only these are possible, as for a window.
    """

    source: int
    loop: int
    axis: Axis
    rotation: int
    stored: tuple[int, int] | None


def _reading(nest: Nest, target: int) -> _Reading | None:
    """Return the reading that corresponds to an axis of the target; None if it is not at the same position plus an offset."""
    if len(nest.written[target]) != 1:
        return None
    (loop,) = nest.written[target]
    found = [(at, term) for at, axis in enumerate(nest.source) for term in axis.index if loop in term.loops]
    if len(found) != 1 or (nest.factor is not None and loop in nest.factor.loops):
        return None
    source, term = found[0]
    axis, extent = nest.source[source], nest.loops[loop].extent
    if axis.extent != extent:
        return None
    others = tuple(other for other in axis.index if other is not term and other.loops)
    constant = sum(int(other.table) for other in axis.index if not other.loops)
    positions = np.arange(extent)
    if term.loops == (loop,):
        constant += int(term.table.min())
        rotation = int(term.table[0] - term.table.min())
        if not np.array_equal(term.table - term.table.min(), (positions + rotation) % extent):
            return None
        is_window = bool(others or constant)
        # A window is only right at positions that follow each other: what is written is stored rotated instead.
        stored = ((-rotation) % extent, 0) if is_window else None
        index = (*((Term((), np.asarray(constant)),) if constant else ()), Term((loop,), positions), *others)
        return _Reading(source, loop, replace(axis, index=index), rotation, stored)
    if others:
        return None
    masked = term.table == extent
    for rotation in range(1, extent):  # a window of a rotated axis: the source is stored rotated
        one = axis_of(term.loops, np.where(masked, extent, (term.table - rotation) % extent), masked, extent)
        if any(part.loops == (loop,) and part.step == 1 for part in one.index) and all(
            len(part.loops) <= 1 for part in one.index
        ):
            return _Reading(source, loop, one, rotation, (0, rotation))
    return None


def _rotations(readings: Sequence[_Reading], extent: int) -> list[int] | None:
    """Return the rotations with which the input, each intermediate result and the output are stored; None if none fit."""
    for first in range(extent):
        found = [first]
        for one in readings:
            if one.stored is None:
                found.append((found[-1] - one.rotation) % extent)
            elif one.stored[1] == found[-1]:
                found.append(one.stored[0])
            else:
                break
        else:
            return found
    return None


def _with_plane(plan: NestPlan, channel: int | None) -> tuple[NestPlan, tuple[PlaneAxis, ...]]:
    """Return the plan as it is stored, and the axes of the plane, from the outermost.

    These are the last ones of the output that every nest reads at their own position plus an offset. The axis of channels is
    none of them: what is multiplied and added for each channel is one number for all of a vector.
    """
    nests = list(plan.nests)
    axes: list[PlaneAxis] = []
    pitch = 1
    for last in reversed(range(len(plan.outputs))):
        readings: list[_Reading] = []
        target = last
        for nest in reversed(nests):
            one = None if plan.outputs[last] == channel else _reading(nest, target)
            if one is None:
                break
            readings.insert(0, one)
            target = one.source
        extent = nests[-1].target[last]
        rotations = _rotations(readings, extent) if len(readings) == len(nests) else None
        if rotations is None or any(readings[0].source == axis.sources[0] for axis in axes):
            break
        for at, one in enumerate(readings):
            source = [one.axis if number == one.source else axis for number, axis in enumerate(nests[at].source)]
            nests[at] = replace(nests[at], source=tuple(source))
        sources = (*(one.source for one in readings), last)
        loops = tuple(one.loop for one in readings)
        axes.insert(0, PlaneAxis(extent, pitch, sources, loops, (rotations[0], rotations[-1])))
        # zeros behind a row are those ahead of the next one
        pitch *= extent + max(max(one.axis.before, one.axis.after) for one in readings)
    return replace(plan, nests=tuple(nests)), tuple(axes)


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

    @property
    def reads_in_place(self) -> bool:
        """Whether the first nest reads the caller's tensor."""
        has_halo = any(axis.before or axis.after for axis in self.plan.nests[0].source)
        return not has_halo and self._is_stored_so(self.input, 0)

    @property
    def writes_in_place(self) -> bool:
        """Whether the last nest writes the caller's tensor."""
        return self._is_stored_so(self.output, -1)

    def _is_stored_so(self, side: Side, end: int) -> bool:
        """Return whether kernels can use the caller's tensor itself: its planes are contiguous and consist of whole vectors."""
        if side.format == "lanes" or self.positions % self.lanes:
            return False
        return self.positions == prod(axis.extent for axis in self.plane) and all(
            side.own[axis.sources[end]] == (axis.pitch, axis.extent) and not axis.rotations[end] for axis in self.plane
        )

    def place(self, side: Side) -> str:
        """Return where sample `number` of the caller's tensor begins."""
        return _place(side)

    def layouts(self) -> list[Layout]:
        """Return the layout of the input, of each intermediate result, and of the output."""
        nests = self.plan.nests
        found = []
        for at in range(len(nests) + 1):
            last = at == len(nests)
            if (at == 0 and self.reads_in_place) or (last and self.writes_in_place):
                found.append(Layout(tuple(stride for stride, _ in (self.output if last else self.input).own), 0, 0))
                continue
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
        """Return the nests with their addresses. One loop over the vectors of a plane replaces the loops over its axes."""
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
                    writes_aligned=not (last and self.writes_in_place),
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
        for axes, outside_origin, inside_origin in self._pieces(self.input, layout, 0):
            if _has_rows(axes):
                run = axes.pop().extent

                def body(outside: str, inside: str, run: int = run) -> list[str]:
                    return [f"copy_row<{run}>(x + {outside}, to + {inside});"]
            else:

                def body(outside: str, inside: str, run: int = 1) -> list[str]:
                    return [f"to[{inside}] = x[{outside}];"]

            copy_loops(out, axes, body, inside_origin, outside_origin)
        head = f"static void {name}_pack(const float* x, float* to, int part, int parts) {{"
        call = [f"{name}_pack(x + {_place(self.input)}, scratch, part, parts);"]
        return "\n".join([COPY_ROW, head, *out.lines, "}"]), call

    def unpack(self, name: str, layout: Layout, place: int) -> tuple[str, list[str]]:
        """Return the same for the output, which begins at `place` in scratch."""
        out = Writer()
        for axes, outside_origin, inside_origin in self._pieces(self.output, layout, -1):
            if _has_rows(axes):
                run = axes.pop().extent

                def body(outside: str, inside: str, run: int = run) -> list[str]:
                    return [f"finish_row<{run}>(from + {inside}, y + {outside}, residual + {outside});"]
            else:

                def body(outside: str, inside: str, run: int = 1) -> list[str]:
                    return [
                        f"Vector value = {{from[{inside}]}};",
                        *statements_after(self.epilogue, f"Vector{{residual[{outside}]}}"),
                        f"y[{outside}] = value[0];",
                    ]

            copy_loops(out, axes, body, inside_origin, outside_origin)
        end = [f"  {line}" for line in statements_after(self.epilogue, "load_first<WIDTH>(residual)")]
        head = f"static void {name}_unpack(const float* from, float* y, const float* residual, int part, int parts) {{"
        where = _place(self.output)
        call = [f"{name}_unpack(scratch + {place}, y + {where}, residual + {where}, part, parts);"]
        return "\n".join([FINISH_ROW.replace("@END@", "\n".join(end)), head, *out.lines, "}"]), call

    def _pieces(self, side: Side, layout: Layout, end: int) -> Iterator[tuple[list[CopyAxis], int, int]]:
        """Yield the pieces in which a tensor is copied, with where each begins outside and in scratch.

        A rotated axis is copied in two pieces.
        """
        rotations = {axis.sources[end]: axis.rotations[end] for axis in self.plane}
        choices = []
        for number, ((outside, extent), inside) in enumerate(zip(side.own, layout.strides, strict=True)):
            ahead = extent - rotations.get(number, 0)  # positions before the one at which the first element is stored
            pieces = [(CopyAxis(ahead, outside, inside), (extent - ahead) * outside, 0)]
            if ahead < extent:
                pieces.append((CopyAxis(extent - ahead, outside, inside), 0, ahead * inside))
            choices.append(pieces)
        for choice in product(*choices):
            axes = merged(axis for axis, _, _ in choice)
            yield axes, sum(outside for _, outside, _ in choice), layout.origin + sum(inside for _, _, inside in choice)


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
    stored, plane = _with_plane(plan, epilogue.channel)
    if not plane:
        raise LoweringError("the last axes are not read at their own positions plus offsets")
    return PlaneLanes(stored, lanes, *sides(plan, shapes, formats), epilogue, plane)


def _has_rows(axes: Sequence[CopyAxis]) -> bool:
    """Return whether the innermost axis is contiguous both in the caller's tensor and in scratch."""
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
