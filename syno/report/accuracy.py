"""Trainings of several operators and seeds, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING

from syno.errors import SpecError
from syno.report.tables import Row

if TYPE_CHECKING:
    from syno.evaluate.training_record import TrainingRecord


def accuracy_rows(records: Sequence[TrainingRecord]) -> list[Row]:
    """A row for each operator, best mean accuracy first: mean and spread over its seeds, and its cost beside the original's.

    Operators are told apart by id. `of original` is the share of the original network's FLOPs, for one picture.

    Raises SpecError if the records are of different networks, data or recipes: their accuracies do not compare.
    """
    if len({(record.data_hash, record.workload.model_copy(update={"seed": 0}).model_dump_json()) for record in records}) > 1:
        raise SpecError("the records are of different workloads (network, data, or training); give those of one")
    groups: dict[str | None, dict[int, TrainingRecord]] = {}
    for record in records:
        groups.setdefault(record.operator_id, {})[record.seed] = record
    original = next((record for record in records if record.operator_id is None), None)
    ranked = sorted(groups.values(), key=lambda seeds: -mean(record.accuracy for record in seeds.values()))
    return [_row(list(seeds.values()), original) for seeds in ranked]


def _row(records: list[TrainingRecord], original: TrainingRecord | None) -> Row:
    first, accuracies = records[0], [record.accuracy for record in records]
    return {
        "operator": first.name,
        "accuracy": round(mean(accuracies), 4),
        "std. dev.": round(stdev(accuracies), 4) if len(accuracies) > 1 else None,
        "seeds": len(accuracies),
        "FLOPs": first.flops,
        "of original": None if original is None else round(first.flops / original.flops, 3),
        "parameters": first.parameters,
    }
