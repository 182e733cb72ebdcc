"""The search: workers on one study."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import AwareDatetime

from syno.base.errors import SpecError
from syno.base.record import Amount, Number, Record, versions
from syno.config import Experiment
from syno.measure.machine import processor
from syno.report.ablations.sampling import rejections
from syno.search.evaluation import find_evaluation
from syno.search.interruption import Interruption, Stoppable, StoppingDisplay
from syno.search.processes import beside
from syno.search.worker import Worker
from syno.space.emptiness import check_not_empty
from syno.space.space import Space
from syno.stages.kept import keep_config
from syno.stages.places import worker_file

if TYPE_CHECKING:
    from syno.base.progress import Display
    from syno.search.study import Evaluate, Study


def search(experiment: Experiment, workers: int = 1, display: Display | None = None) -> Study:
    """Search until the study has its trials, with so many processes on this machine; returns the study.

    Other machines may do the same at the same time.

    Raises:
        SpecError: the space is empty, or operators come from another experiment; and as `open_study`.
        MissingDeviceError: this machine does not have the device that the workload trains on.
        SearchStoppedError: evaluations fail for a reason that is not the operators'.
    """
    if experiment.storage == "memory:" and workers > 1:
        raise SpecError("several workers need a storage that they share; study: storage is memory:")
    _check_device(experiment)
    space, evaluate = Space(experiment.operator_spec), make_evaluation(experiment)
    check_not_empty(space)
    from syno.search.storage.storage import understood  # with it comes optuna

    study = open_study(experiment, space)
    keep_config(experiment)  # not those of a study with other settings
    with understood(experiment.storage), beside(_work, (experiment.model_dump(),), workers - 1), Interruption() as stop:
        shown = StoppingDisplay(stop, display)
        study.run(Stoppable(evaluate, stop), experiment.study.n_trials, display=shown, notes=lambda: rejections(space))
    return study


class WorkerRecord(Record):
    """What one worker did.

    Attributes:
        study: the study's name.
        worker: its number.
        process: its host and process.
        machine: its processor, and the logical cores.
        trials: of the study that it evaluated.
        finished: how many of the study's trials have ended, whoever evaluated them.
        seconds: from its start to its end.
        versions, date: with what, and when it ended.
    """

    kind_of_record = "worker record"
    again = "run `syno worker`"
    passing = frozenset({"process", "trials", "seconds", "date"})
    study: str
    worker: Number
    process: str
    machine: str
    trials: Number
    finished: Number
    seconds: Amount
    versions: dict[str, str]
    date: AwareDatetime


def work(experiment: Experiment, number: int, output: Path | None = None, display: Display | None = None) -> WorkerRecord:
    """Be a worker of the study until it has its trials, and write a record of that. Raises as `search`."""
    began = time.monotonic()
    trials = search(experiment, 1, display).trials
    ended = trials["outcome"].isin(["complete", "pruned", "failed"]) if len(trials) else trials.index == 0
    process = str(Worker.here())
    record = WorkerRecord(
        study=experiment.name,
        worker=number,
        process=process,
        machine=f"{processor()}, {os.cpu_count()} logical cores",
        trials=int((ended & (trials["worker"] == process)).sum()) if len(trials) else 0,
        finished=int(ended.sum()),
        seconds=round(time.monotonic() - began, 1),
        versions=versions(["torch", "optuna"]),
        date=datetime.now(UTC),
    )
    record.write(output or worker_file(experiment, number))
    return record


def _check_device(experiment: Experiment) -> None:
    """Before the data is loaded, which may take long. MissingDeviceError if operators cannot be trained on this machine."""
    if experiment.evaluation == "training" and experiment.workload is not None:
        from syno.base.devices import require_device  # with it comes torch

        require_device(experiment.workload.training.device, "training.device")


def make_evaluation(experiment: Experiment) -> Evaluate:
    """What evaluates operators. SpecError if there is no such thing."""
    if experiment.evaluation == "training":
        from syno.train.workload import ProxyTraining  # with it comes torch

        return ProxyTraining(experiment.network, experiment.operator_spec, experiment.folder / "checkpoints")
    spec, original = experiment.operator_spec, experiment.original
    return find_evaluation(experiment.evaluation, spec, None if original is None else original.cost(spec))


def open_study(experiment: Experiment, space: Space) -> Study:
    """The study, made if it is not there. SpecError if it is there with other settings."""
    from optuna import logging  # with it comes half a second

    from syno.search.pruners import make_pruner
    from syno.search.study import Study

    logging.set_verbosity(logging.WARNING)
    settings = experiment.study
    return Study(
        space,
        space_id=experiment.operator_spec.id,
        more_settings=_more_settings(experiment),
        name=experiment.name,
        storage=experiment.storage,
        policy=str(experiment.policy.get("name", "mcts")),
        policy_settings=experiment.policy_settings,
        seed=settings.seed,
        reward=experiment.make_reward(),
        warm_start=[choice.find() for choice in experiment.warm_start],
        pruner=None if settings.pruner is None else make_pruner(settings.pruner),
        most_attempts=settings.most_attempts,
        heartbeat_seconds=settings.heartbeat_seconds,
        grace_seconds=settings.grace_seconds,
    )


def _more_settings(experiment: Experiment) -> dict[str, Any]:
    """The options of the spec, and how operators are trained."""
    spec, workload = experiment.operator_spec, experiment.workload
    found = {"spec": spec.model_dump(mode="json", exclude={"name"})}
    return found if workload is None else {**found, "workload": workload.model_dump(mode="json")}


def _work(fields: Mapping[str, Any]) -> None:
    """Be one more worker."""
    experiment = Experiment(**fields)
    study, evaluate = open_study(experiment, Space(experiment.operator_spec)), make_evaluation(experiment)
    with Interruption() as stop:
        study.run(Stoppable(evaluate, stop), experiment.study.n_trials, display=StoppingDisplay(stop))
