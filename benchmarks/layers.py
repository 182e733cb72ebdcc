"""The ten layers of ResNet-34: the convolution, NAS-PTE's three sequences, Operators 1 and 2, under each compiler.

    python benchmarks/layers.py --records results/layers --output docs/measured/layers.md

Each measurement is a process of its own, whose output is checked, and a record in the folder `--records`; what has a record
is not measured again, so a run that was stopped goes on where it was. The report goes to standard output, and to the file
`--output`; progress goes to standard error. Exit status: 0; 1 if something that fits could not be measured; 2 for wrong
arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cases
import records
import reports
import torch
from published_layers import MACHINES, PLACES, published_speedup

import syno
from syno.base.errors import SpecError, SynoError
from syno.measure.network_subject import NetworkSubject
from syno.measure.tuning import TuningRecord
from syno.model.backbones import BACKBONES
from syno.model.extraction import DistinctLayer, distinct_layers
from syno.model.substitution import substitute

MODEL, CLASSES, IMAGE, RULE = "resnet34", 1000, (3, 224, 224), "paper"
CONVOLUTION = "conv"
OPERATORS = ("nas_pte_sequence_1", "nas_pte_sequence_2", "nas_pte_sequence_3", "operator_1", "operator_2")
KINDS = (CONVOLUTION, *OPERATORS)


@dataclass(frozen=True, eq=False)
class Cell:
    """One measurement.

    Attributes:
        layer: the layer.
        kind: "conv", or an operator's name.
        compiler: a name in `COMPILERS`.
    """

    layer: DistinctLayer
    kind: str
    compiler: str

    @property
    def subject(self) -> NetworkSubject:
        return NetworkSubject(
            model=MODEL,
            classes=CLASSES,
            image_shape=IMAGE,
            operator=None if self.kind == CONVOLUTION else str(syno.OPERATORS[self.kind]()),
            layers=RULE,
            layer=self.layer.layer.name,
        )

    @property
    def misfit(self) -> str | None:
        """Why the operator cannot have the sizes of the layer; None if it can."""
        if self.kind == CONVOLUTION:
            return None
        sizes = self.layer.layer.values
        side = self.layer.layer.stride * sizes["H"]
        example = torch.zeros(sizes["N"], sizes["C_in"], side, side)
        try:
            substitute(self.layer.layer.module, syno.OPERATORS[self.kind](), example, where=RULE, keep_stem=False)
        except SynoError as error:
            return str(error)
        return None


Results = dict[Cell, TuningRecord | str]  # a reason where the operator does not fit


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what has no record yet, print and write the report; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    records.add_options(parser, compilers="eager,inductor,tvm")
    add = parser.add_argument
    add("--layers", default="", metavar="L1,L7", help="default: all ten")
    add("--operators", default=",".join(OPERATORS), metavar="A,B", help="default: %(default)s")
    add("--artifact", type=Path, default=cases.artifact_folder(), metavar="DIR", help=f"default: ${cases.ARTIFACT}")
    options = reports.parse(parser, arguments)
    start = reports.heading("The ten layers of ResNet-34", f"benchmarks/layers.py {' '.join(arguments or sys.argv[1:])}")
    try:
        todo = _cells(options)
        results = _measure_all(todo, options)
    except SynoError as error:
        parser.error(str(error))
    reports.deliver([*start, *_report(results, options)], options.output)
    return 1 if any(isinstance(result, TuningRecord) and result.status != "ok" for result in results.values()) else 0


def _cells(options: argparse.Namespace) -> list[Cell]:
    compilers, operators = records.names(options), [part for part in options.operators.split(",") if part]
    if unknown := [name for name in operators if name not in OPERATORS]:
        raise SpecError(f'no operator "{unknown[0]}" here; there are: {", ".join(OPERATORS)}')
    model = BACKBONES[MODEL](classes=CLASSES)
    layers = {f"L{one.position}": one for one in distinct_layers(model, torch.zeros(1, *IMAGE), RULE)}
    names = [name for name in options.layers.split(",") if name] or list(layers)
    if missing := [name for name in names if name not in layers]:
        raise SpecError(f'no layer "{missing[0]}"; there are: {", ".join(layers)}')
    return [
        Cell(layers[name], kind, compiler) for name in names for kind in (CONVOLUTION, *operators) for compiler in compilers
    ]


# ---- measuring --------------------------------------------------------------------------------------------------


def _measure_all(todo: Sequence[Cell], options: argparse.Namespace) -> Results:
    results: Results = {}
    for position, cell in enumerate(todo, 1):
        result = cell.misfit or records.measured(f"L{cell.layer.position}-{cell.kind}", cell.subject, cell.compiler, options)
        results[cell] = result
        said = result if isinstance(result, str) else result.reason or f"{result.latency_ms:.4g} ms"
        title = f"L{cell.layer.position} {cell.layer.name}, {cell.kind}, {cell.compiler}"
        print(f"[{position}/{len(todo)}] {title}: {said}", file=sys.stderr, flush=True)
    return results


# ---- the report -------------------------------------------------------------------------------------------------


def _report(results: Results, options: argparse.Namespace) -> list[str]:
    published = "not given" if options.artifact is None else "its speedups are beside ours"
    lines = [
        *records.about([result for result in results.values() if isinstance(result, TuningRecord)], options.threads),
        "- Milliseconds: the median; in brackets how many times faster than the convolution.",
        f"- The paper's artifact: {published}.",
        "- A layer with a stride is measured as the network has it: the convolution with its stride, an operator after the "
        "average pooling that stands for it. In the paper both begin with the pooled picture.",
        "- What a compiler made of the convolution was compared with eager's output, an operator with its literal form.",
    ]
    for compiler in dict.fromkeys(cell.compiler for cell in results):
        lines += ["", f"## {compiler}", "", *_table({c: r for c, r in results.items() if c.compiler == compiler}, options)]
    if reasons := list(dict.fromkeys(reason for cell, result in results.items() if (reason := _failure(cell, result)))):
        lines += ["", "## Without a figure", "", *(f"- {reason}" for reason in reasons)]
    return lines


def _table(results: Results, options: argparse.Namespace) -> list[str]:
    kinds = list(dict.fromkeys(cell.kind for cell in results))
    kind, compiler = options.device.partition(":")[0], next(iter(results)).compiler
    place = PLACES.get((kind, compiler)) if options.artifact is not None else None
    rows: dict[int, list[str]] = {}
    for cell, result in results.items():
        sizes = cell.layer.layer.values
        shape = f"{sizes['C_in']}->{sizes['C_out']} {sizes['H']}x{sizes['H']}"
        row = rows.setdefault(cell.layer.position, [f"L{cell.layer.position}", cell.layer.name, shape])
        base = next(other for c, other in results.items() if c.layer is cell.layer and c.kind == CONVOLUTION)
        text = _figure(result, base)
        if place is not None and cell.kind != CONVOLUTION:
            theirs = published_speedup(options.artifact, kind, compiler, cell.kind, cell.layer.name)
            text += f"; paper {theirs:.2f}x" if theirs is not None else ""
        if isinstance(result, TuningRecord) and result.tuning is not None and result.tuning.untuned_ms is not None:
            text += f"; untuned {result.tuning.untuned_ms:.4g}"
        row.append(text)
    note = [] if place is None else ["", f"Paper: its speedup on {MACHINES[place.machine]}, from its folders `{place.folder}`."]
    return [*reports.table(["layer", "name", "sizes", *kinds], list(rows.values()), left=3), *note]


def _figure(result: TuningRecord | str, base: TuningRecord | str) -> str:
    if isinstance(result, str) or result.status != "ok" or result.latency_ms is None:
        return "–"
    if isinstance(base, str) or base is result or base.status != "ok" or base.latency_ms is None:
        return f"{result.latency_ms:.4g}"
    return f"{result.latency_ms:.4g} ({base.latency_ms / result.latency_ms:.2f}x)"


def _failure(cell: Cell, result: TuningRecord | str) -> str | None:
    if isinstance(result, str):
        return f"L{cell.layer.position}: {result}"
    return f"L{cell.layer.position} {cell.kind}, {cell.compiler}: {result.status}: {result.reason}" if result.reason else None


if __name__ == "__main__":
    sys.exit(main())
