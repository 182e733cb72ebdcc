"""Operators that begin in the trained original network, beside those that are trained from new weights.

    python benchmarks/trained_original.py --records FOLDER --seeds 1 2 3 4 5 --output docs/measured/trained_original.md

For each task, seed and operator: the original is trained; the network with the operator is trained from new weights for as
many epochs, and from the trained original (`initialization: fit`, `distill: {}`) for fewer. CPU time is that of the process,
with the fit. What was trained is kept in the folder, so that a run that was stopped goes on. Exit status: 0; 2 for wrong
arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import reports
from scipy.stats import t

from syno.base.files import write_whole
from syno.ir.library import OPERATORS
from syno.train.settings import WorkloadSettings
from syno.train.workload import Workload

TASKS: dict[str, dict[str, Any]] = {
    "glyphs, ResNet-8 of half the width": {
        "model": "resnet8", "width": 0.5, "data": "glyphs", "data_settings": {"preset": "quick", "noise": 0.3},
    },
    "digits, ResNet-8 of half the width": {"model": "resnet8", "width": 0.5, "data": "digits"},
}  # fmt: skip
KNOWN = ("separable_conv2d", "grouped_conv2d", "low_rank_conv2d")
NEW = 20  # epochs from new weights, also of the original
EPOCHS = (2, 3, 5)  # from the trained original


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing, print the page, and write it if asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--operators", nargs="+", default=list(KNOWN), choices=list(OPERATORS))
    parser.add_argument("--epochs", nargs="+", type=int, default=list(EPOCHS))
    parser.add_argument("--features", nargs="+", type=float, default=[0.0], help="weights of the setting `distill: features`")
    parser.add_argument("--new", type=int, default=NEW, help="epochs from new weights, also of the original")
    parser.add_argument("--tasks", nargs="+", type=int, default=list(range(len(TASKS))), help="numbers of the tasks")
    options = reports.parse(parser, arguments)
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for number in options.tasks:
        task = list(TASKS)[number]
        for name in options.operators:
            found.setdefault(task, {})[name] = [one(number, name, seed, options) for seed in options.seeds]
    reports.deliver(page(found, options), options.output)
    return 0


def one(number: int, name: str, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """Return scores and CPU seconds by the way of training, from the folder or measured."""
    file = options.records / f"{number}-{name}-{seed}-{options.new}.json"
    kept: dict[str, float] = json.loads(file.read_text()) if file.is_file() else {}
    given = list(TASKS.values())[number]
    weights = options.records / f"{number}-{seed}-{options.new}.safetensors"
    if not weights.is_file():
        Workload.of(WorkloadSettings(**given, training={"epochs": options.new})).train(seed=seed, weights=weights)
    ways: dict[str, tuple[str | None, dict[str, Any]]] = {f"new {options.new}": (None, {"epochs": options.new})}
    for way, epochs, features in fitted(options):
        ways[way] = (str(weights), {"epochs": epochs, "initialization": "fit", "distill": {"features": features}})
    for way, (begun, training) in ways.items():
        if f"{way} score" in kept:
            continue
        workload = Workload.of(WorkloadSettings(**given, weights=begun, training=training))
        workload.layers  # noqa: B018  (found once for a whole search)
        before = time.process_time()
        kept[f"{way} score"] = workload.train(OPERATORS[name](), seed=seed).score
        kept[f"{way} seconds"] = time.process_time() - before
        write_whole(file, json.dumps(kept))
        print(f"{file.stem}, {way}: {kept[f'{way} score']:.4f}", file=sys.stderr, flush=True)
    return kept


def fitted(options: argparse.Namespace) -> list[tuple[str, int, float]]:
    """Return the ways of training from the trained original: the name of each, its epochs and its weight of features."""
    pairs = [(epochs, features) for features in options.features for epochs in options.epochs]
    return [(f"fit {epochs}" + (f" features {features:g}" if features else ""), epochs, features) for epochs, features in pairs]


def page(found: dict[str, dict[str, list[dict[str, float]]]], options: argparse.Namespace) -> list[str]:
    given = f"--tasks {' '.join(map(str, options.tasks))} --new {options.new} --epochs {' '.join(map(str, options.epochs))}"
    given += f" --seeds {' '.join(map(str, options.seeds))}"
    if any(options.features):
        given += f" --features {' '.join(f'{one:g}' for one in options.features)}"
    lines = reports.heading("From the trained original", f"benchmarks/trained_original.py --records FOLDER {given}")
    for text in (
        f"- The original is trained for {options.new} epochs. `New`: the network with the operator is trained from new "
        f"weights, for {options.new} epochs. `Fit`: its operators are fitted to the layers of the trained original, and it is "
        "trained for fewer epochs, with distillation.",
        "- Differences are in points of accuracy, fit minus new, of the same seed: the mean over seeds with its 95 % interval "
        "(Student's t). CPU time is that of the process, as a share of the training from new weights; the fit is in it, the "
        "training of the original is not.",
    ):
        lines += reports.paragraph(text)
    for task, operators in found.items():
        fits = (
            f"fit, {epochs} epochs{f', features {features:g}' if features else ''}: difference, share of the time"
            for _, epochs, features in fitted(options)
        )
        columns = ["operator", "accuracy, new", *fits]
        rows = [row(name, records, options) for name, records in operators.items()]
        every = [record for records in operators.values() for record in records]
        lines += ["", f"## {task}", "", *reports.table(columns, [*rows, row("all", every, options)])]
    return lines


def row(name: str, records: Sequence[dict[str, float]], options: argparse.Namespace) -> list[str]:
    new = f"new {options.new}"
    cells = [name, f"{fmean(record[f'{new} score'] for record in records):.4f}"]
    for way, *_ in fitted(options):
        gains = [100 * (record[f"{way} score"] - record[f"{new} score"]) for record in records]
        share = sum(record[f"{way} seconds"] for record in records) / sum(record[f"{new} seconds"] for record in records)
        half = float(t.ppf(0.975, len(gains) - 1)) * stdev(gains) / sqrt(len(gains)) if len(gains) > 1 else float("nan")
        cells.append(f"{fmean(gains):+.1f} ({fmean(gains) - half:+.1f} to {fmean(gains) + half:+.1f}), {share:.2f}")
    return cells


if __name__ == "__main__":
    sys.exit(main())
