"""Selection: which of the operators that a search evaluated are trained again and tuned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from syno.config import Experiment
from syno.errors import SpecError
from syno.files import write_whole
from syno.ir.text import parse
from syno.report.metric import ACCURACY, LOSS, METRICS, metric_of_trials
from syno.report.pareto import front
from syno.stages.freeze import read_frozen
from syno.stages.published import best_published, is_published
from syno.stages.source import taken
from syno.stages.store import OperatorStore

if TYPE_CHECKING:
    import pandas

FILE, FLOPS = "selected.json", "metric_flops"


class Selected(BaseModel):
    """An operator that was selected.

    Attributes:
        key: by which the operator store has it.
        name: for people.
        trial: of the study; None for one that was published.
        reward: in the search; None for one that was published.
        metrics: measured in the search.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    key: str
    name: str
    trial: int | None = None
    reward: float | None = None
    metrics: dict[str, float]


def select(experiment: Experiment, output: Path | None = None) -> list[Selected]:
    """Choose operators as `select` in the config says, and write a list of them.

    They are of the frozen table, the best reward first; or of what another experiment selected or imported, the best score
    first.

    Raises SpecError if there is no frozen table (or the other experiment is not so far), or nothing there can be selected.
    """
    if (source := experiment.select.source) is not None:
        if is_published(source):
            chosen = [Selected(key=one.key, name=one.name, metrics=one.metrics) for one in best_published(experiment)]
            return write_selected(chosen, output or experiment.folder / FILE)
        return write_selected(taken(experiment, read_selected(source / FILE)), output or experiment.folder / FILE)
    settings, table = experiment.select, read_frozen(experiment)
    table = table[table["outcome"] == "complete"]
    if table.empty:
        raise SpecError(
            f'no trial of "{experiment.name}" can be selected: none is complete; the column message of the trials table says '
            "why; search longer"
        )
    ranked = _good_enough(table, experiment).sort_values(["reward", "number"], ascending=[False, True], kind="stable")
    if settings.by == "pareto":
        ranked = _front_first(ranked, experiment)
    ranked = ranked.head(settings.count).sort_values(["reward", "number"], ascending=[False, True], kind="stable")
    chosen = [_selected(experiment, row) for _, row in ranked.iterrows()]
    return write_selected(chosen, output or experiment.folder / FILE)


def _good_enough(table: pandas.DataFrame, experiment: Experiment) -> pandas.DataFrame:
    """The trials within the limits. SpecError if there is none, or the trials lack what is limited."""
    settings = experiment.select
    limits = (("least_accuracy", ACCURACY, settings.least_accuracy or None), ("most_loss", LOSS, settings.most_loss))
    for option, metric, limit in limits:
        if limit is None:
            continue
        if metric.column not in table:
            raise SpecError(
                f'select: {option} is {limit:g}, but the trials of "{experiment.name}" have no {metric.name}; leave it out'
            )
        table = table[table[metric.column].map(metric.quality) >= metric.quality(limit)]
        if table.empty:
            raise SpecError(
                f'no trial of "{experiment.name}" can be selected: none that is complete meets select: {option}: {limit:g}; '
                "search longer, or change this limit"
            )
    return table


def _front_first(ranked: pandas.DataFrame, experiment: Experiment) -> pandas.DataFrame:
    """Those first that no other trial beats in both score and FLOPs; in each part the order stays."""
    metric = metric_of_trials(ranked.columns)
    if metric is None or FLOPS not in ranked:
        raise SpecError(
            f'select: by is "pareto", but the trials of "{experiment.name}" have no {" or ".join(METRICS)}, or no flops; give '
            "select: {by: reward}"
        )
    points = list(zip(ranked[FLOPS], ranked[metric.column].map(metric.quality), strict=True))
    on_front = set(front(points))
    order = sorted(range(len(points)), key=lambda place: place not in on_front)
    return ranked.iloc[order]


def _selected(experiment: Experiment, row: pandas.Series) -> Selected:
    operator = parse(row["operator"], f"operator of trial {row['number']}").renamed(f"{experiment.name}_{row['number']}")
    metrics = {
        str(name).removeprefix("metric_"): float(value)
        for name, value in row.items()
        if str(name).startswith("metric_") and value == value
    }
    key = OperatorStore(experiment.folder).add(operator)
    return Selected(key=key, name=operator.name, trial=int(row["number"]), reward=float(row["reward"]), metrics=metrics)


def write_selected(chosen: list[Selected], file: Path) -> list[Selected]:
    """Write what was chosen; returns it."""
    write_whole(file, json.dumps([one.model_dump() for one in chosen], indent=1) + "\n")
    return chosen


def read_selected(file: Path) -> list[Selected]:
    """What `select` wrote. SpecError if it is not there, or holds something else."""
    try:
        return [Selected.model_validate(row) for row in json.loads(file.read_text(encoding="utf-8"))]
    except OSError as error:
        raise SpecError(f"{file} cannot be read: {error.strerror}; `syno select` makes it") from error
    except (ValueError, TypeError, ValidationError) as error:
        raise SpecError(
            f"{file} holds no selection: {str(error).splitlines()[0]}; delete it and run `syno select` again"
        ) from error
