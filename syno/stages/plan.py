"""What experiments will take, before anything has run: jobs, GPU hours, files and storage of each stage.

Jobs and files are counted by what the workflow counts by. Hours and storage rest on assumptions, all of which can be changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from syno.config import Experiment
from syno.measure.compilers import TVM
from syno.measure.tvm.devices import is_here
from syno.stages.jobs import jobs, keys, measured
from syno.train.settings import TrainingSettings

Above = Annotated[float, Field(gt=0)]
TRAINING_PICTURES: Mapping[str, int] = {"cifar100": 50_000, "imagenet": 1_281_167}  # others say so in their settings
HOUR, KIB, MIB = 3600, 2**10, 2**20
PLACES = {"convert": 2, "artifact": 6, "headlines": 2, "tables": 4, "figure": 3}  # files that a job makes, where it is not one
PROTOCOLLED = frozenset({"data", "worker", "freeze", "train", "tune"})  # whose jobs also leave times and memory in `benchmark/`


class Assumptions(BaseModel):
    """The assumptions of a plan. The defaults are round figures for the paper's networks on an A100."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    pictures_per_second: Above = 550
    """pictures per second in training on one GPU, in float32 or TF32: 100 epochs of CIFAR-100 in 2.5 hours"""
    mixed_precision: Above = 2.5
    """how many times as fast a GPU trains in 16 bits"""
    steps_per_second: Above = 10
    """steps per second in training a language model on one GPU"""
    search_share: Annotated[float, Field(gt=0, le=1)] = 0.25
    """fraction of a training that a trial takes on average, if bad ones are stopped early"""
    kernels: Above = 25
    """kernels of one network that TVM tunes"""
    schedules_per_second: Above = 1
    """schedules per second that TVM builds and measures"""
    compile_minutes: Above = 5
    """minutes for one measurement with another compiler"""
    trial_kib: Above = 10
    """KiB of a trial: in the study, the table of trials and the operator store"""
    record_kib: Above = 8
    """KiB of the record of a training or measurement, and of other small files"""
    page_kib: Above = 1000
    """KiB of a report, and of a figure in its three formats"""
    schedule_kib: Above = 8
    """KiB of a schedule among TVM's trials"""
    built_mib: Above = 100
    """MiB of a network that TVM has built"""


@dataclass(frozen=True)
class Stage:
    """What a stage of an experiment takes.

    Attributes:
        rule: of the workflow.
        jobs: how many.
        gpu_hours: of all jobs together; None if that cannot be told.
        device_hours: the same, of measuring on processors and remote devices. Other work on processors is not counted.
        files: that are there in the end.
        bytes: of them.
    """

    rule: str
    jobs: int
    gpu_hours: float | None
    device_hours: float
    files: int
    bytes: float


@dataclass(frozen=True)
class Plan:
    """What an experiment takes: its stages in their order, and the hours of measuring on each device."""

    experiment: Experiment
    stages: tuple[Stage, ...]
    tuning_hours: Mapping[str, float]

    def gpu_hours(self, rule: str) -> float | None:
        """Of a stage: 0 if there is no such stage here."""
        return next((stage.gpu_hours for stage in self.stages if stage.rule == rule), 0.0)


def plans(experiments: Iterable[Experiment], assumed: Assumptions | None = None) -> list[Plan]:
    """What experiments of one workflow take, each, if it selects as many operators as it may.

    What several need, such as ImageNet in a form that is read fast, is counted with the first of them.
    """
    made, found = set[Path](), list[Plan]()
    for experiment in experiments:
        new = {rule: [file for file in files if file not in made] for rule, files in jobs(experiment).items()}
        found.append(_plan(experiment, {rule: files for rule, files in new.items() if files}, assumed or Assumptions()))
        made.update(file for files in new.values() for file in files)
    return found


def plan(experiment: Experiment, assumed: Assumptions | None = None) -> Plan:
    """What an experiment takes by itself."""
    return plans([experiment], assumed)[0]


def _plan(experiment: Experiment, found: Mapping[str, list[Path]], assumed: Assumptions) -> Plan:
    tuning = _tuning_hours(experiment, assumed)
    on_gpus = sum(hours for device, hours in tuning.items() if is_here(device) and device != "cpu")
    hours: dict[str, float | None] = {"tune": on_gpus}
    if experiment.searches and experiment.evaluation == "training":
        hours["worker"] = _search_hours(experiment, assumed)
    if "train" in found:
        hours["train"] = _hours(_training(experiment), experiment, assumed, len(found["train"]))
    stages = [
        Stage(
            rule,
            len(files),
            hours.get(rule, 0.0),
            sum(tuning.values()) - on_gpus if rule == "tune" else 0.0,
            _files(rule, files, experiment),
            _bytes(rule, files, experiment, assumed),
        )
        for rule, files in found.items()
    ]
    return Plan(experiment, tuple(stages), tuning)


# ---- hours -------------------------------------------------------------------------------------------------------------


def training_hours(settings: TrainingSettings, pictures: int | None, assumed: Assumptions) -> float | None:
    """Of one whole training on a GPU; 0 on a processor; None if nothing says how long it is.

    Args:
        settings: how it is trained.
        pictures: how many it trains on in an epoch; None for texts, and if that is not known.
        assumed: the speed.
    """
    if not settings.device.startswith("cuda"):
        return 0.0
    limits = [] if settings.most_minutes is None else [settings.most_minutes / 60]
    if pictures is not None:
        steps = settings.epochs * (pictures // settings.batch)
        speed = assumed.pictures_per_second * (1 if settings.precision == "float32" else assumed.mixed_precision)
        limits.append(min(steps, settings.most_steps or steps) * settings.batch / speed / HOUR)
    elif settings.most_steps is not None:
        limits.append(settings.most_steps / assumed.steps_per_second / HOUR)
    return min(limits, default=None)


def _training(experiment: Experiment) -> TrainingSettings:
    assert experiment.workload is not None
    return experiment.train.training or experiment.workload.training


def _hours(settings: TrainingSettings, experiment: Experiment, assumed: Assumptions, count: float) -> float | None:
    """Of so many trainings."""
    workload = experiment.workload
    assert workload is not None
    pictures = TRAINING_PICTURES.get(workload.data, workload.data_settings.get("train"))
    one = training_hours(settings, pictures, assumed)
    return None if one is None else one * count


def _search_hours(experiment: Experiment, assumed: Assumptions) -> float | None:
    workload = experiment.workload
    assert workload is not None
    ended_early = bool(workload.milestones) or experiment.study.pruner is not None
    share = assumed.search_share if ended_early else 1.0
    return _hours(workload.training, experiment, assumed, experiment.study.n_trials * share)


def _tuning_hours(experiment: Experiment, assumed: Assumptions) -> dict[str, float]:
    """Of all measurements, by device."""
    settings, found = experiment.tune, dict[str, float]()
    if experiment.workload is None:
        return {}
    for compiler, device in settings.pairs:
        tuning = assumed.kernels * settings.tvm.trials_per_task / assumed.schedules_per_second
        seconds = tuning if compiler == TVM else 60 * assumed.compile_minutes
        count = len(measured(experiment, keys(experiment)))
        found[device] = found.get(device, 0.0) + count * min(seconds, settings.time_limit_seconds) / HOUR
    return found


# ---- files -------------------------------------------------------------------------------------------------------------


def _files(rule: str, made: list[Path], experiment: Experiment) -> int:
    """That jobs leave: what they make, logs, and for some their times."""
    operators = experiment.study.n_trials if rule == "freeze" else 0
    return len(made) * (PLACES.get(rule, 1) + 1 + (rule in PROTOCOLLED)) + operators + _built(rule, made)


def _built(rule: str, made: Iterable[Path]) -> int:
    """How many networks TVM builds."""
    return sum(file.name.startswith(f"{TVM}-") for file in made) if rule == "tune" else 0


def _bytes(rule: str, made: list[Path], experiment: Experiment, assumed: Assumptions) -> float:
    if rule == "convert":  # a data set, which is no result
        return 0.0
    found = len(made) * (assumed.page_kib if rule in ("figure", "report") else assumed.record_kib) * KIB
    if rule == "freeze":
        found += experiment.study.n_trials * assumed.trial_kib * KIB
    schedules = assumed.kernels * experiment.tune.tvm.trials_per_task * assumed.schedule_kib * KIB
    return found + _built(rule, made) * (assumed.built_mib * MIB + schedules)
