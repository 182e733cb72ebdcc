"""Tables: the measurements in the records of an experiment, and the views of them by operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

from syno.base.errors import SpecError
from syno.config import Experiment
from syno.measure.tuning_record import MeasurementRecord, TuningRecord
from syno.model.networks import Network
from syno.run import FOLDER, LATENCY, LOSSES, MEASUREMENTS, OF_BREAKDOWN, OF_GOAL, OF_LAYERS, SCORES
from syno.run.breakdown import breakdown_rows, breakdown_table
from syno.run.measurement import Measurement
from syno.run.rows import rows_of_training
from syno.run.table import (
    curve_rows,
    latency_view,
    layer_view,
    loss_table,
    measurement_table,
    measurements_in,
    read_measurements,
    score_view,
    write_table,
)
from syno.stages.goal import screened_table, verdict_table, with_verdicts
from syno.stages.kept import keep_config
from syno.stages.measurements import KINDS, MeasurementKind
from syno.stages.operators import compared_networks
from syno.stages.own_records import check_belongs, check_int8, check_same, check_training
from syno.stages.places import SELECTED, training_file
from syno.stages.rivals import rows_of_rivals
from syno.stages.train import begins_trained

if TYPE_CHECKING:
    import pandas

    from syno.train.training_record import TrainingRecord

MADE_BY = "syno tables"


class Tables(NamedTuple):
    """The views of an experiment's measurements.

    Attributes:
        scores: A row for each operator, the best first: mean and standard deviation over seeds, the difference from the
            original, and costs of one sample (`syno.run.table.score_view`); with a goal, the columns `verdict`,
            `verdict_reason`, `GOAL_SPEEDUP` and `GOAL_TIMED` of `syno.run.goal_tables`.
        latency: A row for each latency; `speedup` is over the original, by the same compiler on the same device
            (`syno.run.table.latency_view`).
    """

    scores: pandas.DataFrame
    latency: pandas.DataFrame


def make_tables(experiment: Experiment) -> Tables:
    """Read the records that are there, and write the measurements and their views as Parquet and as CSV; return the views.

    `tables/losses` gets the loss curves of the trainings.

    Raises SpecError if nothing was trained or measured yet, or a record is damaged or of other settings (the message says
    which).
    """
    import pandas

    curves: list[dict[str, Any]] = []
    if experiment.tune.breakdown:  # the verdicts read it
        write_table(breakdown_of(experiment, compared_networks(experiment)), experiment.folder, OF_BREAKDOWN)
    measured = list(_collected(experiment, compared_networks(experiment), curves=curves))
    tables = views_of(measured, experiment)
    found = verdict_table(experiment, *tables)
    keep_config(experiment)  # all records are of these settings
    written = {
        MEASUREMENTS: measurement_table(measured),
        SCORES: tables.scores,
        LATENCY: tables.latency,
        LOSSES: loss_table(curves),
    }
    if found is not None:
        screened = screened_table(experiment)
        written[OF_GOAL] = found if screened.empty else screened if found.empty else pandas.concat([found, screened])
    layers = layer_view(measured)
    if not layers.empty:
        written[OF_LAYERS] = layers
    for name, rows in written.items():
        write_table(rows, experiment.folder, name)
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
    """Return the views of the table of measurements. Raises SpecError if there are no tables."""
    return views_of(read_measured(experiment), experiment)


def read_layers(experiment: Experiment) -> pandas.DataFrame:
    """Return a row for each latency of a single layer (`syno.run.table.layer_view`), perhaps none.

    Raises SpecError if there are no tables.
    """
    return layer_view(read_measured(experiment))


def read_measured(experiment: Experiment) -> list[Measurement]:
    """Return the measurements in the tables. Raises SpecError if there are no tables."""
    return measurements_in(read_measurements(experiment.folder, MADE_BY))


def views_of(measured: Sequence[Measurement], experiment: Experiment) -> Tables:
    """Return the views of an experiment's measurements. Raises SpecError if nothing was trained or measured yet."""
    latency, scores = latency_view(measured), score_view(measured)
    tables = Tables(with_verdicts(scores, verdict_table(experiment, scores, latency)), latency)
    if tables.scores.empty and experiment.train.seeds:
        raise SpecError(f"{experiment.folder / 'train'} has no training record yet; `syno train` writes one")
    if tables.scores.empty and not any(one.metric == "latency" for one in measured):  # of networks or layers
        raise SpecError(f"{experiment.folder / 'tune'} has no measurement yet; `syno tune model` writes one")
    return tables


# ---- records --------------------------------------------------------------------------------------------------------


def _collected(
    experiment: Experiment, rows: Sequence[Network], *, others: bool = False, curves: list[dict[str, Any]] | None = None
) -> Iterator[Measurement]:
    """Yield the measurements in the records of these, and with `others` in all other records of the experiment, too.

    The points of the loss curves are appended to `curves`.

    Raises SpecError if a record is damaged, or one of these is of something else or of other settings.
    """
    from syno.train.training_record import TrainingRecord

    folder, trained = experiment.folder, _training_files(experiment, rows)
    first: TrainingRecord | None = None
    for file, network in _present(trained, folder / "train" if others else None):
        record = TrainingRecord.read(file)
        if network is not None:
            check_belongs(record, network, file)
            check_training(file, record.workload, experiment, network.key, record.seed)
            if not begins_trained(experiment, network):  # with other weights for each seed
                check_same(record, first or record, experiment)
                first = first or record
            check_int8(file, record, experiment)
        source = file.relative_to(folder).as_posix()
        if curves is not None:
            curves += curve_rows(record, source, None if network is None else network.key, experiment.name)
        yield from rows_of_training(record, source, **({} if network is None else network.columns))
    yield from rows_of_rivals(experiment)
    for kind in KINDS.values():
        if kind.rows:
            yield from _measured(kind, experiment, rows, others=others)


def _training_files(experiment: Experiment, networks: Sequence[Network]) -> dict[Path, Network]:
    """Return the files of all trainings of these networks."""
    return {training_file(experiment, one.key, seed): one for one in networks for seed in experiment.train.seeds}


def _present(known: dict[Path, Network], around: Path | None) -> Iterator[tuple[Path, Network | None]]:
    """Yield the known files that exist, then the other records in a folder, whose measurements get no role."""
    yield from ((file, network) for file, network in known.items() if file.exists())
    if around is not None:
        yield from ((file, None) for file in sorted(around.glob("*/*.json")) if file not in known)


def _measured(kind: MeasurementKind, experiment: Experiment, rows: Sequence[Network], *, others: bool) -> Iterator[Measurement]:
    """Yield the measurements in the records of a kind, as `_collected` does."""
    rows_of, read = resolve_name(kind.rows), set[Path]()
    for file, network, (_, device), record in records(kind, experiment, rows):
        read.add(file)
        yield from rows_of(record, file.relative_to(experiment.folder).as_posix(), **network.columns, device_setting=device)
    for file in sorted((experiment.folder / kind.name).glob("*/*.json")) if others and kind.of_original else ():
        if file in read:
            continue
        other = resolve_name(kind.record).read(file)
        if not (
            isinstance(other, TuningRecord) and other.has_failed
        ):  # a failure to measure what nobody compares tells nothing
            yield from rows_of(other, file.relative_to(experiment.folder).as_posix())


def records(
    kind: MeasurementKind, experiment: Experiment, networks: Sequence[Network]
) -> Iterator[tuple[Path, Network, tuple[str, str], MeasurementRecord]]:
    """Yield the records of a kind of these networks that are there: file, network, compiler and device, and record.

    Raises SpecError if a record is damaged, or of another network or other settings.
    """
    check = resolve_name(kind.check)
    for compiler, device in kind.records_of(experiment):
        for network in networks:
            file = kind.file(experiment, network.key, compiler, device)
            if not file.is_file() or (network.is_original and not kind.of_original):
                continue
            record = resolve_name(kind.record).read(file)
            check_belongs(record, network, file)
            check(file, record, experiment, kind.again)
            yield file, network, (compiler, device), record


def breakdown_of(experiment: Experiment, networks: Sequence[Network]) -> pandas.DataFrame:
    """Return the parts of the time of these networks as a table (`syno.run.breakdown`), as far as there are records.

    Raises SpecError if a record is damaged, or of another network or other settings.
    """
    rows: list[dict[str, Any]] = []
    for network in networks:
        for file, _, (compiler, device), record in records(KINDS["breakdown"], experiment, [network]):
            shown = {**network.columns, "device": device, "compiler": compiler}
            rows += breakdown_rows(record, **shown, source=file.relative_to(experiment.folder).as_posix())  # type: ignore[arg-type]
    return breakdown_table(rows)
