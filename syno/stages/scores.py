"""The table of scores: what the records of trainings say of each operator, and how far it is from the original."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan
from statistics import mean
from typing import TYPE_CHECKING

from syno.base.errors import SpecError
from syno.config import Experiment
from syno.results.metric import METRICS
from syno.results.welch import Difference, difference, spread
from syno.stages.agreement import check_training
from syno.stages.operators import ComparedNetwork, check_belongs
from syno.stages.places import training_file
from syno.train.settings import ORIGINAL

if TYPE_CHECKING:
    import pandas

    from syno.train.training_record import TrainingRecord

UNKNOWN = Difference(nan, nan, nan)
ITSELF = Difference(0.0, nan, nan)


def score_table(experiment: Experiment, rows: Sequence[ComparedNetwork]) -> pandas.DataFrame:
    """A row for each operator that was trained, the best first: `syno.report.results.SCORE_COLUMNS` and its `key`.

    Raises SpecError if nothing was trained yet, a record is damaged, or records do not compare.
    """
    import pandas

    trained = dict(_trained(experiment, rows))
    if not trained:
        raise SpecError(f"{experiment.folder / 'train'} has no training record yet; `syno train` writes one")
    first = next(iter(trained.values()))[0]
    for records in trained.values():
        _check_same([*records, first], experiment)
    original = next((records for entry, records in trained.items() if entry.key == ORIGINAL), None)
    table = pandas.DataFrame([_row(entry, records, original) for entry, records in trained.items()])
    table = table.astype(dict.fromkeys(("flops_share", "parameters_share"), float))
    return table.sort_values("score", ascending=not METRICS[first.metric].more_is_better, kind="stable", ignore_index=True)


def _trained(experiment: Experiment, rows: Sequence[ComparedNetwork]) -> Iterator[tuple[ComparedNetwork, list[TrainingRecord]]]:
    """The records that are there, of all seeds."""
    from syno.train.training_record import TrainingRecord

    for entry in rows:
        files = [training_file(experiment, entry.key, seed) for seed in experiment.train.seeds]
        records = {file: TrainingRecord.read(file) for file in files if file.exists()}
        for file, record in records.items():
            check_belongs(record, entry, file)
            check_training(file, record.workload, experiment)
        if records:
            yield entry, list(records.values())


def _check_same(records: Sequence[TrainingRecord], experiment: Experiment) -> None:
    """SpecError if trainings do not compare: they are of different networks, data or recipes."""
    if len({(record.data_hash, record.workload.model_copy(update={"seed": 0}).model_dump_json()) for record in records}) > 1:
        raise SpecError(
            f"the records of {records[0].name} in {experiment.folder / 'train'} are of another network, data set or training "
            "than others there; delete those that were made with other settings, and train again"
        )


def _row(
    entry: ComparedNetwork, records: Sequence[TrainingRecord], original: Sequence[TrainingRecord] | None
) -> dict[str, object]:
    first, scores = records[0], [record.score for record in records]
    if original is None:
        apart = UNKNOWN
    else:
        apart = ITSELF if original is records else difference(scores, [record.score for record in original])
    return {
        "operator": first.name,
        "operator_id": first.operator_id,
        "key": entry.key,
        "role": entry.role,
        "metric": first.metric,
        "score": mean(scores),
        "score_std": spread(scores),
        "seeds": len(scores),
        "difference": apart.value,
        "difference_low": apart.low,
        "difference_high": apart.high,
        "flops": first.flops,
        "flops_share": None if original is None else first.flops / original[0].flops,
        "parameters": first.parameters,
        "parameters_share": None if original is None else first.parameters / original[0].parameters,
    }
