"""The C++ function of a whole operator: its scratch buffer and the calls of its nests in order; and files of such functions.

There are two kinds of programs, which differ in what the lanes of a vector are:

- **Samples** (`sample_lanes`): a vector holds the same element of as many samples as it has lanes. Every operator has this
  kind. The input and output are transposed, unless they are in the format "lanes", which other kernels read and write.
- **Planes** (`plane_lanes`): a vector holds neighbouring positions of a plane, the innermost axes. Rows follow one another with
  the halo between them, so that a shift of a window is a constant offset. This needs an operator that reads each axis of the
  plane at its own position plus an offset, and works for a single sample.
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
    """A fused epilogue: operations that follow an operator in a network, and are computed with its results in registers.

    It computes activation(result * scale[channel] + shift[channel] + residual).

    Attributes:
        channel: the channel axis of the output; None if there is neither scale nor shift.
        scale, shift: whether there is a factor, and a summand, for each channel.
        residual: whether a tensor of the output's shape and format is added.
        activation: a name in `syno.lower.native.activations.EXACT`.
    """

    channel: int | None = None
    scale: bool = False
    shift: bool = False
    residual: bool = False
    activation: str = "identity"

    def cpp(self, in_place: bool) -> str:
        """Return the instance of the C++ template `Epilogue` in `activations.h`.

        `in_place` says whether the last nest writes the caller's tensor directly, so that it can add the residual.
        """
        residual = "NO_RESIDUAL"
        if self.residual:
            residual = "RESIDUAL_IN_PLACE" if in_place else "RESIDUAL_ON_THE_WAY_OUT"
        flags = (str(flag).lower() for flag in (self.scale, self.shift))
        return f"Epilogue<{', '.join(flags)}, {residual}, activation::{self.activation}>"


NO_EPILOGUE = Epilogue()


@dataclass(frozen=True, eq=False)
class Program:
    """The generated code of an operator at given sizes.

    Attributes:
        source: C++ with one public function, `NAME(x, w, y, scale, shift, residual, scratch, samples, threads)`.
        name: the name of this function.
        scratch: length of the scratch buffer of each thread, in floats.
        samples: number of samples (positions along the pass-through axes).
        blocks: the number of blocks in one call: how often all nests run.
        codes: the nests with their addresses.
        schedules: the schedules of the nests.
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
        """The length in floats of the packed factors of all nests, the array that `factors` returns."""
        counts = map(factor_count, self.codes, self.schedules)
        return max(CACHE_LINE, sum(map(in_lines, counts)))

    def factors(self, weights: Sequence[Array]) -> Array:
        """Return the argument `w` of the function: the packed factors of all nests, computed from the operator's weights."""
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
    """Base class of the two kinds of programs, which differ in what the lanes of a vector hold.

    Attributes:
        plan: the nests.
        lanes: number of floats in a vector.
        input, output: the tensors in the caller's memory.
        epilogue: the fused epilogue.
    """

    plan: NestPlan
    lanes: int
    input: Side
    output: Side
    epilogue: Epilogue

    def layouts(self) -> list[Layout]:
        """Return the layouts in scratch of the input, of each intermediate result, and of the output."""
        raise NotImplementedError

    def codes(self) -> list[LoopCode]:
        """Return the nests with their addresses."""
        raise NotImplementedError

    def pack(self, name: str, layout: Layout) -> tuple[str, list[str]]:
        """Return the C++ function that copies a block of the input into scratch, and the statements that call it."""
        raise NotImplementedError

    def unpack(self, name: str, layout: Layout, place: str) -> tuple[str, list[str]]:
        """Return the C++ function that copies a block of the output out of scratch (at `place`), and its call."""
        raise NotImplementedError

    def begin(self) -> list[str]:
        """Return the C++ statements at the beginning of a block."""
        return []

    def after(self, at: int, layout: Layout, place: str) -> list[str]:
        """Return the C++ statements that run after tensor `at` has been written, which begins at `place` in scratch."""
        return []

    @property
    def channel(self) -> int | None:
        """The number of the channel axis among the axes of the last nest's target; None without scale and shift."""
        return None if self.epilogue.channel is None else self.plan.outputs.index(self.epilogue.channel)

    def place(self, side: Side) -> str:
        """Return the C++ expression of the offset of block `number` in a tensor that is read or written in place."""
        raise NotImplementedError

    @property
    def reads_in_place(self) -> bool:
        """Whether the first nest reads the caller's tensor directly, without a copy in scratch."""
        return False

    @property
    def writes_in_place(self) -> bool:
        """Whether the last nest writes the caller's tensor directly, without a copy in scratch."""
        return False

    @property
    def samples_of_block(self) -> int:
        """Number of samples that one block computes."""
        return 1

    @property
    def bands(self) -> int:
        """Number of bands into which each plane is cut; a band is a block of its own."""
        return 1

    @property
    def blocks(self) -> int:
        """Number of blocks in all; a block is computed by one thread, or by all if there are fewer blocks than threads."""
        return -(-self.plan.samples // self.samples_of_block) * self.bands

    def program(self, name: str, schedules: Sequence[NestSchedule], copies: str = "") -> Program:
        """Return the program with these schedules.

        Args:
            name: the name of its function.
            schedules: one for each nest.
            copies: the name of a program in the same file whose pack and unpack functions are called; "": own ones are written.
                Programs that differ only in schedules share them.
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
        """Return the lines of the public C++ function, which runs the steps (pack, nests, unpack) for each block."""
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
    """Return the text of a C++ file with several programs. It includes only headers that come with compilers."""
    texts = [f"namespace {program.name}_code {{\n{program.source}}}\n" for program in programs]
    return "\n".join([runtime(lanes), *texts])
