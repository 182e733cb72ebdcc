"""The layers of ResNet-34 as a page, of the records that the stage `layers` wrote, with the paper's speedups beside ours.

    syno tune layers config/paper.yaml:layers-resnet34 nas_pte_1 --compiler inductor     (or the workflow, for all of them)
    python benchmarks/layers.py results/paper/layers-resnet34 --output docs/measured/layers.md

The page goes to standard output, and to the file `--output`. Exit status: 0; 1 if a layer that fits was not measured; 2 for
wrong arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import cases
import records
import reports
from published_layers import CANDIDATES, MACHINES, PLACES, published_speedup

from syno.base.errors import SpecError, SynoError
from syno.base.files import ORIGINAL
from syno.measure.layers_record import LayersRecord, MeasuredLayer
from syno.measure.tuning_record import TuningRecord
from syno.paper.places import LAYERS

Target = tuple[str, str]  # compiler, and the kind of device


def main(arguments: Sequence[str] | None = None) -> int:
    """Print and write the page; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="of the experiment's results, which has the folder layers")
    add = parser.add_argument
    add("--artifact", type=Path, default=cases.artifact_folder(), metavar="DIR", help=f"default: ${cases.ARTIFACT}")
    add("--fastest", action="store_true", help="the fastest repeat, not the median: where other work shares the machine")
    options = reports.parse(parser, arguments)
    start = reports.heading("The ten layers of ResNet-34", f"benchmarks/layers.py {' '.join(arguments or sys.argv[1:])}")
    try:
        found = _read(options.folder)
        lines = [*start, *_page(found, options.artifact, options.fastest)]
    except SynoError as error:
        parser.error(str(error))
    reports.deliver(lines, options.output)
    statuses = {layer.record.status for one in found for layer in one.layers}
    return int(not statuses <= {"ok", "misfit"})


def _read(folder: Path) -> list[LayersRecord]:
    """The records of layers, the original's first. SpecError if there is none, or one is damaged."""
    found = [LayersRecord.read(file) for file in sorted(folder.glob("layers/*/*.json"))]
    if not found:
        raise SpecError(f"{folder / 'layers'} has no record of layers; `syno tune layers` writes them")
    order = [ORIGINAL, *CANDIDATES]
    return sorted(found, key=lambda one: (order.index(one.name) if one.name in order else len(order), one.name))


def _page(found: Sequence[LayersRecord], artifact: Path | None, fastest: bool) -> list[str]:
    measured = [layer.record for one in found for layer in one.layers if layer.record.status != "misfit"]
    threads = sorted({record.settings.threads for record in measured})
    lines = [
        *records.about(measured, threads[0] if threads else 1),
        f"- Milliseconds: {'the fastest repeat' if fastest else 'the median'}; in brackets how many times faster than the "
        "original layer.",
        f"- The paper's artifact: {'not given' if artifact is None else 'its speedups are beside ours'}.",
        "- A layer with a stride is measured as the network has it: the convolution with its stride, an operator after the "
        "average pooling that stands for it. In the paper both begin with the pooled picture.",
        "- What a compiler made of the convolution, or of a baseline that is a module, was compared with the same in double "
        "precision, an operator with its literal form.",
    ]
    targets = dict.fromkeys((one.compiler, one.layers[0].record.device.kind) for one in found)
    for target in targets:
        of = [one for one in found if (one.compiler, one.layers[0].record.device.kind) == target]
        lines += ["", f"## {target[0]} on {target[1]}", "", *_table(of, target, artifact, fastest)]
    reasons = [
        f"- {_number(layer)} {one.name}, {one.compiler}: {layer.record.status}: {layer.record.reason}"
        for one in found
        for layer in one.layers
        if layer.record.reason
    ]
    return [*lines, "", "## Without a figure", "", *reasons] if reasons else lines


def _table(found: Sequence[LayersRecord], target: Target, artifact: Path | None, fastest: bool) -> list[str]:
    compiler, kind = target
    place = PLACES.get((kind, compiler)) if artifact is not None else None
    bases = {layer.name: layer.record for one in found if one.name == ORIGINAL for layer in one.layers}
    rows: dict[str, list[str]] = {}
    for one in found:
        for layer in one.layers:
            row = rows.setdefault(layer.name, [_number(layer), layer.title])
            text = _figure(layer.record, bases.get(layer.name), fastest)
            if place is not None and artifact is not None and one.name in CANDIDATES:
                theirs = published_speedup(artifact, kind, compiler, one.name, layer.name)
                text += f"; paper {theirs:.2f}x" if theirs is not None else ""
            row.append(text)
    note = [] if place is None else ["", f"Paper: its speedup on {MACHINES[place.machine]}, from its folders `{place.folder}`."]
    return [*reports.table(["layer", "name", *(one.name for one in found)], list(rows.values()), left=2), *note]


def _figure(record: TuningRecord, base: TuningRecord | None, fastest: bool) -> str:
    time, original = (_milliseconds(one, fastest) for one in (record, base))
    if time is None:
        return "–"
    untuned = "" if record.tuning is None or record.tuning.untuned_ms is None else f"; untuned {record.tuning.untuned_ms:.4g}"
    return f"{time:.4g}{untuned}" if base is record or original is None else f"{time:.4g} ({original / time:.2f}x){untuned}"


def _milliseconds(record: TuningRecord | None, fastest: bool) -> float | None:
    if record is None or record.status != "ok":
        return None
    return record.latency_minimum_ms if fastest else record.latency_ms


def _number(layer: MeasuredLayer) -> str:
    return LAYERS.get(layer.name, f"L{layer.position}")


if __name__ == "__main__":
    sys.exit(main())
