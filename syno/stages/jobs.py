"""The jobs of an experiment: the file that each of them makes, whether it is there or not.

The workflow asks for these files, and `syno plan` counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from syno.base.names import ORIGINAL
from syno.config import Experiment
from syno.stages import artifact, figures, select
from syno.stages.data import files_to_convert
from syno.stages.places import training_file, tuning_file, worker_file

OF_DATA, OF_PUBLISHED = ("convert", "data"), ("artifact", "headlines")
RULES = (*OF_DATA, *OF_PUBLISHED, "worker", "freeze", "select", "train", "tune", "tables", "figure", "report")  # in their order


def keys(experiment: Experiment, selected: Sequence[str] | None = None) -> list[str]:
    """What is trained: the original, the baselines, and the operators that were selected.

    While none is: as many as may be, with `selected1` and so on in place of their keys.
    """
    found = [f"selected{number}" for number in range(1, experiment.select.count + 1)] if selected is None else selected
    return [ORIGINAL, *experiment.baselines, *found]


def worker_files(experiment: Experiment) -> list[Path]:
    """The records of all workers of a study; none without a search."""
    return [worker_file(experiment, number) for number in range(1, experiment.study.workers + 1)] if experiment.searches else []


def training_files(experiment: Experiment, trained: Sequence[str]) -> list[Path]:
    """The records of all trainings of these."""
    return [training_file(experiment, key, seed) for key in trained for seed in experiment.train.seeds]


def measured(experiment: Experiment, trained: Sequence[str]) -> list[str]:
    """Those of them whose latency is measured."""
    return [key for key in trained if experiment.tune.baselines or key not in experiment.baselines]


def tuning_files(experiment: Experiment, trained: Sequence[str]) -> list[Path]:
    """The records of all measurements of these."""
    return [tuning_file(experiment, key, *pair) for pair in experiment.tune.pairs for key in measured(experiment, trained)]


def figure_files(experiment: Experiment) -> list[Path]:
    """All figures of an experiment, each in one of its formats."""
    return [experiment.folder / "figures" / f"{name}.svg" for name in figures.names(experiment)]


def derived_files(experiment: Experiment) -> list[Path]:
    """Tables, figures and the page: what jobs of seconds make of the records, in all formats."""
    folder = experiment.folder
    names = [f"figures/{name}.{ending}" for name in figures.names(experiment) for ending in figures.FORMATS]
    if experiment.artifact is not None:
        tables = ["measurements", "losses", "headlines"]
    else:
        tables = [] if experiment.workload is None else ["scores", "latency"]
    names += [f"tables/{name}.{ending}" for name in tables for ending in ("parquet", "csv")]
    return [folder / name for name in (*names, "report.html")]


def jobs(experiment: Experiment, selected: Sequence[str] | None = None) -> dict[str, list[Path]]:
    """The files of all jobs of an experiment, one of each job, by the rule that makes them, in the order of RULES.

    Those of `convert` are ImageNet's, which experiments share.
    """
    if experiment.artifact is not None:
        return _of_published(experiment)
    folder, trained = experiment.folder, keys(experiment, selected)
    trains = experiment.workload is not None
    found = {
        "convert": list(files_to_convert(experiment)),
        "data": [folder / "data.json"] if trains else [],
        "worker": worker_files(experiment),
        "freeze": [folder / "trials.parquet"] if experiment.searches else [],
        "select": [folder / select.FILE],
        "train": training_files(experiment, trained) if trains else [],
        "tune": tuning_files(experiment, trained) if trains else [],
        "tables": [folder / "tables" / "scores.parquet"] if trains else [],
        "figure": figure_files(experiment),
        "report": [folder / "report.html"],
    }
    return {rule: files for rule, files in found.items() if files}


def _of_published(experiment: Experiment) -> dict[str, list[Path]]:
    """Those of an experiment of published data: it is read and drawn."""
    folder = experiment.folder
    return {
        "artifact": [folder / artifact.RECORD],
        "headlines": [folder / "tables" / "headlines.parquet"],
        "figure": figure_files(experiment),
        "report": [folder / "report.html"],
    }
