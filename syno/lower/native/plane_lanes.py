"""Programs whose vector lanes are neighbouring positions of a plane: the innermost axes, read at constant offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from syno.base.errors import LoweringError
from syno.ir.coordinates import Array
from syno.lower.native.copies import CopyAxis, copy_loops, merged
from syno.lower.native.layouts import (
    CACHE_LINE,
    Format,
    Layout,
    Shapes,
    Side,
    channel_steps,
    in_lines,
    place_of_sample,
    reading,
    row_major,
    sides,
    writing,
)
from syno.lower.native.loop_code import Address, LoopCode
from syno.lower.native.nests import Axis, Nest, NestPlan, Term, axis_of, without_strides, wrapped
from syno.lower.native.program import NO_EPILOGUE, Epilogue, Lanes
from syno.lower.native.source import Writer

MOST_EVERY = 4  # larger steps are those of a channels-last tensor


@dataclass(frozen=True)
class PlaneAxis:
    """An axis of the plane: every nest reads it at its own position plus an offset.

    Attributes:
        extent: the number of its positions.
        pitch: the axis' stride in floats, the same in every tensor of the program.
        sources: the axis' number in each nest's source, and last in the output.
        loops: for each nest, its loop over the axis.
        rotations: rotations of input and output in scratch: position p holds the element at (p + rotation) modulo the extent.
    """

    extent: int
    pitch: int
    sources: tuple[int, ...]
    loops: tuple[int, ...]
    rotations: tuple[int, int]


@dataclass(frozen=True, eq=False)
class _Reading:
    """The access of a nest along an axis of the plane, whose source and target may be stored rotated.

    Attributes:
        source: the number of the axis in the source.
        loop: the loop over the axis.
        axis: the axis with the index of the stored, perhaps rotated, positions.
        rotation: the read position minus the loop's index, modulo the extent.
        stored: the rotations in which target and source must be stored; None if any pair with the right difference serves.
            Windows need fixed ones, since their positions must be consecutive.
    """

    source: int
    loop: int
    axis: Axis
    rotation: int
    stored: tuple[int, int] | None


def _reading(nest: Nest, target: int) -> _Reading | None:
    """Return how a nest reads the axis that corresponds to axis `target`; None if not at its own position plus an offset."""
    if len(nest.written[target]) != 1:
        return None
    (loop,) = nest.written[target]
    sources = [wrapped(axis) for axis in nest.source]
    reads = [(at, term) for at, axis in enumerate(sources) for term in axis.index if loop in term.loops]
    if len(reads) != 1 or (nest.factor is not None and loop in nest.factor.loops):
        return None
    source, term = reads[0]
    axis, extent = sources[source], nest.loops[loop].extent
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
        # The positions of a window must be consecutive in the source, so the target is stored rotated instead.
        stored = ((-rotation) % extent, 0) if is_window else None
        index = (*((Term((), np.asarray(constant)),) if constant else ()), Term((loop,), positions), *others)
        return _Reading(source, loop, replace(axis, index=index), rotation, stored)
    if others:
        return None
    masked = term.table == extent
    for rotation in range(1, extent):  # a window of a rotated axis: the source is stored rotated
        rotated = axis_of(term.loops, np.where(masked, extent, (term.table - rotation) % extent), masked, extent)
        if any(part.loops == (loop,) and part.step == 1 for part in rotated.index) and all(
            len(part.loops) <= 1 for part in rotated.index
        ):
            return _Reading(source, loop, rotated, rotation, (0, rotation))
    return None


def _rotations(readings: Sequence[_Reading], extent: int) -> list[int] | None:
    """Return rotations in which to store the input, each intermediate result and the output; None if none suit all nests."""
    for first in range(extent):
        rotations = [first]
        for read in readings:
            if read.stored is None:
                rotations.append((rotations[-1] - read.rotation) % extent)
            elif read.stored[1] == rotations[-1]:
                rotations.append(read.stored[0])
            else:
                break
        else:
            return rotations
    return None


def _with_plane(plan: NestPlan, channel: int | None) -> tuple[NestPlan, tuple[PlaneAxis, ...]]:
    """Return the plan with the indices of stored positions, and the axes of the plane from the outermost.

    The plane consists of the output axes that every nest reads at their own position plus an offset. The channel axis is
    excluded, since the epilogue's scale and shift are one number for all lanes of a vector.
    """
    nests = list(plan.nests)
    axes: list[PlaneAxis] = []
    pitch = 1
    for last in reversed(range(len(plan.outputs))):
        readings: list[_Reading] = []
        target = last
        for nest in reversed(nests):
            read = None if plan.outputs[last] == channel else _reading(nest, target)
            if read is None:
                break
            readings.insert(0, read)
            target = read.source
        extent = nests[-1].target[last]
        rotations = _rotations(readings, extent) if len(readings) == len(nests) else None
        if rotations is None or any(readings[0].source == axis.sources[0] for axis in axes):
            continue
        for at, read in enumerate(readings):
            source = [read.axis if number == read.source else axis for number, axis in enumerate(nests[at].source)]
            nests[at] = replace(nests[at], source=tuple(source))
        sources = (*(read.source for read in readings), last)
        loops = tuple(read.loop for read in readings)
        axes.insert(0, PlaneAxis(extent, pitch, sources, loops, (rotations[0], rotations[-1])))
        pitch *= extent + max(_between_rows(read.axis) for read in readings)
    return replace(plan, nests=tuple(nests)), tuple(axes)


def _between_rows(axis: Axis) -> int:
    """Return the number of halo positions between two rows. Zeros serve both the row before them and the row after them."""
    return axis.before + axis.after if axis.wraps else max(axis.before, axis.after)


@dataclass(frozen=True, eq=False)
class PlaneLanes(Lanes):
    """A program whose vector lanes are neighbouring positions of a plane.

    Attributes:
        plane: the axes of the plane from the outermost.
        rows: number of rows (positions along the outermost axis) of a band, which is computed as one block; all rows: no bands.
            Each nest also computes the margin around the band that later nests read, so that bands are independent.
    """

    plane: tuple[PlaneAxis, ...]
    rows: int

    def with_rows(self, rows: int) -> PlaneLanes:
        """Return the program that computes bands of `rows` rows. Raises LoweringError if the plane cannot be cut into bands."""
        extent = self.plane[0].extent
        program = replace(self, rows=min(rows, extent))
        if program.bands == 1:
            return program
        if len(self.plane) == 1 or any(self.plane[0].rotations):
            raise LoweringError("a plane of one axis, or with rotated rows, is not cut into bands")
        wrap = [self._rows_wrap(at) for at in range(len(self.plan.nests))]
        if any(any(self._halo(at)) and not self._source(at, 0).wraps for at in range(sum(wrap))):
            raise LoweringError("a plane is not cut into bands if a cyclic halo of rows follows a zero-padded one")
        if any(wrap) and max(program.margin(0)) > extent:
            raise LoweringError("a plane with fewer rows than are read around its border is not cut into bands")
        return program

    @property
    def bands(self) -> int:
        """Number of bands of a plane. If `rows` does not divide the plane, the last band overlaps the previous one."""
        return -(-self.plane[0].extent // self.rows)

    def _source(self, at: int, number: int) -> Axis:
        """Return axis `number` of the plane in the source of nest `at`."""
        return self.plan.nests[at].source[self.plane[number].sources[at]]

    def _halo(self, at: int) -> tuple[int, int]:
        """Return the numbers of halo rows, before and after, that nest `at` reads."""
        if at == len(self.plan.nests):
            return 0, 0
        axis = self._source(at, 0)
        return axis.before, axis.after

    def _rows_wrap(self, at: int) -> bool:
        """Return whether the halo rows of tensor `at` are cyclic (copies from the opposite border), not zeros."""
        return any(self._source(later, 0).wraps for later in range(at, len(self.plan.nests)))

    def margin(self, at: int) -> tuple[int, int]:
        """Return the margin of a band: numbers of rows of tensor `at` before and after it that its block also computes.

        Tensor 0 is the input, the last tensor is the output. Without bands the margin is (0, 0): halo rows hold zeros.
        """
        halos = [self._halo(later) for later in range(at, len(self.plan.nests))] if self.bands > 1 else []
        return sum(before for before, _ in halos), sum(after for _, after in halos)

    def positions(self, at: int) -> int:
        """Return the length in floats of a band of tensor `at` with its margin, including the gaps between rows."""
        rows = self.rows + sum(self.margin(at))
        return (rows - 1) * self.plane[0].pitch + sum((axis.extent - 1) * axis.pitch for axis in self.plane[1:]) + 1

    def vectors(self, at: int) -> int:
        """Return the number of vectors that cover the band of tensor `at`; see `positions`."""
        return -(-self.positions(at) // self.lanes)

    @property
    def reads_in_place(self) -> bool:
        """Whether the first nest reads the caller's tensor directly, without a copy in scratch."""
        has_halo = any(axis.before or axis.after for axis in self.plan.nests[0].source) or any(self.margin(0))
        return not has_halo and self._is_stored_so(self.input, 0)

    @property
    def writes_in_place(self) -> bool:
        """Whether the last nest writes the caller's tensor directly, without a copy in scratch."""
        return self._is_stored_so(self.output, -1)

    def _is_stored_so(self, side: Side, end: int) -> bool:
        """Return whether nests can use the caller's tensor directly: its planes are contiguous and consist of whole vectors.

        `end` is 0 for the input and -1 for the output.
        """
        if side.format == "lanes" or self.positions(len(self.plan.nests)) % self.lanes:
            return False
        extents = [self.rows, *(axis.extent for axis in self.plane[1:])]
        return self.positions(len(self.plan.nests)) == prod(extents) and all(
            side.own[axis.sources[end]] == (axis.pitch, axis.extent) and not axis.rotations[end] for axis in self.plane
        )

    def place(self, side: Side) -> str:
        """Return the C++ expression of the offset of block `number` in the caller's tensor."""
        end = 0 if side is self.input else -1
        if self.bands == 1:
            return place_of_sample(side, "number")
        return f"{place_of_sample(side, 'sample')} + {side.own[self.plane[0].sources[end]][0]} * row"

    def layouts(self) -> list[Layout]:
        """Return the layouts in scratch of the input, of each intermediate result, and of the output."""
        nests = self.plan.nests
        layouts = []
        for at in range(len(nests) + 1):
            last = at == len(nests)
            if (at == 0 and self.reads_in_place) or (last and self.writes_in_place):
                layouts.append(Layout(tuple(stride for stride, _ in (self.output if last else self.input).own), 0, 0))
                continue
            pitches = {axis.sources[at]: axis.pitch for axis in self.plane}
            halos = {} if last else {axis: (one.before, one.after) for axis, one in enumerate(nests[at].source)}
            ahead, behind = (sum(halos[axis][end] * pitch for axis, pitch in pitches.items()) if halos else 0 for end in (0, 1))
            # The first written position is aligned to a vector.
            ahead += -(ahead - self._rows_ahead(at) * self.plane[0].pitch) % self.lanes
            size = ahead + self.vectors(min(at + 1, len(nests))) * self.lanes + behind
            if at:
                size = max(size, ahead - self._rows_ahead(at) * self.plane[0].pitch + self.vectors(at) * self.lanes)
            size = in_lines(size)
            if size % (2 * CACHE_LINE) == 0:
                size += CACHE_LINE  # a plane stride of an odd number of lines spreads planes over all sets of the cache
            extents = nests[-1].target if last else [axis.stored for axis in nests[at].source]
            others = [axis for axis in range(len(extents)) if axis not in pitches]
            strides = dict(zip(others, row_major([extents[axis] for axis in others], size), strict=True)) | pitches
            origin = ahead + sum(strides[axis] * halos[axis][0] for axis in others if halos)
            total = size * prod(extents[axis] for axis in others) + self.lanes
            layouts.append(Layout(tuple(strides[axis] for axis in range(len(extents))), origin, total))
        return layouts

    def _rows_ahead(self, at: int) -> int:
        """Return the number of rows of tensor `at` from the first row that is written to the row at its origin."""
        return self._halo(at)[0] if self.bands > 1 else 0

    def codes(self) -> list[LoopCode]:
        """Return the nests with their addresses. One loop over the vectors of a plane replaces the loops over its axes."""
        nests, layouts = self.plan.nests, self.layouts()
        codes = []
        for at, nest in enumerate(nests):
            loops = [axis.loops[at] for axis in self.plane]
            extents = [1 if number in loops else loop.extent for number, loop in enumerate(nest.loops)]
            extents[loops[-1]] = self.vectors(at + 1)
            read, write = reading(nest, layouts[at]), writing(nest, layouts[at + 1])
            steps = [{**address.steps, **dict.fromkeys(loops, 0), loops[-1]: self.lanes} for address in (read, write)]
            last = at == len(nests) - 1
            following = [] if last else [self._source(at + 1, number) for number in range(len(self.plane))]
            needed = any(axis.before or axis.after for axis in following)
            codes.append(
                LoopCode(
                    extents=tuple(extents),
                    summed=tuple(number for number, loop in enumerate(nest.loops) if loop.is_summed),
                    read=Address(read.constant, steps[0], read.tables),
                    write=Address(write.constant - self._rows_ahead(at + 1) * self.plane[0].pitch, steps[1]),
                    factor_loops=None if nest.factor is None else nest.factor.loops,
                    channel=channel_steps(nest, self.channel) if last else {},
                    is_aligned=False,
                    writes_aligned=not (last and self.writes_in_place),
                    writes_far=last and self.writes_in_place,
                    takes_maximum=self.plan.takes_maximum,
                    masks=(loops[-1], self._masks(at + 1)) if needed else None,
                )
            )
        return codes

    def _masks(self, at: int) -> Array:
        """Return the masks of tensor `at`, [vectors, lanes]: -1 (all bits) for lanes that hold positions, 0 for halos."""
        places = np.zeros(1, np.int64)
        for axis in self.plane:
            extent = self.rows + sum(self.margin(at)) if axis is self.plane[0] else axis.extent
            places = (places[:, None] + axis.pitch * np.arange(extent)).reshape(-1)
        held = np.zeros(self.vectors(at) * self.lanes, np.int32)
        held[places] = -1
        return held.reshape(self.vectors(at), self.lanes)

    def begin(self) -> list[str]:
        """Return the C++ statements that compute the sample of a block and its first row."""
        if self.bands == 1:
            return []
        row = f"number % {self.bands} * {self.rows}"
        if self.plane[0].extent % self.rows:
            last = self.plane[0].extent - self.rows
            row = f"{row} < {last} ? {row} : {last}"
        return [f"const long sample = number / {self.bands}, row = {row};"]

    def after(self, at: int, layout: Layout, place: str) -> list[str]:
        """Return the C++ statements that fill the halos of tensor `at` after it has been written.

        Rows of a band's margin outside the plane are set to zero; cyclic halos get the elements of the opposite border. Other
        halos are zero from the beginning.
        """
        if at == len(self.plan.nests):
            return []
        lines = self._copies(at)
        if any(self._halo(at)) and self.bands > 1 and not self._rows_wrap(at):
            lines.insert(0, f"{self._band(at)}::clear_outside(first, row);")
        if not lines:
            return []
        inside = {axis.sources[at] for axis in self.plane}
        others = [axis for axis in range(len(layout.strides)) if axis not in inside]
        out = Writer()
        copy_loops(
            out,
            [CopyAxis(self.plan.nests[at].source[axis].extent, 0, layout.strides[axis]) for axis in others],
            lambda _, inside: [f"float* const first = {place} + {inside};", *lines],
            layout.origin - self._rows_ahead(at) * self.plane[0].pitch,
        )
        return ["BARRIER", "{", *out.lines, "}"]

    def _band(self, at: int) -> str:
        """Return the C++ type (a template of `copies.h`) of a band of tensor `at`."""
        before, after = self.margin(at)
        return f"Band<{self.plane[0].extent}, {self.rows}, {before}, {after}, {self.plane[0].pitch}>"

    def _copies(self, at: int) -> list[str]:
        """Return the C++ statements that fill cyclic halos from the opposite border, beginning with the innermost axis."""
        lines = []
        extents = [self.rows + sum(self.margin(at)), *(axis.extent for axis in self.plane[1:])]
        ahead = 0  # floats of the halos of inner axes
        for number in reversed(range(len(self.plane))):
            axis, pitch = self._source(at, number), self.plane[number].pitch
            if axis.wraps and (number or self.bands == 1):
                outer = range(number)
                loops = [f"for (long p{level} = 0; p{level} < {extents[level]}; ++p{level})" for level in outer]
                where = " + ".join(["first", *(f"{self.plane[level].pitch} * p{level}" for level in outer)])
                lines.append(
                    f"{' '.join(loops)} copy_borders<{axis.extent}, {axis.before}, {axis.after}, {pitch}>({where} - {ahead});"
                )
            ahead += axis.before * pitch
        return lines

    def pack(self, name: str, layout: Layout) -> tuple[str, list[str]]:
        """Return the C++ functions that copy a block of the input into scratch, and the statements that call them."""
        out = Writer()
        for axes, outside_origin, inside_origin in self._pieces(self.input, layout, 0):
            self._copy(out, axes, "copy", ["x", "to"], outside_origin, inside_origin)
        head = f"static void {name}_pack(const float* x, float* to, long rows, int part, int parts) {{"
        call = [f"{name}_pack(x + {self.place(self.input)}, scratch, 0, part, parts);"]
        if self.bands > 1:
            outside, wraps = self.input.own[self.plane[0].sources[0]][0], str(self._rows_wrap(0)).lower()
            call = [
                f"{self._band(0)}::bring_in<{wraps}>(",
                f"    x + {place_of_sample(self.input, 'sample')}, scratch, row, {outside},",
                "    [=](const float* plane, float* to, long rows) {",
                f"      {name}_pack(plane, to, rows, part, parts);",
                "    });",
            ]
        return "\n".join([head, *out.lines, "}"]), [*call, *self.after(0, layout, "scratch")]

    def unpack(self, name: str, layout: Layout, place: str) -> tuple[str, list[str]]:
        """Return the C++ function that copies a block of the output out of scratch (at `place`), and its call."""
        out = Writer()
        for axes, outside_origin, inside_origin in self._pieces(self.output, layout, -1):
            self._copy(out, axes, "finish", ["from", "y", "residual"], outside_origin, inside_origin)
        head = f"static void {name}_unpack(const float* from, float* y, const float* residual, int part, int parts) {{"
        where = self.place(self.output)
        call = [f"{name}_unpack({place}, y + {where}, residual + {where}, part, parts);"]
        return "\n".join([head, *out.lines, "}"]), call

    def _pieces(self, side: Side, layout: Layout, end: int) -> Iterator[tuple[list[CopyAxis], int, int]]:
        """Yield the pieces in which a tensor is copied: axes, and first offset in the caller's memory and in scratch.

        A rotated axis is copied in two pieces.
        """
        at = 0 if end == 0 else len(self.plan.nests)
        rotations = {axis.sources[end]: axis.rotations[end] for axis in self.plane}
        choices = []
        for number, ((outside, extent), inside) in enumerate(zip(side.own, layout.strides, strict=True)):
            if self.bands > 1 and number == self.plane[0].sources[end]:
                most = self.rows + sum(self.margin(at))
                rows = CopyAxis(most, outside, inside, bound="" if end else "rows")
                choices.append([(rows, 0, -self._rows_ahead(at) * inside)])
                continue
            ahead = extent - rotations.get(number, 0)  # position in scratch of the tensor's first element
            pieces = [(CopyAxis(ahead, outside, inside), (extent - ahead) * outside, 0)]
            if ahead < extent:
                pieces.append((CopyAxis(extent - ahead, outside, inside), 0, ahead * inside))
            choices.append(pieces)
        for choice in product(*choices):
            axes = merged(axis for axis, _, _ in choice)
            yield axes, sum(outside for _, outside, _ in choice), layout.origin + sum(inside for _, _, inside in choice)

    def _copy(
        self, out: Writer, axes: Sequence[CopyAxis], verb: str, pointers: Sequence[str], outside: int, inside: int
    ) -> None:
        """Write loops around calls of a copy function for rows.

        Args:
            out: the writer.
            axes: the axes of the copy.
            verb: "copy" (input) or "finish" (output, with the epilogue).
            pointers: names of the function's pointers; `to` and `from` point into scratch, the others into the caller's memory.
            outside, inside: the first offset in the caller's memory, and in scratch.
        """
        end = "" if verb == "copy" else "End, "
        neighbours = next((axis for axis in axes if axis.inside == 1), CopyAxis(1, 1, 1))
        outer = [axis for axis in axes if axis is not neighbours]
        if verb == "copy" and 1 < neighbours.outside <= MOST_EVERY:
            rows = outer.pop() if outer else CopyAxis(1, 0, 0)
            function = f"copy_every<{neighbours.outside}, {neighbours.extent}>"
            counts = [rows.count, rows.outside, rows.inside]
        elif neighbours.outside != 1 and outer and outer[-1].outside == 1:
            rows = outer.pop()
            function = f"{verb}_exchanged<{end}{rows.extent}, {neighbours.extent}>"
            counts = [rows.count, neighbours.outside, rows.inside]
        else:
            if neighbours.outside != 1:  # element by element
                outer, neighbours = list(axes), CopyAxis(1, 1, 1)
            rows = outer.pop() if outer else CopyAxis(1, 0, 0)
            function = f"{verb}_rows<{end}{neighbours.extent}>"
            exact = rows.extent - self._reaching(rows, neighbours, verb)
            counts = [rows.count, f"{rows.count} - {exact}", rows.outside, rows.inside]

        def body(outside: str, inside: str) -> list[str]:
            places = [f"{name} + {inside if name in ('to', 'from') else outside}" for name in pointers]
            return [f"{function}({', '.join(map(str, [*places, *counts]))});"]

        copy_loops(out, outer, body, inside, outside)

    def _reaching(self, rows: CopyAxis, row: CopyAxis, verb: str) -> int:
        """Return the number of rows whose last vector may write into the next row, which is copied afterwards."""
        follow_each_other = len(self.plane) > 1 and rows.inside == self.plane[-2].pitch and row.extent == self.plane[-1].extent
        if not follow_each_other or (verb == "finish" and rows.outside != row.extent):
            return 0
        length = -(-row.extent // self.lanes) * self.lanes
        strides = (rows.outside, rows.inside)
        return max(0, min(((rows.extent - 1) * stride + row.extent - length) // stride + 1 for stride in strides))


def plane_lanes(
    plan: NestPlan,
    shapes: Shapes,
    lanes: int,
    formats: tuple[Format, Format] = ("contiguous", "contiguous"),
    epilogue: Epilogue = NO_EPILOGUE,
    rows: int | None = None,
) -> PlaneLanes:
    """Return the program of a plan whose vector lanes are positions of a plane.

    Args:
        plan, shapes, lanes, formats, epilogue: as in `sample_lanes`.
        rows: number of rows of a band; None: no bands.

    Raises LoweringError if no axis is read at its own position plus an offset by all nests, or if the plane cannot be cut into
    such bands.
    """
    stored, plane = _with_plane(without_strides(plan), epilogue.channel)
    if not plane:
        raise LoweringError("no axis is read at its own positions plus offsets")
    for at, nest in enumerate(stored.nests):
        if {number for number, axis in enumerate(nest.source) if axis.wraps} - {axis.sources[at] for axis in plane}:
            raise LoweringError("an axis that is read at a stride and around its border is none of the plane's")
    program = PlaneLanes(stored, lanes, *sides(stored, shapes, formats), epilogue, plane, plane[0].extent)
    return program if rows is None else program.with_rows(rows)
