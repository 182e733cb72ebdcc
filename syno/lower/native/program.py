"""The whole function of an operator: formats of its tensors, scratch, and the nests one after another.

Vectors lie either across samples or across the positions of a plane:

- **Samples** (`sample_lanes`): a vector holds one element of each of as many samples as it has lanes. Every operator can be
  computed so. A tensor in a usual format is transposed on the way in and out; one in the format "lanes", which other kernels
  write, is not.
- **Planes** (`plane_lanes`): a vector holds neighbouring positions of the innermost axes, rows one after another with the halo
  between them, so that a window is an offset. This is for operators that read each of these axes at its own position plus an
  offset. No sample is needed but one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from syno.ir.coordinates import Array
from syno.lower.native.activations import ACTIVATIONS, FUNCTIONS
from syno.lower.native.kernel import NestWriter, Writer, factor_count, laid_out
from syno.lower.native.loop_code import Address, LoopCode
from syno.lower.native.nests import Nest, NestPlan
from syno.lower.native.schedules import NestSchedule

CACHE_LINE = 16  # floats
Shapes: TypeAlias = tuple[Sequence[int], Sequence[int]]  # of the input and of the output
Format: TypeAlias = Literal["contiguous", "channels_last", "lanes"]


@dataclass(frozen=True)
class Epilogue:
    """What follows an operator in a network and is computed with its results.

    Attributes:
        channel: the axis of the output that is numbered by channels; None if no factor or summand of a channel follows.
        scale, shift: whether results are multiplied with a number of their channel, then added to one.
        residual: whether a tensor of the output's shape, in its format, is added then.
        activation: the function of the sum: a name in `syno.lower.native.activations.ACTIVATIONS`.
    """

    channel: int | None = None
    scale: bool = False
    shift: bool = False
    residual: bool = False
    activation: str = "identity"


NO_EPILOGUE = Epilogue()


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
        blocks: how often the nests are run for one call.
        codes: the nests as they are written.
        schedules: their schedules.
        nests: the nests.
    """

    source: str
    name: str
    scratch: int
    samples: int
    blocks: int
    codes: tuple[LoopCode, ...]
    schedules: tuple[NestSchedule, ...]
    nests: tuple[Nest, ...]

    @property
    def factor_count(self) -> int:
        """The number of floats that `factors` returns."""
        counts = map(factor_count, self.codes, self.schedules)
        return max(CACHE_LINE, sum(map(in_lines, counts)))

    def factors(self, weights: Sequence[Array]) -> Array:
        """Return the factors of all nests, from the operator's weights, as the function takes them."""
        found = np.zeros(self.factor_count, np.float32)
        start = 0
        for nest, code, schedule in zip(self.nests, self.codes, self.schedules, strict=True):
            if nest.factor is not None:
                piece = laid_out(nest.factor.values(weights), code, schedule)
                found[start : start + len(piece)] = piece
                start += in_lines(len(piece))
        return found


def in_lines(count: int) -> int:
    """Return a number of floats, rounded up to whole lines of the cache."""
    return -(-count // CACHE_LINE) * CACHE_LINE


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
    texts = {
        "LANES": str(lanes),
        "VALUES": ", ".join(["value"] * lanes),
        "BITS": ", ".join(["-1"] * lanes + ["0"] * lanes),
        "EXCHANGES": "\n".join(exchanges),
        "EVENS_AND_ODDS": ", ".join(map(str, [*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)])),
    }
    code = _PREAMBLE
    for name, text in texts.items():
        code = code.replace(f"@{name}@", text)
    return f"{code}\n{FUNCTIONS}"


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
  clock_gettime(CLOCK_MONOTONIC, &now);  // the clock of this thread alone takes 30 times as long to read
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
#define LANES_ARE_@LANES@
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

// What the step before has read is read again: compilers would keep it in registers that the results need.
#define READ_AGAIN __asm__ volatile("" ::: "memory")

inline Vector load(const float* at) { return *(const Vector*)at; }
inline Vector load_unaligned(const float* at) { return *(const Unaligned*)at; }
inline Vector broadcast(float value) { return Vector{@VALUES@}; }
inline void store(float* at, Vector value) { *(Vector*)at = value; }
inline void store_unaligned(float* at, Vector value) { *(Unaligned*)at = value; }

// All bits of the first lanes.
template <long COUNT>
inline Mask all_bits() {
  constexpr int each[] = {@BITS@};
  Mask bits;
  std::memcpy(&bits, each + LANES - COUNT, sizeof bits);
  return bits;
}

// The first lanes; nothing behind them is read or written.
template <long COUNT>
inline Vector load_first(const float* at) {
  if constexpr (COUNT == LANES) return load_unaligned(at);
#if defined(__AVX512F__) && defined(LANES_ARE_16) && defined(__clang__)
  return __builtin_ia32_loadups512_mask((const Vector*)at, Vector{}, (1 << COUNT) - 1);
#elif defined(__AVX512F__) && defined(LANES_ARE_16)
  return __builtin_ia32_loadups512_mask(at, Vector{}, (1 << COUNT) - 1);
#elif defined(__AVX2__) && defined(LANES_ARE_8)
  return __builtin_ia32_maskloadps256((const Vector*)at, all_bits<COUNT>());
#else
  Vector value = {};  // a copy of a few bytes, which then have to be put together in memory
  std::memcpy(&value, at, 4 * COUNT);
  return value;
#endif
}
template <long COUNT>
inline Vector first_lanes(Vector value) { return (Vector)((Mask)value & all_bits<COUNT>()); }
template <long COUNT>
inline void store_first(float* at, Vector value) { std::memcpy(at, &value, 4 * COUNT); }

// Positions ahead of the first one and behind the last one become those of the other border.
template <long EXTENT, long BEFORE, long AFTER, long PITCH>
inline void copy_borders(float* first) {
  for (long at = 1; at <= BEFORE; ++at) std::memcpy(first - PITCH * at, first + PITCH * (EXTENT - at), 4 * PITCH);
  for (long at = 0; at < AFTER; ++at) std::memcpy(first + PITCH * (EXTENT + at), first + PITCH * at, 4 * PITCH);
}

// Every second element from the first, of two vectors that follow each other and share one element.
inline Vector every_second(Vector a, Vector b) { return __builtin_shufflevector(a, b, @EVENS_AND_ODDS@); }

// Whether each lane's element follows that of the lane before it.
inline bool are_neighbours(const long* at) {
  long apart = 0;
  for (long lane = 1; lane < LANES; ++lane) apart |= at[lane] - at[0] - lane;
  return !apart;
}

// Rows become columns.
inline void transpose(Vector* rows) {
@EXCHANGES@
}
"""


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
        """Return the nests with their addresses."""
        raise NotImplementedError

    def pack(self, name: str, layout: Layout) -> tuple[str, list[str]]:
        """Return the function that brings a block of the input into scratch, and the statements that call it."""
        raise NotImplementedError

    def unpack(self, name: str, layout: Layout, place: int) -> tuple[str, list[str]]:
        """Return the same for the output, which begins at `place` in scratch."""
        raise NotImplementedError

    def begin(self) -> list[str]:
        """Return the statements with which a block begins."""
        return []

    def after(self, at: int, layout: Layout, place: int) -> list[str]:
        """Return the statements that follow when tensor `at`, which begins at `place` in scratch, is written."""
        return []

    @property
    def channel(self) -> int | None:
        """The axis of the last nest's target that holds the channels, as its number."""
        return None if self.epilogue.channel is None else self.plan.outputs.index(self.epilogue.channel)

    def place(self, side: Side) -> str:
        """Return where block `number` of a tensor that is used in place begins."""
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

    @property
    def bands(self) -> int:
        """How many blocks the samples of a block are cut into."""
        return 1

    @property
    def blocks(self) -> int:
        """How many blocks there are, which are computed one after another or by several threads."""
        return -(-self.plan.samples // self.samples_of_block) * self.bands

    def program(self, name: str, schedules: Sequence[NestSchedule], copies: str = "") -> Program:
        """Return the program.

        Args:
            name: of its function.
            schedules: of its nests.
            copies: the name of another program in the same file, with other schedules, that brings tensors in and out; its code
                is used here, too.
        """
        codes, layouts = self.codes(), self.layouts()
        sizes = [layout.size for layout in layouts]
        if self.reads_in_place:
            sizes[0] = 0
        if self.writes_in_place:
            sizes[-1] = 0
        sizes = [in_lines(size) for size in sizes]
        places = [sum(sizes[:at]) for at in range(len(sizes))]
        copying = f"{copies}_code::{copies}" if copies else name
        pack, to_scratch = ("", []) if self.reads_in_place else self.pack(copying, layouts[0])
        unpack, from_scratch = ("", []) if self.writes_in_place else self.unpack(copying, layouts[-1], places[-1])
        functions = [_finish(self.epilogue, self.writes_in_place), *([] if copies else [pack, unpack])]
        lines = [
            "START",
            *self.begin(),
            f"const float* block = x + {self.place(self.input)};"
            if self.reads_in_place or self.input.format == "lanes"
            else "",
            f"float* result = y + {self.place(self.output)};" if self.writes_in_place else "",
            f"const float* added = {f'residual + {self.place(self.output)}' if self.writes_in_place else 'nullptr'};",
            *to_scratch,
            f"LAP({name}, 0)",
        ]
        offset = 0
        for at, (code, schedule) in enumerate(zip(codes, schedules, strict=True)):
            last = at == len(codes) - 1
            adds = last and self.writes_in_place and self.epilogue.residual
            functions.append(NestWriter(f"{name}_nest{at}", code, schedule, self.lanes, last, adds).function())
            source = "block" if at == 0 and self.reads_in_place else f"scratch + {places[at]}"
            target = "result" if last and self.writes_in_place else f"scratch + {places[at + 1]}"
            extra = ", scale, shift, added" if last else ""
            lines += ["BARRIER"] if at or to_scratch else []
            lines.append(f"{name}_nest{at}({source}, w + {offset}, {target}{extra}, part, parts);")
            if not last:
                lines += self.after(at + 1, layouts[at + 1], places[at + 1])
            lines.append(f"LAP({name}, {at + 1})")
            offset += in_lines(factor_count(code, schedule))
        lines += [*(["BARRIER"] if from_scratch else []), *from_scratch, f"LAP({name}, {len(codes) + 1})"]
        arguments = "const float* x, const float* w, float* y, const float* scale, const float* shift, const float* residual"
        names = "x, w, y, scale, shift, residual"
        body = [
            f"LAPS({name}, {len(codes) + 2})",
            f"static void {name}_block({arguments}, float* scratch, long number, long samples, int part, int parts) {{",
            *(f"  {line}" for line in lines if line),
            "}",
            f'extern "C" void {name}({arguments}, float* memory, long samples, int threads) {{',
            f"  const long blocks = (samples + {self.samples_of_block - 1}) / {self.samples_of_block} * {self.bands};",
            f"  const long size = {sum(sizes)};",
            "  std::memset(memory, 0, 4 * size * threads);  // halos stay zero",
            "  if (threads == 1) {",
            f"    for (long number = 0; number < blocks; ++number) {name}_block({names}, memory, number, samples, 0, 1);",
            "  } else if (blocks >= threads) {",
            "#pragma omp parallel for num_threads(threads) schedule(static)",
            "    for (long number = 0; number < blocks; ++number)",
            f"      {name}_block({names}, memory + size * THREAD, number, samples, 0, 1);",
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
            blocks=self.blocks,
            codes=tuple(codes),
            schedules=tuple(schedules),
            nests=self.plan.nests,
        )


def _finish(epilogue: Epilogue, in_place: bool) -> str:
    """Return the function that ends the last nest; what is added in another format waits for `statements_after`."""
    lines = [
        "static inline Vector finish(",
        "    Vector value, long channel, long where, const float* scale, const float* shift, const float* added) {",
    ]
    if epilogue.scale:
        lines.append("  value = value * scale[channel];")
    if epilogue.shift:
        lines.append("  value = value + shift[channel];")
    if epilogue.residual and in_place:
        lines.append("  value += load_unaligned(added + where);")
    if not epilogue.residual or in_place:
        lines.append(f"  value = {ACTIVATIONS[epilogue.activation]};")
    return "\n".join([*lines, "  return value;", "}"])


def statements_after(epilogue: Epilogue, added: str) -> list[str]:
    """Return the statements for `value` that `finish` leaves for when a result is brought into the caller's format."""
    if not epilogue.residual:
        return []
    return [f"value += {added};", f"value = {ACTIVATIONS[epilogue.activation]};"]


@dataclass(frozen=True)
class CopyAxis:
    """An axis along which a tensor is copied between the caller's memory and scratch.

    Attributes:
        extent: its length.
        outside, inside: floats between neighbours in the caller's memory, and in scratch.
        bound: the expression of the length, where it is known only when the code runs; `extent` is then the most.
    """

    extent: int
    outside: int
    inside: int
    bound: str = ""

    @property
    def count(self) -> str:
        """The length, as an expression."""
        return self.bound or str(self.extent)


def merged(axes: Iterable[CopyAxis]) -> list[CopyAxis]:
    """Return axes from the outermost outside, those that are neighbours in both memories made one."""
    found: list[CopyAxis] = []
    for axis in sorted((axis for axis in axes if axis.extent > 1 or axis.bound), key=lambda axis: -axis.outside):
        before = found[-1] if found else None
        steps = (axis.extent * axis.outside, axis.extent * axis.inside)
        if before and not before.bound and not axis.bound and (before.outside, before.inside) == steps:
            found[-1] = CopyAxis(before.extent * axis.extent, axis.outside, axis.inside)
        else:
            found.append(axis)
    return found


def copy_loops(
    out: Writer, axes: Sequence[CopyAxis], body: Callable[[str, str], list[str]], origin: int, outside_origin: int = 0
) -> None:
    """Write loops over axes around the statements for a place outside and one in scratch. Threads share the outermost."""
    for number, axis in enumerate(axes):
        begin, end = ("0", axis.count) if number else (f"{axis.count} * part / parts", f"{axis.count} * (part + 1) / parts")
        out.open(f"for (long e{number} = {begin}; e{number} < {end}; ++e{number})")
    if not axes:
        out.open("if (!part)")
    outside = " + ".join([f"{axis.outside} * e{number}" for number, axis in enumerate(axes)] + [str(outside_origin)])
    inside = " + ".join([str(origin), *(f"{axis.inside} * e{number}" for number, axis in enumerate(axes))])
    for line in body(outside, inside):
        out.line(line)
    for _ in range(max(len(axes), 1)):
        out.close()


def whole_file(programs: Sequence[Program], lanes: int) -> str:
    """Return a file of C++ with several programs."""
    names = "\n".join(f"namespace {program.name}_code {{\n{program.source}}}\n" for program in programs)
    return f"{preamble(lanes)}\n}}  // namespace\n\n{names}"
