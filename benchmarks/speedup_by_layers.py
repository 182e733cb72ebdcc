"""Speedups by layers compared with those of whole networks: how near the sums come, and the cost of each way.

    python benchmarks/speedup_by_layers.py OPERATORS.jsonl RECORDS --compiler eager --count 10

The operators are the `text` of the first lines of a file; the network is that of benchmarks/live.yaml. Records are kept in
the folder, so that an interrupted run goes on. Each operator is measured both ways, one after the other.
"""

from __future__ import annotations

import argparse
import json
import resource
from pathlib import Path
from statistics import median

from scipy.stats import spearmanr

from syno.ir.text import parse_stored
from syno.measure.network_subject import NetworkSubject
from syno.measure.speedups import Speedups
from syno.measure.timing import LatencySettings

DEMO = NetworkSubject(model="resnet8", classes=12, image_shape=(3, 16, 16))
WAYS = ("network", "layers")


def main() -> None:
    """Measure, and print a row for each operator and a summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operators", type=Path)
    parser.add_argument("records", type=Path)
    parser.add_argument("--compiler", default="eager")
    parser.add_argument("--count", type=int, default=10)
    given = parser.parse_args()
    lines = given.operators.read_text(encoding="utf-8").splitlines()[: given.count]
    operators = [parse_stored(json.loads(line)["text"]) for line in lines]
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    print("| operator | network | layers | drifts | compile-s |\n| --- | --- | --- | --- | --- |")
    ways = [
        Speedups(DEMO, given.compiler, settings=LatencySettings(batch=64), measured=way, store=given.records) for way in WAYS
    ]
    for operator in operators:
        records = [way.of(operator) for way in ways]
        if any(record.ratio is None for record in records):
            print(f"| {operator.id[:12]} | {' | '.join(record.status for record in records)} | | |", flush=True)
            continue
        cells = [f"{one.speedup:.2f} ({one.speedup_low:.2f} to {one.speedup_high:.2f})" for one in records]
        drifts = " ".join(f"{one.drift:.0%}" for one in records)
        seconds = " ".join(f"{one.compile_seconds:.1f}" for one in records)
        print(f"| {operator.id[:12]} | {' | '.join(cells)} | {drifts} | {seconds} |", flush=True)
        for measured, record in zip(WAYS, records, strict=True):
            found[measured].append(record.speedup or 0.0)
    for way in ways:
        way.close()
    errors = [abs(layers / network - 1) for network, layers in zip(*found.values(), strict=True)]
    rank = spearmanr(*found.values()).statistic
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{len(errors)} operators: error of the sums {median(errors):.1%} in median, {max(errors):.1%} at most")
    print(f"Spearman's rank correlation: {rank:.2f}")
    print(f"CPU-seconds of the measuring processes: {used.ru_utime + used.ru_stime:.0f}")


if __name__ == "__main__":
    main()
