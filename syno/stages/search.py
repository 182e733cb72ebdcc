"""The search: workers that evaluate operators for one study."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock
from pydantic import AwareDatetime, BaseModel

from syno.base.devices import require_device, visible_gpus
from syno.base.errors import SpecError
from syno.base.gpu_leases import leased
from syno.base.progress import Progress
from syno.base.record import Amount, Number, Record, versions
from syno.config import Experiment
from syno.measure.machine import device_name
from syno.report.operators.folder import rejections
from syno.run.story import end_of_search, majority_warning
from syno.run.table import trials_in
from syno.search.evaluation import EVALUATIONS, Stoppable, StoppingDisplay, find_evaluation
from syno.search.reward import compared_scores
from syno.search.screening import GoalScreen, ScreenedEvaluation
from syno.search.workers import Interruption, Worker, worker_processes
from syno.space.complete import cost
from syno.space.space import Space
from syno.space.state_graph import check_not_empty, why_empty
from syno.stages.opening import keep_config, open_study
from syno.stages.places import ORIGINAL_TRAINING, WEIGHTS, worker_file
from syno.stages.speedups import screening_speedups

if TYPE_CHECKING:
    import pandas
    from torch import nn

    from syno.base.interval import Interval
    from syno.base.progress import Display
    from syno.ir.graph import PGraph
    from syno.measure.speedup_record import SpeedupRecord
    from syno.measure.speedups import Speedups
    from syno.search.policies import LayerError
    from syno.search.study import Study
    from syno.train.contract import Evaluation
    from syno.train.training_record import TrainingRecord
    from syno.train.workload import Workload


# The screening of a search with a goal: costs are counted, and latencies measured, before an operator is trained.


GROWTH = 1.1  # the predictor is refitted when the number of records has grown by this factor


def limits(experiment: Experiment) -> tuple[int, float]:
    """Return the number of trials of a study, and the number of operators that may be screened out before the search ends."""
    count = experiment.study.n_trials
    return count, inf if experiment.goal is None else experiment.goal.screened_for(count)


@contextmanager
def screened(experiment: Experiment, evaluate: Evaluation) -> Iterator[Evaluation]:
    """Yield the evaluation of an experiment; if there is a goal, it screens operators before it trains them.

    Raises SpecError or MissingPackageError if this machine cannot measure with the goal's compiler on its device.
    """
    goal = experiment.goal
    if goal is None:
        yield evaluate
        return
    with ExitStack() as stack:
        learning = Learning(stack.enter_context(screening_speedups(experiment))) if goal.measures else None
        measure, predict = (None, None) if learning is None else (learning.measure, learning.predict)
        yield ScreenedEvaluation(evaluate, GoalScreen(goal, Shares(experiment), measure, predict))


class Learning:
    """Measures speedups of operators, and predicts them with a model fitted to the new and the stored measurements."""

    def __init__(self, measurements: Speedups) -> None:
        from syno.measure.prediction.predictor import SpeedupPredictor  # imports torch

        self._speedups = measurements
        self._predictor = SpeedupPredictor()
        self._records = {record.operator_id: record for record in measurements.records()}
        self._learnt = 0  # number of records at the last fit

    def measure(self, operator: PGraph) -> SpeedupRecord:
        """Return the speedup record of an operator from the store; measure it if the store has none."""
        record = self._records[operator.id] = self._speedups.of(operator)
        return record

    def predict(self, operator: PGraph) -> Interval | None:
        """Return the predicted speedup; None if there are too few measurements, or the operator's measurement is stored."""
        if operator.id in self._records or self._speedups.known(operator) is not None:
            return None
        if len(self._records) >= max(1, GROWTH * self._learnt):
            self._learnt = len(self._records)
            self._predictor.fit(self._records.values())
        return self._predictor.predict(operator)


@dataclass(frozen=True)
class Shares:
    """Computes the costs of the network with an operator, as shares of the original's."""

    experiment: Experiment

    def __call__(self, operator: PGraph) -> Mapping[str, float]:
        """Return the costs as shares of the original's, by metric. The size of the weights file only if the goal limits it."""
        network, goal = self.experiment.network, self.experiment.goal
        counted, original = cost(operator, self.experiment.operator_spec), network.original
        is_file_limited = goal is not None and goal.most_file_size is not None
        size = {"file_bytes": _file_bytes(network.network(operator, 0)) / self._original_bytes} if is_file_limited else {}
        return {
            "parameters": counted.parameters / original.parameters,
            "memory_bytes": counted.memory_bytes / original.memory_bytes,
            **size,
        }

    @cached_property
    def _original_bytes(self) -> int:
        return _file_bytes(self.experiment.network.network(None, 0))


def _file_bytes(network: nn.Module) -> int:
    """Return the size in bytes of a file with a network's parameters and buffers."""
    return sum(tensor.numel() * tensor.element_size() for tensor in network.state_dict().values())


def warn_of_end(experiment: Experiment, trials: pandas.DataFrame) -> None:
    """Warn if a search ended before its number of trials because operators cannot meet the goal."""
    if experiment.goal is None:
        return
    text = end_of_search(experiment.goal, trials_in(trials), experiment.study.n_trials)
    if text is not None:
        warnings.warn(f'study "{experiment.name}": {text}', stacklevel=3)


# The original network in the training of a search: its score, with which a reward compares those of operators.
#
# It is trained once for each study, before the first trial. The record is `search/original.json` in the folder of results. The
# score is kept with the study, so that workers on other machines have it. Workers that share the folder wait for each other.


KEY = "original"  # of the study's attribute


class OriginalScore(BaseModel):
    """The score of the trained original, as the study stores it for all workers.

    Attributes:
        workload, data: the settings of its training, and the checksum of the data.
        metric, score: the key of the metric, and the score.
        chance: the measured score of an untrained network; None if it follows from the data.
    """

    workload: dict[str, Any]
    data: str
    metric: str
    score: float
    chance: float | None = None


def original_scores(experiment: Experiment, study: Study, display: Display | None = None) -> dict[str, float]:
    """Return the original's score and the score of chance, as metrics by name; train the original if no worker has done so.

    The result is {} if the search trains nothing, or neither reward nor goal compares scores. The original is also trained if
    the trials begin with its weights. An interrupted training is resumed.

    Raises:
        SpecError: scores are compared, and the original is not better than chance after this training.
        TrainingError: the device's memory does not suffice.
    """
    loses = experiment.goal is not None and experiment.goal.lose_at_most is not None
    compares, begins = loses or experiment.make_reward().compares_scores, _trains_first(experiment)
    if experiment.evaluation != "training" or not (compares or begins):
        return {}
    from syno.data.contract import majority_of  # imports torch
    from syno.train.own_task import Task
    from syno.train.workload import Workload

    network = experiment.network
    if experiment.goal is not None:
        experiment.goal.check_loss(network.metric)
    workload = Workload(network.settings.model_copy(update={"milestones": {}}), network.data)
    settings, kept = workload.settings.model_dump(mode="json"), study.kept(KEY)
    found = None if kept is None else OriginalScore.model_validate(kept)
    is_there = not begins or (experiment.folder / ORIGINAL_TRAINING).with_suffix(WEIGHTS).is_file()
    if found is None or (found.workload, found.data) != (settings, network.hash) or not is_there:
        record = _record(experiment, workload, display)
        chance = network.chance if isinstance(network.data, Task) else None
        made = OriginalScore(workload=settings, data=network.hash, metric=record.metric, score=record.score, chance=chance)
        study.keep(KEY, made.model_dump(exclude_none=True))
        found = OriginalScore.model_validate(study.kept(KEY))  # another worker may have replaced it
    most_frequent = majority_of(network.data)
    if most_frequent is not None and (warning := majority_warning(*most_frequent, found.score)):
        warnings.warn(warning, stacklevel=2)
    if not compares:
        return {}
    return compared_scores(found.metric, found.score, network.chance if found.chance is None else found.chance)


def _record(experiment: Experiment, workload: Workload, display: Display | None) -> TrainingRecord:
    """Return the training record of the original; train it unless a worker that shares the folder has done so."""
    from syno.train.training_record import TrainingRecord

    file, seed, settings = experiment.folder / ORIGINAL_TRAINING, workload.settings.seed, workload.settings.training
    rounds = settings.epochs if settings.round_steps is None else -(-(settings.most_steps or 0) // settings.round_steps)

    def show(number: int, score: float) -> None:
        if display is not None:
            display.show(Progress(f"{experiment.name}, the original network", number, max(rounds, number), number))

    weights = file.with_suffix(WEIGHTS) if _trains_first(experiment) else None
    lock = file.with_suffix(".lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        with suppress(OSError):  # on a file system without locks, several workers may train
            stack.enter_context(FileLock(lock))
        with suppress(SpecError):
            found = TrainingRecord.read(file)
            is_whole = weights is None or weights.is_file()
            if found.workload == workload.settings and found.data_hash == workload.hash and is_whole:
                return found
        with leased(settings.device, "training.device"), display or nullcontext():
            record = TrainingRecord.make(workload, None, seed, file.with_suffix(".checkpoint"), weights=weights, report=show)
        record.write(file)
        return record


def search(experiment: Experiment, workers: int = 1, display: Display | None = None, *, wait: bool = True) -> Study:
    """Search until the study has all its trials; returns the study. Other machines may work on the same study.

    If no operator meets the goal, or the space has no operator, the search ends with a warning, not with an error.

    Args:
        experiment: the experiment.
        workers: number of processes on this machine.
        display: shows the progress.
        wait: whether to wait for the last trials of other workers that are alive; see `Study.run`.

    Raises:
        SpecError: the space is empty, operators come from another experiment, or the study has other settings.
        MissingDeviceError: this machine does not have the device that the workload trains on.
        SearchStoppedError: evaluations fail for a reason other than the operators, such as a full disk.
    """
    experiment.use_code()
    if experiment.storage == "memory:" and workers > 1:
        raise SpecError("several workers need a storage that they share; study: storage is memory:")
    if experiment.evaluation == "training":  # before the data is loaded, which may take long
        require_device(_device(experiment), "training.device")
    space, evaluate = Space(experiment.operator_spec), make_evaluation(experiment)
    check_not_empty(space)
    from syno.search.storage.errors import database_errors  # imports optuna

    study = open_study(experiment, space, layer_error_of(experiment))
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
        study.run(Stoppable(evaluation, stop), *limits(experiment), display=shown, notes=lambda: rejections(space), wait=wait)
    trials = study.trials
    if trials.empty:  # the shape distance is a lower bound, so that some spaces prove empty only when they are searched
        warnings.warn(f'study "{experiment.name}" found no operator: {why_empty(space.spec)}', stacklevel=2)
    elif "running" not in set(trials["outcome"]):
        warn_of_end(experiment, trials)
    return study


class WorkerRecord(Record):
    """The record of one worker.

    Attributes:
        study: name of the study.
        worker: number of the worker.
        process: host and process id.
        machine: processor and number of logical cores.
        trials: number of trials that this worker evaluated.
        finished: number of trials that all workers of the study had finished at this worker's end.
        seconds: time from the start of the worker to its end.
        versions, date: versions of the software, and the time at the end.
    """

    kind_of_record = "worker record"
    again = "run `syno worker`"
    passing = frozenset({"process", "trials", "finished", "seconds", "date"})
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
    """Work on the study until no trial is left to begin, and write a record. Raises the errors of `search`.

    It does not wait for workers on this machine: they end their last trials, or their jobs fail and are retried. It waits for
    workers on other nodes, which may have died without a retry, and for paused trials, which may have to be resumed.
    """
    began = time.monotonic()
    trials = trials_in(search(experiment, 1, display, wait=experiment.study.stopping is not None).trials)
    ended = [trial for trial in trials if trial.outcome in ("complete", "pruned", "paused", "failed")]
    process = str(Worker.here())
    record = WorkerRecord(
        study=experiment.name,
        worker=number,
        process=process,
        machine=f"{device_name('cpu')}, {os.cpu_count()} logical cores",
        trials=sum(trial.worker == process for trial in ended),
        finished=len(ended),
        seconds=round(time.monotonic() - began, 1),
        versions=versions(["torch", "optuna"]),
        date=datetime.now(UTC),
    )
    record.write(output or worker_file(experiment, number))
    return record


def _device(experiment: Experiment) -> str:
    """Return the device of trainings; for a user's own evaluation, the workload's device if this machine has it, else "cpu"."""
    device = "cpu" if experiment.workload is None else experiment.workload.training.device
    own = experiment.evaluation != "training"
    return "cpu" if own and (experiment.evaluation in EVALUATIONS or not visible_gpus()) else device


def make_evaluation(experiment: Experiment, original: Mapping[str, float] | None = None) -> Evaluation:
    """Return the function that evaluates operators, and adds the metrics `original` of the original network to each result.

    Raises SpecError if there is none of the experiment's name.
    """
    if experiment.evaluation == "training":
        from syno.train.proxy_training import ProxyTraining  # imports torch

        checkpoints, checks = experiment.folder / "checkpoints", experiment.study.check_gradients
        return ProxyTraining(beginning(experiment), experiment.operator_spec, checkpoints, original or {}, checks)
    spec, given = experiment.operator_spec, experiment.original
    original_cost = None if given is None else given.cost(spec)
    if original_cost is None and experiment.workload is not None and experiment.evaluation in EVALUATIONS:
        original_cost = experiment.network.original
    return find_evaluation(experiment.evaluation, spec, original_cost)


def beginning(experiment: Experiment) -> Workload:
    """Return the search's workload; if trials begin with the trained original's weights, with these as its initial weights."""
    from syno.train.workload import Workload

    network = experiment.network
    if not _trains_first(experiment):
        return network
    weights = (experiment.folder / ORIGINAL_TRAINING).with_suffix(WEIGHTS)
    return Workload(network.settings.model_copy(update={"weights": str(weights)}), network.data)


def layer_error_of(experiment: Experiment) -> LayerError | None:
    """Return the function that computes an operator's fit error, for policies; None if trials begin with new weights.

    The network is loaded at its first call, since the original may be trained only after the study was opened.
    """
    workload = experiment.workload
    if experiment.evaluation != "training" or workload is None or workload.training.initialization != "fit":
        return None
    loaded = cache(partial(beginning, experiment))
    return lambda operator: loaded().layer_error(operator)


def _trains_first(experiment: Experiment) -> bool:
    """Return whether a search first trains the original, with whose weights its trials begin."""
    workload = experiment.workload
    if workload is None or not workload.training.uses_trained:
        return False
    return workload.weights is None or bool(workload.training.train_original)


def _work(fields: Mapping[str, Any]) -> None:
    """Work on the study in another process; `fields` are those of the experiment, which makes it there again."""
    experiment = Experiment(**fields).use_code()
    study = open_study(experiment, Space(experiment.operator_spec), layer_error_of(experiment))
    evaluate = make_evaluation(experiment, original_scores(experiment, study))
    with (
        leased(_device(experiment), "training.device"),
        screened(experiment, evaluate) as evaluation,
        Interruption() as stop,
    ):
        study.run(Stoppable(evaluation, stop), *limits(experiment), display=StoppingDisplay(stop))
