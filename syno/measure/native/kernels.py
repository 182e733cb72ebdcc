"""Kernels of operators: the schedules that are fastest on this machine, checked, and stored for other processes.

A kernel is asked for by what it computes and where (`Request`). The first time, the schedules that the cost model ranks best are
compiled together and timed in turns; the fastest is compiled, compared with the interpreter, and stored.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from syno.base.errors import LoweringError, WrongOutputError
from syno.base.files import checksum, write_whole
from syno.ir.coordinates import Array
from syno.ir.graph import PGraph
from syno.ir.text import parse
from syno.lower.interpreter import interpret_at, shapes
from syno.lower.native.nests import nest_plan
from syno.lower.native.program import Epilogue, Format, Lanes, Program, plane_lanes, sample_lanes, whole_file
from syno.lower.native.schedules import NestSchedule, cost, schedules
from syno.lower.native.target import Target, own_target
from syno.lower.plan import Plan, candidates
from syno.measure.native.build import compiler, compiler_version, library, loaded

GENERATOR = 1  # of the code: a change of it makes stored kernels old
TILES_TIMED = 3  # of each nest, in each form, in two orders of the loops
SECONDS_TIMED = 0.25
TOLERANCE = 1e-4  # of the largest element: rounding errors of the longest sums are below 1e-5, wrong elements far above
CHECKED_ELEMENTS = 96


@dataclass(frozen=True)
class Request:
    """What a kernel computes.

    Attributes:
        operator: its text.
        values: a value for each of its variables.
        formats: of the input and of the output.
        epilogue: what is computed with the results.
        threads: how many it runs on.
    """

    operator: str
    values: tuple[tuple[str, int], ...]
    formats: tuple[Format, Format] = ("contiguous", "contiguous")
    epilogue: Epilogue = Epilogue()
    threads: int = 1

    @cached_property
    def graph(self) -> PGraph:
        """The operator."""
        return parse(self.operator)


class Choice(BaseModel):
    """The form of a kernel, as the store has it.

    Attributes:
        plan: the number of the plan among `candidates`.
        lanes: "sample" or "plane".
        flat: whether all axes that stay as they are count as samples.
        schedules: of each nest.
        latency_ms: of one call, where it was timed.
        library: the name of the library's file.
    """

    plan: int
    lanes: str
    flat: bool
    schedules: list[NestSchedule]
    latency_ms: float | None = None
    library: str = ""


@dataclass(frozen=True, eq=False)
class Form:
    """One of the ways to compute a request."""

    plan: int
    lanes: str
    flat: bool
    code: Lanes

    def blocks(self) -> int:
        return -(-self.code.plan.samples // self.code.samples_of_block)

    def cycles(self, chosen: Sequence[NestSchedule], target: Target) -> float:
        """Return what the cost model expects of a call."""
        codes = self.code.codes()
        inside = sum(cost(code, schedule, target) for code, schedule in zip(codes, chosen, strict=True))
        layouts = self.code.layouts()
        moved = (0 if self.code.reads_in_place else layouts[0].size) + (0 if self.code.writes_in_place else layouts[-1].size)
        return self.blocks() * (inside + moved / (4 if self.lanes == "plane" else 2))


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel of this machine.

    Attributes:
        request: what it computes.
        choice: its form.
        program: its code.
        path: its library.
    """

    request: Request
    choice: Choice
    program: Program
    path: Path
    plan: Plan

    @cached_property
    def function(self) -> Any:
        """The function in the library."""
        return getattr(loaded(self.path), self.program.name)

    def factors(self, weights: Sequence[Array]) -> Array:
        """Return the operator's weights as the function takes them."""
        return self.program.factors(_staged(self.plan, self.request, weights))


def _staged(plan: Plan, request: Request, weights: Sequence[Array]) -> Sequence[Array]:
    if plan.composition is None:
        return weights
    from syno.lower.interpreter import interpret

    composition = plan.composition
    values = dict(request.values)
    recipe = {name: values[name] for name in composition.recipe.variables if name in values}
    above, below = weights[composition.above - 1], weights[composition.below - 1]
    composed = interpret(composition.recipe, recipe, np.asarray(above, np.float64), np.asarray(below, np.float64))
    return [*(weights[number - 1] for number in composition.uncomposed(len(weights))), composed.astype(np.float32)]


def forms(request: Request, target: Target, plans: Sequence[Plan]) -> list[Form]:
    """Return the ways to compute a request, those that need many more FLOPs than others left out."""
    graph, valuation = request.graph, request.graph.valuation(dict(request.values))
    into, _, out = shapes(graph, valuation)
    through = [dim for dim in graph.output if dim in graph.input]
    least = min(plan.flops(valuation) for plan in plans)
    found = []
    for number, plan in enumerate(plans):
        if plan.flops(valuation) > 1.3 * least:
            continue
        for lanes, flat in (("sample", True), ("sample", False), ("plane", False)):
            if lanes == "sample" and not flat and len(through) <= 1:
                continue  # the same as flat
            make = sample_lanes if lanes == "sample" else plane_lanes
            try:
                nests = nest_plan(plan, valuation, () if flat else through[1:])
                if request.epilogue.channel is not None and request.epilogue.channel not in nests.outputs:
                    continue  # each sample has one channel only
                found.append(Form(number, lanes, flat, make(nests, (into, out), target.lanes, request.formats, request.epilogue)))
            except LoweringError:
                continue
    return found


def kernel_for(request: Request, store: Path, *, target: Target | None = None, timed: bool = True) -> Kernel:
    """Return the fastest kernel for a request, from the store or made now.

    Args:
        request: what it shall compute.
        store: the folder of the store.
        target: the processor; by default this machine's.
        timed: whether schedules are timed; else the cost model's first choice is taken, as for another machine.

    Raises:
        LoweringError: the operator has no form that can be written as a kernel.
        MissingPackageError: there is no C++ compiler.
        WrongOutputError: the kernel computes something else than the interpreter.
    """
    target = target or own_target()
    key = _key(request, target, timed)
    entry = store / f"{key}.json"
    valuation = request.graph.valuation(dict(request.values))
    plans = candidates(request.graph, valuation, inference=True)
    if entry.is_file():
        choice = Choice.model_validate_json(entry.read_text())
        form = next(
            one for one in forms(request, target, plans) if (one.plan, one.lanes, one.flat) == (choice.plan, choice.lanes, choice.flat)
        )
        program = form.code.program(f"syno_{key}", choice.schedules)
        path = store / choice.library
        if path.is_file():
            return Kernel(request, choice, program, path, plans[choice.plan])
    form, chosen, latency = _chosen(request, target, plans, store, timed)
    program = form.code.program(f"syno_{key}", chosen)
    path = library(whole_file([program], target.lanes), target, store, "kernel")
    choice = Choice(
        plan=form.plan, lanes=form.lanes, flat=form.flat, schedules=list(chosen), latency_ms=latency, library=path.name
    )
    kernel = Kernel(request, choice, program, path, plans[form.plan])
    if target == own_target():
        check(kernel)
    write_whole(entry, choice.model_dump_json(), durable=False)
    return kernel


def _key(request: Request, target: Target, timed: bool) -> str:
    path = compiler()
    facts = [request.operator, request.values, request.formats, asdict(request.epilogue), request.threads, target.name, timed]
    return checksum(repr([*facts, GENERATOR, path, compiler_version(path), _processor()]).encode())[:20]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    wanted = ("model name", "cpu family", "model\t", "stepping")
    return "; ".join(sorted({line for line in lines if line.startswith(wanted)}))


# ---- the choice of schedules -----------------------------------------------------------------------------------------


def _chosen(
    request: Request, target: Target, plans: Sequence[Plan], store: Path, timed: bool
) -> tuple[Form, list[NestSchedule], float | None]:
    ways = forms(request, target, plans)
    if not ways:
        raise LoweringError(f"{request.graph!r} cannot be written as a native kernel: its indices are too irregular")
    ranked = []
    for form in ways:
        best = [schedules(code, target, TILES_TIMED) for code in form.code.codes()]
        ranked.append((form.cycles([one[0] for one in best], target), form, best))
    ranked.sort(key=lambda row: row[0])
    if not timed:
        _, form, best = ranked[0]
        return form, [one[0] for one in best], None
    ranked = [row for row in ranked if row[0] <= 2.5 * ranked[0][0]][:3]
    programs = []
    for number, (_, form, best) in enumerate(ranked):
        for place in range(max(map(len, best))):
            picked = [one[min(place, len(one) - 1)] for one in best]
            programs.append((number, picked, form.code.program(f"trial_{number}_{place}", picked)))
    path = library(whole_file([program for _, _, program in programs], target.lanes), target, store / "trials", "trials", ("-DSYNO_LAPS",))
    laps = _timed(request, path, programs)
    candidates_ = []
    for number, (_, form, _) in enumerate(ranked):
        rows = [(picked, times) for (at, picked, _), times in zip(programs, laps, strict=True) if at == number]
        ends = min(times[0] for _, times in rows) + min(times[-1] for _, times in rows)
        fastest = [min(rows, key=lambda row, at=at: row[1][at + 1]) for at in range(len(rows[0][0]))]  # type: ignore[misc]
        inside = sum(row[1][at + 1] for at, row in enumerate(fastest))
        blocks = -(-form.blocks() // min(request.threads, form.blocks()))
        candidates_.append((blocks * (ends + inside) / 1e6, form, [row[0][at] for at, row in enumerate(fastest)]))
    latency, form, chosen = min(candidates_, key=lambda row: row[0])
    for file in path.parent.glob(f"{path.stem}.*"):
        file.unlink(missing_ok=True)
    return form, chosen, latency


def _timed(request: Request, path: Path, programs: Sequence[tuple[int, list[NestSchedule], Program]]) -> list[list[int]]:
    """Return the least nanoseconds of each part of each program, which are called in turns."""
    binary = ctypes.CDLL(str(path))
    calls = []
    for _, _, program in programs:
        size = sum(-(-_size(code, schedule) // 16) * 16 for code, schedule in zip(program.codes, program.schedules, strict=True))
        run = Call(request, program, getattr(binary, program.name), _random(size + 16, 0))
        calls.append(run)
    end = time.monotonic() + SECONDS_TIMED
    for turn in itertools.count():
        for run in calls:
            run()
        if turn >= 2 and time.monotonic() > end:
            break
    return [list((ctypes.c_longlong * (len(program.codes) + 2)).in_dll(binary, f"{program.name}_laps")) for _, _, program in programs]


def _size(code: Any, schedule: NestSchedule) -> int:
    from math import prod

    if code.factor_loops is None:
        return 0
    tile = dict(schedule.tile)
    return prod(-(-code.extents[loop] // tile.get(loop, 1)) * tile.get(loop, 1) for loop in code.factor_loops)


def _random(size: int, seed: int) -> Array:
    values: Array = np.random.default_rng(seed).standard_normal(size, dtype=np.float32)
    return values


def aligned(size: int) -> Array:
    """Return floats at a multiple of 64 bytes."""
    memory = np.zeros(size + 16, np.float32)
    start = (-memory.ctypes.data // 4) % 16
    return memory[start : start + size]


class Call:
    """A call of a program with random tensors."""

    def __init__(self, request: Request, program: Program, function: Any, factors: Array, seed: int = 0) -> None:
        graph = request.graph
        valuation = graph.valuation(dict(request.values))
        into, _, out = shapes(graph, valuation)
        self.input, self.residual = (_random(int(np.prod(shape)), seed + at).reshape(shape) for at, shape in enumerate((into, out)))
        self.output = np.full(out, np.nan, np.float32)
        channels = 1 if request.epilogue.channel is None else out[request.epilogue.channel]
        self.scale, self.shift = _random(channels, seed + 2), _random(channels, seed + 3)
        self.factors = aligned(len(factors))
        self.factors[:] = factors
        self.scratch = aligned(program.scratch * request.threads)
        self.samples = program.samples
        tensors = (self.input, self.factors, self.output, self.scale, self.shift, self.residual, self.scratch)
        pointers = [ctypes.c_void_p(tensor.ctypes.data) for tensor in tensors]
        self._call = lambda: function(*pointers, ctypes.c_long(self.samples), ctypes.c_int(request.threads))

    def __call__(self) -> None:
        """Run the program."""
        self._call()


def check(kernel: Kernel) -> None:
    """Compare elements of a kernel's output, borders among them, with the interpreter in double precision.

    Raises WrongOutputError.
    """
    request, graph = kernel.request, kernel.request.graph
    values = dict(request.values)
    valuation = graph.valuation(values)
    _, weight_shapes, out = shapes(graph, valuation)
    weights = [_random(int(np.prod(shape)), 10 + at).reshape(shape) for at, shape in enumerate(weight_shapes)]
    run = Call(request, kernel.program, kernel.function, kernel.factors(weights))
    run()
    random = np.random.default_rng(1)
    positions = np.stack([random.integers(0, extent, CHECKED_ELEMENTS) for extent in out], axis=1) if out else np.zeros((1, 0), int)
    for axis, extent in enumerate(out):  # the first and the last position of each axis
        positions[axis * 8 : axis * 8 + 4, axis] = 0
        positions[axis * 8 + 4 : axis * 8 + 8, axis] = extent - 1
    exact = interpret_at(graph, values, positions, run.input.astype(np.float64), *(weight.astype(np.float64) for weight in weights))
    place = tuple(positions.T)
    epilogue = request.epilogue
    channel = 0 if epilogue.channel is None else positions[:, epilogue.channel]
    if epilogue.scale:
        exact = exact * run.scale[channel]
    if epilogue.shift:
        exact = exact + run.shift[channel]
    if epilogue.residual:
        exact = exact + run.residual[place]
    if epilogue.activation == "relu":
        exact = np.maximum(exact, 0)
    found = run.output[place]
    largest = max(float(np.abs(exact).max()), 1e-30)
    difference = float(np.abs(found - exact).max()) / largest
    if not difference <= TOLERANCE:
        raise WrongOutputError(f"the native kernel of {graph!r} differs from the interpreter by {difference:.1e} of the largest element")
