"""Checks that records of trainings and measurements have the settings of their experiment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.base.errors import SpecError
from syno.config import Experiment
from syno.stages.train import settings_of_training

if TYPE_CHECKING:
    from syno.measure.tuning_record import TuningRecord
    from syno.train.settings import WorkloadSettings

WHERE = ("device", "threads", "compile")  # of a training: where and how fast it ran


def check_training(file: Path, found: WorkloadSettings, experiment: Experiment) -> None:
    """Raise SpecError, which says what differs, if the record in a file is of another training than the experiment's."""
    if experiment.workload is not None:
        _check(file, _of_training(found), _of_training(settings_of_training(experiment)), "syno train")


def check_measurement(file: Path, record: TuningRecord, experiment: Experiment) -> None:
    """Raise SpecError, which says what differs, if the record in a file is of another measurement than the experiment's."""
    workload = experiment.workload
    if workload is None:
        return
    subject = record.subject.model_dump(mode="json")
    whole = workload.model_dump(mode="json")
    parts = [name for name in ("model", "width", "layers") if name in subject]
    there = {"workload": {name: subject[name] for name in parts}, "latency": record.settings.model_dump(mode="json")}
    here = {"workload": {name: whole[name] for name in parts}, "latency": experiment.tune.latency.model_dump(mode="json")}
    _check(file, there, here, "syno tune model")


def _of_training(settings: WorkloadSettings) -> dict[str, Any]:
    whole = settings.model_dump(mode="json", exclude={"seed": True, "training": set(WHERE)})
    return {"workload": whole}


def _check(file: Path, there: dict[str, Any], here: dict[str, Any], again: str) -> None:
    if there == here:
        return
    from syno.search.settings import named_differences  # with it comes optuna

    raise SpecError(
        f"{file} is of other settings than the experiment: {'; '.join(named_differences(there, here))}. "
        f"Take these settings back, or delete the file and run `{again}` or the workflow again"
    )
