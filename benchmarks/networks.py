"""Whole networks under each compiler: ResNet-18 as it is and with an operator, on small and on large pictures.

    python benchmarks/networks.py --records results/networks --output docs/measured/networks.md

Each measurement is a process of its own, whose output is checked, and a record in the folder `--records`; what has a record
is not measured again. The report goes to standard output, and to the file `--output`; progress goes to standard error. Exit
status: 0; 1 if something could not be measured; 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import records
import reports

import syno
from syno.base.errors import SynoError
from syno.measure.compilers import COMPILERS
from syno.measure.network_subject import NetworkSubject
from syno.measure.tuning import TuningRecord

ORIGINAL = "original"


@dataclass(frozen=True)
class Cell:
    """One measurement: a network on square pictures of this size, with an operator or as it is, under a compiler."""

    model: str
    size: int
    operator: str
    compiler: str
    rule: str

    @property
    def name(self) -> str:
        return f"{self.model}-{self.size}-{self.operator}"

    @property
    def subject(self) -> NetworkSubject:
        return NetworkSubject(
            model=self.model,
            classes=1000,
            image_shape=(3, self.size, self.size),
            operator=None if self.operator == ORIGINAL else str(syno.OPERATORS[self.operator]()),
            layers=self.rule,
        )


Results = dict[Cell, TuningRecord]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what has no record yet, print and write the report; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    records.add_options(parser, compilers="eager,inductor,tvm")
    add = parser.add_argument
    add("--models", default="resnet18", metavar="A,B", help="default: %(default)s")
    add("--sizes", default="32,224", metavar="A,B", help="of pictures; default: %(default)s")
    add("--operators", default="operator_1", metavar="A,B", help="beside the original; default: %(default)s")
    add("--layers", default="spatial", help="the rule by which layers are replaced; default: %(default)s")
    options = reports.parse(parser, arguments)
    start = reports.heading("Networks", f"benchmarks/networks.py {' '.join(sys.argv[1:] if arguments is None else arguments)}")
    try:
        results = _measure_all(_cells(options), options)
    except SynoError as error:
        parser.error(str(error))
    reports.deliver([*start, *_report(results, options)], options.output)
    return 1 if any(record.status != "ok" for record in results.values()) else 0


def _cells(options: argparse.Namespace) -> list[Cell]:
    """Compilers of one network after each other, so that what is compared was measured at about the same time."""
    compilers = records.names(options)
    return [
        Cell(model, int(size), operator, compiler, options.layers)
        for model in options.models.split(",")
        for size in options.sizes.split(",")
        for operator in (ORIGINAL, *options.operators.split(","))
        for compiler in compilers
    ]


def _measure_all(cells: Sequence[Cell], options: argparse.Namespace) -> Results:
    results: Results = {}
    for position, cell in enumerate(cells, 1):
        record = results[cell] = records.measured(cell.name, cell.subject, cell.compiler, options)
        said = record.reason or f"{record.latency_ms:.4g} ms"
        print(f"[{position}/{len(cells)}] {cell.name}, {cell.compiler}: {said}", file=sys.stderr, flush=True)
    return results


def _report(results: Results, options: argparse.Namespace) -> list[str]:
    lines = records.about(list(results.values()), options.threads)
    lines += [
        f"- Operators stand in the layers of the rule `{options.layers}`.",
        "- Milliseconds: the median, and its 95 % interval; in brackets how many times faster than the original network under "
        "the same compiler. What a compiler made of the original was compared with eager's output, a network with operators "
        "with the literal forms of these.",
        "",
    ]
    compilers = list(dict.fromkeys(cell.compiler for cell in results))
    rows: dict[str, list[str]] = {}
    for cell, record in results.items():
        row = rows.setdefault(
            cell.name, [f"{cell.model}, {cell.size}x{cell.size}", cell.operator, f"{record.flops:,}", f"{record.parameters:,}"]
        )
        base = results[Cell(cell.model, cell.size, ORIGINAL, cell.compiler, cell.rule)]
        row.append(_figure(record, base))
        if "tvm" in compilers and cell.compiler == "tvm":
            untuned = record.tuning.untuned_ms if record.tuning else None
            row.append("–" if untuned is None else f"{untuned:.4g}")
    columns = [column for name in compilers for column in ([name, "tvm, untuned"] if name == "tvm" else [name])]
    lines += reports.table(["network", "operator", "FLOPs", "parameters", *columns], list(rows.values()), left=2)
    lines += ["", "What they are:", "", *(f"- {name}: {_first_sentence(name)}" for name in compilers)]
    if reasons := [
        f"- {cell.name}, {cell.compiler}: {one.status}: {one.reason}" for cell, one in results.items() if one.reason
    ]:
        lines += ["", "## Without a figure", "", *reasons]
    return lines


def _figure(record: TuningRecord, base: TuningRecord) -> str:
    if record.status != "ok" or record.latency_ms is None:
        return "–"
    text = f"{record.latency_ms:.4g} [{record.latency_low_ms:.4g}, {record.latency_high_ms:.4g}]"
    if base is record or base.status != "ok" or base.latency_ms is None:
        return text
    return f"{text} ({base.latency_ms / record.latency_ms:.2f}x)"


def _first_sentence(compiler: str) -> str:
    return (COMPILERS[compiler].__doc__ or "").strip().splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
