"""Whole networks with native kernels, beside TorchInductor's: their speed, and the time in which they are compiled.

    python benchmarks/native_networks.py --records FOLDER --output docs/measured/native_networks.md

The network is the ResNet-8 of the table of trained operators (docs/measured/table.md), with 64 pictures of 16x16. The operators
are the most accurate ones of that table with less than 20 % of the network's FLOPs. Each network, with the original, is
compiled in a process of its own that finds no cache but what its compiler keeps for all networks, and is timed in turns there.
What has a record is not measured again.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any

import reports
import torch
from pydantic import BaseModel, ConfigDict
from scipy.stats import t as student
from torch import nn

from syno.base.files import write_whole
from syno.measure.inductor import frozen
from syno.measure.native.network import NativeNetwork, native_network
from syno.measure.timing import LatencySettings
from syno.measure.turns import in_turns
from syno.model.backbones import BACKBONES
from syno.model.substitution import substitute
from syno.paper.replay.entries import TableEntry
from syno.paper.replay.table import OperatorTable

BATCH, SHAPE, CLASSES = 64, (3, 16, 16), 12
MOST_FLOPS = 0.2  # of the original's
COMPILERS = ("inductor", "native")
SETTINGS = LatencySettings(least_repeats=40, least_ms=1000)


class Row(BaseModel):
    """The network with an operator, and the original, both with both compilers.

    Attributes:
        operator: its id in the table.
        flops: share of the original's.
        accuracy: in the table, the mean over its seeds.
        original_ms, latency_ms: by compilers.
        speedup, low, high: of the native network, against the faster original: the median over rounds, with its 95 % interval.
        seconds: of compiling the network with the operator, by compilers.
        cpu_seconds: the same, of all processes.
        kernels, layers: how many layers have native kernels, of how many.
        error: largest difference from PyTorch's code, as a share of the largest output.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    operator: str
    flops: float
    accuracy: float
    original_ms: dict[str, float]
    latency_ms: dict[str, float]
    speedup: float
    low: float
    high: float
    seconds: dict[str, float]
    cpu_seconds: dict[str, float]
    kernels: int
    layers: int
    error: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each operator in a process of its own, print the page, and write it if asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--records", type=Path, metavar="DIR", help="where rows are kept")
    parser.add_argument("--most", type=int, default=6, help="operators; default: %(default)s")
    parser.add_argument("--threads", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--operator", help="print the row of this operator of the table alone, as JSON")
    options = reports.parse(parser, arguments)
    table = OperatorTable.read()
    if options.operator is not None:
        print(measured(table, table.entries[options.operator], options.threads).model_dump_json())
        return 0
    command = f"benchmarks/native_networks.py {' '.join(arguments or sys.argv[1:])}"
    start, rows = reports.heading("Networks with native kernels", command), []
    if options.records is None:
        parser.error("give a folder for the rows: --records")
    for entry in best(table, options.most):
        file = options.records / f"{entry.id}-{options.threads}.json"
        if not file.is_file():
            row = [sys.executable, __file__, "--operator", entry.id, "--threads", str(options.threads)]
            printed = subprocess.run(row, stdout=subprocess.PIPE, text=True, check=True).stdout
            write_whole(file, printed.splitlines()[-1])
        rows.append(Row.model_validate_json(file.read_text()))
    reports.deliver([*start, *page(table, rows, options.threads)], options.output)
    return 0


def best(table: OperatorTable, count: int) -> list[TableEntry]:
    """The most accurate operators with few FLOPs."""
    small = [entry for entry in table.entries.values() if entry.flops <= MOST_FLOPS * table.original.flops]
    return sorted(small, key=lambda entry: -entry.accuracy())[:count]


def measured(table: OperatorTable, entry: TableEntry, threads: int) -> Row:
    """Compile and time the network with an operator, and the original."""
    torch.set_num_threads(threads)
    original = BACKBONES["resnet8"](classes=CLASSES, channels=SHAPE[0]).eval()
    x = torch.randn(BATCH, *SHAPE, generator=torch.Generator().manual_seed(0))
    network = substitute(original, entry.operator, x, mode="fused", batch=BATCH).eval()
    with TemporaryDirectory() as folder, torch.no_grad():
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        ways = {"inductor": partial(_by_inductor, x), "native": partial(_by_native, x, Path(folder) / "native", threads)}
        first = {name: way(original)[0] for name, way in ways.items()}
        calls: list[Callable[[], object]] = [partial(call, x) for call in first.values()]
        seconds, cpu_seconds, made = {}, {}, {}
        for name, way in ways.items():
            began, cpu_began = time.monotonic(), _cpu_seconds()
            made[name] = way(network)
            seconds[name], cpu_seconds[name] = time.monotonic() - began, _cpu_seconds() - cpu_began
        calls += [partial(call, x) for call, _ in made.values()]
        wanted, found = network(x), made["native"][0](x)
        turns = in_turns(calls, SETTINGS.model_copy(update={"threads": threads}))
    layers = made["native"][1].layers
    times = [one.value for one in turns.latencies]
    fastest = 0 if times[0] <= times[1] else 1
    against = type(turns).of([[row[fastest], row[3]] for row in turns.rounds]).speedups[0]
    return Row(
        operator=entry.id,
        flops=entry.flops / table.original.flops,
        accuracy=entry.accuracy(),
        original_ms=dict(zip(COMPILERS, times[:2], strict=True)),
        latency_ms=dict(zip(COMPILERS, times[2:], strict=True)),
        speedup=against.value,
        low=against.low,
        high=against.high,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        kernels=sum(layer.is_native for layer in layers),
        layers=len(layers),
        error=float((wanted - found).abs().max() / wanted.abs().max()),
    )


def _by_inductor(x: torch.Tensor, network: nn.Module) -> tuple[Callable[..., Any], None]:
    torch._dynamo.reset()
    return frozen(network, (x,)), None


def _by_native(x: torch.Tensor, store: Path, threads: int, network: nn.Module) -> tuple[Callable[..., Any], NativeNetwork]:
    torch._dynamo.reset()
    made = native_network(network, (x,), store, threads)
    return made.compiled((x,)), made


def _cpu_seconds() -> float:
    """The CPU-seconds of this process and of those that it has waited for."""
    return sum(sum(resource.getrusage(whose)[:2]) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def page(table: OperatorTable, rows: Sequence[Row], threads: int) -> list[str]:
    """The page below its heading."""
    about = [
        f"- torch {torch.__version__}, {threads} {'thread' if threads == 1 else 'threads'}. ResNet-8 with {BATCH} pictures of "
        f"{SHAPE[1]}x{SHAPE[2]}; the {len(rows)} most accurate operators of the [table of trained operators](table.md) with at "
        f"most {MOST_FLOPS:.0%} of the network's FLOPs. The original's accuracy is {table.original.accuracy():.4f}.",
        "- Latencies are medians of rounds in turns. `Times as fast`: the native network against the original with its faster "
        "compiler, with the 95 % interval of the median.",
        "- Seconds of compiling, with empty caches but for what is made once for the original: kernels, the choice of their "
        "schedules by timing and their check, and TorchInductor on what remains; or TorchInductor alone. CPU-seconds are those "
        "of all processes.",
        f"- The largest difference from PyTorch's code is {max(row.error for row in rows):.0e} of the largest output.",
    ]
    columns = (
        "operator", "accuracy", "FLOPs", "original, Inductor, ms", "original, native", "Inductor", "native", "times as fast",
        "kernels", "s of compiling, Inductor", "native", "CPU-s, Inductor", "native",
    )  # fmt: skip
    cells = [
        [
            row.operator[:12], f"{row.accuracy:.4f}", f"{row.flops:.1%}",
            *(f"{value:.2f}" for value in (*row.original_ms.values(), *row.latency_ms.values())),
            f"{row.speedup:.2f} ({row.low:.2f} to {row.high:.2f})", f"{row.kernels} of {row.layers}",
            *(f"{value:.1f}" for value in (*row.seconds.values(), *row.cpu_seconds.values())),
        ]
        for row in rows
    ]  # fmt: skip
    native = _geometric([row.speedup for row in rows])
    inductor = _geometric([min(row.original_ms.values()) / row.latency_ms["inductor"] for row in rows])
    spent = {
        name: (fmean(row.cpu_seconds[name] for row in rows), fmean(row.seconds[name] for row in rows)) for name in COMPILERS
    }
    compiling = [f"{name} {cpu_seconds:.1f} CPU-seconds, {seconds:.1f} s" for name, (cpu_seconds, seconds) in spent.items()]
    ends = [
        f"Times as fast, geometric mean over the operators with its 95 % interval: {native}; with TorchInductor {inductor}.",
        f"Compiling, mean: {'; '.join(compiling)}.",
    ]
    lines = [line for text in about for line in reports.paragraph(text)]
    return [*lines, "", *reports.table(columns, cells), *(line for text in ends for line in ("", *reports.paragraph(text)))]


def _geometric(values: Sequence[float]) -> str:
    logs = [math.log(value) for value in values]
    mean = fmean(logs)
    if len(logs) < 2:
        return f"{math.exp(mean):.2f}"
    half = float(student.ppf(0.975, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(mean):.2f} ({math.exp(mean - half):.2f} to {math.exp(mean + half):.2f})"


if __name__ == "__main__":
    sys.exit(main())
