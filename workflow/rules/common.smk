# The experiments, and functions that return parts of rules from the list of stages (syno/stages/workflow_stages.py). The folder of
# results identifies an experiment.
import os
import re
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError

from syno.base.errors import SynoError
from syno.base.files import ORIGINAL
from syno.base.identity import OWN_CODE, version_of_code
from syno.config import load_experiments
from syno.config.files import run_here
from syno.config.left_out import undecided
from syno.measure.compilers import compiler_facts
from syno.measure.devices import SshSettings, place_of
from syno.measure.tvm.targets import is_here
from syno.model.networks import Network
from syno.stages.fastest import compared_measurements
from syno.stages.kept import keep_config
from syno.stages.kinds import source_of
from syno.stages.measurements import KINDS
from syno.stages.select import compared_trainings
from syno.stages.places import RIVAL, SCORES_FILE, SELECTED, compiler_in_files, device_named, training_file
from syno.stages.selection import read_selected
from syno.stages.train import trained_original
from syno.stages.workflow import (
    MEASURED,
    asks_for_other_machines,
    check_place,
    understand_slurm,
    use_this_environment,
)
from syno.stages.workflow_stages import A_DAY, MOST_MIB, STAGES, files_on_the_way, grown, has_operators


@contextmanager
def in_words():
    """Turn input errors into errors of the workflow, with the message that a command would print."""
    try:
        yield
    except SynoError as error:
        raise WorkflowError(f"error: {error}") from None


ELSEWHERE = asks_for_other_machines(workflow)  # jobs run on nodes of a cluster, each with its own cores


def the_experiments():
    """Return all experiments of the config, by folder."""
    name = os.path.splitext(os.path.basename(workflow.configfiles[0]))[0]
    with in_words():
        found = load_experiments(config, name, Path(workflow.configfiles[0])).values()
        for experiment in found:
            check_place(experiment.use_code().folder)
        run_here(experiment.folder for experiment in found)
        if workflow.is_main_process and any(map(undecided, found)):  # jobs find what was decided in a file
            from syno.stages.needs import with_devices

            found = with_devices(found, elsewhere=ELSEWHERE)
    return {str(experiment.folder): experiment for experiment in found}


EXPERIMENTS = the_experiments()
JOINED = [folder for folder, experiment in EXPERIMENTS.items() if experiment.option == "join"]
PUBLISHED = [folder for folder, experiment in EXPERIMENTS.items() if experiment.option == "artifact"]
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
    return lambda wildcards: settings_text(wildcards.folder, STAGES[stage].settings, getattr(wildcards, "key", ""))


def training_settings(wildcards):
    """Return the settings on which a training depends, as text; only the original network may also be tested in 8-bit integers."""
    in_int8 = wildcards.key == ORIGINAL and EXPERIMENTS[wildcards.folder].train.int8
    return settings_text(wildcards.folder, STAGES["train"].settings, wildcards.key) + " int8" * in_int8


@cache
def settings_text(folder, part, key=""):
    """Return the settings of a stage as text, with a checksum of own code in them, and in the baseline of this key."""
    experiment = EXPERIMENTS[folder]
    baseline = experiment.baselines.get(key) if key else None
    own = {} if baseline is None else version_of_code(baseline.operator)
    return experiment.part(part, code=True) + own.get(OWN_CODE, "")


# ---- files of an experiment ----------------------------------------------------------------------------------------------------


def files_of(folder, stages):
    """Return the files that jobs of these stages write and others read."""
    experiment = EXPERIMENTS[folder]
    with in_words():
        return [str(file) for name in stages for file in STAGES[name].paths(experiment, networks_for(folder, STAGES[name]))]


def networks_for(folder, stage):
    """Return the keys of the networks of a stage's jobs, once operators are selected; none if it has no such jobs."""
    experiment = EXPERIMENTS[folder]
    if not (stage.is_per_network and stage.paths(experiment, stage.networks(experiment))):
        return []
    if stage.is_of_shortlist and experiment.compares_latencies:
        return stage.networks(experiment, shortlisted=chosen_keys(folder, "shortlist"))
    return stage.networks(experiment, selected=chosen_keys(folder, "select"))


def chosen_keys(folder, stage):
    """Return the keys of the operators that a checkpoint chose. In a dry run before it, None: they are not known."""
    if workflow.dryrun and not Path(folder, STAGES[stage].files[0]).exists():
        return None
    file = Path(getattr(checkpoints, stage).get(folder=folder).output[0])
    with in_words():
        return [one.key for one in read_selected(file)]


def selectable(wildcards):
    """Return what operators are chosen from: the frozen trials, another experiment's selection and scores, or an import."""
    experiment = EXPERIMENTS[wildcards.folder]
    source = experiment.select.source
    if source is None:
        return [*files_of(wildcards.folder, ["freeze"]), *map(str, compared_trainings(experiment))]
    if str(source) in PUBLISHED or (str(source) not in EXPERIMENTS and source_of(source) is not None):
        return [f"{source / file}" for file in STAGES["artifact"].files]
    return [f"{source / SELECTED}", f"{source / SCORES_FILE}"]


def before_the_data(wildcards):
    """Return the input of the stage `data`: files that other formats are made of, and the tables of an experiment that goes first.

    These only have to be there. If they change, so that another operator would be taken, commands say what differs.
    """
    first = [f"{folder / SCORES_FILE}" for folder in EXPERIMENTS[wildcards.folder].goes_first]
    return [*files_of(wildcards.folder, STAGES["data"].after), *map(ancient, first)]


def joinable(wildcards):
    """Return the input of joined results: the tables of other experiments, and those in other folders as they are."""
    found = []
    for folder in map(str, EXPERIMENTS[wildcards.folder].sources):
        of_stages = ["artifact", "tables", "ablate", "join"]
        found += files_of(folder, of_stages) if folder in EXPERIMENTS else [f"{folder}/{MEASURED}"]
    return found


def selected_from(wildcards):
    """Return the input of the selection: what operators are chosen from; by latency, the shortlist and its measurements."""
    folder = wildcards.folder
    if not EXPERIMENTS[folder].compares_latencies:
        return selectable(wildcards)
    listed = chosen_keys(folder, "shortlist")
    if listed is None:  # in a dry run
        return files_of(folder, ["shortlist", "tune"])
    return [*files_of(folder, ["shortlist"]), *map(str, compared_measurements(EXPERIMENTS[folder], listed))]


def trained_before(wildcards):
    """Return the records of the trainings that a rival begins with: of the original, or of the network whose numbers it changes.

    A mixture also begins with the choice of operators.
    """
    experiment, name = EXPERIMENTS[wildcards.folder], wildcards.rival
    is_mixture = name in experiment.mixture_names
    key = ORIGINAL if is_mixture or name in experiment.rival_names else Network.parse(name).name
    found = [str(training_file(experiment, key, seed)) for seed in experiment.train.seeds]
    return [*found, *(files_of(wildcards.folder, ["choose"]) if is_mixture else [])]


def rivals_before(wildcards):
    """Return the records of the rivals that a search begins with, if any.

    These only have to be there: a study keeps what it knows of them, whatever becomes of the records.
    """
    experiment = EXPERIMENTS[wildcards.folder]
    names = experiment.rival_names if experiment.begins_with_rivals else ()
    return [ancient(f"{experiment.folder / RIVAL.format(rival=name)}") for name in names]


def original_before(wildcards):
    """Return the record of the training of the original that a training begins with, if any."""
    with in_words():
        found = trained_original(EXPERIMENTS[wildcards.folder], wildcards.key, int(wildcards.seed))
    return [] if found is None else [str(found)]


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


def params_of(kind):
    """Return the parameters of the jobs of a kind of measurements."""
    found = {"config": CONFIG, "settings": settings_of(kind.name)}
    if kind.of_original:  # on remote devices, too
        found["remote"] = lambda wildcards: EXPERIMENTS[wildcards.folder].tune.made_for(tuned_device(wildcards))
    return {**found, "device": tuned_device, **({"compiler": tuned_compiler} if kind.has_compiler else {})}


def results_of(folder):
    """Return all results of an experiment, as the input of a rule without wildcards."""
    experiment = EXPERIMENTS[folder]
    per_network = [name for name, stage in STAGES.items() if stage.is_per_network]
    # Trainings of the original and the baselines, and rivals, need not wait for the search.
    early = [*STAGES["train"].paths(experiment, STAGES["train"].networks(experiment, [])), *STAGES["rival"].paths(experiment)]
    # Snakemake makes a deleted intermediate file again only if the file is requested.
    return [*map(str, (*files_on_the_way(experiment), *early)), lambda wildcards: files_of(folder, per_network)]


include: "resources.smk"
