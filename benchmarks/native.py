"""Native kernels beside the compilers that there were, in layers of many sizes, and beside the convolution of each layer.

    python benchmarks/native.py --records FOLDER --output docs/measured/native.md
    python benchmarks/native.py --records FOLDER --tvm 20 --output docs/measured/native.md    # TVM, too: minutes a row
    python benchmarks/native.py --records FOLDER --threads 2 --count 40                       # two threads beside one
    python benchmarks/native.py --records FOLDER --quick --count 40                           # without TorchInductor

A row is an operator in a layer: the library's and the published ResNet operators in two layers each, and operators drawn from
the spaces of the demo and of ResNet-18 in one. Each row is kept in the folder, so a run that was stopped goes on where it was.
The published operators are measured if the environment variable SYNO_ARTIFACT names the data folder of the paper's artifact.
Progress goes to standard error. Exit status: 0; 1 if a row failed; 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import exp, log, prod
from pathlib import Path
from random import Random
from statistics import fmean, median, stdev
from typing import Any

import cases
import numpy as np
import reports
import torch
from torch import nn

from syno.base.errors import SynoError, WrongOutputError
from syno.config.files import load_experiment
from syno.ir.graph import PGraph
from syno.ir.text import parse_stored
from syno.lower.interpreter import shapes
from syno.lower.native.target import own_target
from syno.lower.plan import candidates
from syno.measure.inductor import frozen
from syno.measure.machine import Peak, peak
from syno.measure.native.build import compiler, compiler_version
from syno.measure.native.kernels import Kernel, Request, Tensors, kernel_for
from syno.measure.native.network import native_network
from syno.measure.output_check import relative_error
from syno.measure.subjects import OperatorSubject
from syno.measure.timing import calls_in_repeat, evaluate_of, stopwatch_of, warm_up
from syno.measure.tuning import LatencySettings, TvmSettings, tune
from syno.model import build, prepare_for_inference
from syno.space.sample import sample
from syno.space.space import Space

LIBRARY, PUBLISHED = "library", "published"
SPACES = {"demo": Path("config/quickstart.yaml"), "resnet18": Path("config/faster-resnet18.yaml")}
ROWS, QUICK_ROWS, TVM_ROWS = "rows.jsonl", "rows-quick.jsonl", "tvm.jsonl"
DRAWN, PEAK, FAILURES, STORE = "drawn.json", "peak.json", "failures", "store"
LAYERS = (  # channels, pixels of a side, batch: a convolution of at most 2 billion multiply-adds
    (16, 56, 1), (16, 56, 16), (16, 32, 16), (16, 16, 64), (32, 56, 1), (32, 28, 1), (32, 28, 16), (32, 16, 64), (32, 8, 64),
    (64, 56, 1), (64, 28, 1), (64, 28, 16), (64, 16, 16), (64, 14, 16), (64, 8, 64), (128, 28, 1), (128, 14, 1),
    (128, 14, 16), (128, 8, 64), (128, 7, 16), (256, 14, 1), (256, 14, 16), (256, 7, 1), (256, 7, 16),
)  # fmt: skip
NATIVE, ONE_THREAD, EAGER, INDUCTOR = "native", "native, one thread", "eager", "inductor"
CHOICE = "compiler: native"  # the kernel or PyTorch's code, whichever it finds faster
CONVOLUTIONS = ("convolution, eager", "convolution, inductor")
ROUNDS = LatencySettings(warm_up_ms=30, least_repeats=40)
TOLERANCE = 1e-4  # of the largest value
SLOWER = 1.03  # more than that times the best counts as slower
ENOUGH = 0.8  # of the convolution's multiply-adds per second
MOST_STARTS = 2  # of a row whose process ends: its code may have ended it

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """An operator in a layer, which keeps the number of channels and the size of the picture."""

    source: str
    name: str
    operator: str
    values: Mapping[str, int]
    layer: tuple[int, int, int]

    @property
    def key(self) -> str:
        channels, pixels, batch = self.layer
        return f"{self.name}, {channels} channels, {pixels}x{pixels}, batch {batch}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what has no row yet, print and write the page; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add = parser.add_argument
    add("--records", type=Path, required=True, metavar="DIR", help="where rows and kernels are kept")
    add("--drawn", type=int, default=100, help="operators drawn from each space; default: %(default)s")
    add("--count", type=int, help="rows, drawn from all; default: all")
    add("--only", default="", metavar="TEXT", help="rows with this text in their names")
    add("--seed", type=int, default=0, help="of all draws; default: %(default)s")
    add("--minutes", type=float, default=float("inf"), help="after which no row begins")
    add("--threads", type=int, default=1, help="default: %(default)s")
    add("--quick", action="store_true", help="without TorchInductor, which compiles longest")
    add("--tvm", type=int, default=0, metavar="N", help="rows that TVM tunes, too; default: %(default)s")
    add("--trials", type=int, default=64, help="of TVM, for each task; default: %(default)s")
    options = reports.parse(parser, arguments)
    options.end = time.monotonic() + 60 * options.minutes
    options.records.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(options.threads)
    command = f"benchmarks/native.py {' '.join(arguments or sys.argv[1:])}"
    start = reports.heading("Native kernels", command)
    try:
        chosen = _chosen(options)
    except SynoError as error:
        parser.error(str(error))
    file = options.records / (QUICK_ROWS if options.quick else ROWS)
    _measure(chosen, file, lambda case: _row(case, options), options)
    rows = _read(file, chosen, options.threads)
    tuned = _every(chosen, options.tvm)
    _measure(tuned, options.records / TVM_ROWS, lambda case: _tvm_row(case, options), options)
    tvm = _read(options.records / TVM_ROWS, chosen, options.threads)
    most = _peak(options)
    rows = [{**row, "limit": limits(row, most)} for row in rows]
    reports.deliver([*start, *_method(options, rows, most), *_page(rows, tvm, len(chosen), options)], options.output)
    return int(any("failure" in row for row in (*rows, *tvm)))


# ---- what is measured ---------------------------------------------------------------------------------------------------


def _chosen(options: argparse.Namespace) -> list[Case]:
    """The rows, in an order that is drawn."""
    found = [
        case for source, operator, layers in _operators(options) for case in _fitting(source, operator, layers, options.seed)
    ]
    Random(options.seed).shuffle(found)
    found = [case for case in found if options.only in case.key]
    return found[: options.count]


def _operators(options: argparse.Namespace) -> Iterator[tuple[str, cases.Operator, int]]:
    """Yield a source, an operator of it, and in how many layers it is measured."""
    published: dict[str, cases.Operator] = {}
    for operator in cases.operators(cases.artifact_folder()):
        if operator.backbone.startswith("resnet") and not operator.backbone.startswith("resnext"):
            published[operator.graph.id] = operator
            yield PUBLISHED, operator, 2
        elif not operator.backbone and operator.graph.id not in published:
            yield LIBRARY, operator, 2
    for source, texts in _drawn(options).items():
        for number, text in enumerate(texts, 1):
            name = f"{source}_{number}"
            yield source, cases.Operator(name, parse_stored(text, "a drawn operator", name)), 1


def _drawn(options: argparse.Namespace) -> dict[str, list[str]]:
    """Return operators of each space, drawn once for the folder."""
    file, wanted = options.records / DRAWN, {"seed": options.seed, "count": options.drawn}
    if file.exists() and (kept := json.loads(file.read_text()))["wanted"] == wanted:
        return dict(kept["operators"])
    found = {}
    for source, config in SPACES.items() if options.drawn else ():
        print(f"drawing {options.drawn} operators from {config}", file=sys.stderr, flush=True)
        space = Space(load_experiment(str(config)).operator_spec)
        found[source] = [str(operator) for operator in sample(space, options.drawn, seed=options.seed)]
    file.write_text(json.dumps({"wanted": wanted, "operators": found}))
    return found


def _fitting(source: str, operator: cases.Operator, count: int, seed: int) -> list[Case]:
    """Return the operator in so many layers that it fits, drawn from `LAYERS`."""
    found: list[Case] = []
    for layer in Random(f"{seed} {operator.name}").sample(LAYERS, len(LAYERS)):
        channels, pixels, batch = layer
        given = {"N": batch, "C_in": channels, "C_out": channels, "C": channels, "H": pixels}
        values = {name: size for name, size in {**(operator.layer or {}), **given}.items() if name in operator.graph.variables}
        if len(found) < count and _keeps(operator.graph, values, (batch, channels, pixels, pixels)):
            found.append(Case(source, operator.name, str(operator.graph), values, layer))
    return found


def _keeps(graph: PGraph, values: Mapping[str, int], shape: Sequence[int]) -> bool:
    """Return whether input and output of the operator both have this shape, at these sizes."""
    try:
        valuation = graph.valuation(values)
        sizes = {dim: valuation.integer(dim.size) for dim in graph.labels}
        sides = [[sizes[dim] for dim in dims] for dims in (graph.input, graph.output)]
        return bool(graph.weights) and sides == [list(shape)] * 2
    except SynoError:
        return False


def _every(chosen: Sequence[Case], count: int) -> list[Case]:
    """Return so many of the rows, of all sources in turn."""
    by_source: dict[str, list[Case]] = {}
    for case in chosen:
        by_source.setdefault(case.source, []).append(case)
    most = max(map(len, by_source.values()), default=0)
    return [cases_[place] for place in range(most) for cases_ in by_source.values() if place < len(cases_)][:count]


# ---- rows in a file -----------------------------------------------------------------------------------------------------


def _measure(chosen: Sequence[Case], file: Path, measure: Callable[[Case], Row], options: argparse.Namespace) -> None:
    """Measure what the file has no row of, until time is up. A row says when it begins, in case it ends the process."""
    kept = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {row["key"] for row in kept if row["threads"] == options.threads and "begun" not in row}
    todo = [case for case in chosen if case.key not in done]
    for number, case in enumerate(todo, 1):
        if time.monotonic() > options.end:
            print(f"time is up: {len(todo) - number + 1} rows are left", file=sys.stderr)
            return
        began = time.monotonic()
        about = {"key": case.key, "threads": options.threads}
        starts = sum(row["key"] == case.key and row["threads"] == options.threads and "begun" in row for row in kept)
        _append(file, {**about, "begun": True})
        try:
            if starts >= MOST_STARTS:
                raise RuntimeError(f"the process ended in this row, {starts} times")
            found = measure(case)
        except Exception as error:
            found = {"failure": f"{type(error).__name__}: {str(error)[:500]}"}
            failed = options.records / FAILURES / f"{case.key.replace(', ', '-').replace(' ', '')}.txt"
            failed.parent.mkdir(exist_ok=True)
            failed.write_text(f"{case.operator}\n\n{dict(case.values)}\n{found['failure']}\n")
        rest = {"source": case.source, "name": case.name, "layer": case.layer, "load": os.getloadavg()[0]}
        _append(file, {**about, **rest, **found, "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M}"})
        taken = time.monotonic() - began
        print(f"[{number}/{len(todo)}] {case.key}: {_said(found)} ({taken:.0f} s)", file=sys.stderr, flush=True)


def _append(file: Path, row: Row) -> None:
    with file.open("a") as opened:
        opened.write(json.dumps(row) + "\n")


def _said(row: Row) -> str:
    if "failure" in row:
        return str(row["failure"])
    return ", ".join(f"{name} {1e3 * ms:.1f} us" for name, ms in row["ms"].items())


def _read(file: Path, chosen: Sequence[Case], threads: int) -> list[Row]:
    """Return the rows of the file that are among the chosen, ordered by their sources, names and layers."""
    if not file.exists():
        return []
    rows = {row["key"]: row for row in map(json.loads, file.read_text().splitlines()) if row["threads"] == threads}
    found = [rows[case.key] for case in chosen if case.key in rows and "begun" not in rows[case.key]]
    order = [LIBRARY, PUBLISHED, *SPACES]
    return sorted(found, key=lambda row: (order.index(row["source"]), len(row["name"]), row["name"], row["layer"]))


# ---- a row --------------------------------------------------------------------------------------------------------------


def _row(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    graph = parse_stored(case.operator, "an operator", case.name)
    valuation = graph.valuation(case.values)
    values = dict(valuation)
    module = prepare_for_inference(build(graph, case.values, seed=0))
    weights = [parameter.detach().numpy() for parameter in module.parameters()]
    request = Request(case.operator, tuple(values.items()), threads=options.threads)
    kernel, seconds = _seconds(lambda: kernel_for(request, options.records / STORE))
    _, again = _seconds(lambda: kernel_for(request, options.records / STORE))
    tensors = Tensors(request)
    call = tensors.call(kernel.function, kernel.program, kernel.factors(weights))
    x = torch.from_numpy(tensors.input)
    channels = case.layer[0]
    convolution = nn.Conv2d(channels, channels, 3, padding=1, bias=False).eval()
    calls: dict[str, Callable[[], object]] = {NATIVE: call}
    if options.threads > 1:
        single = Request(case.operator, tuple(values.items()))
        calls[ONE_THREAD] = _call(kernel_for(single, options.records / STORE), weights)
    functions: dict[str, Callable[..., Any]] = {EAGER: module, CONVOLUTIONS[0]: convolution}
    inductor_seconds = None
    if not options.quick:
        torch._dynamo.reset()
        functions[INDUCTOR], inductor_seconds = _seconds(lambda: frozen(module, (x,)))
        chosen = native_network(module, (x,), options.records / STORE, options.threads)
        functions[CHOICE] = chosen.compiled((x,))
        functions[CONVOLUTIONS[1]] = frozen(convolution, (x,))
    for name, function in functions.items():
        calls[name] = lambda function=function: function(x)  # type: ignore[misc]
    with torch.no_grad():
        expected = module(x)
        call()
        error = relative_error(torch.from_numpy(tensors.output), expected)
        if not error <= TOLERANCE:
            raise WrongOutputError(f"the kernel's output differs from the module's by {error:.1e} of the largest value")
        times = _in_turns(calls, options.threads)
    sizes = [prod(shape) for shape in _shapes(graph, valuation)]
    work = min(plan.flops(valuation) for plan in candidates(graph, valuation, inference=True))
    return {
        "ms": times,
        "seconds": seconds,
        "seconds_again": again,
        "inductor_seconds": inductor_seconds,
        "is_native": None if options.quick else all(layer.is_native for layer in chosen.layers),
        "multiply_adds": work,
        "convolution_multiply_adds": 9 * channels * sizes[0],
        "bytes": 4 * sum(sizes),
        "error": error,
        "kernel": _facts(kernel),
    }


def _shapes(graph: PGraph, valuation: Any) -> list[Sequence[int]]:
    into, weights, out = shapes(graph, valuation)
    return [into, out, *weights]


def _call(kernel: Kernel, weights: Sequence[np.ndarray]) -> Callable[[], None]:
    return Tensors(kernel.request).call(kernel.function, kernel.program, kernel.factors(weights))


def _seconds(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def _in_turns(calls: Mapping[str, Callable[[], object]], threads: int) -> dict[str, float]:
    """Milliseconds of each call: the least of many rounds, in which all are called one after another."""
    evaluates = {
        name: evaluate_of(call, _time_process if threads == 1 else stopwatch_of("cpu")) for name, call in calls.items()
    }
    repeats = {name: calls_in_repeat(warm_up(evaluate, ROUNDS)) for name, evaluate in evaluates.items()}
    found = {name: float("inf") for name in calls}
    for _ in range(ROUNDS.least_repeats):
        for name, evaluate in evaluates.items():
            found[name] = min(found[name], *evaluate(repeats[name], 1))
    return found


def _time_process(work: Callable[[], object]) -> float:
    """Milliseconds of work in one thread, without those in which others had the core."""
    start = time.process_time()
    work()
    return 1e3 * (time.process_time() - start)


def _facts(kernel: Kernel) -> dict[str, Any]:
    """Return properties of a kernel's code that explain its speed.

    - lanes: where its vectors lie.
    - vector_use: the share of the lanes' products that are the operator's.
    - products: for each result of a stage.
    - loads: for each product of the tiles.
    """
    program, lanes = kernel.program, kernel.choice.form.lanes
    executed = [program.blocks * own_target().lanes * prod(code.extents) for code in program.codes]
    needed = [program.samples * nest.multiply_adds for nest in program.nests]
    results = [n / prod(code.extents[loop] for loop in code.summed) for n, code in zip(needed, program.codes, strict=True)]
    loads = 0.0
    for code, schedule, products in zip(program.codes, program.schedules, needed, strict=True):
        tile = dict(schedule.tile)
        reads = prod(size for loop, size in tile.items() if code.read.depends_on(loop))
        factors = prod(size for loop, size in tile.items() if loop in (code.factor_loops or ())) if code.factor_loops else 0
        loads += products * (reads + factors) / prod(tile.values())
    return {
        "lanes": lanes,
        "plan": kernel.choice.form.plan,
        "stages": len(program.codes),
        "vector_use": sum(needed) / sum(executed),
        "products": sum(needed) / sum(results),
        "loads": loads / sum(needed),
        "scratch": 4 * program.scratch,
        "schedules": [asdict(schedule) for schedule in program.schedules],
    }


def _tvm_row(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """TVM's latency, from a process of its own, and the kernel's right after it."""
    settings = LatencySettings(batch=case.layer[2], threads=options.threads)
    record = tune(
        OperatorSubject.of(parse_stored(case.operator, "an operator", case.name), dict(case.values)),
        "tvm",
        settings=settings,
        time_limit_s=3600,
        folder=options.records / "tvm",
        tvm=TvmSettings(trials_per_task=options.trials),
    )
    if record.latency_minimum_ms is None or record.tuning is None:
        raise SynoError(f"TVM: {record.status}: {record.reason}")
    graph = parse_stored(case.operator, "an operator", case.name)
    values = graph.valuation(case.values)
    kernel = kernel_for(Request(case.operator, tuple(dict(values).items()), threads=options.threads), options.records / STORE)
    weights = [np.ones(shape, np.float32) for shape in _shapes(graph, values)[2:]]
    times = {**_in_turns({NATIVE: _call(kernel, weights)}, options.threads), "tvm": record.latency_minimum_ms}
    return {
        "ms": times,
        "tuning_seconds": record.tuning.seconds,
        "trials": record.tuning.trials,
        "trials_per_task": options.trials,
    }


# ---- the page -----------------------------------------------------------------------------------------------------------


def _peak(options: argparse.Namespace) -> Peak:
    """Return the machine's peak: the most of what all runs with the folder have found."""
    file, found = options.records / PEAK, peak("cpu", options.threads)
    kept = json.loads(file.read_text()) if file.exists() else {}
    if str(options.threads) in kept:
        flops, moved, sizes = kept[str(options.threads)]
        found = found.or_faster(Peak(flops, moved, tuple((size, speed) for size, speed in sizes)))
    kept[str(options.threads)] = [found.flops_per_second, found.bytes_per_second, found.bandwidths]
    file.write_text(json.dumps(kept))
    return found


def limits(row: Row, most: Peak) -> tuple[float, float]:
    """Milliseconds that a row's multiply-adds and bytes take at the machine's peak."""
    if "failure" in row:
        return 0.0, 0.0
    moved = row["bytes"]
    return 1e3 * row["multiply_adds"] / most.flops_per_second, 1e3 * moved / most.bandwidth(moved)


def _method(options: argparse.Namespace, rows: Sequence[Row], most: Peak) -> list[str]:
    threads = f"{options.threads} thread{'s'[: options.threads != 1]}"
    clock = "clock" if options.threads > 1 else "processor time of the process"
    dates, loads = sorted(row["date"] for row in rows), [row["load"] for row in rows]
    sizes = {"32 KiB": 2**15, "256 KiB": 2**18, "4 MiB": 2**22, "64 MiB": 2**26}
    speeds = [f"{most.bandwidth(size) / 1e9:.0f} in {name}" for name, size in sizes.items()]
    entries = [
        f"torch {torch.__version__}, {compiler_version(compiler())}, {own_target().name}, float32, {threads}",
        f"The machine's peak: {most.flops_per_second / 1e9:.1f} billion multiply-adds per second; GB/s: {', '.join(speeds)}",
        *([f"Measured: {dates[0]} to {dates[-1]} UTC; load average {min(loads):.1f} to {max(loads):.1f}"] if rows else []),
        "Times are the least of 40 rounds, in which all variants are called one after another, in the same process, with the "
        f"same input, in the usual memory format, by the {clock}. A kernel is called through ctypes.",
        "`eager`: today's module after `prepare_for_inference`; `Inductor`: that with TorchInductor and constant weights. "
        "The convolution is `nn.Conv2d(C, C, 3, padding=1, bias=False)`, by the faster of both.",
        f"`{CHOICE}`: the module as an experiment with this compiler has it. The kernel or PyTorch's code computes it, "
        "whichever was faster when it was made, and TorchInductor's code calls that. It is compared with Inductor: the call of "
        "either takes some 0.1 ms, which eager code and kernels called by themselves do not.",
        "The limit: the larger of multiply-adds by the peak, and bytes of input, weights and output by the bandwidth in so "
        "many bytes. Multiply-adds are those of the plan with the fewest.",
        "Each kernel was compared with the interpreter when it was made, and here with the module.",
        "Intervals are 95 % intervals of the geometric mean over rows.",
    ]
    return [line for entry in entries for line in reports.paragraph(f"- {entry}")]


def best_ms(row: Row) -> float:
    """Return the latency of the operator's module, by the faster of eager and Inductor."""
    return float(min(row["ms"][name] for name in (EAGER, INDUCTOR) if name in row["ms"]))


def speedup(row: Row) -> float:
    """How many times as fast as the better of eager and Inductor the kernel is."""
    return best_ms(row) / float(row["ms"][NATIVE])


def of_inductor(row: Row) -> float:
    """Return the time of what a user of the compiler gets, as a share of Inductor's; 1 if it was not measured."""
    return float(row["ms"][CHOICE] / row["ms"][INDUCTOR]) if CHOICE in row["ms"] else 1.0


def rates(row: Row) -> tuple[float, float]:
    """Billion multiply-adds per second of the kernel, and of the convolution by its best compiler."""
    return row["multiply_adds"] / row["ms"][NATIVE] / 1e6, row["convolution_multiply_adds"] / convolution_ms(row) / 1e6


def convolution_ms(row: Row) -> float:
    """Return the latency of the layer's convolution, by the faster of eager and Inductor."""
    return float(min(row["ms"][name] for name in CONVOLUTIONS if name in row["ms"]))


def share_of_limit(row: Row) -> float:
    return float(max(row["limit"]) / row["ms"][NATIVE])


def limit(row: Row) -> str:
    """Say what limits a kernel whose rate is far from the convolution's; empty for others."""
    ours, theirs = rates(row)
    if ours >= ENOUGH * theirs:
        return ""
    facts, took = row["kernel"], row["ms"][NATIVE]
    found = []
    if took < 0.01:
        found.append("the call itself")
    if facts["scratch"] > 0.8 * own_target().second_cache:
        found.append(f"scratch of {facts['scratch'] >> 10} KiB, beyond the second cache")
    if row["limit"][1] >= 0.4 * took:
        found.append("bandwidth")
    if facts["vector_use"] < 0.75:
        found.append(f"tiny axes ({100 * facts['vector_use']:.0f} % of the lanes used)")
    if row["multiply_adds"] / (row["bytes"] / 4) < 12:
        found.append(f"{row['multiply_adds'] / (row['bytes'] / 4):.0f} multiply-adds for each number read or written")
    if facts["products"] < 24:
        found.append(f"short sums ({facts['products']:.0f})")
    if facts["loads"] > 0.9:
        found.append(f"registers ({facts['loads']:.1f} loads a product)")
    return "; ".join(found) or "not known"


def _interval(values: Sequence[float]) -> str:
    logs = [log(value) for value in values]
    if len(logs) < 2:
        return f"{exp(fmean(logs)):.2f}" if logs else "–"
    half = 1.96 * stdev(logs) / len(logs) ** 0.5
    return f"{exp(fmean(logs)):.2f} [{exp(fmean(logs) - half):.2f}, {exp(fmean(logs) + half):.2f}]"


def _page(rows: Sequence[Row], tvm: Sequence[Row], wanted: int, options: argparse.Namespace) -> list[str]:
    good = [row for row in rows if "failure" not in row]
    tuned = {row["key"]: row for row in tvm if "failure" not in row}
    slower = [_slower(row) for row in good if max(1 / speedup(row), of_inductor(row)) > SLOWER]
    failed = [f"- {row['key']}: {row['failure']}" for row in (*rows, *tvm) if "failure" in row]
    sections = {
        f"Summary of {len(good)} rows of {wanted}": _summary(good, tuned, options.threads)
        if good
        else ["Nothing is measured."],
        f"Slower than eager or Inductor by more than {100 * (SLOWER - 1):.0f} %: {len(slower)}": slower,
        f"Failed: {len(failed)}": failed,
        "TVM": _tvm_table(tuned) if tuned else [],
        "Rows": _table(good, options.threads) if good else [],
    }
    return [line for title, lines in sections.items() if lines for line in ("", f"## {title}", "", *lines)]


def _slower(row: Row) -> str:
    found = f"- {row['key']}: the kernel takes {1 / speedup(row):.2f} times the time"
    if CHOICE not in row["ms"]:
        return found
    code = "the kernel" if row["is_native"] else "PyTorch's code"
    return f"{found}; `{CHOICE}`, which takes {code}, {of_inductor(row):.2f} times that of Inductor"


def _summary(rows: Sequence[Row], tvm: Mapping[str, Row], threads: int) -> list[str]:
    groups = {"all": rows, **{name: [row for row in rows if row["source"] == name] for name in (LIBRARY, PUBLISHED, *SPACES)}}
    columns = [
        "operators",
        "rows",
        "as fast as the better of eager and Inductor",
        "multiply-adds per second, of the convolution's",
    ]
    columns += ["share of the limit", "slower by more than 3 %", f"`{CHOICE}`", "as fast as the convolution"]
    body = []
    for name, group in groups.items():
        if group:
            pairs = [rates(row) for row in group]
            layers = [convolution_ms(row) / row["ms"][NATIVE] for row in group]
            numbers = [
                [speedup(row) for row in group],
                [ours / theirs for ours, theirs in pairs],
                list(map(share_of_limit, group)),
            ]
            slower = str(sum(1 / speedup(row) > SLOWER for row in group))
            is_known = any(CHOICE in row["ms"] for row in group)
            chosen = str(sum(of_inductor(row) > SLOWER for row in group)) if is_known else "–"
            body.append([name, str(len(group)), *map(_interval, numbers), slower, chosen, _interval(layers)])
    lines = reports.table(columns, body)
    seconds = [row["seconds"] for row in rows]
    lines += [
        "",
        f"- Seconds of making a kernel: {median(seconds):.1f} in the median, {max(seconds):.1f} at most; from the store "
        f"{1e3 * median(row['seconds_again'] for row in rows):.0f} ms in the median, "
        f"{1e3 * max(row['seconds_again'] for row in rows):.0f} ms at most; Inductor "
        f"{median([row['inductor_seconds'] or 0.0 for row in rows]):.1f} s in the median.",
        f"- At least {ENOUGH} of the convolution's multiply-adds per second: "
        f"{sum(ours >= ENOUGH * theirs for ours, theirs in map(rates, rows))} of {len(rows)} rows.",
    ]
    if tvm:
        against = [row["ms"]["tvm"] / row["ms"][NATIVE] for row in tvm.values()]
        lines.append(f"- Times as fast as TVM: {_interval(against)} ({len(against)} rows).")
    if threads > 1:
        several = [row for row in rows if row["layer"][2] >= 8]
        for name, group in (("of at least 8", several), ("of 1", [row for row in rows if row["layer"][2] == 1])):
            ratios = [row["ms"][ONE_THREAD] / row["ms"][NATIVE] for row in group]
            lines.append(f"- Batches {name}: {_interval(ratios)} times as fast as with one thread ({len(ratios)} rows).")
    return lines


def _table(rows: Sequence[Row], threads: int) -> list[str]:
    columns = [
        "operator", "layer", "limited by", "native, ms", f"`{CHOICE}`", "eager", "Inductor", "times as fast", "convolution",
        "billion multiply-adds per second", "the convolution's", "share of the limit", "s of making",
    ]  # fmt: skip
    body = []
    for row in rows:
        channels, pixels, batch = row["layer"]
        times = row["ms"]
        ours, theirs = rates(row)
        single = f" ({times[ONE_THREAD] / times[NATIVE]:.2f}x one thread)" if threads > 1 else ""
        body.append(
            [
                row["name"],
                f"{channels}, {pixels}x{pixels}, batch {batch}",
                limit(row),
                f"{times[NATIVE]:.4f}{single}",
                *(f"{times[name]:.4f}" if name in times else "–" for name in (CHOICE, EAGER, INDUCTOR)),
                f"{speedup(row):.2f}",
                f"{convolution_ms(row):.4f}",
                f"{ours:.1f}",
                f"{theirs:.1f}",
                f"{share_of_limit(row):.0%}",
                f"{row['seconds']:.1f}",
            ]
        )
    return reports.table(columns, body, left=3)


def _tvm_table(tuned: Mapping[str, Row]) -> list[str]:
    body = [
        [key, f"{row['ms'][NATIVE]:.4f}", f"{row['ms']['tvm']:.4f}", f"{row['ms']['tvm'] / row['ms'][NATIVE]:.2f}",
         f"{row['tuning_seconds']:.0f}", str(row["trials"]), str(row["trials_per_task"])]
        for key, row in tuned.items()
    ]  # fmt: skip
    columns = ["operator and layer", "native, ms", "TVM", "times as fast", "s of tuning", "trials", "of each task"]
    return reports.table(columns, body)


if __name__ == "__main__":
    sys.exit(main())
