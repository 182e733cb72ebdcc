"""The whole function of an operator: formats of its tensors, scratch, and the nests one after another.

Vectors lie either across samples or across the positions of a plane:

- **Samples**: a vector holds one element of each of as many samples as it has lanes. Every operator can be computed so. A tensor in
  the usual format is transposed on the way in and out; one in the format "lanes", which other kernels write, is not.
- **Planes**: a vector holds neighbouring positions of the innermost axes, rows one after another with the halo between them, so
  that a window is an offset. This is for operators that read each of these axes at its own position plus an offset. No sample
  is needed but one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

import numpy as np

from syno.base.errors import LoweringError
from syno.ir.coordinates import Array
from syno.lower.native.kernel import NestWriter, Writer, laid_out
from syno.lower.native.loop_code import Address, LoopCode
from syno.lower.native.nests import Axis, Nest, NestPlan
from syno.lower.native.schedules import NestSchedule

CACHE_LINE = 16  # floats
Format = Literal["contiguous", "channels_last", "lanes"]
ACTIVATIONS = {"identity": "value", "relu": "value > 0 ? value : Vector{}"}


@dataclass(frozen=True)
class Epilogue:
    """What follows an operator in a network and is computed with its results.

    Attributes:
        channel: the axis of the output that is numbered by channels; None if no factor or summand of a channel follows.
        scale, shift: whether results are multiplied with a number of their channel, then added to one.
        residual: whether a tensor of the output's shape, in its format, is added then.
        activation: the function of the sum: a name in `ACTIVATIONS`.
    """

    channel: int | None = None
    scale: bool = False
    shift: bool = False
    residual: bool = False
    activation: str = "identity"


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


@dataclass(frozen=True, eq=False)
class Program:
    """The code of an operator at given sizes.

    Attributes:
        source: C++ with one function, `NAME(x, w, y, scale, shift, residual, scratch, samples, threads)`.
        name: of the function.
        scratch: floats that each thread needs.
        samples: positions of the axes that stay as they are.
        codes: the nests as they are written.
        schedules: their schedules.
        nests: the nests.
    """

    source: str
    name: str
    scratch: int
    samples: int
    codes: tuple[LoopCode, ...]
    schedules: tuple[NestSchedule, ...]
    nests: tuple[Nest, ...]

    def factors(self, weights: Sequence[Array]) -> Array:
        """Return the factors of all nests, from the operator's weights, as the function takes them."""
        pieces = []
        for nest, code, schedule in zip(self.nests, self.codes, self.schedules, strict=True):
            if nest.factor is not None:
                piece = laid_out(nest.factor.values(weights), code, schedule).astype(np.float32)
                pieces.append(np.pad(piece, (0, -len(piece) % CACHE_LINE)))
        return np.concatenate(pieces) if pieces else np.zeros(CACHE_LINE, np.float32)


def preamble(lanes: int) -> str:
    """Return the vector types, and the functions on them that programs call."""
    exchanges = []
    half = lanes // 2
    while half:
        for row in range(lanes):
            if not row & half:
                low = [lane if not lane & half else lane - half + lanes for lane in range(lanes)]
                high = [lane + half if not lane & half else lane + lanes for lane in range(lanes)]
                a, b = f"rows[{row}]", f"rows[{row + half}]"
                exchanges.append(
                    f"  {{ const Vector a = {a}, b = {b}; {a} = __builtin_shufflevector(a, b, {', '.join(map(str, low))}); "
                    f"{b} = __builtin_shufflevector(a, b, {', '.join(map(str, high))}); }}"
                )
        half //= 2
    return _PREAMBLE.replace("@LANES@", str(lanes)).replace("@EXCHANGES@", "\n".join(exchanges))


_PREAMBLE = """\
#include <cstring>
#ifdef _OPENMP
#include <omp.h>
#define THREAD omp_get_thread_num()
#define THREADS omp_get_num_threads()
#define BARRIER if (parts > 1) { _Pragma("omp barrier") }
#else
#define THREAD 0
#define THREADS 1
#define BARRIER
#endif

// For the choice of schedules: the least time of bringing the input in, of each nest, and of bringing the output out.
#ifdef SYNO_LAPS
#include <time.h>
static inline long long nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);  // of this thread alone, whatever else runs
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}
#define LAPS(name, count) extern "C" { long long name##_laps[count]; }
#define START long long lap = nanoseconds();
#define LAP(name, number) { const long long now = nanoseconds(), took = now - lap; \
  if (took < name##_laps[number] || !name##_laps[number]) name##_laps[number] = took; lap = now; }
#else
#define LAPS(name, count)
#define START
#define LAP(name, number)
#endif

namespace {

constexpr long LANES = @LANES@;
typedef float Vector __attribute__((vector_size(4 * LANES), may_alias));
typedef int Mask __attribute__((vector_size(4 * LANES), may_alias));
typedef float Unaligned __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

// What is read once for several products stays in a register: compilers would read it again for each of them.
#if defined(__AVX512F__)
#define HOLD(value) __asm__("" : "+v"(value))
#elif defined(__x86_64__)
#define HOLD(value) __asm__("" : "+x"(value))
#elif defined(__aarch64__)
#define HOLD(value) __asm__("" : "+w"(value))
#else
#define HOLD(value)
#endif

inline Vector load(const float* at) { return *(const Vector*)at; }
inline Vector load_unaligned(const float* at) { return *(const Unaligned*)at; }
inline void store(float* at, Vector value) { *(Vector*)at = value; }
inline void store_unaligned(float* at, Vector value) { *(Unaligned*)at = value; }

// The first lanes; nothing behind them is read or written.
template <long COUNT>
inline Vector load_first(const float* at) {
  Vector value = {};
  std::memcpy(&value, at, 4 * COUNT);
  return value;
}
template <long COUNT>
inline void store_first(float* at, Vector value) { std::memcpy(at, &value, 4 * COUNT); }

// Rows become columns.
inline void transpose(Vector* rows) {
@EXCHANGES@
}
"""


_PACK_RUN = """\
// Neighbours of each sample become vectors, one for each of the neighbours.
template <long WIDTH>
inline void pack_columns(const float* x, const long* at, long count, float* to) {
  Vector rows[LANES];
  for (long lane = 0; lane < LANES; ++lane) rows[lane] = lane < count ? load_first<WIDTH>(x + at[lane]) : Vector{};
  transpose(rows);
  for (long row = 0; row < WIDTH; ++row) store(to + row * LANES, rows[row]);
}
template <long RUN>
inline void pack_run(const float* x, const long* at, long count, float* to) {
  long first = 0;
  for (; first + LANES <= RUN; first += LANES) pack_columns<LANES>(x + first, at, count, to + first * LANES);
  if (RUN % LANES) pack_columns<RUN % LANES>(x + first, at, count, to + first * LANES);
}
"""
_COPY_RUN = """\
template <long RUN>
inline void copy_run(const float* x, float* to) {
  long first = 0;
  for (; first + LANES <= RUN; first += LANES) store_unaligned(to + first, load_unaligned(x + first));
  if (RUN % LANES) store_first<RUN % LANES>(to + first, load_first<RUN % LANES>(x + first));
}
"""
_FINISH_RUN = """\
template <long WIDTH>
inline void @NAME@_part(const float* from, float* y, const float* residual) {
    Vector value = load_first<WIDTH>(from);
@END@
    store_first<WIDTH>(y, value);
}
template <long RUN>
inline void @NAME@_run(const float* from, float* y, const float* residual) {
  long first = 0;
  for (; first + LANES <= RUN; first += LANES) @NAME@_part<LANES>(from + first, y + first, residual + first);
  if (RUN % LANES) @NAME@_part<RUN % LANES>(from + first, y + first, residual + first);
}
"""
_UNPACK_RUN = """\
template <long WIDTH>
inline void @NAME@_columns(const float* from, const long* at, long count, float* y, const float* residual) {
  Vector rows[LANES];
  for (long row = 0; row < LANES; ++row) rows[row] = row < WIDTH ? load(from + row * LANES) : Vector{};
  transpose(rows);
  for (long lane = 0; lane < LANES; ++lane)
    if (lane < count) {
      Vector value = rows[lane];
@END@
      store_first<WIDTH>(y + at[lane], value);
    }
}
template <long RUN>
inline void @NAME@(const float* from, const long* at, long count, float* y, const float* residual) {
  long first = 0;
  for (; first + LANES <= RUN; first += LANES)
    @NAME@_columns<LANES>(from + first * LANES, at, count, y + first, residual + first);
  if (RUN % LANES) @NAME@_columns<RUN % LANES>(from + first * LANES, at, count, y + first, residual + first);
}
"""


# ---- layouts ---------------------------------------------------------------------------------------------------------


def _row_major(extents: Sequence[int], unit: int) -> tuple[int, ...]:
    strides, stride = [], unit
    for extent in reversed(extents):
        strides.append(stride)
        stride *= extent
    return tuple(reversed(strides))


def _layout(axes: Sequence[Axis], unit: int) -> Layout:
    """Return the layout of a tensor with the halos of these axes, whose elements have `unit` floats."""
    strides = _row_major([axis.stored for axis in axes], unit)
    size = unit * prod(axis.stored for axis in axes)
    return Layout(strides, sum(stride * axis.before for stride, axis in zip(strides, axes, strict=True)), size)


def _read(nest: Nest, layout: Layout, skipped: Sequence[int] = ()) -> Address:
    """Return the addresses at which a nest reads a tensor of this layout, without the terms of some loops."""
    constant, steps = layout.origin, dict[int, int]()
    tables: dict[tuple[int, ...], Array] = {}
    for axis, stride in zip(nest.source, layout.strides, strict=True):
        for term in axis.index:
            if not term.loops:
                constant += stride * int(term.table)
            elif term.step is not None:
                if term.loops[0] not in skipped:
                    steps[term.loops[0]] = steps.get(term.loops[0], 0) + stride * term.step
            else:
                tables[term.loops] = tables.get(term.loops, 0) + stride * term.table
    return Address(constant, steps, tuple(tables.items()))


def _written(nest: Nest, layout: Layout) -> Address:
    """Return the addresses at which a nest writes a tensor of this layout."""
    steps: dict[int, int] = {}
    for loops, stride in zip(nest.written, layout.strides, strict=True):
        for loop in reversed(loops):
            steps[loop] = stride
            stride *= nest.loops[loop].extent
    return Address(layout.origin, steps)


def _channels(nest: Nest, axis: int | None) -> dict[int, int]:
    """Return the step of each loop in the position along an axis of the target."""
    steps: dict[int, int] = {}
    step = 1
    for loop in reversed(nest.written[axis]) if axis is not None else ():
        steps[loop] = step
        step *= nest.loops[loop].extent
    return steps


# ---- vectors across samples ------------------------------------------------------------------------------------------


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
    strides = dict(zip(order, _row_major([shape[axis] for axis in order], 1), strict=True))
    return Side(format, *(tuple((strides[axis], shape[axis]) for axis in axes) for axes in (through, own)))


@dataclass(frozen=True, eq=False)
class Lanes:
    """What vectors lie across: the base of the two kinds of programs.

    Attributes:
        plan: the nests.
        lanes: floats of a vector.
        input, output: as callers have them.
        epilogue: what is computed with the results.
    """

    plan: NestPlan
    lanes: int
    input: Side
    output: Side
    epilogue: Epilogue

    def layouts(self) -> list[Layout]:
        """Return the layout of the input, of each intermediate result, and of the output."""
        raise NotImplementedError

    def codes(self) -> list[LoopCode]:
        """Return what is written of each nest."""
        raise NotImplementedError

    def _pack(self, name: str, layout: Layout) -> tuple[str, list[str]]:
        """Return the function that brings a block of the input into scratch, and the statements that call it."""
        raise NotImplementedError

    def _unpack(self, name: str, layout: Layout) -> tuple[str, list[str]]:
        """Return the same for the output."""
        raise NotImplementedError

    @property
    def reads_in_place(self) -> bool:
        """Whether the first nest reads the caller's tensor."""
        return False

    @property
    def writes_in_place(self) -> bool:
        """Whether the last nest writes the caller's tensor."""
        return False

    @property
    def samples_of_block(self) -> int:
        """How many samples are computed together."""
        return 1

    def program(self, name: str, schedules: Sequence[NestSchedule]) -> Program:
        """Return the program."""
        codes, layouts = self.codes(), self.layouts()
        sizes = [layout.size for layout in layouts]
        if self.reads_in_place:
            sizes[0] = 0
        if self.writes_in_place:
            sizes[-1] = 0
        sizes = [-(-size // CACHE_LINE) * CACHE_LINE for size in sizes]
        places = [sum(sizes[:at]) for at in range(len(sizes))]
        pack, to_scratch = ("", []) if self.reads_in_place else self._pack(name, layouts[0])
        unpack, from_scratch = ("", []) if self.writes_in_place else self._unpack(name, layouts[-1])
        functions = [_finish(self.epilogue, self.writes_in_place), pack, unpack]
        elements, results = (prod(extent for _, extent in side.own) for side in (self.input, self.output))
        lines = [
            "START",
            f"const float* block = x + number * {elements} * LANES;" if self.input.format == "lanes" else "",
            f"float* result = y + number * {results} * LANES;" if self.writes_in_place else "",
            f"const float* added = residual + number * {results} * LANES;" if self.writes_in_place else "const float* added = nullptr;",
            *to_scratch,
            f"LAP({name}, 0)",
        ]
        offset = 0
        for at, (code, schedule) in enumerate(zip(codes, schedules, strict=True)):
            last = at == len(codes) - 1
            functions.append(NestWriter(f"{name}_nest{at}", code, schedule, self.lanes, last).function())
            source = "block" if at == 0 and self.reads_in_place else f"scratch + {places[at]}"
            target = "result" if last and self.writes_in_place else f"scratch + {places[at + 1]}"
            extra = ", scale, shift, added" if last else ""
            lines += ["BARRIER"] if at or to_scratch else []
            lines.append(f"{name}_nest{at}({source}, w + {offset}, {target}{extra}, part, parts);")
            lines.append(f"LAP({name}, {at + 1})")
            if code.factor_loops is not None:
                tile = dict(schedule.tile)
                size = prod(-(-code.extents[loop] // tile.get(loop, 1)) * tile.get(loop, 1) for loop in code.factor_loops)
                offset += -(-size // CACHE_LINE) * CACHE_LINE
        lines += [*(["BARRIER"] if from_scratch else []), *from_scratch, f"LAP({name}, {len(codes) + 1})"]
        arguments = "const float* x, const float* w, float* y, const float* scale, const float* shift, const float* residual"
        names = "x, w, y, scale, shift, residual"
        body = [
            f"LAPS({name}, {len(codes) + 2})",
            f"static void {name}_block({arguments}, float* scratch, long number, long samples, int part, int parts) {{",
            *(f"  {line}" for line in lines if line),
            "}",
            f'extern "C" void {name}({arguments}, float* memory, long samples, int threads) {{',
            f"  const long blocks = (samples + {self.samples_of_block - 1}) / {self.samples_of_block}, size = {sum(sizes)};",
            "  std::memset(memory, 0, 4 * size * threads);  // halos stay zero",
            "  if (threads == 1) {",
            f"    for (long number = 0; number < blocks; ++number) {name}_block({names}, memory, number, samples, 0, 1);",
            "  } else if (blocks >= threads) {",
            "#pragma omp parallel for num_threads(threads) schedule(static)",
            f"    for (long number = 0; number < blocks; ++number) {name}_block({names}, memory + size * THREAD, number, samples, 0, 1);",
            "  } else {",
            "#pragma omp parallel num_threads(threads)",
            "    for (long number = 0; number < blocks; ++number) {",
            f"      {name}_block({names}, memory, number, samples, THREAD, THREADS);",
            "#pragma omp barrier",
            "    }",
            "  }",
            "}",
        ]
        return Program(
            source="\n".join([*filter(None, functions), *body]) + "\n",
            name=name,
            scratch=sum(sizes),
            samples=self.plan.samples,
            codes=tuple(codes),
            schedules=tuple(schedules),
            nests=self.plan.nests,
        )


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
        return self.input.format == "lanes" and not _has_halo(self.plan.nests[0])

    @property
    def writes_in_place(self) -> bool:
        """Whether the last nest writes the caller's tensor."""
        return self.output.format == "lanes"

    def layouts(self) -> list[Layout]:
        """Return the layout of the input, of each intermediate result, and of the output."""
        nests = self.plan.nests
        found = [_layout(nest.source, self.lanes) for nest in nests]
        extents = nests[-1].target
        return [*found, Layout(_row_major(extents, self.lanes), 0, self.lanes * prod(extents))]

    def codes(self) -> list[LoopCode]:
        """Return what is written of each nest."""
        nests, layouts = self.plan.nests, self.layouts()
        channel = None
        if self.epilogue.channel is not None:
            channel = self.plan.outputs.index(self.epilogue.channel)
        return [
            LoopCode(
                extents=tuple(loop.extent for loop in nest.loops),
                summed=tuple(number for number, loop in enumerate(nest.loops) if loop.is_summed),
                read=_read(nest, layouts[at]),
                write=_written(nest, layouts[at + 1]),
                factor_loops=None if nest.factor is None else nest.factor.loops,
                channel=_channels(nest, channel) if nest is nests[-1] else {},
            )
            for at, nest in enumerate(nests)
        ]

    def _pack(self, name: str, layout: Layout) -> tuple[str, list[str]]:
        out = Writer()
        if self.input.format == "lanes":
            strides = _row_major([extent for _, extent in self.input.own], self.lanes)
            axes = _merged([(extent, stride, to) for (_, extent), stride, to in zip(self.input.own, strides, layout.strides, strict=True)])
            _copy_loops(out, axes, lambda source, target: [f"store(to + {target}, load(x + {source}));"], layout.origin)
            function = [f"static void {name}_pack(const float* x, float* to, int part, int parts) {{", *out.lines, "}"]
            return "\n".join(function), [f"{name}_pack(block, scratch, part, parts);"]
        axes = _merged([(extent, stride, to) for (stride, extent), to in zip(self.input.own, layout.strides, strict=True)])
        out.open("if (at[LANES - 1] - at[0] == LANES - 1)")
        _copy_loops(out, axes, lambda source, target: [f"store(to + {target}, load_unaligned(x + at[0] + {source}));"], layout.origin)
        out.line("return;")
        out.close()
        if _has_run(axes, self.lanes):
            run = axes.pop()[0]
            body = lambda source, target: [f"pack_run<{run}>(x + {source}, at, count, to + {target});"]  # noqa: E731
        else:
            body = lambda source, target: [  # noqa: E731
                f"for (long lane = 0; lane < count; ++lane) to[{target} + lane] = x[at[lane] + {source}];"
            ]
        _copy_loops(out, axes, body, layout.origin)
        head = f"static void {name}_pack(const float* x, const long* at, long count, float* to, int part, int parts) {{"
        call = ["long at[LANES];", f"const long count = {name}_places_in(number, samples, at);"]
        call.append(f"{name}_pack(x, at, count, scratch, part, parts);")
        return "\n".join([_places(f"{name}_places_in", self.input), head, *out.lines, "}"]), call

    def _unpack(self, name: str, layout: Layout) -> tuple[str, list[str]]:
        out = Writer()
        axes = _merged([(extent, stride, to) for (stride, extent), to in zip(self.output.own, layout.strides, strict=True)])
        out.open("if (at[LANES - 1] - at[0] == LANES - 1)")
        _copy_loops(
            out,
            axes,
            lambda source, target: [
                f"Vector value = load(from + {target});",
                *_after(self.epilogue, f"load_unaligned(residual + at[0] + {source})"),
                f"store_unaligned(y + at[0] + {source}, value);",
            ],
            0,
        )
        out.line("return;")
        out.close()
        if _has_run(axes, self.lanes):
            run = axes.pop()[0]
            body = lambda source, target: [  # noqa: E731
                f"{name}_unpack_run<{run}>(from + {target}, at, count, y + {source}, residual + {source});"
            ]
        else:
            added = f"for (long lane = 0; lane < count; ++lane) added[lane] = residual[at[lane] + %s];"
            body = lambda source, target: [  # noqa: E731
                f"Vector value = load(from + {target}), added = {{}};",
                *([added % source] if self.epilogue.residual else []),
                *_after(self.epilogue, "added"),
                f"for (long lane = 0; lane < count; ++lane) y[at[lane] + {source}] = value[lane];",
            ]
        _copy_loops(out, axes, body, 0)
        end = "\n".join(f"      {line}" for line in _after(self.epilogue, "load_first<WIDTH>(residual + at[lane])"))
        runs = _UNPACK_RUN.replace("@NAME@", f"{name}_unpack_run").replace("@END@", end)
        head = f"static void {name}_unpack(const float* from, const long* at, long count, float* y, const float* residual, int part, int parts) {{"
        places = sum(-(-one.size // CACHE_LINE) * CACHE_LINE for one in self.layouts()[:-1]) - (self.layouts()[0].size if self.reads_in_place else 0)
        call = ["long to[LANES];", f"const long kept = {name}_places_out(number, samples, to);"]
        call.append(f"{name}_unpack(scratch + {places}, to, kept, y, residual, part, parts);")
        return "\n".join([_places(f"{name}_places_out", self.output), runs, head, *out.lines, "}"]), call


# ---- vectors across a plane ------------------------------------------------------------------------------------------


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
    sources, loops = [axis], []
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

    The axis of channels is none of them if what follows has numbers for each channel: a vector has one channel only.
    """
    found: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for axis in reversed(range(len(plan.outputs))):
        followed = _follow(plan, axis)
        if followed is None or axis == channel or any(set(followed[0][:1]) & set(other[0][:1]) for other in found):
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
            size = -(-(ahead + self.vectors * self.lanes + behind) // CACHE_LINE) * CACHE_LINE
            if size % 1024 == 0:
                size += CACHE_LINE  # planes a multiple of 4 KiB apart would share the same lines of the cache
            extents = nests[-1].target if last else [axis.stored for axis in nests[at].source]
            others = [axis for axis in range(len(extents)) if axis not in pitches]
            strides = dict(zip(others, _row_major([extents[axis] for axis in others], size), strict=True)) | pitches
            origin = ahead + sum(strides[axis] * halos[axis][0] for axis in others if halos)
            total = size * prod(extents[axis] for axis in others) + self.lanes
            found.append(Layout(tuple(strides[axis] for axis in range(len(extents))), origin, total))
        return found

    def codes(self) -> list[LoopCode]:
        """Return what is written of each nest. The loop over the innermost axis is that over vectors; those over the others go."""
        nests, layouts = self.plan.nests, self.layouts()
        channel = None if self.epilogue.channel is None else self.plan.outputs.index(self.epilogue.channel)
        codes = []
        for at, nest in enumerate(nests):
            loops = [axis.loops[at] for axis in self.plane]
            extents = [1 if number in loops else loop.extent for number, loop in enumerate(nest.loops)]
            extents[loops[-1]] = self.vectors
            read, write = _read(nest, layouts[at]), _written(nest, layouts[at + 1])
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
                    channel=_channels(nest, channel) if last else {},
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

    def _pack(self, name: str, layout: Layout) -> tuple[str, list[str]]:
        out = Writer()
        axes = _merged([(extent, stride, to) for (stride, extent), to in zip(self.input.own, layout.strides, strict=True)])
        if axes and axes[-1][1:] == (1, 1) and len(axes) > 1:
            run = axes.pop()[0]
            body = lambda source, target: [f"copy_run<{run}>(x + {source}, to + {target});"]  # noqa: E731
        else:
            body = lambda source, target: [f"to[{target}] = x[{source}];"]  # noqa: E731
        _copy_loops(out, axes, body, layout.origin)
        head = f"static void {name}_pack(const float* x, float* to, int part, int parts) {{"
        call = [f"{name}_pack(x + {_place(self.input)}, scratch, part, parts);"]
        return "\n".join([head, *out.lines, "}"]), call

    def _unpack(self, name: str, layout: Layout) -> tuple[str, list[str]]:
        out = Writer()
        axes = _merged([(extent, stride, to) for (stride, extent), to in zip(self.output.own, layout.strides, strict=True)])
        head = f"static void {name}_unpack(const float* from, float* y, const float* residual, int part, int parts) {{"
        runs = ""
        if axes and axes[-1][1:] == (1, 1) and len(axes) > 1:
            run = axes.pop()[0]
            end = "\n".join(f"    {line}" for line in _after(self.epilogue, "load_first<WIDTH>(residual)"))
            runs = _FINISH_RUN.replace("@NAME@", f"{name}_finish").replace("@END@", end)
            body = lambda source, target: [  # noqa: E731
                f"{name}_finish_run<{run}>(from + {target}, y + {source}, residual + {source});"
            ]
        else:
            body = lambda source, target: [  # noqa: E731
                f"Vector value = {{from[{target}]}};",
                *_after(self.epilogue, f"Vector{{residual[{source}]}}"),
                f"y[{source}] = value[0];",
            ]
        _copy_loops(out, axes, body, layout.origin)
        place = _place(self.output)
        layouts = self.layouts()
        start = sum(-(-one.size // CACHE_LINE) * CACHE_LINE for one in layouts[:-1])
        call = [f"{name}_unpack(scratch + {start}, y + {place}, residual + {place}, part, parts);"]
        return "\n".join([runs, head, *out.lines, "}"]), call


def _place(side: Side) -> str:
    """Return where sample `number` begins."""
    terms, divisor = [], 1
    for stride, extent in reversed(side.through[1:]):
        terms.append(f"number / {divisor} % {extent} * {stride}")
        divisor *= extent
    if side.through:
        terms.append(f"number / {divisor} * {side.through[0][0]}")
    return " + ".join(terms) or "0"


def _has_halo(nest: Nest) -> bool:
    return any(axis.before or axis.after for axis in nest.source)


def _has_run(axes: Sequence[tuple[int, int, int]], lanes: int) -> bool:
    """Return whether neighbours along the innermost axis are neighbours in memory and become neighbouring vectors."""
    return bool(axes) and axes[-1][0] > 1 and axes[-1][1:] == (1, lanes)


def _after(epilogue: Epilogue, added: str) -> list[str]:
    """Return the statements for `value` that `finish` leaves for when a result is brought into the caller's format."""
    if not epilogue.residual:
        return []
    return [f"value += {added};", f"value = {ACTIVATIONS[epilogue.activation]};"]


def _finish(epilogue: Epilogue, in_place: bool) -> str:
    """Return the function that ends the last nest. What is added in another format is added when the result is written there."""
    lines = [
        "inline Vector finish(Vector value, long channel, long where, const float* scale, const float* shift, const float* added) {"
    ]
    if epilogue.scale:
        lines.append("  value = value * scale[channel];")
    if epilogue.shift:
        lines.append("  value = value + shift[channel];")
    if epilogue.residual and in_place:
        lines.append("  value += load(added + where);")
    if not epilogue.residual or in_place:
        lines.append(f"  value = {ACTIVATIONS[epilogue.activation]};")
    return "\n".join([*lines, "  return value;", "}"])


def _places(name: str, side: Side) -> str:
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


def _merged(axes: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return axes (extent, stride, stride in scratch) from the outermost, neighbours in both made one."""
    found: list[tuple[int, int, int]] = []
    for extent, stride, to in sorted((axis for axis in axes if axis[0] > 1), key=lambda axis: -axis[1]):
        if found and found[-1][1] == extent * stride and found[-1][2] == extent * to:
            found[-1] = (found[-1][0] * extent, stride, to)
        else:
            found.append((extent, stride, to))
    return found


def _copy_loops(
    out: Writer, axes: Sequence[tuple[int, int, int]], body: Callable[[str, str], list[str]], origin: int
) -> None:
    """Write loops over axes around the statements for a place outside and one in scratch. The outermost is shared by threads."""
    for number, (extent, _, _) in enumerate(axes):
        begin, end = ("0", str(extent)) if number else (f"{extent} * part / parts", f"{extent} * (part + 1) / parts")
        out.open(f"for (long e{number} = {begin}; e{number} < {end}; ++e{number})")
    if not axes:
        out.open("if (!part)")
    outside = " + ".join([f"{stride} * e{number}" for number, (_, stride, _) in enumerate(axes)] or ["0"])
    inside = " + ".join([str(origin), *(f"{to} * e{number}" for number, (_, _, to) in enumerate(axes))])
    for line in body(outside, inside):
        out.line(line)
    for _ in axes or [None]:
        out.close()


def sample_lanes(
    plan: NestPlan,
    shapes: Shapes,
    lanes: int,
    formats: tuple[Format, Format] = ("contiguous", "contiguous"),
    epilogue: Epilogue = Epilogue(),  # noqa: B008  # a value
) -> SampleLanes:
    """Return the program of a plan with vectors across samples. Without an axis that stays as it is, there is one sample.

    Args:
        plan: the nests.
        shapes: of the input and of the output.
        lanes: floats of a vector.
        formats: of the input and of the output.
        epilogue: what is computed with the results.
    """
    return SampleLanes(plan, lanes, *_sides(plan, shapes, formats), epilogue)


def plane_lanes(
    plan: NestPlan,
    shapes: Shapes,
    lanes: int,
    formats: tuple[Format, Format] = ("contiguous", "contiguous"),
    epilogue: Epilogue = Epilogue(),  # noqa: B008
) -> PlaneLanes:
    """Return the program of a plan with vectors across a plane. The arguments are those of `sample_lanes`.

    Raises LoweringError if the nests do not read the last axes at their own positions plus offsets.
    """
    plane = _plane(plan, None if epilogue.channel is None else plan.outputs.index(epilogue.channel))
    if not plane:
        raise LoweringError("the last axes are not read at their own positions plus offsets")
    return PlaneLanes(plan, lanes, *_sides(plan, shapes, formats), epilogue, plane)


Shapes: TypeAlias = tuple[Sequence[int], Sequence[int]]


def _sides(plan: NestPlan, shapes: Shapes, formats: tuple[Format, Format]) -> tuple[Side, Side]:
    entering, leaving = ([axes[side] for axes in plan.through] for side in (0, 1))
    return (
        _side(formats[0], shapes[0], entering, plan.inputs),
        _side(formats[1], shapes[1], leaving, plan.outputs),
    )


def whole_file(programs: Sequence[Program], lanes: int) -> str:
    """Return a file of C++ with several programs."""
    names = "\n".join(f"namespace {program.name}_code {{\n{program.source}}}\n" for program in programs)
    return f"{preamble(lanes)}\n{_PACK_RUN}{_COPY_RUN}\n}}  // namespace\n\n{names}"
