"""Tables: the measurements in the records of an experiment, and the views of them by operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from syno.base.errors import SpecError
from syno.config import Experiment
from syno.measure.layers_record import LayersRecord
from syno.measure.tuning_record import TuningRecord
from syno.results import FOLDER, LATENCY, MEASUREMENTS, OF_LAYERS, SCORES
from syno.results.layers import rows_of_layers
from syno.results.measurement import Measurement, rows_of_training, rows_of_tuning
from syno.results.parquet import read_parquet
from syno.results.table import (
    has_all_columns,
    latency_view,
    layer_view,
    measurement_table,
    read_measurements,
    score_view,
    write_table,
)
from syno.stages.kept import keep_config
from syno.stages.operators import ComparedNetwork, check_belongs, compared_networks
from syno.stages.places import SELECTED, layers_file, training_file, tuning_file
from syno.stages.train import settings_of_training

if TYPE_CHECKING:
    import pandas

    from syno.train.settings import WorkloadSettings
    from syno.train.training_record import TrainingRecord

MADE_BY = "syno tables"
WHERE = ("device", "threads", "compile")  # settings of a training that do not change its result


class Tables(NamedTuple):
    """The views of an experiment's measurements.

    Attributes:
        scores: A row for each operator, the best first: mean and standard deviation over seeds, the difference from the
            original, and costs of one sample (`syno.results.table.score_view`).
        latency: A row for each latency; `speedup` is over the original, by the same compiler on the same device
            (`syno.results.table.latency_view`).
    """

    scores: pandas.DataFrame
    latency: pandas.DataFrame


def make_tables(experiment: Experiment) -> Tables:
    """Read the records that are there, and write the measurements and their views as Parquet and as CSV; return the views.

    Raises SpecError if nothing was trained yet, or a record is damaged or of other settings (the message says which).
    """
    table = measurement_table(_collected(experiment, compared_networks(experiment)))
    tables = _views(table, experiment)
    keep_config(experiment)  # all records are of these settings
    for name, written in ((MEASUREMENTS, table), (SCORES, tables.scores), (LATENCY, tables.latency)):
        write_table(written, experiment.folder, name)
    layers = layer_view(table)
    if not layers.empty:
        write_table(layers, experiment.folder, OF_LAYERS)
    return tables


def collect(experiment: Experiment) -> pandas.DataFrame:
    """Write the measurements of all records of an experiment as one table, also of operators that are no longer selected.

    Raises SpecError if there is no record, or one is damaged or of other settings (the message says which).
    """
    is_selected = (experiment.folder / SELECTED).is_file()
    table = measurement_table(_collected(experiment, compared_networks(experiment) if is_selected else [], others=True))
    if table.empty:
        raise SpecError(
            f"{experiment.folder} has no record of a training or a measurement yet; `syno train` and `syno tune` write them"
        )
    write_table(table, experiment.folder, MEASUREMENTS)
    return table


def folder_of(experiment: Experiment) -> Path:
    """Return the folder of the tables."""
    return experiment.folder / FOLDER


def read_tables(experiment: Experiment) -> Tables:
    """Return the views of the table of measurements; of the records, if the tables are of an earlier version.

    Raises SpecError if there are no tables.
    """
    file = folder_of(experiment) / f"{MEASUREMENTS}.parquet"
    if file.is_file() and has_all_columns(table := read_parquet(file, MADE_BY)):
        return _views(table, experiment)
    if not (folder_of(experiment) / f"{SCORES}.parquet").is_file():
        raise SpecError(f"{file} is not there; `{MADE_BY}` makes it")
    return _views(measurement_table(_collected(experiment, compared_networks(experiment))), experiment)


def read_layers(experiment: Experiment) -> pandas.DataFrame:
    """Return a row for each latency of a single layer (`syno.results.table.layer_view`), perhaps none.

    Raises SpecError if there are no tables.
    """
    return layer_view(read_measurements(experiment.folder, MADE_BY))


def _views(table: pandas.DataFrame, experiment: Experiment) -> Tables:
    tables = Tables(score_view(table), latency_view(table))
    if tables.scores.empty:
        raise SpecError(f"{experiment.folder / 'train'} has no training record yet; `syno train` writes one")
    return tables


# ---- records --------------------------------------------------------------------------------------------------------


def _collected(experiment: Experiment, rows: Sequence[ComparedNetwork], *, others: bool = False) -> Iterator[Measurement]:
    """Yield the measurements in the records of these, and with `others` in all other records of the experiment, too.

    Raises SpecError if a record is damaged, or one of these is of something else or of other settings.
    """
    from syno.train.training_record import TrainingRecord

    folder = experiment.folder
    trained, tuned = _training_files(experiment, rows), _tuning_files(experiment, rows, tuning_file)
    layered = _tuning_files(experiment, rows, layers_file) if experiment.tune.layers else {}
    first: TrainingRecord | None = None
    for file, place in _present(trained, folder / "train" if others else None):
        record = TrainingRecord.read(file)
        if file in trained:
            check_belongs(record, ComparedNetwork(place["key"], place["role"]), file)
            check_training(file, record.workload, experiment)
            _check_same(record, first or record, experiment)
            _check_int8(file, record, experiment)
            first = first or record
        yield from rows_of_training(record, file.relative_to(folder).as_posix(), **place)
    for file, place in _present(tuned, folder / "tune" if others else None):
        measured = TuningRecord.read(file)
        if file in tuned:
            check_belongs(measured, ComparedNetwork(place["key"], place["role"]), file)
            check_measurement(file, measured, experiment)
            yield from rows_of_tuning(measured, file.relative_to(folder).as_posix(), **place)
        elif measured.status == "ok":
            yield from rows_of_tuning(measured, file.relative_to(folder).as_posix(), **place)
    for file, place in _present(layered, folder / "layers" if others else None):
        whole = LayersRecord.read(file)
        if file in layered:
            check_belongs(whole, ComparedNetwork(place["key"], place["role"]), file)
            for layer in whole.layers:
                check_measurement(file, layer.record, experiment, "syno tune layers")
        yield from rows_of_layers(whole, file.relative_to(folder).as_posix(), **place)


def _training_files(experiment: Experiment, rows: Sequence[ComparedNetwork]) -> dict[Path, dict[str, Any]]:
    """Return the files of all trainings of these, with the fields that their measurements get."""
    return {training_file(experiment, entry.key, seed): entry._asdict() for entry in rows for seed in experiment.train.seeds}


def _tuning_files(
    experiment: Experiment, rows: Sequence[ComparedNetwork], file: Callable[[Experiment, str, str, str], Path]
) -> dict[Path, dict[str, Any]]:
    """Return the files of all measurements of these, by `file`, with the fields that their measurements get."""
    return {
        file(experiment, entry.key, compiler, device): {**entry._asdict(), "device_setting": device}
        for device in experiment.tune.devices
        for compiler in experiment.tune.compilers
        for entry in rows
    }


def _present(known: dict[Path, dict[str, Any]], around: Path | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield those of the known files that are there, then the other records in a folder, whose measurements get no role."""
    yield from ((file, place) for file, place in known.items() if file.exists())
    if around is not None:
        yield from ((file, {}) for file in sorted(around.glob("*/*.json")) if file not in known)


# ---- checks that records are of the experiment's settings -----------------------------------------------------------


def check_training(file: Path, found: WorkloadSettings, experiment: Experiment) -> None:
    """Raise SpecError, which says what differs, if the record in a file is of another training than the experiment's."""
    if experiment.workload is not None:
        _check(file, _training(found), _training(settings_of_training(experiment)), "syno train")


def check_measurement(file: Path, record: TuningRecord, experiment: Experiment, again: str = "syno tune model") -> None:
    """Raise SpecError, which says what differs, if the record in a file is of another measurement than the experiment's.

    The message names the command `again`, which makes the record.
    """
    workload = experiment.workload
    if workload is None:
        return
    subject = record.subject.model_dump(mode="json")
    whole = workload.model_dump(mode="json")
    parts = [name for name in ("model", "width", "layers") if name in subject]
    there = {"workload": {name: subject[name] for name in parts}, "latency": record.settings.model_dump(mode="json")}
    here = {"workload": {name: whole[name] for name in parts}, "latency": experiment.tune.latency.model_dump(mode="json")}
    _check(file, there, here, again)


def _check_same(record: TrainingRecord, first: TrainingRecord, experiment: Experiment) -> None:
    """Raise SpecError if two trainings do not compare: they are of different networks, data or recipes."""
    if len({(one.data_hash, one.workload.model_copy(update={"seed": 0}).model_dump_json()) for one in (record, first)}) > 1:
        raise SpecError(
            f"the records of {record.name} in {experiment.folder / 'train'} are of another network, data set or training "
            "than others there; delete those that were made with other settings, and train again"
        )


def _check_int8(file: Path, record: TrainingRecord, experiment: Experiment) -> None:
    """Raise SpecError if the original network was not tested in 8-bit integers, and the experiment asks for that."""
    if experiment.train.int8 and record.operator is None and record.int8_score is None and record.stopped is None:
        raise SpecError(
            f"{file} has no score in 8-bit integers, which train: int8 asks for; delete the file and run `syno train` or the "
            "workflow again, or take the setting back"
        )


def _training(settings: WorkloadSettings) -> dict[str, Any]:
    return {"workload": settings.model_dump(mode="json", exclude={"seed": True, "training": set(WHERE)})}


def _check(file: Path, there: dict[str, Any], here: dict[str, Any], again: str) -> None:
    if there == here:
        return
    from syno.search.settings import named_differences  # imports optuna

    raise SpecError(
        f"{file} is of other settings than the experiment: {'; '.join(named_differences(there, here))}. "
        f"Take these settings back, or delete the file and run `{again}` or the workflow again"
    )
