"""The search: workers that evaluate operators for one study."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import AwareDatetime

from syno.base.devices import require_device
from syno.base.errors import SpecError
from syno.base.gpu_leases import leased
from syno.base.gpus import visible_gpus
from syno.base.record import Amount, Number, Record, versions
from syno.config import Experiment
from syno.measure.machine import device_name
from syno.report.operators.sampling import rejections
from syno.search.evaluation import EVALUATIONS, find_evaluation
from syno.search.stoppable import Stoppable, StoppingDisplay
from syno.search.workers import Interruption, Worker, worker_processes
from syno.space.space import Space
from syno.space.state_graph import check_not_empty, why_empty
from syno.stages.kept import keep_config
from syno.stages.original import original_scores
from syno.stages.places import worker_file
from syno.stages.screening import limits, screened, warn_of_end
from syno.stages.study import open_study

if TYPE_CHECKING:
    from syno.base.progress import Display
    from syno.search.study import Study
    from syno.train.contract import Evaluation


def search(experiment: Experiment, workers: int = 1, display: Display | None = None) -> Study:
    """Search until the study has all its trials; returns the study. Other machines may work on the same study.

    That no operator meets the goal, or that there is none, is a result, of which a warning tells.

    Args:
        experiment: the experiment.
        workers: number of processes on this machine.
        display: where progress is shown.

    Raises:
        SpecError: the space is empty, operators come from another experiment, or the study has other settings.
        MissingDeviceError: this machine does not have the device that the workload trains on.
        SearchStoppedError: evaluations fail for a reason that is not the operators'.
    """
    experiment.use_code()
    if experiment.storage == "memory:" and workers > 1:
        raise SpecError("several workers need a storage that they share; study: storage is memory:")
    if experiment.evaluation == "training":  # before the data is loaded, which may take long
        require_device(_device(experiment), "training.device")
    space, evaluate = Space(experiment.operator_spec), make_evaluation(experiment)
    check_not_empty(space)
    from syno.search.storage.errors import database_errors  # imports optuna

    study = open_study(experiment, space)
    keep_config(experiment)  # after `open_study`, which refuses other settings
    if original := original_scores(experiment, study, display):
        evaluate = make_evaluation(experiment, original)
    with (
        database_errors(experiment.storage),
        worker_processes(_work, (experiment.model_dump(),), workers - 1),
        leased(_device(experiment), "training.device"),  # it ends before the other workers are waited for
        screened(experiment, evaluate) as evaluation,
        Interruption() as stop,
    ):
        shown = StoppingDisplay(stop, display)
        study.run(Stoppable(evaluation, stop), *limits(experiment), display=shown, notes=lambda: rejections(space))
    if study.trials.empty:  # the distance is a bound: some empty spaces show only when they are searched
        warnings.warn(f'study "{experiment.name}" found no operator: {why_empty(space.spec)}', stacklevel=2)
    warn_of_end(experiment, study.trials)
    return study


class WorkerRecord(Record):
    """The record of one worker.

    Attributes:
        study: name of the study.
        worker: number of the worker.
        process: host and process id.
        machine: processor and number of logical cores.
        trials: number of trials that the worker evaluated.
        finished: number of trials of the study that have ended, by any worker.
        seconds: time from the start of the worker to its end.
        versions, date: versions of the software, and the time at the end.
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
    """Work on the study until it has all its trials, and write a record. Raises the errors of `search`."""
    began = time.monotonic()
    trials = search(experiment, 1, display).trials
    ended = trials["outcome"].isin(["complete", "pruned", "paused", "failed"]) if len(trials) else trials.index == 0
    process = str(Worker.here())
    record = WorkerRecord(
        study=experiment.name,
        worker=number,
        process=process,
        machine=f"{device_name('cpu')}, {os.cpu_count()} logical cores",
        trials=int((ended & (trials["worker"] == process)).sum()) if len(trials) else 0,
        finished=int(ended.sum()),
        seconds=round(time.monotonic() - began, 1),
        versions=versions(["torch", "optuna"]),
        date=datetime.now(UTC),
    )
    record.write(output or worker_file(experiment, number))
    return record


def _device(experiment: Experiment) -> str:
    """Return the device on which evaluations train. A user's own evaluation computes there, too, if this machine has it."""
    device = "cpu" if experiment.workload is None else experiment.workload.training.device
    own = experiment.evaluation != "training"
    return "cpu" if own and (experiment.evaluation in EVALUATIONS or not visible_gpus()) else device


def make_evaluation(experiment: Experiment, original: Mapping[str, float] | None = None) -> Evaluation:
    """Return the function that evaluates operators. `original`: metrics of the original network, which it adds to those.

    Raises SpecError if there is none of the experiment's name.
    """
    if experiment.evaluation == "training":
        from syno.train.proxy_training import ProxyTraining  # imports torch

        checkpoints, checks = experiment.folder / "checkpoints", experiment.study.check_gradients
        return ProxyTraining(experiment.network, experiment.operator_spec, checkpoints, original or {}, checks)
    spec, given = experiment.operator_spec, experiment.original
    original_cost = None if given is None else given.cost(spec)
    if original_cost is None and experiment.workload is not None and experiment.evaluation in EVALUATIONS:
        original_cost = experiment.network.original
    return find_evaluation(experiment.evaluation, spec, original_cost)


def _work(fields: Mapping[str, Any]) -> None:
    """Work on the study in a further process, whose experiment has these fields."""
    experiment = Experiment(**fields).use_code()
    study = open_study(experiment, Space(experiment.operator_spec))
    evaluate = make_evaluation(experiment, original_scores(experiment, study))
    with (
        leased(_device(experiment), "training.device"),
        screened(experiment, evaluate) as evaluation,
        Interruption() as stop,
    ):
        study.run(Stoppable(evaluation, stop), *limits(experiment), display=StoppingDisplay(stop))
