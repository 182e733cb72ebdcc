"""Compare predictions of speedups with measured ones, on the operators of the table of truth.

    python benchmarks/speedup_prediction.py --splits 10
    python benchmarks/speedup_prediction.py --records FOLDER    # of benchmarks/table.py, instead of the table
    python benchmarks/speedup_prediction.py --stores FOLDER     # what searches have measured, as kept below the folder

Learning curves over the number of operators that a model learns from, for each compiler; models against each other; the share
of measured speedups in the intervals; searches that measure only what may meet a goal; which features matter.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import reports
import speedup_models
from scipy.stats import spearmanr
from table_records import experiment, operators, read

from syno.ir.graph import PGraph
from syno.ir.text import parse_stored
from syno.measure.prediction.predictor import COLUMNS, LEAST_RECORDS, Description, SpeedupPredictor
from syno.measure.speedup_record import SpeedupRecord
from syno.measure.speedups import SpeedupStore
from syno.model.extraction import replaceable
from syno.paper.replay.table import COMPILERS, FOLDER, OperatorTable
from syno.train.workload import Workload

LEARNT = (10, 20, 50, 100, 300)  # operators
GOAL = 1.5
GROWTH = 1.2  # a search learns again when it has so many times the measurements
LEAST = 30  # operators with a latency
BATCH = 64
RANDOM = 0.9  # share of the operators that learning curves learn from at most


@dataclass(frozen=True)
class Measured:
    """Operators and their measured speedups with one compiler; the predictor knows their kernels."""

    operators: Sequence[PGraph]
    speedups: np.ndarray
    predictor: SpeedupPredictor

    def learn(self, rows: Sequence[int]) -> None:
        self.predictor.learn((self.operators[row], float(self.speedups[row])) for row in rows)

    def predict(self, rows: Sequence[int]) -> np.ndarray:
        """Predicted speedups and the ends of their intervals, of shape [rows, 3]."""
        return np.array([self.predictor.predict(self.operators[row]) for row in rows])


def loaded(options: argparse.Namespace, compiler: str) -> tuple[list[PGraph], list[float]]:
    """The operators whose speedup is known, and the speedups: of raw records, or of the table."""
    if options.records:
        texts = {row["id"]: row["text"] for row in operators(options.records)}
        found = {name: one[compiler]["speedup"] for name, one in read(options.records / "latency").items() if compiler in one}
        return [parse_stored(texts[name]) for name in found], list(found.values())
    entries = [entry for entry in OperatorTable.read(options.table).entries.values() if compiler in entry.latency]
    return [entry.operator for entry in entries], [entry.latency[compiler].speedup for entry in entries]


def stored(folder: Path, compiler: str) -> list[SpeedupRecord]:
    """The records of a compiler in all stores below a folder, one for each operator."""
    found = {}
    for store in sorted({file.parent for file in folder.rglob("*.json")}):
        for record in SpeedupStore(store).records():
            if record.conditions.compiler == compiler and record.speedup is not None:
                found.setdefault(record.operator_id, record)
    return list(found.values())


def layers_of(record: SpeedupRecord) -> list[Mapping[str, int]]:
    """The sizes of the replaced layers of the network in a record, at the batch that was timed."""
    network = record.conditions.network
    example = network.example(record.conditions.settings.batch)
    return [layer.values for layer in replaceable(network.backbone(), example, network.layers)]


def layers() -> list[Mapping[str, int]]:
    """The sizes of the replaced layers of the table's network, at the batch that was timed."""
    workload = Workload.of(experiment().workload)
    example = workload.example[:1].expand(BATCH, *workload.example.shape[1:])
    return [layer.values for layer in replaceable(workload.model(), example, workload.settings.layers)]


def interval(values: Sequence[float], digits: int = 3) -> str:
    half = 1.96 * stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{fmean(values):.{digits}f} ± {half:.{digits}f}"


def scores(predicted: np.ndarray, speedups: np.ndarray) -> tuple[float, float, float, float]:
    """Rank correlation, median error, share inside the interval, median ratio of the interval's ends."""
    error = np.abs(predicted[:, 0] / speedups - 1)
    inside = (predicted[:, 1] <= speedups) & (speedups <= predicted[:, 2])
    rank = float(spearmanr(predicted[:, 0], speedups).statistic)
    with np.errstate(divide="ignore"):
        width = float(np.median(predicted[:, 2] / predicted[:, 1]))
    return 0.0 if np.isnan(rank) else rank, float(np.median(error)), float(inside.mean()), width


def splits(count: int, learnt: int, number: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows to learn from and the others, in random orders."""
    for seed in range(number):
        order = np.random.default_rng(seed).permutation(count)
        yield order[:learnt], order[learnt:]


def curve(measured: Measured, number: int) -> Iterator[list[str]]:
    """A row for each number of operators to learn from."""
    count = len(measured.speedups)
    for learnt in sorted({*(one for one in LEARNT if one < RANDOM * count), int(RANDOM * count)}):
        found = []
        for known, others in splits(count, learnt, number):
            measured.learn(known)
            found.append(scores(measured.predict(others), measured.speedups[others]))
        yield [str(learnt), *(interval(values) for values in zip(*found, strict=True))]


def models(measured: Measured, rows: np.ndarray, number: int) -> Iterator[list[str]]:
    """A row for each model, learnt from half of the operators."""
    count = len(measured.speedups)

    def own(known: np.ndarray, others: np.ndarray) -> np.ndarray:
        measured.learn(known)
        return measured.predict(others)[:, 0]

    def other(model: Callable[..., np.ndarray], known: np.ndarray, others: np.ndarray) -> np.ndarray:
        return np.exp(-model(rows[known], -np.log(measured.speedups[known]), rows[others]))

    others_by_name = {name: partial(other, model) for name, model in speedup_models.MODELS.items()}
    candidates = {"process over kernels": own, **others_by_name}
    for name, model in candidates.items():
        found, seconds = [], []
        for known, others in splits(count, count // 2, number):
            began = time.process_time()
            predicted = model(known, others)
            seconds.append(time.process_time() - began)
            found.append(scores(np.stack([predicted] * 3, axis=1), measured.speedups[others])[:2])
        yield [name, *(interval(values) for values in zip(*found, strict=True)), f"{fmean(seconds):.2f}"]


def replays(measured: Measured, number: int) -> Iterator[list[str]]:
    """Searches in random orders that learn on the way: measured, refused, and good ones refused, by quarter of the search."""
    count, quarter = len(measured.speedups), -(-len(measured.speedups) // 4)
    asked = np.zeros((number, 4))
    good, lost = np.zeros((number, 4)), np.zeros((number, 4))
    for seed in range(number):
        known: list[int] = []
        learnt = 0
        for place, row in enumerate(np.random.default_rng(seed).permutation(count)):
            part = place // quarter
            meets = measured.speedups[row] >= GOAL
            good[seed, part] += meets
            if measured.predictor.may_meet(measured.operators[row], GOAL):
                asked[seed, part] += 1
                known.append(int(row))
                if len(known) >= max(GROWTH * learnt, LEAST_RECORDS):
                    measured.learn(known)
                    learnt = len(known)
            else:
                lost[seed, part] += meets
        measured.learn([])
    for part in range(4):
        size = min(quarter, count - part * quarter)
        saved = [1 - one / size for one in asked[:, part]]
        yield [f"{part + 1}", str(size), interval(list(saved)), f"{int(lost[:, part].sum())} of {int(good[:, part].sum())}"]
    saved = [1 - one / count for one in asked.sum(axis=1)]
    yield ["all", str(count), interval(saved), f"{int(lost.sum())} of {int(good.sum())}"]


def importance(measured: Measured, number: int) -> Iterator[list[str]]:
    """A row for each column of the descriptions of kernels: errors if it is shuffled over the others' kernels."""
    count = len(measured.speedups)
    names = list(COLUMNS)
    found: dict[str, list[float]] = {name: [] for name in names}
    for known, others in splits(count, count // 2, number):
        measured.learn(known)
        described = [measured.predictor.described(measured.operators[row]) for row in others]
        stacked = np.vstack([one.rows for one in described if one])
        ends = np.cumsum([len(one.weights) for one in described if one])[:-1]

        def error(rows: np.ndarray) -> float:
            model = measured.predictor.model
            assert model is not None
            parts = zip(np.split(rows, ends), described, strict=True)  # noqa: B023
            means = [model.estimate(Description(part, one.weights, one.kinds)).mean for part, one in parts if one]
            return float(np.median(np.abs(np.exp(-np.array(means)) / measured.speedups[others] - 1)))  # noqa: B023

        before = error(stacked)
        for column, name in enumerate(names):
            shuffled = stacked.copy()
            shuffled[:, column] = np.random.default_rng(column).permutation(shuffled[:, column])
            found[name].append(error(shuffled) - before)
    for name in sorted(names, key=lambda name: -fmean(found[name])):
        yield [name, interval([100 * one for one in found[name]], 1)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print the report, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--splits", type=int, default=10, help="random orders")
    parser.add_argument("--table", type=Path, default=FOLDER)
    parser.add_argument("--records", type=Path, help="a folder of raw records, instead of the table")
    parser.add_argument("--stores", type=Path, help="a folder with stores of measured speedups below it, instead of the table")
    options = reports.parse(parser, arguments)
    warnings.filterwarnings("ignore")  # kernels at the bounds of their parameters, and constant predictions
    source = "--stores FOLDER " if options.stores else "--records FOLDER " if options.records else ""
    lines = reports.heading("Predicted speedups", f"benchmarks/speedup_prediction.py {source}--splits {options.splits}")
    for compiler in COMPILERS[::-1]:
        records = stored(options.stores, compiler) if options.stores else []
        found, speedups = loaded(options, compiler) if not options.stores else of_records(records)
        if len(found) < LEAST and options.stores:
            continue
        if len(found) < LEAST:
            parser.error(f"{len(found)} operators have a latency with {compiler}; it takes {LEAST}: measure them with table.py")
        sizes = layers_of(records[0]) if records else layers()
        # In the table's latencies, eager mode computed what depends on weights alone at each call.
        predictor = SpeedupPredictor(sizes, constant_weights=compiler != "eager" or bool(records))
        measured = Measured(found, np.array(speedups), predictor)
        lines += ["", f"## {compiler}: {len(found)} operators", ""]
        lines += section(measured, speedup_models.rows_of(found, sizes), sizes, options.splits)
    reports.deliver(lines, options.output)
    return 0


def of_records(records: Sequence[SpeedupRecord]) -> tuple[list[PGraph], list[float]]:
    """The operators of records, and their speedups."""
    return [parse_stored(record.operator) for record in records], [record.speedup or 0.0 for record in records]


def section(measured: Measured, rows: np.ndarray, sizes: Sequence[Mapping[str, int]], number: int) -> list[str]:
    """The lines about one compiler."""
    count = len(measured.speedups)
    flops = rows[:, speedup_models.FLOPS].sum(axis=1)
    began = time.process_time()
    fresh = SpeedupPredictor(sizes, constant_weights=False)
    for operator in measured.operators[:20]:
        fresh.described(operator)
    describing = (time.process_time() - began) / min(count, 20)
    measured.learn(range(count))  # which finds the kernels of all
    began = time.process_time()
    measured.learn(range(count))
    fitting = time.process_time() - began
    began = time.process_time()
    measured.predict(range(count))
    predicting = (time.process_time() - began) / count
    lines = [
        f"- Speedups: {', '.join(f'{value:.2f}' for value in np.quantile(measured.speedups, (0, 0.25, 0.5, 0.75, 1)))} (least, "
        "quartiles, largest)",
        f"- Rank correlation of the speedup with FLOPs (fewer is better): {spearmanr(-flops, measured.speedups).statistic:.3f}",
        f"- CPU-seconds: {fitting:.2f} to learn from all, {1e3 * describing:.0f} ms to find the kernels of an operator, "
        f"{1e3 * predicting:.2f} ms to predict when they are known",
    ]
    columns = ["learnt from", "rank correlation", "median error", "in the 90 % interval", "upper / lower end"]
    lines += ["", *reports.table(columns, list(curve(measured, number)))]
    columns = ["model", "rank correlation", "median error", "CPU-seconds"]
    lines += ["", *reports.table(columns, list(models(measured, rows, number)))]
    columns = ["quarter of the search", "operators", "share not measured", f"refused of those at {GOAL}x or more"]
    lines += ["", *reports.table(columns, list(replays(measured, number)))]
    columns = ["numbers of a kernel", "median error, if shuffled: percentage points more"]
    return [*lines, "", *reports.table(columns, list(importance(measured, max(number // 2, 2))))]


if __name__ == "__main__":
    sys.exit(main())
