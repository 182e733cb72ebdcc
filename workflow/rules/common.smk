# The experiment, and what several rules need of it.
import os
from contextlib import contextmanager
from pathlib import Path

from snakemake.exceptions import WorkflowError

from syno.config import Experiment
from syno.errors import SynoError
from syno.evaluate.settings import ORIGINAL
from syno.stages import figures as drawing
from syno.stages.places import device_named, keep_config, training_file, tuning_file
from syno.stages.select import read_selected
from syno.stages.workflow import check_place, use_this_environment


@contextmanager
def in_words():
    """What is wrong with the input ends the workflow with the message that a command would give."""
    try:
        yield
    except SynoError as error:
        raise WorkflowError(f"error: {error}") from None


def the_experiment():
    """The experiment, read from the config."""
    name = os.path.splitext(os.path.basename(workflow.configfiles[0]))[0]
    with in_words():
        experiment = Experiment(**{"name": name, **config})
        check_place(experiment.folder)
    return experiment


EXPERIMENT = the_experiment()
RESULTS = str(EXPERIMENT.folder)
CONFIG = f"{RESULTS}/experiment.yaml"  # written when the workflow starts
TRAINS = EXPERIMENT.workload is not None
ALL_CORES = workflow.resource_settings.cores or 1
ENVIRONMENT = "../../envs/syno.yaml"

use_this_environment()


wildcard_constraints:
    key=r"[\w.-]+",
    seed=r"\d+",
    compiler=r"[a-z-]+",
    device=r"[a-z0-9_.]+",


def more_memory(wildcards, attempt):
    """Of a job, in MiB: twice as much in each new attempt."""
    return 4000 * 2 ** (attempt - 1)


def selected_keys(wildcards):
    """The original, the baselines, and the operators that were selected, once they are."""
    selection = Path(checkpoints.select.get().output[0])
    with in_words():
        return [ORIGINAL, *EXPERIMENT.baselines, *(one.key for one in read_selected(selection))]


def trainings_of(keys):
    """The records of the trainings of these."""
    return [str(training_file(EXPERIMENT, key, seed)) for key in keys for seed in EXPERIMENT.train.seeds]


def trainings(wildcards):
    """The records of all trainings."""
    return trainings_of(selected_keys(wildcards))


def measurements(wildcards):
    """The records of all measurements."""
    tuning = EXPERIMENT.tune
    keys = [key for key in selected_keys(wildcards) if tuning.baselines or key not in EXPERIMENT.baselines]
    return [str(tuning_file(EXPERIMENT, key, *pair)) for pair in tuning.pairs for key in keys]
