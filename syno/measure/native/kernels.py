"""Native kernels of operators: autotuned on this machine, checked, and stored for other processes.

At the first `Request` for a kernel, the schedules that the cost model ranks best are compiled together and timed in turns; the
fastest is compiled, compared with the interpreter, and stored.

A *form* is a choice of plan, vector lanes (samples or a plane), and bands of rows; each form has schedules of its own.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from syno.base.errors import LoweringError, WrongOutputError
from syno.base.files import checksum
from syno.base.sources import sources_checksum
from syno.ir.coordinates import Array
from syno.ir.graph import PGraph
from syno.ir.text import parse
from syno.lower.interpreter import interpret, interpret_at, shapes
from syno.lower.native.activations import EXACT
from syno.lower.native.layouts import Format
from syno.lower.native.nests import every, nest_plan
from syno.lower.native.plane_lanes import PlaneLanes, plane_lanes
from syno.lower.native.program import NO_EPILOGUE, Epilogue, Lanes, Program, whole_file
from syno.lower.native.sample_lanes import sample_lanes
from syno.lower.native.schedules import NestSchedule, cost, schedules
from syno.lower.native.target import Target, own_target
from syno.lower.plan import Plan, candidates
from syno.measure.native.build import CORES, compiler, compiler_version, library, loaded
from syno.measure.native.store import is_sealed, make_store, read_entry, write_entry

SCHEDULES_TIMED = 3  # schedules of each nest, in each form
FORMS_TIMED = 3
MOST_TIMES = 1.15  # only forms within this factor of the fastest have further schedules timed
FORMS_TUNED = 2  # forms with further schedules: two cores compile two at once, so that a kernel takes at most 3 s
SECONDS_TIMED = 0.15
MOST_PLAN_FLOPS = 1.3  # plans with more than this factor of the fewest FLOPs are not tried
MOST_CYCLES = 1.6  # forms with more than this factor of the fewest estimated cycles are not timed
COPIES_A_CYCLE = {"plane": 4, "samples": 2}  # floats per cycle copied in or out; samples are transposed
LEAST_ROWS = 7  # of a band: in smaller bands, the margins that are computed twice weigh too much
ENDS: tuple[tuple[Format, Format], ...] = (("contiguous", "contiguous"), ("lanes", "lanes"))
ONE_IS_TIMED = threading.Lock()
TOLERANCE = 1e-4  # of the largest element: rounding errors of long sums are below 1e-5, wrong elements far above
CHECKED_ELEMENTS = 96


@dataclass(frozen=True)
class Request:
    """A request for a kernel: the function that it computes, and the conditions for which it is tuned.

    Attributes:
        operator: the operator's text.
        values: a value for each of its variables.
        formats: the formats of the input and of the output.
        epilogue: the fused epilogue.
        threads: number of CPU threads.
        steps: strides of the output: along each axis, every `steps[axis]`-th position is computed; () for all positions.
        takes_maximum: whether a result is the maximum of its summands, all at least zero, instead of their sum.
    """

    operator: str
    values: tuple[tuple[str, int], ...]
    formats: tuple[Format, Format] = ("contiguous", "contiguous")
    epilogue: Epilogue = NO_EPILOGUE
    threads: int = 1
    steps: tuple[int, ...] = ()
    takes_maximum: bool = False

    @cached_property
    def graph(self) -> PGraph:
        """The operator as a pGraph, parsed from its text."""
        return parse(self.operator)

    @cached_property
    def plans(self) -> list[Plan]:
        """The operator's plans at the request's values, for constant weights."""
        return candidates(self.graph, self.graph.valuation(dict(self.values)), inference=True)

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of the input and of the output in the operator's own axes; the output's after `steps`."""
        into, _, out = shapes(self.graph, self.graph.valuation(dict(self.values)))
        return into, tuple(-(-extent // step) for extent, step in zip(out, self.steps or [1] * len(out), strict=True))

    def stored_shapes(self, lanes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of the input and of the output as they are stored in their formats."""

        def stored(form: Format, shape: tuple[int, ...]) -> tuple[int, ...]:
            return (-(-shape[0] // lanes), *shape[1:], lanes) if form == "lanes" else shape

        into, out = map(stored, self.formats, self.shapes)
        return into, out


class FormName(BaseModel, frozen=True):
    """The identifier of a form of a request.

    Attributes:
        plan: the index of the plan in `Request.plans`.
        lanes: whether the lanes of a vector are samples or positions of a plane.
        flat: whether all pass-through axes count as samples; else only the first one.
        rows: the number of rows of a band; None: no bands.
    """

    plan: int
    lanes: Literal["samples", "plane"]
    flat: bool
    rows: int | None = None


class Trial(BaseModel):
    """A form with its fastest schedules, timed with contiguous tensors and without an epilogue.

    Schedules depend on neither, so that requests which differ only in formats and epilogue share trials.

    Attributes:
        form: the form.
        schedules: the fastest schedule of each nest.
        bringing_in_ms, computing_ms, bringing_out_ms: times of the parts of a call: packing, nests, unpacking.
    """

    form: FormName
    schedules: list[NestSchedule]
    bringing_in_ms: float
    computing_ms: float
    bringing_out_ms: float

    def latency_ms(self, formats: tuple[Format, Format]) -> float:
        """Return the milliseconds of a call with these formats; "lanes" needs no packing or unpacking."""
        into, out = (0.0 if form == "lanes" else 1.0 for form in formats)
        return into * self.bringing_in_ms + self.computing_ms + out * self.bringing_out_ms


class Choice(Trial):
    """The stored entry of a kernel: its form and schedules, and its compiled library.

    Attributes:
        library: the file name of the library.
    """

    library: Annotated[str, Field(pattern=r"^kernel_[0-9a-f]{16}\.so$")]


@dataclass(frozen=True, eq=False)
class Kernel:
    """A compiled kernel of this machine.

    Attributes:
        request: the request that it answers.
        choice: the kernel's form and schedules.
        program: the generated code.
        path: the file of the compiled library.
    """

    request: Request
    choice: Choice
    program: Program
    path: Path

    @cached_property
    def function(self) -> Any:
        """The function in the library, with the arguments that `Program.source` describes."""
        return getattr(loaded(self.path), self.program.name)

    def factors(self, weights: Sequence[Array]) -> Array:
        """Return the packed factors that the function takes, from the operator's weights."""
        composition = self.request.plans[self.choice.form.plan].composition
        if composition is not None:
            values = {name: value for name, value in self.request.values if name in composition.recipe.variables}
            pair = (np.asarray(weights[number - 1], np.float64) for number in (composition.above, composition.below))
            composed = interpret(composition.recipe, values, *pair)
            weights = [*(weights[number - 1] for number in composition.uncomposed(len(weights))), composed.astype(np.float32)]
        return self.program.factors(weights)


def kernel_for(request: Request, store: Path, *, target: Target | None = None, timed: bool = True) -> Kernel:
    """Return the fastest kernel for a request from the store; if it is missing, make it.

    Args:
        request: the request.
        store: the folder of the store.
        target: the processor; None: this machine's.
        timed: whether schedules are timed; if not, as for another machine, the cost model's first choice is taken.

    Raises:
        LoweringError: the operator cannot be written as a kernel in any form.
        MissingPackageError: there is no C++ compiler.
        BuildError: the code does not compile.
        WrongOutputError: the kernel's output differs from the interpreter's.
        SpecError: the store is another user's, or cannot be written.
    """
    target = target or own_target()
    key = _key(request, target, timed)
    entry = make_store(store) / f"{key}.json"
    choice = read_entry(entry, Choice.model_validate)
    if choice is not None and is_sealed(store / choice.library):
        program = _form(request, target, choice.form).program(f"syno_{key}", choice.schedules)
        return Kernel(request, choice, program, store / choice.library)
    trial = _chosen(request, target, store if timed else None)
    program = _form(request, target, trial.form).program(f"syno_{key}", trial.schedules)
    path = library(whole_file([program], target.lanes), target, store, "kernel")
    kernel = Kernel(request, Choice(**dict(trial), library=path.name), program, path)
    if target == own_target():
        check(kernel)
    write_entry(entry, kernel.choice.model_dump(mode="json"))
    return kernel


def _key(request: Request, target: Target, *details: object) -> str:
    path = compiler()
    generator = sources_checksum("syno.lower")  # plans, too: a stored kernel names its plan by number
    made_by = [generator, path, compiler_version(path), _processor()]
    return checksum(repr([request, target.name, *details, *made_by]).encode())[:20]


def _processor() -> str:
    """Return the model of the processor from /proc/cpuinfo; "" on systems without it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return "; ".join(sorted({line for line in lines if line.startswith(("model", "cpu family", "stepping"))}))


@dataclass(frozen=True, eq=False)
class Candidate:
    """A form of a kernel with a schedule for each nest, not timed yet."""

    form: FormName
    code: Lanes
    schedules: tuple[NestSchedule, ...]

    def cycles(self, target: Target) -> float:
        """Return the cycles of one call that the cost model estimates."""
        code = self.code
        inside = sum(map(lambda one, schedule: cost(one, schedule, target), code.codes(), self.schedules))
        layouts = code.layouts()
        copied = (0 if code.reads_in_place else layouts[0].size) + (0 if code.writes_in_place else layouts[-1].size)
        return code.blocks * (inside + copied / COPIES_A_CYCLE[self.form.lanes])


def _form(request: Request, target: Target, form: FormName) -> Lanes:
    """Return the code generator for a request in this form. Raises LoweringError if the request has no such form."""
    graph, valuation = request.graph, request.graph.valuation(dict(request.values))
    through = [dim for dim in graph.output if dim in graph.input]
    inside = [dim for dim, step in zip(graph.output, request.steps, strict=False) if step > 1] if form.flat else through[1:]
    nests = replace(nest_plan(request.plans[form.plan], valuation, inside), takes_maximum=request.takes_maximum)
    nests = every(nests, request.steps) if request.steps else nests
    if "lanes" in request.formats and (form.lanes != "samples" or [axes[:2] for axes in nests.through] != [(0, 0)]):
        raise LoweringError('in the format "lanes", vectors lie across the batch')
    if request.epilogue.channel is not None and request.epilogue.channel not in nests.outputs:
        raise LoweringError("the channels count as samples, of which each has one channel only")
    if form.lanes == "plane":
        return plane_lanes(nests, request.shapes, target.lanes, request.formats, request.epilogue, form.rows)
    return sample_lanes(nests, request.shapes, target.lanes, request.formats, request.epilogue)


def _forms(request: Request, target: Target) -> Iterator[tuple[FormName, Lanes]]:
    """Yield the forms of a request that may be the fastest, each with its code generator."""
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
    """Return the number of rows of a band; None for no bands.

    A band's scratch buffer must fit into the L2 cache, unless that leaves too few rows; and there must be a band for each
    thread if there are fewer samples than threads.
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


@dataclass(frozen=True)
class ExpectedNest:
    """The cost model's estimate for a loop nest, summed over all blocks of a call.

    Attributes:
        cycles: cycles of one core.
        flops: multiply-adds, or additions without a factor; including those of idle lanes.
        summands: number of summands of each result.
        read, written: number of distinct elements within a block.
        share: useful share of the FLOPs of all nests of the kernel; the others are in idle lanes, or in margins of bands.
    """

    cycles: float
    flops: int
    summands: int
    read: int
    written: int
    share: float


def expected_nests(request: Request, target: Target | None = None) -> list[ExpectedNest]:
    """Return the cost model's estimates for the nests of the form and schedules that it ranks first. Nothing is compiled.

    Raises LoweringError if the operator cannot be written as a kernel in any form.
    """
    target = target or own_target()
    best = _ranked(request, target, 1)[0][0]
    codes, vectors = best.code.codes(), best.code.blocks * target.lanes
    flops = [vectors * math.prod(code.extents) for code in codes]
    wanted = request.plans[best.form.plan].flops(request.graph.valuation(dict(request.values)))
    return [
        ExpectedNest(
            cycles=best.code.blocks * cost(code, schedule, target),
            flops=count,
            summands=math.prod(code.extents[loop] for loop in code.summed),
            read=vectors * math.prod(extent for loop, extent in enumerate(code.extents) if code.read.depends_on(loop)),
            written=vectors * math.prod(extent for loop, extent in enumerate(code.extents) if loop not in code.summed),
            share=min(1.0, wanted / sum(flops)),
        )
        for code, schedule, count in zip(codes, best.schedules, flops, strict=True)
    ]


def _ranked(request: Request, target: Target, count: int) -> list[list[Candidate]]:
    """Return the forms ranked by the cost model, the best first: each as candidates with up to `count` schedules per nest."""
    ranked: list[tuple[float, list[Candidate]]] = []
    for form, code in _forms(request, target):
        ways = [schedules(one, target, count) for one in code.codes()]
        turns = range(max(map(len, ways)))
        found = [Candidate(form, code, tuple(way[min(turn, len(way) - 1)] for way in ways)) for turn in turns]
        ranked.append((found[0].cycles(target), found))
    if not ranked:
        raise LoweringError(f"{request.graph!r} cannot be written as a native kernel: its indices are too irregular")
    return [found for _, found in sorted(ranked, key=lambda row: row[0])]


def _chosen(request: Request, target: Target, store: Path | None) -> Trial:
    """Return the fastest form with its schedules: by timing, or if `store` is None, by the cost model."""
    ranked = _ranked(request, target, SCHEDULES_TIMED)
    if store is None:
        return _trial(ranked[0][0], (0.0, 0.0, 0.0))
    most = MOST_CYCLES * ranked[0][0].cycles(target)
    likely = [found for found in ranked if found[0].cycles(target) <= most][:FORMS_TIMED]
    fastest = min(_trials(request, target, store, likely), key=lambda trial: trial.latency_ms(request.formats))
    return _in_lanes(fastest, request, target) if request.formats[1] == "lanes" else fastest


def _trial(candidate: Candidate, times_ms: Sequence[float]) -> Trial:
    into, computing, out = times_ms
    return Trial(
        form=candidate.form,
        schedules=list(candidate.schedules),
        bringing_in_ms=into,
        computing_ms=computing,
        bringing_out_ms=out,
    )


def _trials(request: Request, target: Target, store: Path, likely: Sequence[Sequence[Candidate]]) -> list[Trial]:
    """Return the trial of each form, from the store or made now, for the request with contiguous formats and no epilogue."""
    plain = replace(request, formats=("contiguous", "contiguous"), epilogue=NO_EPILOGUE)
    places = {found[0].form: store / f"trial_{_key(plain, target, found[0].form)}.json" for found in likely}
    kept = {form: read_entry(place, Trial.model_validate) for form, place in places.items()}
    missing = [
        [replace(candidate, code=_form(plain, target, candidate.form)) for candidate in found]
        for found in likely
        if kept[found[0].form] is None
    ]
    for trial in _timed(plain, target, missing) if missing else ():
        kept[trial.form] = trial
        write_entry(places[trial.form], trial.model_dump(mode="json"))
    return [trial for trial in kept.values() if trial is not None]


def _in_lanes(trial: Trial, request: Request, target: Target) -> Trial:
    """Return the trial with a sequential order of writes in its last nest, if the model estimates that to be faster in "lanes".

    In this format the last nest writes the caller's tensor directly, and results and residuals are not in the caches.
    """
    *before, last = trial.schedules
    code = _form(replace(request, formats=ENDS[1]), target, trial.form).codes()[-1]
    in_order = replace(last, order=tuple(sorted(last.order, key=lambda loop: -code.write.steps.get(loop, 0))))
    best = min(last, in_order, key=lambda way: cost(code, way, target))
    return trial.model_copy(update={"schedules": [*before, best]})


def _timed(request: Request, target: Target, likely: Sequence[Sequence[Candidate]]) -> list[Trial]:
    """Return the trial of each form: the fastest schedule of each nest among the form's candidates.

    The first candidate of each form is timed; further candidates only for the fastest forms.
    """
    laps = _laps(request, target, [found[:1] for found in likely])
    trials = [_mixed(request, *row) for row in zip(likely, laps, strict=True)]
    least = [min(trial.latency_ms(formats) for trial in trials) for formats in ENDS]
    times = [min(trial.latency_ms(formats) / best for formats, best in zip(ENDS, least, strict=True)) for trial in trials]
    by_time = sorted(range(len(trials)), key=times.__getitem__)
    near = [at for at in by_time if len(likely[at]) > 1 and times[at] <= MOST_TIMES][:FORMS_TUNED]
    more = _laps(request, target, [likely[at][1:] for at in near]) if near else []
    for at, rows in zip(near, more, strict=True):
        trials[at] = _mixed(request, likely[at], np.vstack([laps[at], rows]))
    return trials


def _mixed(request: Request, candidates: Sequence[Candidate], laps: Array) -> Trial:
    """Return the trial that combines the fastest schedule of each nest, given lap times of candidates of one form."""
    code = candidates[0].code
    mixed = tuple(candidates[turn].schedules[nest] for nest, turn in enumerate(laps.argmin(axis=0)[1:-1]))
    rounds = -(-code.blocks // min(request.threads, code.blocks))
    into, *computing, out = laps.min(axis=0) * rounds / 1e6
    return _trial(replace(candidates[0], schedules=mixed), (into, sum(computing), out))


def _laps(request: Request, target: Target, groups: Sequence[Sequence[Candidate]]) -> list[Array]:
    """Return the lap times of each group, [candidates, laps] in ns for one block: packing, each nest, unpacking.

    The candidates of a group have the same form; all are timed in turns.
    """
    programs = [
        [
            candidate.code.program(f"trial_{form}_{turn}", candidate.schedules, f"trial_{form}_0" if turn else "")
            for turn, candidate in enumerate(found)
        ]
        for form, found in enumerate(groups)
    ]

    def built(row: Sequence[Program]) -> Any:
        with tempfile.TemporaryDirectory(prefix="syno-trials-") as folder:  # others may time the same code
            return ctypes.CDLL(str(library(whole_file(row, target.lanes), target, Path(folder), "trials", ("-DSYNO_LAPS",))))

    with ThreadPoolExecutor() as pool:  # a compiler uses one core
        binaries = list(pool.map(built, programs))
    tensors = Tensors(request, target)
    factors = _random(max(program.factor_count for row in programs for program in row), 0)
    calls = [
        tensors.call(getattr(binary, program.name), program, factors)
        for binary, row in zip(binaries, programs, strict=True)
        for program in row
    ]
    with ONE_IS_TIMED, CORES:
        end = time.monotonic() + SECONDS_TIMED
        for turn in itertools.count():
            for call in calls:
                call()
            if turn and time.monotonic() > end:
                break
    return [
        np.array(
            [list((ctypes.c_longlong * (len(one.codes) + 2)).in_dll(binary, f"{one.name}_laps")) for one in row], np.float64
        )
        for row, binary in zip(programs, binaries, strict=True)
    ]


def _random(size: int, seed: int) -> Array:
    values: Array = np.random.default_rng(seed).standard_normal(size, dtype=np.float32)
    return values


def aligned(size: int) -> Array:
    """Return an array of zeros whose memory is aligned to 64 bytes."""
    memory = np.zeros(size + 16, np.float32)
    start = (-memory.ctypes.data // 4) % 16
    return memory[start : start + size]


class Tensors:
    """Random tensors for calls of a request's programs.

    Attributes:
        input, residual, output: the tensors in the request's formats.
        scale, shift: factor and summand of the epilogue, one number for each channel.
    """

    def __init__(self, request: Request, target: Target | None = None) -> None:
        self.request = request
        into, out = request.stored_shapes((target or own_target()).lanes)
        channels = 1 if request.epilogue.channel is None else request.shapes[1][request.epilogue.channel]
        self.input, self.residual, self.output = (aligned(int(np.prod(shape))).reshape(shape) for shape in (into, out, out))
        for seed, tensor in enumerate((self.input, self.residual)):
            tensor[...] = _random(tensor.size, seed).reshape(tensor.shape)
        self.scale, self.shift = _random(channels, 2), _random(channels, 3)
        self.output.fill(np.nan)

    def call(self, function: Any, program: Program, factors: Array) -> Callable[[], None]:
        """Return a function that calls a program's function with these tensors."""
        held, scratch = aligned(len(factors)), aligned(program.scratch * self.request.threads)
        held[:] = factors
        tensors = (self.input, held, self.output, self.scale, self.shift, self.residual, scratch)
        pointers = [ctypes.c_void_p(tensor.ctypes.data) for tensor in tensors]

        def call() -> None:
            function(*pointers, ctypes.c_long(program.samples), ctypes.c_int(self.request.threads))
            _ = tensors  # keeps their memory alive

        return call


def from_lanes(tensor: Array, shape: Sequence[int]) -> Array:
    """Return a tensor in the format "lanes" with the operator's shape; a tensor with this shape unchanged."""
    if tensor.shape == tuple(shape):
        return tensor
    return np.moveaxis(tensor, -1, 1).reshape(-1, *shape[1:])[: shape[0]]


def check(kernel: Kernel) -> None:
    """Compare some elements of a kernel's output, including those at borders, with the interpreter in double precision.

    Raises WrongOutputError if they differ by more than rounding.
    """
    request, graph = kernel.request, kernel.request.graph
    values, epilogue = dict(request.values), request.epilogue
    (into, out), weight_shapes = request.shapes, shapes(graph, graph.valuation(values))[1]
    weights = [_random(int(np.prod(shape)), 10 + at).reshape(shape) for at, shape in enumerate(weight_shapes)]
    tensors = Tensors(request)
    for tensor in (tensors.input, *weights) if request.takes_maximum else ():
        np.abs(tensor, out=tensor)
    tensors.call(kernel.function, kernel.program, kernel.factors(weights))()
    if not all(out):
        return
    given, residual, output = (
        from_lanes(tensor, shape)
        for tensor, shape in zip((tensors.input, tensors.residual, tensors.output), (into, out, out), strict=True)
    )
    random = np.random.default_rng(1)
    positions = random.integers(0, out, (CHECKED_ELEMENTS, len(out)))
    for axis, extent in enumerate(out):  # the first and the last position of each axis
        positions[axis * 8 : axis * 8 + 4, axis] = 0
        positions[axis * 8 + 4 : axis * 8 + 8, axis] = extent - 1
    read = positions * np.array(request.steps or [1] * len(out))
    exact_tensors = [tensor.astype(np.float64) for tensor in (given, *weights)]
    exact = interpret_at(graph, values, read, *exact_tensors, takes_maximum=request.takes_maximum)
    channel = 0 if epilogue.channel is None else positions[:, epilogue.channel]
    exact = exact * tensors.scale[channel] if epilogue.scale else exact
    exact = exact + tensors.shift[channel] if epilogue.shift else exact
    place = tuple(positions.T)
    exact = exact + residual[place] if epilogue.residual else exact
    exact = EXACT[epilogue.activation](exact)
    difference = float(np.abs(output[place] - exact).max()) / max(float(np.abs(exact).max()), 1e-30)
    if not difference <= TOLERANCE:
        raise WrongOutputError(
            f"the native kernel of {graph!r} differs from the interpreter by {difference:.1e} of the largest element"
        )
