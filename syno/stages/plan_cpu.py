"""The CPU hours of searches and trainings on processors, from what was measured: nothing is assumed about a processor.

Of a search they are the hours in which workers evaluate operators, all workers together. Of trainings after the selection they
are processor time, as the records have it. Before anything was measured they are unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from syno.base.errors import SynoError
from syno.config import Experiment
from syno.stages.kept import check_shown
from syno.stages.places import FROZEN, ORIGINAL_TRAINING
from syno.stages.study import read_frozen
from syno.train.settings import TrainingSettings

if TYPE_CHECKING:
    import pandas

HOUR = 3600
COUNTED = ("complete", "pruned", "paused", "resumed", "failed")  # outcomes of trials that were evaluated
LIMITS = ("most_steps", "most_minutes", "round_steps")  # with one of these, epochs do not say how long a training is
COUNTED_ONLY = "cost"  # an evaluation that takes no time worth counting


def trains_on_cpu(settings: TrainingSettings) -> bool:
    """Return whether a training runs on a processor."""
    return not settings.device.startswith("cuda")


def search_cpu_hours(experiment: Experiment) -> float | None:
    """Return the CPU hours of a search: its number of trials times the mean time of those that were timed.

    The time of operators that were screened out, and so do not count as trials, is part of the mean. None before a trial was
    timed; 0 if trials train on a GPU, or only count.
    """
    if not experiment.searches or experiment.evaluation == COUNTED_ONLY:
        return 0.0
    if experiment.workload is not None and not trains_on_cpu(experiment.workload.training):
        return 0.0
    trials = _trials(experiment)
    if trials is None:
        return None
    count = int(trials["outcome"].isin(COUNTED).sum())
    return float(trials["seconds"].sum()) / count * experiment.study.n_trials / HOUR if count else None


def training_cpu_hours(experiment: Experiment, settings: TrainingSettings, files: Sequence[Path]) -> float | None:
    """Return the CPU hours of the trainings after the selection. None before a training on a processor was timed.

    What is timed already is, the first of these that is there: these trainings; the training of the original network in the
    search; the complete trials of a search without a goal. The last two are scaled by the number of epochs.

    Args:
        experiment: the experiment.
        settings: of the trainings.
        files: the records of all trainings, there or not.
    """
    if not trains_on_cpu(settings):
        return 0.0
    workload = experiment.workload
    seconds = _recorded([file for file in files if file.is_file()], settings)
    scale = None if workload is None else _scale(workload.training, settings)
    if seconds is None and workload is not None and scale is not None:
        seconds = _recorded([experiment.folder / ORIGINAL_TRAINING], workload.training)
        if seconds is None and experiment.goal is None and experiment.evaluation == "training":
            trials = _trials(experiment)
            done = None if trials is None else trials.loc[trials["outcome"] == "complete", "seconds"]
            seconds = None if done is None or done.empty else float(done.mean())
        seconds = None if seconds is None else seconds * scale
    return None if seconds is None else seconds * len(files) / HOUR


def _scale(timed: TrainingSettings, wanted: TrainingSettings) -> float | None:
    """Return how many times as long a training takes as one of other settings; None if they differ in more than epochs."""
    if timed == wanted:
        return 1.0
    is_limited = any(getattr(wanted, name) is not None for name in LIMITS)
    if is_limited or timed.model_copy(update={"epochs": wanted.epochs}) != wanted:
        return None
    return wanted.epochs / timed.epochs


def _recorded(files: Sequence[Path], settings: TrainingSettings) -> float | None:
    """Return the mean processor time, in seconds, of recorded trainings of these settings; None if there are none."""
    from syno.train.training_record import TrainingRecord  # imports torch

    found = []
    for file in files:
        with suppress(SynoError):  # not there, or damaged: the stage makes it anew
            record = TrainingRecord.read(file)
            if record.workload.training == settings and record.stopped is None:
                found.append(record.cpu_seconds)
    return mean(found) if found else None


def _trials(experiment: Experiment) -> pandas.DataFrame | None:
    """Return the trials of a search as far as it is, without making a study; None if there are none of these settings."""
    try:
        check_shown(experiment)
        if (experiment.folder / FROZEN).is_file():
            found = read_frozen(experiment)
        else:
            from syno.search.storage.records import table
            from syno.search.storage.view import StudyView

            found = table(StudyView(experiment.storage, experiment.name).read().trials)
    except SynoError:  # no study yet, one of other settings, or no storage
        return None
    return found if len(found) and "seconds" in found else None
