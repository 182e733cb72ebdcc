# The experiments, and what several rules need of them. An experiment is known by its folder of results.
import os
import re
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from snakemake.exceptions import WorkflowError

from syno.config import load_experiments
from syno.base.errors import SynoError
from syno.measure.compilers import TVM
from syno.measure.tvm.devices import is_here
from syno.stages import figures as drawing
from syno.stages import jobs as planning
from syno.stages import select as selection
from syno.stages.data import files_to_convert
from syno.stages.kept import keep_config
from syno.stages.places import device_named
from syno.artifact.published_experiment import is_published
from syno.stages.slurm import understand_slurm
from syno.stages.source import SCORES
from syno.stages.workflow import check_place, use_this_environment


@contextmanager
def in_words():
    """What is wrong with the input ends the workflow with the message that a command would give."""
    try:
        yield
    except SynoError as error:
        raise WorkflowError(f"error: {error}") from None


def the_experiments():
    """All experiments of the config, by folder."""
    name = os.path.splitext(os.path.basename(workflow.configfiles[0]))[0]
    with in_words():
        found = load_experiments(config, name, Path(workflow.configfiles[0])).values()
        for experiment in found:
            check_place(experiment.folder)
    return {str(experiment.folder): experiment for experiment in found}


EXPERIMENTS = the_experiments()
PUBLISHED = [folder for folder, experiment in EXPERIMENTS.items() if experiment.artifact is not None]
CONFIG = "{folder}/experiment.yaml"  # written when the workflow starts
ENVIRONMENTS = {kind: f"../../envs/{kind}.yaml" for kind in ("search", "train", "tune", "plot")}  # of conda

use_this_environment()
understand_slurm()


wildcard_constraints:
    folder="|".join(map(re.escape, EXPERIMENTS)),
    key=r"[\w.-]+",
    seed=r"\d+",
    compiler=r"[a-z-]+",
    device=r"[a-z0-9_.]+",
    split="train|val",


def settings_of(stage):
    """A parameter: what a stage depends on in its experiment."""
    return lambda wildcards: settings_text(wildcards.folder, stage)


@cache
def settings_text(folder, stage):
    """The same, for one folder."""
    return EXPERIMENTS[folder].part(stage)


def converted(wildcards):
    """The files that pictures are read from, where they have to be made first."""
    with in_words():
        return [str(file) for file in files_to_convert(EXPERIMENTS[wildcards.folder])]


def network_record(wildcards):
    """The record of the data and the network; nothing where none is trained."""
    return [] if EXPERIMENTS[wildcards.folder].workload is None else f"{wildcards.folder}/data.json"


def worker_records(wildcards):
    """Those of all workers of a study."""
    return list(map(str, planning.worker_files(EXPERIMENTS[wildcards.folder])))


def selectable(wildcards):
    """What is selected from: the frozen trials, or what another experiment has come to, or what was imported."""
    source = EXPERIMENTS[wildcards.folder].select.source
    if source is None:
        return f"{wildcards.folder}/trials.parquet"
    if str(source) in PUBLISHED or (str(source) not in EXPERIMENTS and is_published(source)):
        return imported(source)
    return [f"{source / selection.FILE}", f"{source / SCORES}"]


def imported(folder):
    """What an import writes that others read."""
    return [f"{folder}/artifact.json", f"{folder}/tables/measurements.parquet", f"{folder}/tables/losses.parquet"]


def drawable(wildcards):
    """What figures are drawn of: an import; or the frozen trials if there was a search, the tables if there were trainings."""
    experiment = EXPERIMENTS[wildcards.folder]
    if wildcards.folder in PUBLISHED:
        return imported(wildcards.folder)
    trials = [f"{wildcards.folder}/trials.parquet"] if experiment.searches else []
    tables = [f"{wildcards.folder}/{SCORES}", f"{wildcards.folder}/tables/latency.parquet"]
    return trials if experiment.workload is None else [*trials, *tables]


def reportable(wildcards):
    """What a page is of, beside figures and what they are drawn of."""
    folder = wildcards.folder
    return f"{folder}/tables/headlines.parquet" if folder in PUBLISHED else f"{folder}/{selection.FILE}"


def tuned_device(wildcards):
    """The device that a name of a file means."""
    return device_named(EXPERIMENTS[wildcards.folder], wildcards.device)


def figures_of(folder):
    """All figures of an experiment."""
    return list(map(str, planning.figure_files(EXPERIMENTS[folder])))


def made_on_the_way(folder):
    """The files between the data and the figures, which would else not be missed when one of them was taken away."""
    experiment = EXPERIMENTS[folder]
    formats = [f"{folder}/figures/{name}.{ending}" for name in drawing.names(experiment) for ending in drawing.FORMATS]
    if folder in PUBLISHED:
        names = ("measurements", "losses", "headlines")
        tables = [f"{folder}/tables/{name}.{ending}" for name in names for ending in ("parquet", "csv")]
        return [*formats, *imported(folder), f"{folder}/measurements.json", *tables]
    of_folder = SimpleNamespace(folder=folder)  # as wildcards have it
    searched = [f"{folder}/trials.parquet", *worker_records(of_folder)] if experiment.searches else []
    if experiment.workload is None:
        return [*formats, *searched]
    tables = [f"{folder}/tables/{name}.{ending}" for name in ("scores", "latency") for ending in ("parquet", "csv")]
    return [*formats, *searched, f"{folder}/data.json", *tables]


def selected_keys(folder):
    """The original, the baselines, and the operators that were selected, once they are. A dry run before that makes names up."""
    if workflow.dryrun and not Path(folder, selection.FILE).exists():
        return planning.keys(EXPERIMENTS[folder])
    file = Path(checkpoints.select.get(folder=folder).output[0])
    with in_words():
        return planning.keys(EXPERIMENTS[folder], [one.key for one in selection.read_selected(file)])


def trainings_of(folder, keys):
    """The records of the trainings of these."""
    return list(map(str, planning.training_files(EXPERIMENTS[folder], keys)))


def trainings(wildcards):
    """The records of all trainings of an experiment."""
    return trainings_of(wildcards.folder, selected_keys(wildcards.folder))


def measurements(wildcards):
    """The records of all measurements of an experiment."""
    folder = wildcards.folder
    return list(map(str, planning.tuning_files(EXPERIMENTS[folder], selected_keys(folder))))


def results_of(folder):
    """All that there is to be of an experiment, as the input of a rule without wildcards."""
    experiment = EXPERIMENTS[folder]
    shown = [f"{folder}/report.html", *made_on_the_way(folder)]
    if experiment.workload is None:
        return shown
    early = trainings_of(folder, planning.keys(experiment, []))  # they need not wait for the search
    of_folder = SimpleNamespace(folder=folder)  # as wildcards have it
    # Without these two, one that was taken away would not be missed.
    return [*shown, *early, lambda wildcards: trainings(of_folder), lambda wildcards: measurements(of_folder)]


include: "resources.smk"
