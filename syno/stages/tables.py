"""Tables: what the records of trainings and measurements say, a row for each operator, or for each measurement."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, NamedTuple

from syno.config import Experiment
from syno.errors import SpecError
from syno.evaluate.settings import ORIGINAL
from syno.evaluate.tuning_record import TuningRecord
from syno.files import write_whole
from syno.stages.freeze import read_parquet, write_parquet
from syno.stages.places import Entry, entries, training_file, tuning_file

if TYPE_CHECKING:
    import pandas

    from syno.evaluate.training_record import TrainingRecord

ACCURACY, LATENCY = "accuracy", "latency"


class Tables(NamedTuple):
    """What is known of the operators of an experiment.

    Attributes:
        accuracy: a row for each operator, best first: mean and standard deviation over seeds, and costs for one picture.
        latency: a row for each measurement; `speedup` is over the original, by the same compiler on the same device.
    """

    accuracy: pandas.DataFrame
    latency: pandas.DataFrame


def make_tables(experiment: Experiment) -> Tables:
    """Read the records that are there, and write the tables as Parquet and as CSV.

    Raises SpecError if nothing was trained yet, or a record is damaged (it says which).
    """
    rows = entries(experiment)
    tables = Tables(_accuracy(experiment, rows), _latency(experiment, rows))
    for name, table in zip((ACCURACY, LATENCY), tables, strict=True):
        write_parquet(table, folder_of(experiment) / f"{name}.parquet")
        write_whole(folder_of(experiment) / f"{name}.csv", table.to_csv(index=False))
    return tables


def folder_of(experiment: Experiment) -> Path:
    """Where the tables are."""
    return experiment.folder / "tables"


def read_tables(experiment: Experiment) -> Tables:
    """The tables, as they were written. SpecError if they are not there."""
    folder = folder_of(experiment)
    return Tables(*(read_parquet(folder / f"{name}.parquet", "syno tables") for name in (ACCURACY, LATENCY)))


def _accuracy(experiment: Experiment, rows: list[Entry]) -> pandas.DataFrame:
    import pandas

    from syno.evaluate.training_record import TrainingRecord
    from syno.report.results import ACCURACY_COLUMNS

    found: list[dict[str, object]] = []
    original: TrainingRecord | None = None
    for key, role in rows:
        files = [training_file(experiment, key, seed) for seed in experiment.train.seeds]
        records = [TrainingRecord.read(file) for file in files if file.exists()]
        if not records:
            continue
        _check_same(records + ([original] if original is not None else []), experiment)
        first, accuracies = records[0], [record.score for record in records]
        original = first if key == ORIGINAL else original
        found.append(
            {
                "operator": first.name,
                "operator_id": first.operator_id,
                "key": key,
                "role": role,
                "accuracy": mean(accuracies),
                "accuracy_std": stdev(accuracies) if len(accuracies) > 1 else None,
                "seeds": len(accuracies),
                "flops": first.flops,
                "flops_share": None if original is None else first.flops / original.flops,
                "parameters": first.parameters,
                "parameters_share": None if original is None else first.parameters / original.parameters,
            }
        )
    if not found:
        raise SpecError(f"{experiment.folder / 'train'} has no training record yet; `syno train` writes one")
    table = pandas.DataFrame(found, columns=["key", *ACCURACY_COLUMNS]).sort_values(
        "accuracy", ascending=False, ignore_index=True
    )
    return table.astype(dict.fromkeys(("accuracy_std", "flops_share", "parameters_share"), float))


def _check_same(records: list[TrainingRecord], experiment: Experiment) -> None:
    """SpecError if trainings do not compare: they are of different networks, data or recipes."""
    if len({(record.data_hash, record.workload.model_copy(update={"seed": 0}).model_dump_json()) for record in records}) > 1:
        raise SpecError(
            f"the records of {records[0].name} in {experiment.folder / 'train'} are of another network, data set or training "
            "than others there; delete those that were made with other settings, and train again"
        )


def _latency(experiment: Experiment, rows: list[Entry]) -> pandas.DataFrame:
    import pandas

    from syno.report.results import LATENCY_COLUMNS

    found: list[dict[str, object]] = []
    for device in experiment.tune.devices:
        for compiler in experiment.tune.compilers:
            original: float | None = None
            for key, role in rows:
                file = tuning_file(experiment, key, compiler, device)
                if not file.exists():
                    continue
                record = TuningRecord.read(file)
                if key == ORIGINAL and record.status == "ok":
                    original = record.latency_ms
                found.append(_latency_row(record, key, role, device, original))
    table = pandas.DataFrame(found, columns=["key", *LATENCY_COLUMNS])
    return table.astype(dict.fromkeys(("latency_ms", "latency_low_ms", "latency_high_ms", "speedup"), float))


def _latency_row(record: TuningRecord, key: str, role: str, device: str, original: float | None) -> dict[str, object]:
    measured = record.latency_ms
    comparable = record.status == "ok"  # one that is tuned in part has a latency, too
    return {
        "operator": record.name,
        "operator_id": record.operator_id,
        "key": key,
        "role": role,
        "device": device,
        "device_name": record.device.name,
        "compiler": record.compiler,
        "status": record.status,
        "reason": record.reason,
        "latency_ms": measured,
        "latency_low_ms": record.latency_low_ms,
        "latency_high_ms": record.latency_high_ms,
        "batch": record.settings.batch,
        "threads": record.settings.threads,
        "checked": record.checked,
        "suspicious": record.suspicious,
        "speedup": original / measured if comparable and measured is not None and original is not None else None,
    }
