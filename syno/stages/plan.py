"""The plan of experiments: jobs, hours, files and storage of each stage.

Jobs and files are those of the workflow's stages. GPU hours and storage follow from assumptions, all of which can be changed.
Searches and trainings on processors are not estimated: processors differ too much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field

from syno.base.text_tables import Row, in_bytes, markdown
from syno.base.validation import Settings
from syno.config import AnyExperiment, Experiment
from syno.config.stages import rounds_of
from syno.data.settings import DATA_SETTINGS
from syno.measure.compilers import COMPILERS, compiler_facts
from syno.measure.devices import place_of
from syno.measure.tvm.targets import is_here
from syno.stages.kinds import PUBLISHED_HOURS
from syno.stages.measurements import KINDS, MeasurementKind
from syno.stages.places import compiler_in_files, device_named
from syno.stages.workflow_stages import STAGES, WorkflowStage, jobs
from syno.train.settings import TrainingSettings, WorkloadSettings

# The assumptions from which the hours and the storage of a plan follow.


Above = Annotated[float, Field(gt=0)]
TRIAL_HOURS = 0.1  # of a GPU: about what the paper gives for a sampled operator


class Assumptions(Settings):
    """The assumptions of a plan. The defaults are round figures for the paper's networks on an A100."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    pictures_per_second: Above = 550
    """pictures per second in training on one GPU, in float32 or TF32: 100 epochs of CIFAR-100 in 2.5 hours (paper: 2 to 3)"""
    mixed_precision: Above = 2.5
    """how many times as fast a GPU trains in 16 bits"""
    steps_per_second: Above = 3.3
    """steps per second in training a language model on one GPU: GPT-2's published log has 99,859 steps in 8.3 hours"""
    trial_hours: Above = TRIAL_HOURS
    """GPU hours of a trial on average, if bad ones are stopped early, and at most those of a whole training: the paper's 0.1"""
    search_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """fraction of a training that such a trial takes; by default it follows from trial_hours"""
    kernels: Above = 25
    """kernels of one network that TVM tunes"""
    layers: Above = 10
    """layers of different sizes of one network, where layers are measured by themselves: ResNet-34 has ten"""
    layer_kernels: Above = 2
    """kernels of one layer that TVM tunes"""
    schedules_per_second: Above = 1
    """schedules per second that TVM builds and measures"""
    compile_minutes: Above = 5
    """minutes for one measurement with another compiler, or of the speed of training"""
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
        device_hours: hours of measuring on processors and remote devices.
        files: number of files in the end.
        bytes: size of these files.
    """

    rule: str
    jobs: int
    gpu_hours: float | None
    device_hours: float
    files: int
    bytes: float


@dataclass(frozen=True)
class WorkflowPlan:
    """The plan of an experiment: its stages in their order, and the hours of measuring on each device."""

    experiment: AnyExperiment
    stages: tuple[StagePlan, ...]
    tuning_hours: Mapping[str, float]

    def gpu_hours(self, rule: str) -> float | None:
        """Return the GPU hours of a stage; 0 if the experiment does not have it."""
        return next((stage.gpu_hours for stage in self.stages if stage.rule == rule), 0.0)


def plans(
    experiments: Iterable[AnyExperiment],
    assumed: Assumptions | None = None,
    stages: Mapping[str, Collection[str]] | None = None,
) -> list[WorkflowPlan]:
    """Return the plans of the experiments of one workflow, if each selects as many operators as it may.

    Files that several experiments need, such as ImageNet in a fast format, are counted with the first of them.

    Args:
        experiments: the experiments.
        assumed: assumptions on the hours and the storage.
        stages: the stages of each experiment that have jobs, by its name, as `stages_asked_for` returns them; by default all.
    """
    made, found = set[Path](), list[WorkflowPlan]()
    for experiment in experiments:
        asked = STAGES if stages is None else stages.get(experiment.name, ())
        each = {rule: files for rule, files in jobs(experiment).items() if rule in asked}
        new = {rule: [file for file in files if file not in made] for rule, files in each.items()}
        found.append(_plan(experiment, {rule: files for rule, files in new.items() if files}, assumed or Assumptions()))
        made.update(file for files in new.values() for file in files)
    return found


def plan(experiment: AnyExperiment, assumed: Assumptions | None = None) -> WorkflowPlan:
    """Return the plan of one experiment."""
    return plans([experiment], assumed)[0]


def workload_of(experiment: AnyExperiment) -> WorkloadSettings | None:
    """Return the workload of an experiment; None if it has none."""
    return experiment.workload if isinstance(experiment, Experiment) else None


def _plan(experiment: AnyExperiment, written: Mapping[str, list[Path]], assumed: Assumptions) -> WorkflowPlan:
    by_stage: dict[str, dict[str, float]] = {}
    hours: dict[str, float | None] = {}
    if isinstance(experiment, Experiment):
        by_stage = {kind.name: _measuring_hours(kind, experiment, assumed) for kind in KINDS.values()}
        by_stage["speedup"] = _tuning_hours(experiment, "speedup", assumed.kernels, 1 + experiment.select.most, assumed)
        trains, searches = written.get("train"), experiment.searches and experiment.evaluation == "training"
        hours["worker"] = _search_hours(experiment, assumed) if searches else 0.0
        hours["train"] = _hours(_training(experiment), experiment, assumed, len(trains)) if trains else 0.0
    on_gpus = {stage: sum(of[device] for device in of if is_here(device) and device != "cpu") for stage, of in by_stage.items()}
    hours |= on_gpus
    stages = [
        StagePlan(
            rule,
            len(files),
            hours.get(rule, 0.0),
            sum(by_stage[rule].values()) - on_gpus[rule] if rule in by_stage else 0.0,
            _files(STAGES[rule], files, experiment, assumed),
            _bytes(STAGES[rule], files, experiment, assumed),
        )
        for rule, files in written.items()
    ]
    devices = dict.fromkeys(device for of in by_stage.values() for device in of)
    return WorkflowPlan(
        experiment, tuple(stages), {device: sum(of.get(device, 0.0) for of in by_stage.values()) for device in devices}
    )


def training_hours(settings: TrainingSettings, pictures: int | None, assumed: Assumptions) -> float | None:
    """Return the hours of one whole training on a GPU; 0 on a processor; None if unknown.

    Args:
        settings: settings of the training.
        pictures: pictures in an epoch; None for text, and if unknown.
        assumed: assumptions on the speed.
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
    """Return the GPU hours of `count` trainings with these settings; None if unknown."""
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
    if not workload.milestones and study.stopping is None:
        return None if whole is None else count * whole
    if assumed.search_share is not None:
        return None if whole is None else count * whole * assumed.search_share
    return count * (assumed.trial_hours if whole is None else min(whole, assumed.trial_hours))


def _measured_on(name: str, experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Yield compiler and device of each job of a stage before anything is selected; the compiler is "" if it has none."""
    stage = STAGES[name]
    for job in stage.jobs(experiment, stage.networks(experiment)):
        compiler = job.get("compiler")
        yield "" if compiler is None else compiler_in_files(experiment, compiler), device_named(experiment, job["device"])


def _measuring_hours(kind: MeasurementKind, experiment: Experiment, assumed: Assumptions) -> dict[str, float]:
    """Return the hours of a kind of measurements, by device."""
    if kind.has_compiler:
        kernels, times = (assumed.layer_kernels, assumed.layers) if kind.is_by_layer else (assumed.kernels, 1)
        return _tuning_hours(experiment, kind.name, kernels, times, assumed)
    jobs_on = Counter(device for _, device in _measured_on(kind.name, experiment))
    return {device: count * assumed.compile_minutes / 60 for device, count in jobs_on.items()}


def _tuning_hours(experiment: Experiment, stage: str, kernels: float, times: float, assumed: Assumptions) -> dict[str, float]:
    """Return the hours of measurements, by device.

    Args:
        experiment: the experiment.
        stage: the name of the stage that measures.
        kernels: number of kernels that TVM tunes in each network or layer.
        times: number of networks or layers that a job measures one after another.
        assumed: assumptions on the speed.
    """
    settings, hours = experiment.tune, dict[str, float]()
    for compiler, device in _measured_on(stage, experiment):
        tuning = kernels * settings.tvm.trials_per_task / assumed.schedules_per_second
        seconds = tuning if compiler_facts(compiler).tunes else 60 * assumed.compile_minutes
        hours[device] = hours.get(device, 0.0) + times * min(seconds, settings.time_limit_seconds) / HOUR
    return hours


def data_to_make(workload: WorkloadSettings) -> float:
    """Return the bytes of files that Syno makes from a data set, such as decoded pictures; 0 if unknown."""
    kind = DATA_SETTINGS.get(workload.data)
    return 0.0 if kind is None else kind.of(**workload.data_settings).made_bytes


def _files(stage: WorkflowStage, made: list[Path], experiment: AnyExperiment, assumed: Assumptions) -> int:
    """Return the number of files that a stage's jobs leave: results, logs, and recorded times of jobs."""
    of_job = len(stage.files) + len(stage.also) + RECORDS_BESIDE.get(stage.name, 0) + 1 + stage.is_timed
    operators = experiment.study.n_trials if stage.name == "freeze" and isinstance(experiment, Experiment) else 0
    layers = round(assumed.layers) if stage.name == "layers" else 1
    return len(made) * of_job + operators + layers * _built(stage, made)


def _built(stage: WorkflowStage, made: Iterable[Path]) -> int:
    """Return the number of networks, whole or by layers, that compilers build that tune."""
    tuning = tuple(f"{name}-" for name in COMPILERS if compiler_facts(name).tunes)
    return sum(file.name.startswith(tuning) for file in made) if stage.name in ("tune", "layers") else 0


def _bytes(stage: WorkflowStage, made: list[Path], experiment: AnyExperiment, assumed: Assumptions) -> float:
    if stage.is_shared:  # a data set, which is no result
        return 0.0
    found = len(made) * (assumed.page_kib if stage.is_page else assumed.record_kib) * KIB
    if not isinstance(experiment, Experiment):
        return found
    if stage.name == "freeze":
        found += experiment.study.n_trials * assumed.trial_kib * KIB
    kernels = assumed.layers * assumed.layer_kernels if stage.name == "layers" else assumed.kernels
    schedules = kernels * experiment.tune.tvm.trials_per_task * assumed.schedule_kib * KIB
    return found + _built(stage, made) * (assumed.built_mib * MIB + schedules)


# A plan as Markdown tables: by stage, by experiment, and beside published hours.


UNKNOWN = "unknown"


def plan_text(plans: Sequence[WorkflowPlan], assumed: Assumptions, gpus: int | None = None) -> str:
    """Return all tables of the plans in Markdown; with `gpus`, also lower bounds of the days on so many GPUs."""
    return "\n".join(
        (
            markdown(stage_rows(plans)),
            markdown(experiment_rows(plans)),
            markdown(published_rows(plans), left=2),
            *([] if gpus is None else [markdown(day_rows(plans, gpus))]),
            markdown(storage_rows(plans), left=2),
            f"Assumed (`--assume NAME=VALUE`):\n\n{markdown(assumption_rows(assumed), left=2)}",
        )
    )


def stage_rows(plans: Iterable[WorkflowPlan]) -> list[Row]:
    """Return a row for each stage of all experiments together, and one for their sum."""
    stages = [stage for one in plans for stage in one.stages]
    rows: list[Row] = []
    for name in [*sorted({stage.rule for stage in stages}, key=list(STAGES).index), "all"]:
        found = [stage for stage in stages if name in (stage.rule, "all")]
        row = {
            "stage": name,
            "jobs": sum(stage.jobs for stage in found),
            "GPU hours": _sum(stage.gpu_hours for stage in found),
            "hours of other devices": _rounded(sum(stage.device_hours for stage in found)),
            "files": sum(stage.files for stage in found),
            "MiB": _rounded(sum(stage.bytes for stage in found) / MIB),
        }
        rows.append(row)
    return rows


def experiment_rows(plans: Iterable[WorkflowPlan]) -> list[Row]:
    """Return a row for each experiment: jobs, GPU hours, hours on devices, files, storage."""
    return [
        {
            "experiment": one.experiment.name,
            "jobs": sum(stage.jobs for stage in one.stages),
            "GPU hours: search": _rounded(one.gpu_hours("worker")),
            "training": _rounded(one.gpu_hours("train")),
            "tuning": _sum(
                one.gpu_hours(rule) for rule in (*(kind.name for kind in KINDS.values() if kind.has_compiler), "speedup")
            ),
            "hours of other devices": _rounded(sum(stage.device_hours for stage in one.stages)),
            "files": sum(stage.files for stage in one.stages),
            "MiB": _rounded(sum(stage.bytes for stage in one.stages) / MIB),
        }
        for one in plans
    ]


def published_rows(plans: Sequence[WorkflowPlan]) -> list[Row]:
    """Return rows for each search, the trainings of its operators, all trainings, and each device, beside published hours."""
    roots = _roots([one.experiment for one in plans])
    rows: list[Row] = []
    for one in plans:
        if one.experiment.searches and workload_of(one.experiment) is not None:
            rows.append(_beside("search", one.experiment.name, one.gpu_hours("worker")))
    for root in dict.fromkeys(roots.values()):
        found = [one for one in plans if roots[one.experiment.folder] == root and workload_of(one.experiment) is not None]
        found = [one for one in found if any(stage.rule == "train" for stage in one.stages)]
        if found:
            names = ", ".join(one.experiment.name for one in found)
            hours = _sum(one.gpu_hours("train") for one in found)
            rows.append({**_beside("training", names, hours), **dict.fromkeys(PUBLISHED_HOURS)})  # theirs are of all
    rows.append(_beside("training", "all", _sum(one.gpu_hours("train") for one in plans)))
    return [*rows, *(_beside("tuning", device, hours) for device, hours in _hours_by_device(plans).items())]


def _hours_by_device(plans: Iterable[WorkflowPlan]) -> dict[str, float]:
    devices: dict[str, float] = {}
    for one in plans:
        for device, hours in one.tuning_hours.items():
            devices[device] = devices.get(device, 0.0) + hours
    return devices


def day_rows(plans: Sequence[WorkflowPlan], gpus: int) -> list[Row]:
    """Return lower bounds of the days of a whole run on a machine with `gpus` GPUs; the last row is the largest bound.

    Jobs on GPUs run at the same time. A measurement on the processor runs alone on the machine, and each other machine measures
    one network at a time. What follows from an experiment waits for it.
    """
    devices = _hours_by_device(plans)
    on_processor = devices.get("cpu", 0.0)
    on_gpus = [stage.gpu_hours for one in plans for stage in one.stages]
    bounds: dict[str, float | None] = {
        f"jobs on {gpus} GPUs, and measurements on the processor": (
            None if None in on_gpus else sum(filter(None, on_gpus)) / gpus + on_processor
        ),
        **{f"measurements on {place}": hours for place, hours in _hours_by_place(plans, devices).items()},
    }
    chains = _chains(plans, gpus)
    if chains:
        names, hours = max(chains.items(), key=lambda chain: chain[1] or 0.0)
        bounds[f"the longest chain: {', then '.join(names)}"] = None if None in chains.values() else hours
    known = [hours for hours in bounds.values() if hours is not None]
    least = max(known, default=0.0) if len(known) == len(bounds) else None
    return [{"what takes time": what, "days": _in_days(hours)} for what, hours in (*bounds.items(), ("all, at least", least))]


def _hours_by_place(plans: Iterable[WorkflowPlan], devices: Mapping[str, float]) -> dict[str, float]:
    """Return the hours of measurements by host or key at a tracker, each of which measures one network at a time."""
    experiments = [one.experiment for one in plans if isinstance(one.experiment, Experiment)]
    described = {name: device for experiment in experiments for name, device in experiment.tune.remote_devices.items()}
    found: dict[str, float] = {}
    for name, hours in devices.items():
        if name in described:
            place = place_of(name, described[name])
            found[place] = found.get(place, 0.0) + hours
    return found


def _in_days(hours: float | None) -> float | str:
    return UNKNOWN if hours is None else float(f"{hours / 24:.2g}")


def _chains(plans: Sequence[WorkflowPlan], gpus: int) -> dict[tuple[str, ...], float | None]:
    """Return the hours of each chain of experiments, by the names in it: an experiment after those whose operators it takes."""
    by_folder = {one.experiment.folder: one for one in plans}

    def chain(plan: WorkflowPlan) -> tuple[tuple[str, ...], float | None]:
        before = next((by_folder[source] for source in plan.experiment.sources if source in by_folder), None)
        names, hours = ((), 0.0) if before is None else chain(before)
        own = _alone(plan, gpus)
        return (*names, plan.experiment.name), None if hours is None or own is None else hours + own

    return dict(map(chain, (one for one in plans if workload_of(one.experiment) is not None)))


def _alone(plan: WorkflowPlan, gpus: int) -> float | None:
    """Return the hours of an experiment if nothing else runs: its search, its measurements, its trainings."""
    search, training = plan.gpu_hours("worker"), plan.gpu_hours("train")
    assert isinstance(plan.experiment, Experiment)
    if search is None or training is None:
        return None
    jobs = next((stage.jobs for stage in plan.stages if stage.rule == "train"), 0)
    trained = training / jobs * ceil(jobs / gpus) if jobs else 0.0
    on_devices = [hours / (gpus if is_here(name) and name != "cpu" else 1) for name, hours in plan.tuning_hours.items()]
    measured = max(on_devices, default=0.0)
    waits = plan.experiment.select.by == "latency"  # only the fastest are trained
    return search / min(gpus, plan.experiment.study.workers) + (measured + trained if waits else max(measured, trained))


def storage_rows(plans: Sequence[WorkflowPlan]) -> list[Row]:
    """Return rows for the storage: results, downloaded data, files made from the data, and their sum."""
    rows = [("results", "", sum(stage.bytes for one in plans for stage in one.stages))]
    workloads = {workload.data: workload for one in plans if (workload := workload_of(one.experiment)) is not None}
    for name, workload in workloads.items():
        kind = DATA_SETTINGS.get(name)
        if kind is not None and kind.source_bytes:
            rows.append((f"data {name}", "to get" + kind.source_note, kind.source_bytes))
            rows.append((f"data {name}", "made of it", data_to_make(workload)))
    found = [row for row in rows if row[2]]
    found.append(("all", "", sum(size for _, _, size in found)))
    return [{"storage": what, "of": of, "size": in_bytes(size)} for what, of, size in found]


def assumption_rows(assumed: Assumptions) -> list[Row]:
    """Return a row for each assumption."""
    fields = Assumptions.model_fields
    return [{"name": name, "what": fields[name].description, "value": value} for name, value in assumed.model_dump().items()]


def _beside(quantity: str, of: str, hours: float | None) -> Row:
    published = {head: by_quantity[quantity] for head, by_quantity in PUBLISHED_HOURS.items()}
    return {"what": quantity, "of": of, "hours": _summed([hours]), **published}


def _summed(hours: Iterable[float | None]) -> float | str:
    """Return the sum, with two digits where it is small; "unknown" if one of the hours is."""
    found = list(hours)
    known = [one for one in found if one is not None]
    total = sum(known)
    return UNKNOWN if len(known) < len(found) else float(f"{total:.2g}") if total < 1 else _rounded(total) or 0


def _roots(experiments: Sequence[AnyExperiment]) -> dict[Path, Path]:
    """Return the folder of the search that the operators come from, for the folder of each experiment."""
    sources = {experiment.folder: experiment.sources for experiment in experiments if isinstance(experiment, Experiment)}

    def root(folder: Path) -> Path:
        return root(sources[folder][0]) if sources.get(folder) else folder

    return {experiment.folder: root(experiment.folder) for experiment in experiments}


def _sum(hours: Iterable[float | None]) -> float | None:
    """Return the sum of hours; None if one of them is unknown."""
    found = list(hours)
    known = [one for one in found if one is not None]
    return _rounded(sum(known)) if len(known) == len(found) else None


def _rounded(value: float | None) -> float | int | None:
    """Round a number of hours or days for a table: to whole numbers from ten on, to one decimal below."""
    if value is None:
        return None
    return round(value) if value >= 10 else round(value, 1)
