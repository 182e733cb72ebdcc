# The experiments, and functions that return parts of rules from the list of stages (syno/stages/workflow_stages.py). The folder of
# results identifies an experiment.
import os
import re
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError

from syno.artifact.imported import is_published
from syno.base.errors import SynoError
from syno.config import load_experiments
from syno.measure.compilers import compiler_named
from syno.measure.tvm.settings import is_here
from syno.stages.kept import keep_config
from syno.stages.places import SCORES_FILE, SELECTED, compiler_in_files, device_named
from syno.stages.select import read_selected
from syno.stages.workflow import check_place, understand_slurm, use_this_environment
from syno.stages.workflow_stages import A_DAY, STAGES, files_on_the_way, keys


@contextmanager
def in_words():
    """Turn input errors into errors of the workflow, with the message that a command would print."""
    try:
        yield
    except SynoError as error:
        raise WorkflowError(f"error: {error}") from None


def the_experiments():
    """Return all experiments of the config, by folder."""
    name = os.path.splitext(os.path.basename(workflow.configfiles[0]))[0]
    with in_words():
        found = load_experiments(config, name, Path(workflow.configfiles[0])).values()
        for experiment in found:
            check_place(experiment.folder)
    return {str(experiment.folder): experiment for experiment in found}


EXPERIMENTS = the_experiments()
PUBLISHED = [folder for folder, experiment in EXPERIMENTS.items() if experiment.artifact is not None]
CONFIG = "{folder}/experiment.yaml"  # written when the workflow starts
ENVIRONMENTS = {kind: f"../../envs/{kind}.yaml" for kind in ("search", "train", "tune", "plot")}  # for conda

use_this_environment()
understand_slurm()


wildcard_constraints:
    folder="|".join(map(re.escape, EXPERIMENTS)),
    key=r"[\w.-]+",
    seed=r"\d+",
    compiler=r"[\w.-]+",
    device=r"[a-z0-9_.]+",
    split="train|val",


# ---- parts of rules, from the list of stages -----------------------------------------------------------------------------------


def written_by(stage):
    """Return the files that a job of a stage writes, as an output; files that other stages read come first."""
    found = (*STAGES[stage].files, *STAGES[stage].also)
    return list(found) if STAGES[stage].is_shared else [f"{{folder}}/{file}" for file in found]


def read_by(stage):
    """Return the files of other stages that a job of a stage reads, as an input function."""
    return lambda wildcards: files_of(wildcards.folder, STAGES[stage].after)


def log_of(stage):
    """Return the log file of a job."""
    return f"{{folder}}/log/{STAGES[stage].log or stage}.log"


def times_of(stage):
    """Return the file with time and memory of a job."""
    return f"{{folder}}/benchmark/{STAGES[stage].log or stage}.tsv"


def settings_of(stage):
    """Return the settings on which a stage depends as text, as a parameter."""
    return lambda wildcards: settings_text(wildcards.folder, STAGES[stage].settings)


@cache
def settings_text(folder, part):
    return EXPERIMENTS[folder].part(part)


# ---- files of an experiment ----------------------------------------------------------------------------------------------------


def files_of(folder, stages):
    """Return the files that jobs of these stages write and others read."""
    experiment, chosen = EXPERIMENTS[folder], [STAGES[name] for name in stages]
    has_networks = any(stage.is_per_network and stage.paths(experiment, keys(experiment)) for stage in chosen)
    networks = selected_keys(folder) if has_networks else []
    with in_words():
        return [str(file) for stage in chosen for file in stage.paths(experiment, networks)]


def selected_keys(folder):
    """Return the keys of the networks to train, once operators are selected. A dry run before the selection uses placeholders."""
    if workflow.dryrun and not Path(folder, SELECTED).exists():
        return keys(EXPERIMENTS[folder])
    file = Path(checkpoints.select.get(folder=folder).output[0])
    with in_words():
        return keys(EXPERIMENTS[folder], [one.key for one in read_selected(file)])


def selectable(wildcards):
    """Return the input of the selection: the frozen trials, another experiment's selection and scores, or an import."""
    source = EXPERIMENTS[wildcards.folder].select.source
    if source is None:
        return files_of(wildcards.folder, STAGES["select"].after)
    if str(source) in PUBLISHED or (str(source) not in EXPERIMENTS and is_published(source)):
        return [f"{source / file}" for file in STAGES["artifact"].files]
    return [f"{source / SELECTED}", f"{source / SCORES_FILE}"]


def ablated(wildcards):
    """Return the input of an ablation: the data that the space follows from, and for patterns the operators."""
    found = ["artifact", "freeze", "select"] if wildcards.name == "patterns" else []
    return files_of(wildcards.folder, [*STAGES["ablate"].after, *found])


def tuned_device(wildcards):
    """Return the device of a measurement."""
    return device_named(EXPERIMENTS[wildcards.folder], wildcards.device)


def tuned_compiler(wildcards):
    """Return the compiler of a measurement."""
    return compiler_in_files(EXPERIMENTS[wildcards.folder], wildcards.compiler)


def results_of(folder):
    """Return all results of an experiment, as the input of a rule without wildcards."""
    experiment = EXPERIMENTS[folder]
    per_network = [name for name, stage in STAGES.items() if stage.is_per_network]
    # Trainings of the original and the baselines need not wait for the search.
    early = STAGES["train"].paths(experiment, keys(experiment, []))
    # Snakemake makes a deleted intermediate file again only if the file is requested.
    return [*map(str, (*files_on_the_way(experiment), *early)), lambda wildcards: files_of(folder, per_network)]


include: "resources.smk"
