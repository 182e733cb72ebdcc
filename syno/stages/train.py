"""Training again: one operator, one seed, one record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from syno.config import Experiment
from syno.stages.places import key_of, operator_of, training_file

if TYPE_CHECKING:
    from syno.train.settings import WorkloadSettings
    from syno.train.training_record import TrainingRecord


def train(experiment: Experiment, given: str, seed: int, output: Path | None = None) -> TrainingRecord:
    """Train the network with an operator, or as it is, and write a record. An interrupted training goes on where it was.

    Args:
        experiment: says how; `train: training` goes before the workload's.
        given: "original", a baseline, or an operator's id, name or file.
        seed: of weights and of the order of pictures.
        output: the file; by default among the experiment's results.

    Raises SpecError if the operator does not fit the network, UnknownNameError if there is no such operator.
    """
    from syno.train.training_record import TrainingRecord
    from syno.train.workload import Workload

    operator, data = operator_of(experiment, given), experiment.network.data
    whole = Workload(settings_of_training(experiment), data)
    file = output or training_file(experiment, key_of(experiment, given), seed)
    record = TrainingRecord.make(whole, operator, seed, file.with_suffix(".checkpoint"))
    record.write(file)
    return record


def settings_of_training(experiment: Experiment) -> WorkloadSettings:
    """Return what is trained again, and how: the workload with the training of `train`, and to its end.

    The experiment has a workload.
    """
    workload, training = experiment.workload, experiment.train.training
    assert workload is not None
    changes = {} if training is None else {"training": training}
    return workload.model_copy(update={**changes, "milestones": {}})  # which are for the search
