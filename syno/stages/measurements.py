"""All measurements in one tidy table, as Parquet and as CSV: those of an experiment's records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.errors import SpecError
from syno.base.files import write_whole
from syno.config import Experiment
from syno.measure.tuning_record import TuningRecord
from syno.results.measurement import Measurement, of_training, of_tuning
from syno.results.parquet import read_parquet, write_parquet

if TYPE_CHECKING:
    import pandas

FOLDER, NAME = "tables", "measurements"


def collect(experiment: Experiment) -> pandas.DataFrame:
    """The measurements in all records of trainings and tunings, also of operators that are selected no more; writes the table.

    Raises SpecError if there is no record, or one is damaged (it says which).
    """
    from syno.train.training_record import TrainingRecord

    folder, found = experiment.folder, list[Measurement]()
    trained, tuned = (sorted(folder.glob(f"{stage}/*/*.json")) for stage in ("train", "tune"))
    if not trained and not tuned:
        raise SpecError(f"{folder} has no record of a training or a measurement yet; `syno train` and `syno tune` write them")
    for file in trained:
        found += of_training(TrainingRecord.read(file), file.relative_to(folder).as_posix())
    for file in tuned:
        found += of_tuning(TuningRecord.read(file), file.relative_to(folder).as_posix())
    return write_measurements(folder, found)


def write_measurements(folder: Path, measurements: Sequence[Measurement]) -> pandas.DataFrame:
    """Write them as `tables/measurements` in a folder of results; returns the table."""
    from syno.results.measurement_table import measurement_table

    table = measurement_table(measurements)
    write_table(table, folder, NAME)
    return table


def read_measurements(folder: Path, made_by: str) -> pandas.DataFrame:
    """The table in a folder of results. SpecError, which names the command that makes it, if it is not there."""
    return read_parquet(folder / FOLDER / f"{NAME}.parquet", made_by)


def write_table(table: pandas.DataFrame, folder: Path, name: str) -> list[Path]:
    """Write a table as Parquet and as CSV into the tables of a folder of results; returns the files."""
    files = [folder / FOLDER / f"{name}.{kind}" for kind in ("parquet", "csv")]
    write_parquet(table, files[0])
    write_whole(files[1], table.to_csv(index=False), durable=False)
    return files
