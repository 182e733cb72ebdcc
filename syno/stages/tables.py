"""Tables: the measurements in the records of an experiment, and the views of them by operator, for other programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from syno.base.errors import SpecError
from syno.config import Experiment
from syno.measure.tuning_record import MeasurementRecord, TuningRecord
from syno.model.networks import Network
from syno.run import FOLDER, LATENCY, LOSSES, MEASUREMENTS, OF_BREAKDOWN, OF_GOAL, OF_LAYERS, SCORES
from syno.run.breakdown import parts_of_record
from syno.run.measurement import Measurement
from syno.run.rows import rows_of, rows_of_training
from syno.run.story import reason
from syno.run.table import (
    breakdown_table,
    curve_rows,
    goal_table,
    latency_table,
    loss_table,
    measurement_table,
    score_table,
    write_table,
)
from syno.run.values import TimedPart
from syno.run.views import layers_of
from syno.stages.goal import screened_out
from syno.stages.measurements import KINDS, MeasurementKind
from syno.stages.opening import keep_config
from syno.stages.operators import compared_networks
from syno.stages.places import FROZEN, SELECTED, training_file
from syno.stages.provenance import check, check_same_data
from syno.stages.results import StoredRun
from syno.stages.rivals import rows_of_rivals
from syno.stages.train import begins_trained

if TYPE_CHECKING:
    import pandas

    from syno.train.training_record import TrainingRecord


def make_tables(experiment: Experiment) -> StoredRun:
    """Read the existing records, write the table of measurements and its views as Parquet and CSV, and return the run.

    `tables/losses` gets the loss curves of the trainings.

    Raises SpecError if nothing was trained or measured yet, or a record is damaged or of other settings (the message says
    which).
    """
    curves: list[dict[str, Any]] = []
    networks = compared_networks(experiment)
    parts = list(_parts(experiment, networks)) if experiment.tune.breakdown else []
    if experiment.tune.breakdown:
        write_table(breakdown_table(parts), experiment.folder, OF_BREAKDOWN)
    measured = list(_collected(experiment, networks, curves=curves))
    run, goal = StoredRun(experiment, measured=measured, parts=parts), experiment.goal
    is_judged = goal is not None and bool(run.scores or run.latencies)
    written = {
        MEASUREMENTS: measurement_table(measured),
        SCORES: score_table(run.scores, judged=is_judged),
        LATENCY: latency_table(run.latencies),
        LOSSES: loss_table(curves),
    }
    keep_config(experiment)  # all records are of these settings
    if goal is not None and is_judged:
        trials = run.trials if (experiment.folder / FROZEN).is_file() else []
        written[OF_GOAL] = goal_table([*((one, reason(one)) for one in run.judged), *screened_out(experiment, trials)], goal)
    if layers := layers_of(measured):
        written[OF_LAYERS] = latency_table(layers, layers=True)
    for name, rows in written.items():
        write_table(rows, experiment.folder, name)
    return run


def collect(experiment: Experiment) -> pandas.DataFrame:
    """Write one table with the measurements in all records of an experiment, including operators no longer selected.

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
    """Return the folder of an experiment's tables."""
    return experiment.folder / FOLDER


def _collected(
    experiment: Experiment, rows: Sequence[Network], *, others: bool = False, curves: list[dict[str, Any]] | None = None
) -> Iterator[Measurement]:
    """Yield the measurements in the records of the networks `rows`, and with `others` in all other records, too.

    The points of the loss curves are appended to `curves`.

    Raises SpecError if a record is damaged, or a network's record is of another network or other settings.
    """
    from syno.train.training_record import TrainingRecord

    folder, trained = experiment.folder, _training_files(experiment, rows)
    first: TrainingRecord | None = None
    for file, network in _present(trained, folder / "train" if others else None):
        record = TrainingRecord.read(file)
        if network is not None:
            check(file, record, experiment, network)
            if not begins_trained(experiment, network):  # with other weights for each seed
                first = first or record
                check_same_data(record, first, experiment)
        source = file.relative_to(folder).as_posix()
        if curves is not None:
            curves += curve_rows(record, source, None if network is None else network.key, experiment.name)
        yield from rows_of_training(record, source, **({} if network is None else network.columns))
    yield from rows_of_rivals(experiment)
    for kind in KINDS.values():
        if kind.is_in_table:
            yield from _measured(kind, experiment, rows, others=others)


def _training_files(experiment: Experiment, networks: Sequence[Network]) -> dict[Path, Network]:
    """Return the record files of all trainings of these networks, each with its network."""
    return {training_file(experiment, one.key, seed): one for one in networks for seed in experiment.train.seeds}


def _present(known: dict[Path, Network], around: Path | None) -> Iterator[tuple[Path, Network | None]]:
    """Yield the known files that exist, then the other records in a folder, whose measurements get no role."""
    yield from ((file, network) for file, network in known.items() if file.exists())
    if around is not None:
        yield from ((file, None) for file in sorted(around.glob("*/*.json")) if file not in known)


def _measured(kind: MeasurementKind, experiment: Experiment, rows: Sequence[Network], *, others: bool) -> Iterator[Measurement]:
    """Yield the measurements in the records of a kind: of the networks `rows`, and with `others` of other networks, too."""
    read = set[Path]()
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
    """Yield the existing records of a kind of these networks: (file, network, (compiler, device), record).

    Raises SpecError if a record is damaged, or of another network or other settings.
    """
    for compiler, device in kind.records_of(experiment):
        for network in networks:
            file = kind.file(experiment, network.key, compiler, device)
            if not file.is_file() or (network.is_original and not kind.of_original):
                continue
            record = resolve_name(kind.record).read(file)
            check(file, record, experiment, network, kind.again)
            yield file, network, (compiler, device), record


def _parts(experiment: Experiment, networks: Sequence[Network]) -> Iterator[TimedPart]:
    """Yield the parts of these networks' time, from the existing records of breakdowns.

    Raises SpecError if a record is damaged, or of another network or other settings.
    """
    for network in networks:
        for file, _, (compiler, device), record in records(KINDS["breakdown"], experiment, [network]):
            place = {**network.columns, "device": device, "compiler": compiler}
            yield from parts_of_record(record, **place, source=file.relative_to(experiment.folder).as_posix())  # type: ignore[arg-type]
