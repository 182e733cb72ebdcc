"""The kept files of the table of truth, made of the raw records: operators, steps of their tree, and how they were measured."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pandas
import torch
from table_draw import meets
from table_records import EXPERIMENT, ORIGINAL, SEEDS, Record, experiment, operators, read, spec

import syno
from syno.base.files import write_whole
from syno.ir.text import parse_stored
from syno.measure.machine import processor
from syno.measure.timing import interval_of_median
from syno.paper.replay.entries import PARTS
from syno.paper.replay.stopping import ROOT
from syno.paper.replay.table import ABOUT, COMPILERS, OPERATORS, SPEC, STEPS
from syno.run.parquet import write_parquet
from syno.space.complete import Cost, cost
from syno.space.sample import all_orders
from syno.space.space import Space

TIMES = ("ms", "original_ms", "speedup", "low", "high")
READING = ("rows", "columns", "positions", "channels", "centred")


def pack(records: Path, proxy_folder: Path, output: Path) -> str:
    """Write the table of all operators that were trained with the first seed; returns what was written, in words."""
    trainings = {seed: read(records / f"training-{seed}") for seed in SEEDS}
    known = [row for row in operators(records) if row["id"] in trainings[SEEDS[0]]]
    latency, proxies = read(records / "latency"), read(proxy_folder)
    nodes, steps = tree(known)
    original = experiment().network.original
    rows: list[dict[str, Any]] = [{"id": ORIGINAL, **costs(original), **trained(trainings, ORIGINAL)}]
    for row in known:
        rows.append(
            {
                **{name: row[name] for name in ("id", "fingerprint", "text", "natural", "seed", "draw")},
                "node": nodes[row["id"]],
                "meets": meets(row["twice"]),
                **{f"{times}_{name}": value for times in ("once", "twice") for name, value in reading(row[times]).items()},
                **costs(cost(parse_stored(row["text"]), spec())),
                **trained(trainings, row["id"]),
                **timed(latency.get(row["id"], {})),
                **{f"proxy_{name}": value for name, value in proxies.get(row["id"], {}).items() if name not in ("id", "date")},
            }
        )
    frame = pandas.DataFrame(rows)
    for name in (f"{compiler}_{part}" for compiler in COMPILERS for part in TIMES):
        frame[name] = frame[name].astype(float) if name in frame else float("nan")
    write_parquet(frame, output / OPERATORS)
    write_parquet(pandas.DataFrame(steps, columns=["before", "kind", "id", "after"]), output / STEPS)
    about = {
        "experiment": EXPERIMENT.read_text(),
        "spec": spec().id,
        "seeds": list(SEEDS),
        "operators": len(known),
        "natural": sum(row["natural"] for row in known),
        "required": sum(meets(row["twice"]) for row in known),
        "trained": {str(seed): len(found) for seed, found in trainings.items()},
        "latencies": len(latency),
        "timed": sorted(one["date"] for one in latency.values())[:: max(len(latency) - 1, 1)],  # first and last
        "first": min(one["date"] for found in trainings.values() for one in found.values()),
        "last": max(one["date"] for found in trainings.values() for one in found.values()),
        "machine": f"{processor()}, {os.cpu_count()} logical cores",
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "syno": syno.__version__},
    }
    write_whole(output / ABOUT, json.dumps(about, indent=1) + "\n")
    write_whole(output / SPEC, spec().dump())
    size = sum((output / name).stat().st_size for name in (OPERATORS, STEPS, ABOUT, SPEC))
    return f"{len(known)} operators, {len(steps)} steps, {size / 2**20:.2f} MiB in {output}"


def tree(rows: Sequence[Record]) -> tuple[dict[str, int], list[tuple[int, str, str, int]]]:
    """The nodes of operators by their ids, and all steps to them, as (node before, kind, id, node after)."""
    space = Space(spec())
    numbers: dict[object, int] = {space.root: ROOT}
    steps: dict[tuple[int, str, str, int], None] = {}
    nodes = {}
    for row in rows:
        operator = parse_stored(row["text"])
        for state, step in all_orders(space, operator):
            before, after = (numbers.setdefault(node, len(numbers)) for node in (state, step.node))
            steps[before, step.kind, step.id, after] = None
            if step.operator is not None:
                nodes[step.operator.id] = after
        assert row["id"] in nodes, "the path ends in the operator's normal form"
    return nodes, list(steps)


def reading(found: Sequence[Any]) -> dict[str, Any]:
    """Return a support in the order of operators.jsonl as columns of the table, by name."""
    rows, columns, *others = found
    return dict(zip(READING, (len(rows), len(columns), *others), strict=True))


def costs(found: Cost) -> dict[str, float]:
    return {"flops": float(found.flops), "parameters": float(found.parameters), "memory_bytes": float(found.memory_bytes)}


def trained(trainings: Mapping[int, Mapping[str, Record]], name: str) -> dict[str, Any]:
    """The columns of an operator's trainings."""
    found: dict[str, Any] = {}
    for seed, records in trainings.items():
        record = records.get(name)
        for column in ("accuracies", "losses", "cpu_seconds"):
            found[f"{column}_{seed}"] = None if record is None else record[column]
        found[f"recent_losses_{seed}"] = None if record is None else recent_losses(record)
    return found


def recent_losses(record: Record) -> list[float]:
    """The mean loss over each quarter of each epoch, from the loss curve; a search compares trials by it."""
    curve, quarters = record["curve"], PARTS * len(record["accuracies"])
    length = curve[-1][0] / quarters
    ranges = [(length * quarter, length * (quarter + 1)) for quarter in range(quarters)]
    return [fmean(loss for step, _, loss in curve if first < step <= last) for first, last in ranges]


def timed(record: Record) -> dict[str, float]:
    """The columns of an operator's latency."""
    found = {}
    for compiler in COMPILERS if record else ():
        own, original = record[compiler]["ms"], record[compiler]["original_ms"]
        low, high = interval_of_median(sorted(there / here for here, there in zip(own, original, strict=True)))
        values = (median(own), median(original), record[compiler]["speedup"], low, high)
        found |= {f"{compiler}_{part}": value for part, value in zip(TIMES, values, strict=True)}
    return found
