"""The plan of experiments: jobs, hours, files and storage of each stage.

Jobs and files are those of the workflow's stages. GPU hours and storage follow from assumptions, all of which can be changed.
CPU hours follow from what was measured, and are unknown before (`syno.stages.plan_cpu`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from syno.config import Experiment
from syno.config.stopping import rounds_of
from syno.measure.compilers import COMPILERS, compiler_facts
from syno.measure.tvm.settings import is_here
from syno.stages.assumptions import Assumptions
from syno.stages.places import compiler_in_files, device_named
from syno.stages.plan_cpu import search_cpu_hours, training_cpu_hours, trains_on_cpu
from syno.stages.workflow_stages import STAGES, WorkflowStage, jobs
from syno.train.settings import TrainingSettings

TRAINING_PICTURES: Mapping[str, int] = {
    "cifar100": 50_000,
    "imagenet": 1_281_167,
}  # others have it in their settings
HOUR, KIB, MIB = 3600, 2**10, 2**20
RECORDS_BESIDE = {"convert": 1}  # files that a job writes and Snakemake does not know


@dataclass(frozen=True)
class StagePlan:
    """The jobs, hours and files of one stage of an experiment.

    Attributes:
        rule: name of the stage.
        jobs: number of jobs.
        gpu_hours: hours of all jobs together; None if unknown.
        cpu_hours: hours of searching and training on processors (`syno.stages.plan_cpu`); None until something was timed.
        device_hours: hours of measuring on processors and remote devices.
        files: number of files in the end.
        bytes: size of these files.
    """

    rule: str
    jobs: int
    gpu_hours: float | None
    cpu_hours: float | None
    device_hours: float
    files: int
    bytes: float


@dataclass(frozen=True)
class WorkflowPlan:
    """The plan of an experiment: its stages in their order, and the hours of measuring on each device."""

    experiment: Experiment
    stages: tuple[StagePlan, ...]
    tuning_hours: Mapping[str, float]

    def gpu_hours(self, rule: str) -> float | None:
        """Return the GPU hours of a stage; 0 if the experiment does not have it."""
        return next((stage.gpu_hours for stage in self.stages if stage.rule == rule), 0.0)

    def hours(self, rule: str) -> float | None:
        """Return the GPU hours and CPU hours of a stage together; None if one of them is unknown."""
        found = [one for stage in self.stages if stage.rule == rule for one in (stage.gpu_hours, stage.cpu_hours)]
        known = [one for one in found if one is not None]
        return sum(known) if len(known) == len(found) else None


def plans(experiments: Iterable[Experiment], assumed: Assumptions | None = None) -> list[WorkflowPlan]:
    """Return the plans of the experiments of one workflow, if each selects as many operators as it may.

    Files that several experiments need, such as ImageNet in a fast format, are counted with the first of them.
    """
    made, found = set[Path](), list[WorkflowPlan]()
    for experiment in experiments:
        new = {rule: [file for file in files if file not in made] for rule, files in jobs(experiment).items()}
        found.append(_plan(experiment, {rule: files for rule, files in new.items() if files}, assumed or Assumptions()))
        made.update(file for files in new.values() for file in files)
    return found


def plan(experiment: Experiment, assumed: Assumptions | None = None) -> WorkflowPlan:
    """Return the plan of one experiment."""
    return plans([experiment], assumed)[0]


def _plan(experiment: Experiment, found: Mapping[str, list[Path]], assumed: Assumptions) -> WorkflowPlan:
    by_stage = {
        "tune": _tuning_hours(experiment, _jobs_of("tune", experiment), assumed.kernels, 1, assumed),
        "layers": _tuning_hours(experiment, _jobs_of("layers", experiment), assumed.layer_kernels, assumed.layers, assumed),
        "breakdown": _tuning_hours(
            experiment, _jobs_of("breakdown", experiment), assumed.layer_kernels, assumed.layers, assumed
        ),
        "speedup": _tuning_hours(
            experiment, _jobs_of("speedup", experiment), assumed.kernels, 1 + experiment.select.most, assumed
        ),
        "speed": _speed_hours(experiment, assumed),
    }
    on_gpus = {stage: sum(of[device] for device in of if is_here(device) and device != "cpu") for stage, of in by_stage.items()}
    hours: dict[str, float | None] = {**on_gpus}
    cpu_hours: dict[str, float | None] = {"worker": search_cpu_hours(experiment)}
    if experiment.searches and experiment.evaluation == "training":
        hours["worker"] = _search_hours(experiment, assumed)
    if "train" in found:
        hours["train"] = _hours(_training(experiment), experiment, assumed, len(found["train"]))
        cpu_hours["train"] = training_cpu_hours(experiment, _training(experiment), found["train"])
    stages = [
        StagePlan(
            rule,
            len(files),
            hours.get(rule, 0.0),
            cpu_hours.get(rule, 0.0),
            sum(by_stage[rule].values()) - on_gpus[rule] if rule in by_stage else 0.0,
            _files(STAGES[rule], files, experiment, assumed),
            _bytes(STAGES[rule], files, experiment, assumed),
        )
        for rule, files in found.items()
    ]
    devices = dict.fromkeys(device for of in by_stage.values() for device in of)
    return WorkflowPlan(
        experiment, tuple(stages), {device: sum(of.get(device, 0.0) for of in by_stage.values()) for device in devices}
    )


# ---- hours -------------------------------------------------------------------------------------------------------------


def training_hours(settings: TrainingSettings, pictures: int | None, assumed: Assumptions) -> float | None:
    """Return the hours of one whole training on a GPU; 0 on a processor; None if unknown.

    Args:
        settings: settings of the training.
        pictures: pictures in an epoch; None for text, and if unknown.
        assumed: assumptions on the speed.
    """
    if trains_on_cpu(settings):
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
    """Return the hours of `count` trainings."""
    workload = experiment.workload
    assert workload is not None
    pictures = TRAINING_PICTURES.get(workload.data, workload.data_settings.get("train"))
    one = training_hours(settings, pictures, assumed)
    return None if one is None else one * count


def _search_hours(experiment: Experiment, assumed: Assumptions) -> float | None:
    workload = experiment.workload
    assert workload is not None
    whole, count = _hours(workload.training, experiment, assumed, 1), experiment.study.n_trials
    study, rounds = experiment.study, rounds_of(workload, experiment.evaluation)
    if study.stopping is not None and rounds is not None and not workload.milestones:
        return None if whole is None else count * whole * study.stopping.part_of_training(rounds)
    if not (workload.milestones or study.pruner is not None or study.stopping is not None):
        return None if whole is None else count * whole
    if assumed.search_share is not None:
        return None if whole is None else count * whole * assumed.search_share
    return count * (assumed.trial_hours if whole is None else min(whole, assumed.trial_hours))


def _jobs_of(name: str, experiment: Experiment) -> Sequence[Mapping[str, str]]:
    """Return the wildcards of the jobs of a stage before anything is selected."""
    stage = STAGES[name]
    return stage.jobs(experiment, stage.networks(experiment))


def _speed_hours(experiment: Experiment, assumed: Assumptions) -> dict[str, float]:
    """Return the hours of measuring the speed of training, by device."""
    hours = dict[str, float]()
    for job in _jobs_of("speed", experiment):
        device = device_named(experiment, job["device"])
        hours[device] = hours.get(device, 0.0) + assumed.compile_minutes / 60
    return hours


def _tuning_hours(
    experiment: Experiment, found: Iterable[Mapping[str, str]], kernels: float, times: float, assumed: Assumptions
) -> dict[str, float]:
    """Return the hours of measurements, by device.

    Args:
        experiment: the experiment.
        found: the wildcards of its jobs.
        kernels: number of kernels that TVM tunes in what is measured at a time.
        times: number of things that a job measures one after another.
        assumed: assumptions on the speed.
    """
    settings, hours = experiment.tune, dict[str, float]()
    for job in found:
        device, compiler = device_named(experiment, job["device"]), compiler_in_files(experiment, job["compiler"])
        tuning = kernels * settings.tvm.trials_per_task / assumed.schedules_per_second
        seconds = tuning if compiler_facts(compiler).tunes else 60 * assumed.compile_minutes
        hours[device] = hours.get(device, 0.0) + times * min(seconds, settings.time_limit_seconds) / HOUR
    return hours


# ---- files -------------------------------------------------------------------------------------------------------------


def _files(stage: WorkflowStage, made: list[Path], experiment: Experiment, assumed: Assumptions) -> int:
    """Return the number of files that jobs leave: results, logs, and times where they are recorded."""
    of_job = len(stage.files) + len(stage.also) + RECORDS_BESIDE.get(stage.name, 0) + 1 + stage.is_timed
    operators = experiment.study.n_trials if stage.name == "freeze" else 0
    layers = round(assumed.layers) if stage.name == "layers" else 1
    return len(made) * of_job + operators + layers * _built(stage, made)


def _built(stage: WorkflowStage, made: Iterable[Path]) -> int:
    """Return the number of networks, whole or by layers, that compilers build that tune."""
    tuning = tuple(f"{name}-" for name in COMPILERS if compiler_facts(name).tunes)
    return sum(file.name.startswith(tuning) for file in made) if stage.name in ("tune", "layers") else 0


def _bytes(stage: WorkflowStage, made: list[Path], experiment: Experiment, assumed: Assumptions) -> float:
    if stage.is_shared:  # a data set, which is no result
        return 0.0
    found = len(made) * (assumed.page_kib if stage.is_page else assumed.record_kib) * KIB
    if stage.name == "freeze":
        found += experiment.study.n_trials * assumed.trial_kib * KIB
    kernels = assumed.layers * assumed.layer_kernels if stage.name == "layers" else assumed.kernels
    schedules = kernels * experiment.tune.tvm.trials_per_task * assumed.schedule_kib * KIB
    return found + _built(stage, made) * (assumed.built_mib * MIB + schedules)
