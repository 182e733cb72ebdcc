"""Tables: what the records of trainings and measurements say, a row for each operator, or for each measurement."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from syno.base.files import write_whole
from syno.config import Experiment
from syno.measure.tuning_record import TuningRecord
from syno.results.parquet import read_parquet, write_parquet
from syno.stages.agreement import check_measurement
from syno.stages.kept import keep_config
from syno.stages.operators import ComparedNetwork, check_belongs, compared_networks
from syno.stages.places import tuning_file
from syno.stages.scores import score_table
from syno.train.settings import ORIGINAL

if TYPE_CHECKING:
    import pandas

SCORES, LATENCY = "scores", "latency"


class Tables(NamedTuple):
    """What is known of the operators of an experiment.

    Attributes:
        scores: a row for each operator, the best first: mean and standard deviation over seeds, how far it is from the
            original, and costs for one sample.
        latency: a row for each measurement; `speedup` is over the original, by the same compiler on the same device.
    """

    scores: pandas.DataFrame
    latency: pandas.DataFrame


def make_tables(experiment: Experiment) -> Tables:
    """Read the records that are there, and write the tables as Parquet and as CSV.

    Raises SpecError if nothing was trained yet, or a record is damaged or of other settings (it says which).
    """
    rows = compared_networks(experiment)
    tables = Tables(score_table(experiment, rows), _latency(experiment, rows))
    keep_config(experiment)  # all records are of these settings
    for name, table in zip((SCORES, LATENCY), tables, strict=True):
        write_parquet(table, folder_of(experiment) / f"{name}.parquet")
        write_whole(folder_of(experiment) / f"{name}.csv", table.to_csv(index=False), durable=False)
    return tables


def folder_of(experiment: Experiment) -> Path:
    """Where the tables are."""
    return experiment.folder / "tables"


def read_tables(experiment: Experiment) -> Tables:
    """The tables, as they were written. SpecError if they are not there."""
    from syno.report.results import LATENCY_COLUMNS, SCORE_COLUMNS

    folder, columns = folder_of(experiment), {SCORES: SCORE_COLUMNS, LATENCY: LATENCY_COLUMNS}
    read = (read_parquet(folder / f"{name}.parquet", "syno tables", ("key", *columns[name])) for name in (SCORES, LATENCY))
    return Tables(*read)


def _latency(experiment: Experiment, rows: Sequence[ComparedNetwork]) -> pandas.DataFrame:
    import pandas

    from syno.report.results import LATENCY_COLUMNS

    found: list[dict[str, object]] = []
    for device in experiment.tune.devices:
        for compiler in experiment.tune.compilers:
            original: float | None = None
            for entry in rows:
                key, role = entry
                file = tuning_file(experiment, key, compiler, device)
                if not file.exists():
                    continue
                record = TuningRecord.read(file)
                check_belongs(record, entry, file)
                check_measurement(file, record, experiment)
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
