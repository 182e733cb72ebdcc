"""Programs whose vectors lie across samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from syno.ir.coordinates import Array
from syno.lower.native.kernel import Writer
from syno.lower.native.loop_code import LoopCode
from syno.lower.native.nests import Axis, NestPlan
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
    merged,
    reading,
    row_major,
    sides,
    statements_after,
    writing,
)  # fmt: skip

MOST_NEIGHBOURS = 4096  # that one table places in scratch
MANY_LINES = 8  # of the cache

# Neighbours of each sample become vectors, one for each of the neighbours; and back.
PACK = """\
template <long WIDTH>
static inline void @NAME@_columns(const float* x, const long* at, long count, float* to@PLACES@) {
  Vector rows[LANES];
  for (long lane = 0; lane < LANES; ++lane) rows[lane] = lane < count ? load_first<WIDTH>(x + at[lane]) : Vector{};
  transpose(rows);
  for (long row = 0; row < WIDTH; ++row) store(to + @PLACE@, rows[row]);
}"""
UNPACK = """\
template <long WIDTH>
static inline void @NAME@_columns(const float* from, const long* at, long count, float* y, const float* residual@PLACES@) {
  Vector rows[LANES];
  for (long row = 0; row < LANES; ++row) rows[row] = row < WIDTH ? load(from + @PLACE@) : Vector{};
  transpose(rows);
  for (long lane = 0; lane < LANES; ++lane)
    if (lane < count) {
      Vector value = rows[lane];
@END@
      store_first<WIDTH>(y + at[lane], value);
    }
}"""


@dataclass(frozen=True, eq=False)
class SampleLanes(Lanes):
    """A program whose vectors lie across samples."""

    @property
    def samples_of_block(self) -> int:
        """One for each lane."""
        return self.lanes

    @property
    def reads_in_place(self) -> bool:
        """Whether the first nest reads the caller's tensor."""
        has_halo = any(axis.before or axis.after for axis in self.plan.nests[0].source)
        return self.input.format == "lanes" and not has_halo

    @property
    def writes_in_place(self) -> bool:
        """Whether the last nest writes the caller's tensor."""
        return self.output.format == "lanes"

    def place(self, side: Side) -> str:
        """Return where block `number` of a tensor in the format "lanes" begins."""
        return f"number * {prod(extent for _, extent in side.own)} * LANES"

    def layouts(self) -> list[Layout]:
        """Return the layout of the input, of each intermediate result, and of the output."""
        nests = self.plan.nests
        extents = nests[-1].target
        last = Layout(row_major(extents, self.lanes), 0, self.lanes * prod(extents))
        is_compact = [self.reads_in_place, *(False for _ in nests[1:])]
        return [*(_with_halo(nest.source, self.lanes, one) for nest, one in zip(nests, is_compact, strict=True)), last]

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
        """Return the function that brings a block of the input into scratch, and the statements that call it."""
        out = Writer()
        if self.input.format == "lanes":
            own = row_major([extent for _, extent in self.input.own], self.lanes)
            axes = merged(
                CopyAxis(extent, outside, to)
                for (_, extent), outside, to in zip(self.input.own, own, layout.strides, strict=True)
            )
            copy_loops(out, axes, lambda outside, inside: [f"store(to + {inside}, load(x + {outside}));"], layout.origin)
            function = [f"static void {name}_pack(const float* x, float* to, int part, int parts) {{", *out.lines, "}"]
            return "\n".join(function), [f"{name}_pack(block, scratch, part, parts);"]
        axes = merged(CopyAxis(extent, stride, to) for (stride, extent), to in zip(self.input.own, layout.strides, strict=True))
        out.open("if (are_neighbours(at))")
        copy_loops(
            out, axes, lambda outside, inside: [f"store(to + {inside}, load_unaligned(x + at[0] + {outside}));"], layout.origin
        )
        out.line("return;")
        out.close()
        outer, run, places = _neighbours(axes, self.lanes)
        columns = _columns(PACK, f"{name}_pack", run, places, self.lanes)
        if run:
            copy_loops(
                out,
                outer,
                lambda outside, inside: _in_columns(
                    f"{name}_pack", run, places, f"x + {outside}", "at, count", f"to + {inside}"
                ),
                layout.origin,
            )
        else:
            gather = "for (long lane = 0; lane < count; ++lane) to[{} + lane] = x[at[lane] + {}];"
            copy_loops(out, axes, lambda outside, inside: [gather.format(inside, outside)], layout.origin)
        head = f"static void {name}_pack(const float* x, const long* at, long count, float* to, int part, int parts) {{"
        call = ["long at[LANES];", f"const long count = {name}_places_in(number, samples, at);"]
        call.append(f"{name}_pack(x, at, count, scratch, part, parts);")
        return "\n".join([_places_of_samples(f"{name}_places_in", self.input), *columns, head, *out.lines, "}"]), call

    def unpack(self, name: str, layout: Layout, place: int) -> tuple[str, list[str]]:
        """Return the same for the output, which begins at `place` in scratch."""
        out = Writer()
        axes = merged(
            CopyAxis(extent, stride, to) for (stride, extent), to in zip(self.output.own, layout.strides, strict=True)
        )
        out.open("if (are_neighbours(at))")
        copy_loops(
            out,
            axes,
            lambda outside, inside: [
                f"Vector value = load(from + {inside});",
                *statements_after(self.epilogue, f"load_unaligned(residual + at[0] + {outside})"),
                f"store_unaligned(y + at[0] + {outside}, value);",
            ],
            0,
        )
        out.line("return;")
        out.close()
        outer, run, places = _neighbours(axes, self.lanes)
        end = [f"      {line}" for line in statements_after(self.epilogue, "load_first<WIDTH>(residual + at[lane])")]
        columns = _columns(UNPACK.replace("@END@", "\n".join(end)), f"{name}_unpack", run, places, self.lanes)
        if run:
            copy_loops(
                out,
                outer,
                lambda outside, inside: _in_columns(
                    f"{name}_unpack", run, places, f"from + {inside}", "at, count", f"y + {outside}", f"residual + {outside}"
                ),
                0,
            )
        else:
            copy_loops(
                out,
                axes,
                lambda outside, inside: [
                    f"Vector value = load(from + {inside}), added = {{}};",
                    *([_each_lane(f"added[lane] = residual[at[lane] + {outside}];")] if self.epilogue.residual else []),
                    *statements_after(self.epilogue, "added"),
                    _each_lane(f"y[at[lane] + {outside}] = value[lane];"),
                ],
                0,
            )
        head = (
            f"static void {name}_unpack(const float* from, const long* at, long count, float* y, const float* residual, "
            "int part, int parts) {"
        )
        call = ["long to[LANES];", f"const long kept = {name}_places_out(number, samples, to);"]
        call.append(f"{name}_unpack(scratch + {place}, to, kept, y, residual, part, parts);")
        return "\n".join([_places_of_samples(f"{name}_places_out", self.output), *columns, head, *out.lines, "}"]), call


def sample_lanes(
    plan: NestPlan,
    shapes: Shapes,
    lanes: int,
    formats: tuple[Format, Format] = ("contiguous", "contiguous"),
    epilogue: Epilogue = NO_EPILOGUE,
) -> SampleLanes:
    """Return the program of a plan with vectors across samples. Without an axis that stays as it is, there is one sample.

    Args:
        plan: the nests.
        shapes: of the input and of the output.
        lanes: floats of a vector.
        formats: of the input and of the output.
        epilogue: what is computed with the results.
    """
    return SampleLanes(plan, lanes, *sides(plan, shapes, formats), epilogue)


def _with_halo(axes: Sequence[Axis], lanes: int, is_compact: bool) -> Layout:
    """Return the layout of a tensor with the halos of these axes, a vector for each position.

    Unless it is compact, what lies many lines of the cache apart along an axis lies one more apart: else the positions of the
    axis would share few of the cache's sets.
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
    """Return the outer axes, how many elements inside of them are neighbours in a sample, and where each lies in scratch.

    Without neighbours, their number is 0. The places are None if they are neighbours in scratch, too.
    """
    outer, places = list(axes), np.zeros(1, np.int64)
    while outer and outer[-1].outside == len(places) and outer[-1].extent * len(places) <= MOST_NEIGHBOURS:
        axis = outer.pop()
        places = (axis.inside * np.arange(axis.extent)[:, None] + places).reshape(-1)
    if len(places) == 1:
        return list(axes), 0, None
    in_order = np.array_equal(places, lanes * np.arange(len(places)))
    return outer, len(places), None if in_order else places


def _columns(template: str, name: str, run: int, places: Array | None, lanes: int) -> list[str]:
    """Return the function that brings neighbours in or out, as many as a vector has lanes or fewer, and its table."""
    if not run:
        return []
    if places is None:
        return [template.replace("@NAME@", name).replace("@PLACES@", "").replace("@PLACE@", "row * LANES")]
    table = f"static const int {name}_table[{run}] = {{{', '.join(map(str, places.tolist()))}}};"
    return [table, template.replace("@NAME@", name).replace("@PLACES@", ", const int* place").replace("@PLACE@", "place[row]")]


def _in_columns(name: str, run: int, places: Array | None, source: str, samples: str, *rest: str) -> list[str]:
    """Return the statements that bring `run` neighbours in or out. Scratch is the target of a pack, the source of an unpack."""
    unpacks = len(rest) == 2

    def call(width: str, first: str) -> str:
        outside, inside = first, "" if places is not None else f" + {first} * LANES"
        if unpacks:
            arguments = [f"{source}{inside}", samples, *(f"{one} + {outside}" for one in rest)]
        else:
            arguments = [f"{source} + {outside}", samples, f"{rest[0]}{inside}"]
        if places is not None:
            arguments.append(f"{name}_table + {first}")
        return f"{name}_columns<{width}>({', '.join(arguments)});"

    return [
        f"for (long first = 0; first + LANES <= {run}; first += LANES) {call('LANES', 'first')}",
        f"if ({run} % LANES) {call(f'({run} % LANES ? {run} % LANES : 1)', f'({run} / LANES * LANES)')}",
    ]


def _each_lane(statement: str) -> str:
    return f"for (long lane = 0; lane < count; ++lane) {statement}"


def _places_of_samples(name: str, side: Side) -> str:
    """Return the function that says where the samples of a block begin, and how many there are."""
    lines = [
        f"static long {name}(long number, long samples, long* at) {{",
        "  const long first = number * LANES, count = samples - first < LANES ? samples - first : LANES;",
        "  for (long lane = 0; lane < LANES; ++lane) {",
        "    long rest = first + (lane < count ? lane : 0), place = 0;",
    ]
    for stride, extent in reversed(side.through[1:]):
        lines += [f"    place += rest % {extent} * {stride};", f"    rest /= {extent};"]
    if side.through:
        lines.append(f"    place += rest * {side.through[0][0]};")
    return "\n".join([*lines, "    at[lane] = place;", "  }", "  return count;", "}"])
