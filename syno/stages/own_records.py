"""Checks that the records in a folder of results are of the experiment's networks and settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.base.errors import SpecError
from syno.base.files import ORIGINAL
from syno.base.registry import is_path
from syno.base.validation import named_differences
from syno.config import Experiment
from syno.measure.compilers import compiler_facts
from syno.measure.tuning import tolerant
from syno.model.networks import Network, Role
from syno.model.placed import OPTIONAL
from syno.stages.train import settings_of_training

if TYPE_CHECKING:
    from pydantic import BaseModel

    from syno.measure.speedup_record import SpeedupRecord
    from syno.measure.timing import LatencySettings
    from syno.measure.tuning_record import MeasurementRecord
    from syno.train.settings import WorkloadSettings
    from syno.train.speed_record import SpeedRecord
    from syno.train.training_record import TrainingRecord

WHERE = {"device", "threads", "compile"}  # settings of a training that do not change its result


def check_belongs(record: TrainingRecord | MeasurementRecord, network: Network, file: Path) -> None:
    """Raise SpecError if the record in a network's file is of another network, as after a copy into the wrong folder."""
    match network.role:
        case Role.ORIGINAL:
            belongs = record.operator_id is None
        case Role.BASELINE | Role.RIVAL:
            belongs = record.operator_id is not None
        case _:  # by the key of an operator, or the name of a mixture
            belongs = record.operator_id is not None and network.key in (record.operator_id[: len(network.key)], record.name)
    if not belongs:
        raise SpecError(
            f"{file} is the record of {record.name} ({record.operator_id or 'the network as it is'}), not of {network.key}; "
            f"delete it and {record.again} again"
        )


def check_training(file: Path, settings: WorkloadSettings, experiment: Experiment, key: str = ORIGINAL, seed: int = 0) -> None:
    """Raise SpecError, which says what differs, if the record in a file is of another training than the experiment's."""
    if experiment.workload is not None:
        own = settings_of_training(experiment, key, seed)
        there, here = ({"workload": settings_of_score(one)} for one in (settings, own))
        _check(file, there, here, "syno train")


def check_measurement(file: Path, record: MeasurementRecord | SpeedupRecord, experiment: Experiment, again: str) -> None:
    """Raise SpecError, which says what differs, if the record in a file is of another measurement than the experiment's.

    The message names the command `again`, which makes the record.
    """
    for found in record.measured:
        _check_measured(file, found.subject, found.settings, found.compiler, experiment, again)


def check_speed(file: Path, record: SpeedRecord, experiment: Experiment, again: str) -> None:
    """Raise SpecError as `check_measurement` does, for the speed of a training."""
    workload, speed = settings_of_training(experiment), experiment.tune.speed
    there = {"workload": record.workload.model_dump(mode="json"), "speed": record.settings.model_dump(mode="json")}
    here = {"workload": workload.model_dump(mode="json"), "speed": speed.model_dump(mode="json")}
    _check(file, there, here, again)


def _check_measured(
    file: Path, measured: BaseModel, settings: LatencySettings, compiler: str, experiment: Experiment, again: str
) -> None:
    """Raise SpecError if a network was measured that is not the experiment's, or with other settings."""
    workload = experiment.workload
    if workload is None:
        return
    subject = measured.model_dump(mode="json")
    whole = workload.model_dump(mode="json")
    parts = [name for name in ("model", *OPTIONAL, "width", "layers") if name in subject or name in OPTIONAL]
    there = {"workload": {name: subject.get(name) for name in parts}, "latency": settings.model_dump(mode="json")}
    latency = tolerant(experiment.tune.latency, compiler_facts(compiler))
    if is_path(compiler) and (settings.tolerance or 0.0) > (latency.tolerance or 0.0):
        latency = latency.model_copy(update={"tolerance": settings.tolerance})  # its least tolerance, which only its code says
    here = {"workload": {name: whole.get(name) for name in parts}, "latency": latency.model_dump(mode="json")}
    _check(file, there, here, again)


def check_same(record: TrainingRecord, first: TrainingRecord, experiment: Experiment) -> None:
    """Raise SpecError if two trainings do not compare: they are of different networks, data or recipes."""
    if len({(one.data_hash, one.workload.model_copy(update={"seed": 0}).model_dump_json()) for one in (record, first)}) > 1:
        raise SpecError(
            f"the records of {record.name} in {experiment.folder / 'train'} are of another network, data set or training "
            "than others there; delete those that were made with other settings, and train again"
        )


def check_int8(file: Path, record: TrainingRecord, experiment: Experiment) -> None:
    """Raise SpecError if the original network was not tested in 8-bit integers, and the experiment asks for that."""
    if experiment.train.int8 and record.operator is None and record.int8_score is None and record.stopped is None:
        raise SpecError(
            f"{file} has no score in 8-bit integers, which train: int8 asks for; delete the file and run `syno train` or the "
            "workflow again, or take the setting back"
        )


def settings_of_score(settings: WorkloadSettings) -> dict[str, Any]:
    """Return the settings that the score of a whole training depends on, without the seed."""
    return settings.model_dump(mode="json", exclude={"seed": True, "milestones": True, "training": WHERE})


def _check(file: Path, there: dict[str, Any], here: dict[str, Any], again: str) -> None:
    if found := named_differences(there, here):
        raise SpecError(
            f"{file} is of other settings than the experiment: {'; '.join(found)}. Take these settings back, or delete the "
            f"file and run `{again}` or the workflow again"
        )
