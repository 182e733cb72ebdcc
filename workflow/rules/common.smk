# The experiments, and what all rules share. `{folder}` is an experiment's folder of results, `{key}` a network: the id of the operator
# in it, `original`, or a baseline's name.
import re

from snakemake.exceptions import WorkflowError

try:
    from syno.base.files import ORIGINAL
    from syno.stages.workflow.experiments import read_experiments
    from syno.stages.workflow.inputs import JobFiles
    from syno.stages.workflow.process import input_errors, use_this_environment
    from syno.stages.workflow.resources import JobResources
    from syno.stages.workflow.run import WorkflowRun
    from syno.stages.workflow.slurm import understand_slurm
    from syno.stages.workflow_stages import STAGES
except ImportError as error:
    raise WorkflowError(f'this workflow takes the package Syno: pip install "syno-operators[workflow]" ({error})') from None

with input_errors():
    EXPERIMENTS = read_experiments(workflow, config)
FILES = JobFiles(workflow, checkpoints, EXPERIMENTS)  # what jobs read
JOBS = JobResources(workflow, EXPERIMENTS)  # what they take
RUN = WorkflowRun(workflow, EXPERIMENTS)
CONFIG = "{folder}/experiment.yaml"  # written when the workflow starts
HAS_PAPER = "artifact" in STAGES  # the extension with the reproduction of the paper is installed
NONE = "(?!)"  # matches no folder

use_this_environment()
understand_slurm()


wildcard_constraints:
    folder="|".join(map(re.escape, EXPERIMENTS)),
    key=r"[\w.-]+",
    seed=r"\d+",
    compiler=r"[\w.-]+",
    device=r"[a-z0-9_.]+",
    split="train|val",


resource_scopes:
    drawing="local",


def read(files, *arguments):
    """Return the files that a function of the library names; before the first, results are looked over."""
    RUN.plan()
    with input_errors():
        return files(*arguments)


def files_of(wildcards, *stages):
    """Return the files that the jobs of these stages write and others read, as far as the experiment has them."""
    return read(FILES.of, wildcards.folder, *stages)


def settings_of(part):
    """Return a function for the settings that files depend on, as text: if these change, the files are made again."""
    return lambda wildcards: FILES.settings(wildcards.folder, part, getattr(wildcards, "key", ""))


def measured_remotely(wildcards):
    """Return for which remote device a measurement is; None on this machine."""
    return EXPERIMENTS[wildcards.folder].tune.made_for(JOBS.device(wildcards))


# The input of rules, as far as it depends on the experiment.


def converted_files(wildcards):
    """Return the files of FFCV, if the experiment reads such."""
    return files_of(wildcards, "convert")


def experiments_before(wildcards):
    """Return the tables of experiments that go first. They only have to be there: commands say what differs."""
    return ancient(read(FILES.experiments_before, wildcards.folder))


def data_of_search(wildcards):
    """Return the record of the stage `data`; a search by costs alone has none."""
    return files_of(wildcards, "data")


def rivals_before(wildcards):
    """Return the rivals that a search begins with. They only have to be there: a study keeps what it knows of them."""
    return ancient(read(FILES.rivals_before, wildcards.folder))


def workers(wildcards):
    """Return the records of all workers of a search."""
    return files_of(wildcards, "worker")


def selectable(wildcards):
    """Return the files that operators come from: frozen trials, another experiment's selection and scores, or an import."""
    return read(FILES.selectable, wildcards.folder)


def selected_from(wildcards):
    """Return what operators are chosen from; by latency, the shortlist and its measurements."""
    return read(FILES.selected_from, wildcards.folder)


def training_settings(wildcards):
    """Return the settings of a training; only the original network may also be tested in 8-bit integers."""
    in_int8 = wildcards.key == ORIGINAL and EXPERIMENTS[wildcards.folder].train.int8
    return settings_of("train")(wildcards) + " int8" * in_int8


def original_before(wildcards):
    """Return the training of the original that a training begins with, if any."""
    return read(FILES.original_before, wildcards.folder, wildcards.key, wildcards.seed)


def trained_before(wildcards):
    """Return the trainings that a rival begins with; of a mixture, also the choice of operators."""
    return read(FILES.trained_before, wildcards.folder, wildcards.rival)


def records(wildcards):
    """Return the records of all networks."""
    return files_of(wildcards, "speedup", "choose", "train", "rival", "tune", "layers", "breakdown", "speed")


def drawn(wildcards):
    """Return what figures are drawn from: the frozen trials, the tables, and what extensions add."""
    return files_of(wildcards, *STAGES["figure"].after)


def shown(wildcards):
    """Return what the page shows: the trials, the selection, tables, figures, and what extensions add."""
    return files_of(wildcards, *STAGES["report"].after)


onstart:
    with input_errors():
        RUN.start()


onsuccess:  # Snakemake runs only the last `onsuccess` of all files
    with input_errors():
        RUN.end(complete=True)


onerror:
    with input_errors():
        RUN.end(complete=False)
