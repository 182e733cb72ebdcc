"""Kernels of operators: the schedules that are fastest on this machine, checked, and stored for other processes.

A kernel is asked for by what it computes and where (`Request`). The first time, the schedules that the cost model ranks best
are compiled together and timed in turns; the fastest is compiled, compared with the interpreter, and stored.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel

from syno.base.errors import LoweringError, WrongOutputError
from syno.base.files import checksum, write_whole
from syno.base.sources import sources_checksum
from syno.ir.coordinates import Array
from syno.ir.graph import PGraph
from syno.ir.text import parse
from syno.lower.interpreter import interpret, interpret_at, shapes
from syno.lower.native.nests import nest_plan
from syno.lower.native.plane_lanes import PlaneLanes, plane_lanes
from syno.lower.native.program import NO_EPILOGUE, Epilogue, Format, Lanes, Program, whole_file
from syno.lower.native.sample_lanes import sample_lanes
from syno.lower.native.schedules import NestSchedule, cost, schedules
from syno.lower.native.target import Target, own_target
from syno.lower.plan import Plan, candidates
from syno.measure.native.build import compiler, compiler_version, library, loaded

SCHEDULES_TIMED = 3  # of each nest, in each form
FORMS_TIMED = 3
MOST_TIMES = 1.15  # of the fastest form's time: further schedules of slower forms are not timed
SECONDS_TIMED = 0.15
MOST_PLAN_FLOPS = 1.3  # times the fewest: plans with more are not tried
MOST_CYCLES = 1.6  # times the fewest by the model: forms with more are not timed
COPIES_A_CYCLE = {"plane": 4, "samples": 2}  # floats that come in or go out; samples are transposed
LEAST_ROWS = 7  # of a band: shorter ones compute too many rows twice
TOLERANCE = 1e-4  # of the largest element: rounding errors of long sums are below 1e-5, wrong elements far above
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
    epilogue: Epilogue = NO_EPILOGUE
    threads: int = 1

    @cached_property
    def graph(self) -> PGraph:
        """The operator."""
        return parse(self.operator)

    @cached_property
    def plans(self) -> list[Plan]:
        """The plans for these values, with weights that are constant."""
        return candidates(self.graph, self.graph.valuation(dict(self.values)), inference=True)


class FormName(BaseModel):
    """Which of the forms of a request a kernel has.

    Attributes:
        plan: the number of the plan in `Request.plans`.
        lanes: what vectors lie across.
        flat: whether all axes that stay as they are from the input to the output count as samples; else the first one alone.
        rows: of a plane that are computed together; None if all.
    """

    plan: int
    lanes: Literal["samples", "plane"]
    flat: bool
    rows: int | None = None


class Choice(BaseModel):
    """A kernel, as the store has it.

    Attributes:
        form: its form.
        schedules: of each nest.
        latency_ms: of one call, as schedules were timed; None if they were not.
        library: the name of the library's file.
    """

    form: FormName
    schedules: list[NestSchedule]
    latency_ms: float | None
    library: str


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel of this machine.

    Attributes:
        request: what it computes.
        choice: its form and schedules.
        program: its code.
        path: its library.
    """

    request: Request
    choice: Choice
    program: Program
    path: Path

    @cached_property
    def function(self) -> Any:
        """The function in the library, which takes what `Program` says."""
        return getattr(loaded(self.path), self.program.name)

    def factors(self, weights: Sequence[Array]) -> Array:
        """Return the operator's weights as the function takes them."""
        composition = self.request.plans[self.choice.form.plan].composition
        if composition is not None:
            values = {name: value for name, value in self.request.values if name in composition.recipe.variables}
            pair = (np.asarray(weights[number - 1], np.float64) for number in (composition.above, composition.below))
            composed = interpret(composition.recipe, values, *pair)
            weights = [*(weights[number - 1] for number in composition.uncomposed(len(weights))), composed.astype(np.float32)]
        return self.program.factors(weights)


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
        BuildError: the compiler refuses the code.
        WrongOutputError: the kernel computes something else than the interpreter.
    """
    target = target or own_target()
    key = _key(request, target, timed)
    entry = store / f"{key}.json"
    if entry.is_file():
        choice = Choice.model_validate_json(entry.read_text())
        if (store / choice.library).is_file():
            program = _form(request, target, choice.form).program(f"syno_{key}", choice.schedules)
            return Kernel(request, choice, program, store / choice.library)
    candidate = _chosen(request, target, store if timed else None)
    program = candidate.code.program(f"syno_{key}", candidate.schedules)
    path = library(whole_file([program], target.lanes), target, store, "kernel")
    choice = Choice(
        form=candidate.form, schedules=list(candidate.schedules), latency_ms=candidate.latency_ms, library=path.name
    )
    kernel = Kernel(request, choice, program, path)
    if target == own_target():
        check(kernel)
    write_whole(entry, choice.model_dump_json(), durable=False)
    return kernel


def _key(request: Request, target: Target, timed: bool) -> str:
    path = compiler()
    asked = [request.operator, request.values, request.formats, asdict(request.epilogue), request.threads, target.name, timed]
    generator = sources_checksum("syno.lower")  # plans, too: a stored kernel names its plan by number
    return checksum(repr([*asked, generator, path, compiler_version(path), _processor()]).encode())[:20]


def _processor() -> str:
    """Return the model of the processor, as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return "; ".join(sorted({line for line in lines if line.startswith(("model", "cpu family", "stepping"))}))


# ---- forms and schedules ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Candidate:
    """A form with a schedule for each nest, and what a call of it takes, if it was timed."""

    form: FormName
    code: Lanes
    schedules: tuple[NestSchedule, ...]
    latency_ms: float | None = None

    def cycles(self, target: Target) -> float:
        """Return what the cost model expects of a call."""
        code = self.code
        inside = sum(map(lambda one, schedule: cost(one, schedule, target), code.codes(), self.schedules))
        layouts = code.layouts()
        copied = (0 if code.reads_in_place else layouts[0].size) + (0 if code.writes_in_place else layouts[-1].size)
        return code.blocks * (inside + copied / COPIES_A_CYCLE[self.form.lanes])


def _form(request: Request, target: Target, form: FormName) -> Lanes:
    """Return a request in one of its forms. Raises LoweringError if it does not have it."""
    graph, valuation = request.graph, request.graph.valuation(dict(request.values))
    into, _, out = shapes(graph, valuation)
    through = [dim for dim in graph.output if dim in graph.input]
    nests = nest_plan(request.plans[form.plan], valuation, () if form.flat else through[1:])
    if request.epilogue.channel is not None and request.epilogue.channel not in nests.outputs:
        raise LoweringError("the channels count as samples, of which each has one channel only")
    if form.lanes == "plane":
        return plane_lanes(nests, (into, out), target.lanes, request.formats, request.epilogue, form.rows)
    return sample_lanes(nests, (into, out), target.lanes, request.formats, request.epilogue)


def _forms(request: Request, target: Target) -> Iterator[tuple[FormName, Lanes]]:
    """Yield the forms of a request that may be the fastest."""
    graph, valuation = request.graph, request.graph.valuation(dict(request.values))
    flops = [plan.flops(valuation) for plan in request.plans]
    through = sum(dim in graph.input for dim in graph.output)
    for number, count in enumerate(flops):
        if count <= MOST_PLAN_FLOPS * min(flops):
            forms = [FormName(plan=number, lanes="samples", flat=True), FormName(plan=number, lanes="plane", flat=False)]
            if through > 1:  # else the same as the first one
                forms.append(FormName(plan=number, lanes="samples", flat=False))
            for form in forms:
                try:
                    code = _form(request, target, form)
                except LoweringError:  # it does not have this form
                    continue
                rows = _rows(code, request, target) if isinstance(code, PlaneLanes) else None
                if rows is not None:
                    form = form.model_copy(update={"rows": rows})
                    code = _form(request, target, form)
                yield form, code


def _rows(code: PlaneLanes, request: Request, target: Target) -> int | None:
    """Return how many rows of a plane are computed together; None if all.

    Those of a band stay in the second cache, unless hardly any do; and each thread has a band where it has no sample.
    """
    extent = code.plane[0].extent
    for bands in itertools.count(1 if code.plan.samples >= request.threads else request.threads):
        rows = -(-extent // bands)
        try:
            scratch = 4 * sum(layout.size for layout in code.with_rows(rows).layouts())
        except LoweringError:
            return None
        enough = 1.5 if rows == extent else 1.0
        if rows <= LEAST_ROWS or scratch <= enough * target.second_cache:
            return None if rows == extent else rows
    raise AssertionError


def _chosen(request: Request, target: Target, store: Path | None) -> Candidate:
    """Return the fastest candidate: by timing, with a folder for code; else by the model.

    The first schedules of the likely forms are timed, then further schedules of the forms that are not slower by far.
    """
    ranked: list[tuple[float, list[Candidate]]] = []
    for form, code in _forms(request, target):
        ways = [schedules(one, target, SCHEDULES_TIMED) for one in code.codes()]
        turns = range(max(map(len, ways)))
        found = [Candidate(form, code, tuple(way[min(turn, len(way) - 1)] for way in ways)) for turn in turns]
        ranked.append((found[0].cycles(target), found))
    if not ranked:
        raise LoweringError(f"{request.graph!r} cannot be written as a native kernel: its indices are too irregular")
    ranked.sort(key=lambda row: row[0])
    if store is None:
        return ranked[0][1][0]
    likely = [found for cycles, found in ranked if cycles <= MOST_CYCLES * ranked[0][0]][:FORMS_TIMED]
    laps = _laps(request, target, store, [found[:1] for found in likely])
    latencies = [_mixed(request, *row).latency_ms or 0.0 for row in zip(likely, laps, strict=True)]
    kept = [at for at, latency_ms in enumerate(latencies) if latency_ms <= MOST_TIMES * min(latencies)]
    more = _laps(request, target, store, [likely[at][1:] for at in kept])
    best = [_mixed(request, likely[at], np.vstack([laps[at], rows])) for at, rows in zip(kept, more, strict=True)]
    return min(best, key=lambda candidate: candidate.latency_ms or 0.0)


def _mixed(request: Request, found: Sequence[Candidate], laps: Array) -> Candidate:
    """Return the candidate with the fastest schedule of each nest, from the laps of some candidates of one form."""
    form, code = found[0].form, found[0].code
    turns = laps.argmin(axis=0)[1:-1]
    at_once = min(request.threads, code.blocks)
    latency_ms = float(laps.min(axis=0).sum()) * -(-code.blocks // at_once) / 1e6
    return Candidate(form, code, tuple(found[turn].schedules[nest] for nest, turn in enumerate(turns)), latency_ms)


def _laps(request: Request, target: Target, store: Path, groups: Sequence[Sequence[Candidate]]) -> list[Array]:
    """Return, for each group, a row of laps of each candidate: its input, each nest, its output, of one block, in ns.

    The candidates of a group have the same form; all are timed in turns.
    """
    programs = [
        [candidate.code.program(f"trial_{group}_{turn}", candidate.schedules) for turn, candidate in enumerate(found)]
        for group, found in enumerate(groups)
    ]

    def built(row: Sequence[Program]) -> Any:
        path = library(whole_file(row, target.lanes), target, store / "trials", "trials", ("-DSYNO_LAPS",))
        binary = ctypes.CDLL(str(path))
        for file in (path, path.with_suffix(".cpp")):
            file.unlink(missing_ok=True)
        return binary

    with ThreadPoolExecutor() as pool:  # a compiler uses one core
        binaries = list(pool.map(built, programs))
    tensors = Tensors(request)
    factors = _random(max((program.factor_count for row in programs for program in row), default=0), 0)
    calls = [
        tensors.call(getattr(binary, program.name), program, factors)
        for binary, row in zip(binaries, programs, strict=True)
        for program in row
    ]
    end = time.monotonic() + SECONDS_TIMED
    for turn in itertools.count():
        for call in calls:
            call()
        if turn and time.monotonic() > end:
            break
    return [
        np.array(
            [list((ctypes.c_longlong * (len(one.codes) + 2)).in_dll(binary, f"{one.name}_laps")) for one in row], np.float64
        ).reshape(len(row), len(found[0].code.codes()) + 2 if found else 0)
        for found, row, binary in zip(groups, programs, binaries, strict=True)
    ]


# ---- calls with random tensors ---------------------------------------------------------------------------------------


def _random(size: int, seed: int) -> Array:
    values: Array = np.random.default_rng(seed).standard_normal(size, dtype=np.float32)
    return values


def aligned(size: int) -> Array:
    """Return zeros at a multiple of 64 bytes."""
    memory = np.zeros(size + 16, np.float32)
    start = (-memory.ctypes.data // 4) % 16
    return memory[start : start + size]


class Tensors:
    """Random tensors for calls of a request's programs.

    Attributes:
        input, residual, output: of the operator's shapes.
        scale, shift: of each channel.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        into, _, out = shapes(request.graph, request.graph.valuation(dict(request.values)))
        channels = 1 if request.epilogue.channel is None else out[request.epilogue.channel]
        self.input, self.residual = (
            _random(int(np.prod(shape)), seed).reshape(shape) for seed, shape in enumerate((into, out))
        )
        self.scale, self.shift = _random(channels, 2), _random(channels, 3)
        self.output = np.full(out, np.nan, np.float32)

    def call(self, function: Any, program: Program, factors: Array) -> Callable[[], None]:
        """Return a call of a program's function."""
        held, scratch = aligned(len(factors)), aligned(program.scratch * self.request.threads)
        held[:] = factors
        tensors = (self.input, held, self.output, self.scale, self.shift, self.residual, scratch)
        pointers = [ctypes.c_void_p(tensor.ctypes.data) for tensor in tensors]

        def call() -> None:
            function(*pointers, ctypes.c_long(program.samples), ctypes.c_int(self.request.threads))
            _ = tensors  # their memory stays in use as long as the call

        return call


def check(kernel: Kernel) -> None:
    """Compare elements of a kernel's output, those at borders among them, with the interpreter in double precision.

    Raises WrongOutputError.
    """
    request, graph = kernel.request, kernel.request.graph
    values, epilogue = dict(request.values), request.epilogue
    _, weight_shapes, out = shapes(graph, graph.valuation(values))
    weights = [_random(int(np.prod(shape)), 10 + at).reshape(shape) for at, shape in enumerate(weight_shapes)]
    tensors = Tensors(request)
    tensors.call(kernel.function, kernel.program, kernel.factors(weights))()
    if not all(out):
        return
    random = np.random.default_rng(1)
    positions = random.integers(0, out, (CHECKED_ELEMENTS, len(out)))
    for axis, extent in enumerate(out):  # the first and the last position of each axis
        positions[axis * 8 : axis * 8 + 4, axis] = 0
        positions[axis * 8 + 4 : axis * 8 + 8, axis] = extent - 1
    exact = interpret_at(
        graph, values, positions, tensors.input.astype(np.float64), *(weight.astype(np.float64) for weight in weights)
    )
    channel = 0 if epilogue.channel is None else positions[:, epilogue.channel]
    exact = exact * tensors.scale[channel] if epilogue.scale else exact
    exact = exact + tensors.shift[channel] if epilogue.shift else exact
    place = tuple(positions.T)
    exact = exact + tensors.residual[place] if epilogue.residual else exact
    exact = np.maximum(exact, 0) if epilogue.activation == "relu" else exact
    difference = float(np.abs(tensors.output[place] - exact).max()) / max(float(np.abs(exact).max()), 1e-30)
    if not difference <= TOLERANCE:
        raise WrongOutputError(
            f"the native kernel of {graph!r} differs from the interpreter by {difference:.1e} of the largest element"
        )
