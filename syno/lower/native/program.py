"""The function of a whole operator: its formats, its scratch, and its nests one after another; and files of such functions.

Vectors lie either across samples or across the positions of a plane:

- **Samples** (`sample_lanes`): a vector holds one element of each of as many samples as it has lanes. Every operator can be
  computed so. A tensor in a usual format is transposed on the way in and out; one in the format "lanes", which other kernels
  write, is not.
- **Planes** (`plane_lanes`): a vector holds neighbouring positions of the innermost axes, rows one after another with the halo
  between them, so that a window is an offset. This is for operators that read each of these axes at its own position plus an
  offset. No sample is needed but one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from syno.ir.coordinates import Array
from syno.lower.native.layouts import CACHE_LINE, Layout, Side, in_lines
from syno.lower.native.loop_code import LoopCode
from syno.lower.native.nest_writer import NestWriter, factor_count, laid_out
from syno.lower.native.nests import Nest, NestPlan
from syno.lower.native.schedules import NestSchedule
from syno.lower.native.source import Writer, linear, runtime


@dataclass(frozen=True)
class Epilogue:
    """What follows an operator in a network and is computed with its results.

    Attributes:
        channel: the axis of the output that is numbered by channels; None if no factor or summand of a channel follows.
        scale, shift: whether results are multiplied with a number of their channel, then added to one.
        residual: whether a tensor of the output's shape, in its format, is added then.
        activation: the function of the sum: a name in `syno.lower.native.activations.EXACT`.
    """

    channel: int | None = None
    scale: bool = False
    shift: bool = False
    residual: bool = False
    activation: str = "identity"

    def cpp(self, in_place: bool) -> str:
        """Return the type of `activations.h`. `in_place`: whether the last nest writes the caller's tensor."""
        residual = "NO_RESIDUAL"
        if self.residual:
            residual = "RESIDUAL_IN_PLACE" if in_place else "RESIDUAL_ON_THE_WAY_OUT"
        flags = (str(flag).lower() for flag in (self.scale, self.shift))
        return f"Epilogue<{', '.join(flags)}, {residual}, activation::{self.activation}>"


NO_EPILOGUE = Epilogue()


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
        factors = np.zeros(self.factor_count, np.float32)
        start = 0
        for nest, code, schedule in zip(self.nests, self.codes, self.schedules, strict=True):
            if nest.factor is not None:
                piece = laid_out(nest.factor.values(weights), code, schedule)
                factors[start : start + len(piece)] = piece
                start += in_lines(len(piece))
        return factors


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

    def unpack(self, name: str, layout: Layout, place: str) -> tuple[str, list[str]]:
        """Return the same for the output, which lies in scratch at the address `place`."""
        raise NotImplementedError

    def begin(self) -> list[str]:
        """Return the statements with which a block begins."""
        return []

    def after(self, at: int, layout: Layout, place: str) -> list[str]:
        """Return the statements that follow when tensor `at`, which lies in scratch at the address `place`, is written."""
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
        sizes = [in_lines(layout.size) for layout in layouts]
        sizes[0] *= not self.reads_in_place
        sizes[-1] *= not self.writes_in_place
        places = [linear([(1, "scratch")], sum(sizes[:at])) for at in range(len(sizes))]
        if self.reads_in_place:
            places[0] = "block"
        if self.writes_in_place:
            places[-1] = "result"
        copying = f"{copies}_code::{copies}" if copies else name
        pack, bring_in = ("", []) if self.reads_in_place else self.pack(copying, layouts[0])
        unpack, bring_out = ("", []) if self.writes_in_place else self.unpack(copying, layouts[-1], places[-1])
        functions = [f"using End = {self.epilogue.cpp(self.writes_in_place)};", *([] if copies else [pack, unpack])]
        steps, offset, last = [bring_in], 0, len(codes) - 1
        for at, (code, schedule) in enumerate(zip(codes, schedules, strict=True)):
            adds = at == last and self.writes_in_place and self.epilogue.residual
            functions.append(NestWriter(f"{name}_nest{at}", code, schedule, self.lanes, at == last, adds).function())
            extra = ["scale", "shift", "added"] if at == last else []
            arguments = ", ".join([places[at], linear([(1, "w")], offset), places[at + 1], *extra, "part", "parts"])
            after = [] if at == last else self.after(at + 1, layouts[at + 1], places[at + 1])
            steps.append([f"{name}_nest{at}({arguments});", *after])
            offset += in_lines(factor_count(code, schedule))
        steps.append(bring_out)
        return Program(
            source="\n".join([*filter(None, functions), *self._entry(name, sum(sizes), steps)]) + "\n",
            name=name,
            scratch=sum(sizes),
            samples=self.plan.samples,
            blocks=self.blocks,
            codes=tuple(codes),
            schedules=tuple(schedules),
            nests=self.plan.nests,
        )

    def _entry(self, name: str, scratch: int, steps: Sequence[Sequence[str]]) -> list[str]:
        """Return the lines of the function that callers call: the steps of a block, for each block."""
        out = Writer(2)
        out.line(*self.begin())
        if self.reads_in_place or self.input.format == "lanes":
            out.line(f"const float* block = x + {self.place(self.input)};")
        if self.writes_in_place:
            out.line(f"float* result = y + {self.place(self.output)};")
        out.line(f"const float* added = {f'residual + {self.place(self.output)}' if self.writes_in_place else 'nullptr'};")
        for number, statements in enumerate(steps):
            if statements and any(steps[:number]):
                out.line("BARRIER")
            out.line(*statements, f"LAP({name}, {number})")
        return [
            f"LAPS({name}, {len(steps)})",
            f'extern "C" void {name}(',
            "    const float* x, const float* w, float* y, const float* scale, const float* shift, const float* residual,",
            "    float* memory, long samples, int threads) {",
            f"  const long blocks = (samples + {self.samples_of_block - 1}) / {self.samples_of_block} * {self.bands};",
            f"  run_blocks(blocks, memory, {scratch}, threads, [=](float* scratch, long number, int part, int parts) {{",
            "    START",
            *out.lines,
            "  });",
            "}",
        ]


def whole_file(programs: Sequence[Program], lanes: int) -> str:
    """Return a file of C++ with several programs. It includes headers of compilers only."""
    texts = [f"namespace {program.name}_code {{\n{program.source}}}\n" for program in programs]
    return "\n".join([runtime(lanes), *texts])
