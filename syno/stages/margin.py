"""The margin of a selection from a search: how much worse than the trained original network's an operator's score may be."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from syno.base.errors import NoneSelectedError, SpecError
from syno.base.files import ORIGINAL
from syno.config import Experiment
from syno.results.metric import METRICS, ScoreMetric
from syno.stages.places import training_file

if TYPE_CHECKING:
    import pandas

    from syno.train.settings import WorkloadSettings

WHERE = {"device", "threads", "compile"}  # settings of a training that do not change its result
ROUNDING = 1e-9  # of the difference of two scores: 0.79 is within 0.01 of 0.80


def compared_trainings(experiment: Experiment) -> list[Path]:
    """Return the files of the trainings of the original network that a selection from the search compares with, if any."""
    if experiment.select.within is None or experiment.select.source is not None:
        return []
    return [training_file(experiment, ORIGINAL, seed) for seed in experiment.train.seeds]


def near_the_original(table: pandas.DataFrame, experiment: Experiment) -> pandas.DataFrame:
    """Return the trials whose scores are within `select: within` of the original network's mean score over seeds.

    Without that setting, all trials are returned.

    Raises SpecError if the original network is not trained, or trials have no such score; NoneSelectedError if none is good
    enough, which says how near the best one came.
    """
    within = experiment.select.within
    if within is None:
        return table
    score, metric = original_score(experiment)
    if metric.column not in table:
        raise SpecError(
            f'select: within is {within:g}, but the trials of "{experiment.name}" have no {metric.name}; leave it out'
        )
    quality = table[metric.column].map(metric.quality)
    near = table[quality >= metric.quality(score) - within - ROUNDING]
    if near.empty:
        best = max(table.to_dict("records"), key=lambda row: metric.quality(row[metric.column]))
        raise NoneSelectedError(
            f'no trial of "{experiment.name}" can be selected: the original has the {metric.name} {metric.text(score)}, '
            f"and the nearest trial, {best['number']}, has {metric.text(best[metric.column])}, which is "
            f"{metric.quality(score) - metric.quality(best[metric.column]):.4g} worse; select: within is {within:g}; raise it, "
            "or search longer"
        )
    return near


def original_score(experiment: Experiment) -> tuple[float, ScoreMetric]:
    """Return the mean score of the original network over the seeds of `train`, and its metric.

    Raises SpecError if one of these trainings is missing, broke, or is of other settings than the search's trainings.
    """
    from syno.train.training_record import TrainingRecord  # imports torch

    workload, scores = experiment.workload, list[float]()
    assert workload is not None  # `within` needs one
    metric = None
    for file in compared_trainings(experiment):
        if not file.is_file():
            raise SpecError(
                f"{file} is not there, and select: within compares with the original network; train it (`syno baseline`)"
            )
        record = TrainingRecord.read(file)
        if record.operator_id is not None or _trained(record.workload) != _trained(workload):
            raise SpecError(
                f"{file} is of another network or training than the search's; delete it and train again (`syno baseline`)"
            )
        if record.stopped is not None and record.score in (0.0, float("inf")):
            raise SpecError(
                f"the training of the original network in {file} broke ({record.stopped}), so nothing compares with it"
            )
        scores.append(record.score)
        metric = METRICS[record.metric]
    assert metric is not None  # there is a seed
    return mean(scores), metric


def _trained(workload: WorkloadSettings) -> dict[str, Any]:
    """Return what the score of a training depends on, but the seed."""
    return workload.model_dump(mode="json", exclude={"seed": True, "milestones": True, "training": WHERE})
