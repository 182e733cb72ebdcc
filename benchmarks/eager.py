"""Eager speed of operators against the layers that they replace, with the generated code of this version and of an earlier one.

    git worktree add ../earlier COMMIT
    python benchmarks/eager.py --before ../earlier --output docs/measured/eager.md

Measured in turns in one process: ResNet-18 with an operator, and the library's operators at the shapes of ResNet-18's stages.
The report goes to standard output, and to the file `--output`; progress goes to standard error. Exit status: 0; 1 if two forms
compute different numbers; 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from unittest.mock import patch

import reports
import torch
from cases import STAGES, Layer
from torch import Tensor, nn

from syno.base.errors import SynoError
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.lower.choose import plan
from syno.measure.output_check import relative_error
from syno.measure.timing import interval_of_median
from syno.model import OperatorModule, build, prepare_for_inference
from syno.model.backbones import BACKBONES
from syno.model.substitution import substitute

ORIGINAL, ORIGINAL_LAST, BEFORE, NOW, PREPARED = "original", "original, channels last", "before", "now", "now, prepared"
FORWARD, BOTH = "forward", "forward and backward"
TOLERANCE = 1e-4  # of the largest value
EARLIER = """
import json, sys
from syno.ir.text import parse
from syno.lower.pytorch.source import to_source
json.dump([to_source(parse(text), values, mode="fused") for text, values in json.load(sys.stdin)], sys.stdout)
"""


@dataclass(frozen=True)
class Row:
    """Times in milliseconds by variant, one for each round, of one subject and one kind of call."""

    name: str
    kind: str
    times: Mapping[str, list[float]]
    share: float | None = None  # of the layer's FLOPs, for an operator

    def speedup(self, variant: str) -> tuple[float, float, float]:
        """How many times faster than the original: the median of the rounds' ratios, and its 95 % interval."""
        ratios = sorted(first / second for first, second in zip(self.times[ORIGINAL], self.times[variant], strict=True))
        return median(ratios), *interval_of_median(ratios)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the report; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add = parser.add_argument
    add("--before", type=Path, required=True, metavar="DIR", help="a checkout of the earlier version")
    add("--operator", default="operator_1", help="in ResNet-18; default: %(default)s")
    add("--sizes", default="32,224", metavar="A,B", help="of ResNet-18's pictures; default: %(default)s")
    add("--threads", type=int, default=1, help="default: %(default)s")
    add("--batch", type=int, default=1, help="default: %(default)s")
    add("--rounds", type=int, default=15, help="at least 6; default: %(default)s")
    add("--seconds", type=float, default=0.02, help="of each variant in each round, at least one call; default: %(default)s")
    options = reports.parse(parser, arguments)
    torch.set_num_threads(options.threads)
    command = f"benchmarks/eager.py {' '.join(arguments or sys.argv[1:])}"
    start = reports.heading("Operators in eager PyTorch, before and now", command)
    try:
        networks = [row for size in options.sizes.split(",") for row in _network(int(size), options)]
        operators = [row for layer in STAGES for row in _operators(layer, options)]
    except SynoError as error:
        parser.error(str(error))
    load = f"- Load average at the end: {os.getloadavg()[0]:.2f}"
    reports.deliver([*start, load, *_method(options), *_report(networks, operators, options)], options.output)
    return 0


# ---- what is measured ---------------------------------------------------------------------------------------------------


def _network(size: int, options: argparse.Namespace) -> list[Row]:
    """ResNet-18 on pictures of this size: as it is, and with the operator."""
    torch.manual_seed(0)
    original = BACKBONES["resnet18"](classes=1000)
    x = torch.randn(options.batch, 3, size, size)
    graph = OPERATORS[options.operator]()
    now = substitute(original, graph, x, batch=options.batch)
    modules = [module for module in now.modules() if isinstance(module, OperatorModule)]
    sources = _earlier_sources(options.before, [(module.graph, _values(module)) for module in modules])
    with patch("syno.model.module.to_source", lambda *_, **__: sources.pop(0)):
        before = substitute(original, graph, x)
    return _rows(f"ResNet-18, {size}x{size}", original, before, now, x, options, None)


def _operators(layer: Layer, options: argparse.Namespace) -> list[Row]:
    """Every operator of the library that fits the layer's shapes."""
    cases: list[tuple[str, PGraph, dict[str, int]]] = []
    shape = [options.batch, layer.c_in, layer.size, layer.size], [options.batch, layer.c_out, layer.size, layer.size]
    given = {"N": options.batch, "C_in": layer.c_in, "C_out": layer.c_out, "C": layer.c_in, "H": layer.size}
    for name, function in OPERATORS.items():
        graph = function()
        values = {variable: value for variable, value in given.items() if variable in graph.variables}
        try:
            valuation = graph.valuation(values)
        except SynoError:
            continue
        if (
            graph.weights
            and tuple([valuation.integer(dim.size) for dim in dims] for dims in (graph.input, graph.output)) == shape
        ):
            cases.append((name, graph, values))
    sources = _earlier_sources(options.before, [(graph, dict(graph.valuation(values))) for _, graph, values in cases])
    rows = []
    for (name, graph, values), source in zip(cases, sources, strict=True):
        with patch("syno.model.module.to_source", lambda *_, text=source, **__: text):
            before = build(graph, values, seed=0)
        torch.manual_seed(0)
        x = torch.randn(shape[0])
        original = nn.Conv2d(layer.c_in, layer.c_out, 3, padding=1, bias=False)
        share = plan(graph, values).flops() / (options.batch * 9 * layer.c_in * layer.c_out * layer.size**2)
        label = f"{name}, {layer.c_in}->{layer.c_out}, {layer.size}x{layer.size}"
        rows += _rows(label, original, before, build(graph, values, seed=0), x, options, share)
    return rows


def _values(module: OperatorModule) -> dict[str, int]:
    """The sizes that `build` chose the module's code for."""
    return {**dict.fromkeys(module.graph.runtime_variables, 32), **module.sizes}


def _earlier_sources(folder: Path, cases: Sequence[tuple[PGraph, Mapping[str, int]]]) -> list[str]:
    """The code that the version in the folder generates."""
    request = json.dumps([(str(graph), dict(values)) for graph, values in cases])
    environment = {**os.environ, "PYTHONPATH": str(folder.resolve())}
    command = [sys.executable, "-c", EARLIER]
    done = subprocess.run(command, input=request, env=environment, cwd=folder, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


# ---- measuring ----------------------------------------------------------------------------------------------------------


def _rows(
    name: str,
    original: nn.Module,
    before: nn.Module,
    now: nn.Module,
    x: Tensor,
    options: argparse.Namespace,
    share: float | None,
) -> list[Row]:
    now.load_state_dict(before.state_dict())
    prepared = prepare_for_inference(deepcopy(now))
    last = deepcopy(original).to(memory_format=torch.channels_last)
    modules = {ORIGINAL: original, ORIGINAL_LAST: last, BEFORE: before, NOW: now, PREPARED: prepared}
    if share is not None:
        del modules[ORIGINAL_LAST]
    for module in modules.values():
        module.eval()
    with torch.no_grad():
        outputs = {variant: module(x) for variant, module in modules.items()}
    for variant in (NOW, PREPARED):
        error = relative_error(outputs[variant], outputs[BEFORE])
        if not error <= TOLERANCE:
            sys.exit(f"{name}: {variant} differs from before by {error:.1g} of the largest value")
    rows = [Row(name, FORWARD, _in_turns({variant: _forward(m, x) for variant, m in modules.items()}, options), share)]
    del modules[PREPARED]
    for module in modules.values():
        module.train()
    batch = torch.cat([x, x]) if len(x) == 1 else x  # a batch normalization of 1x1 pictures needs two
    steps = {variant: _both(module, batch.clone().requires_grad_(share is not None)) for variant, module in modules.items()}
    rows.append(Row(name, BOTH, _in_turns(steps, options), share))
    for row in rows:
        found = ", ".join(f"{variant} {median(times):.3f} ms" for variant, times in row.times.items())
        print(f"{row.name}, {row.kind}: {found}", file=sys.stderr, flush=True)
    return rows


def _forward(module: nn.Module, x: Tensor) -> Callable[[], object]:
    def call() -> object:
        with torch.no_grad():
            return module(x)

    return call


def _both(module: nn.Module, x: Tensor) -> Callable[[], object]:
    gradient = torch.empty_like(module(x)).normal_()

    def call() -> None:
        module.zero_grad(set_to_none=True)
        x.grad = None
        module(x).backward(gradient)

    return call


def _in_turns(calls: Mapping[str, Callable[[], object]], options: argparse.Namespace) -> dict[str, list[float]]:
    """Milliseconds of a call, by variant and round: CPU time with one thread, else wall time."""
    clock = time.process_time if options.threads == 1 else time.perf_counter
    repeats = {}
    for variant, call in calls.items():
        call()
        began = clock()
        call()
        repeats[variant] = max(1, int(options.seconds / max(clock() - began, 1e-6)))
    times: dict[str, list[float]] = {variant: [] for variant in calls}
    for _ in range(options.rounds):
        for variant, call in calls.items():
            began = clock()
            for _ in range(repeats[variant]):
                call()
            times[variant].append(1e3 * (clock() - began) / repeats[variant])
    return times


# ---- the report ---------------------------------------------------------------------------------------------------------


def _method(options: argparse.Namespace) -> list[str]:
    clock = "CPU time of the process" if options.threads == 1 else "wall time"
    return [
        f"- torch {torch.__version__}, {options.threads} thread{'s'[: options.threads != 1]}, float32, batch {options.batch} "
        f"(ResNet-18's and a layer's training step: batch {max(2, options.batch)})",
        f"- Times: {clock}; all variants in turn, {options.rounds} rounds; the median. In brackets the speedup over the "
        "original: the median of the rounds' own ratios, and its 95 % interval.",
        f"- `{ORIGINAL_LAST}`: with the weights of all convolutions in this memory format.",
        f"- `{BEFORE}`: code that the earlier version generates, `{NOW}`: that of this one; `{PREPARED}`: after "
        "`prepare_for_inference`. Their outputs agree to 1e-4 of the largest value.",
    ]


def _report(networks: list[Row], operators: list[Row], options: argparse.Namespace) -> list[str]:
    lines = ["", f"## ResNet-18 with {options.operator}", "", *_table(networks)]
    for kind in (FORWARD, BOTH):
        chosen = [row for row in operators if row.kind == kind]
        lines += ["", f"## Operators of the library, {kind}", "", *_table(chosen), "", *_summary(chosen)]
    return lines


def _table(rows: Sequence[Row]) -> list[str]:
    variants = list(dict.fromkeys(variant for row in rows for variant in row.times))
    has_share = any(row.share is not None for row in rows)
    columns = ["subject", "calls", *(["share of FLOPs"] if has_share else []), *variants]
    body = []
    for row in rows:
        cells = [row.name, row.kind, *([f"{row.share:.3f}"] if row.share is not None else [])]
        for variant in variants:
            text = f"{median(row.times[variant]):.3f}" if variant in row.times else "–"
            if variant != ORIGINAL and variant in row.times:
                text += " ({:.2f}x [{:.2f}, {:.2f}])".format(*row.speedup(variant))
            cells.append(text)
        body.append(cells)
    return reports.table(columns, body, left=2)


def _summary(rows: Sequence[Row]) -> list[str]:
    """How the shares of the time are to those of the FLOPs."""
    lines = []
    for variant in [variant for variant in rows[0].times if variant != ORIGINAL]:
        pairs = [(1 / row.speedup(variant)[0], row.share) for row in rows if row.share]
        times = median(time for time, _ in pairs)
        over = median(time - share for time, share in pairs)
        ratio = median(time / share for time, share in pairs)
        lines += reports.paragraph(
            f"- {variant}: the median operator takes {times:.2f} of the layer's time, {over:+.2f} beside its share of the "
            f"FLOPs, which is {ratio:.2f} times that share ({len(pairs)} rows)."
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
