"""Selection: which of the operators that a search evaluated are trained again and tuned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from syno.artifact.published_experiment import best_published, is_published
from syno.base.errors import SpecError
from syno.base.files import json_with_checksum, read_json, write_whole
from syno.config import Experiment
from syno.ir.text import parse_stored
from syno.results.metric import ACCURACY, LOSS, METRICS, metric_of_trials
from syno.results.pareto import front
from syno.stages.freeze import read_frozen
from syno.stages.source import taken
from syno.stages.store import ID_DIGITS, OperatorStore
from syno.train.settings import check_score

if TYPE_CHECKING:
    import pandas

FILE, FLOPS = "selected.json", "metric_flops"
KEY = rf"^[0-9a-f]{{{ID_DIGITS}}}$"


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
    key: Annotated[str, Field(pattern=KEY)]
    name: Annotated[str, Field(min_length=1)]
    trial: Annotated[int, Field(ge=0)] | None = None
    reward: Annotated[float, Field(allow_inf_nan=False)] | None = None
    metrics: dict[str, float]

    @model_validator(mode="after")
    def _has_scores_in_range(self) -> Self:
        for metric, value in self.metrics.items():
            check_score(metric, value)
        return self


class Selection(BaseModel):
    """The file `selected.json`: what was selected, the best first."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    selected: tuple[Selected, ...]


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
        selected = read_selected(source / FILE)
        check_in_store(selected, source)
        return write_selected(taken(experiment, selected), output or experiment.folder / FILE)
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
    operator = parse_stored(row["operator"], f"operator of trial {row['number']}", f"{experiment.name}_{row['number']}")
    metrics = {
        str(name).removeprefix("metric_"): float(value)
        for name, value in row.items()
        if str(name).startswith("metric_") and value == value
    }
    key = OperatorStore(experiment.folder).add(operator)
    return Selected(key=key, name=operator.name, trial=int(row["number"]), reward=float(row["reward"]), metrics=metrics)


def write_selected(chosen: list[Selected], file: Path) -> list[Selected]:
    """Write what was chosen; returns it."""
    write_whole(file, json_with_checksum(Selection(selected=tuple(chosen)).model_dump(mode="json")))
    return chosen


def read_selected(file: Path) -> list[Selected]:
    """Return what `select` wrote. A list without a checksum, as earlier versions wrote it, is read, too.

    Raises SpecError if it is not there, holds something else, or does not agree with its checksum.
    """
    try:
        content = read_json(file)
        found = Selection.model_validate({"selected": content} if isinstance(content, list) else content).selected
    except OSError as error:
        raise SpecError(f"{file} cannot be read: {error.strerror}; `syno select` makes it") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise _refused(file, f"{place}: {first['msg']}") from error
    except ValueError as error:
        raise _refused(file, str(error)) from error
    keys = [one.key for one in found]
    if len(set(keys)) < len(keys):
        raise _refused(file, f"{next(key for key in keys if keys.count(key) > 1)} is in it twice")
    return list(found)


def check_in_store(selected: Sequence[Selected], folder: Path) -> None:
    """Raise SpecError if the operator store in a folder of results lacks an operator that was selected."""
    store = OperatorStore(folder)
    for one in selected:
        if not (store.path / f"{one.key}.txt").is_file():
            raise SpecError(
                f"{store.path} has no operator {one.key}, which {folder / FILE} has as {one.name}; run `syno freeze` if the "
                "operator's file was lost, or `syno select` again if the key was changed"
            )


def _refused(file: Path, problem: str) -> SpecError:
    return SpecError(f"{file} holds no selection: {problem}; delete it and run `syno select` again")
