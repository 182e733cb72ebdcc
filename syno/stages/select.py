"""The selection of the operators that are trained again and measured: from a search, or from another experiment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from syno.artifact.imported import is_published
from syno.base.errors import SpecError
from syno.base.files import ORIGINAL, json_with_checksum, read_json, write_whole
from syno.config import Experiment
from syno.ir.text import parse_stored
from syno.results.metric import ACCURACY, LOSS, METRICS, ScoreMetric, front, metric_of_trials
from syno.results.parquet import read_parquet
from syno.stages.artifact import best_published
from syno.stages.places import SCORES_FILE, SELECTED
from syno.stages.store import ID_DIGITS, OperatorStore, add_chosen
from syno.stages.study import read_frozen
from syno.train.settings import check_score

if TYPE_CHECKING:
    import pandas

FLOPS = "metric_flops"
KEY = rf"^[0-9a-f]{{{ID_DIGITS}}}$"


class Selected(BaseModel):
    """A selected operator.

    Attributes:
        key: key in the operator store.
        name: name of the operator.
        trial: number of the trial; None for a published operator.
        reward: reward in the search; None for a published operator.
        metrics: measurements in the search, by name.
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
    """The content of the file `selected.json`: the selected operators, the best first."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    selected: tuple[Selected, ...]


def select(experiment: Experiment, output: Path | None = None) -> list[Selected]:
    """Choose operators as `select` in the config says, and write and return a list of them.

    They come from the frozen table, sorted by reward, or from another experiment's selection or import, sorted by score, or
    are those that the config names, in this order.

    Raises SpecError if there is no frozen table (or no selection of the other experiment), or no operator can be selected.
    """
    source = experiment.select.source
    if experiment.select.operators:
        named = add_chosen(experiment.select.operators, OperatorStore(experiment.folder))
        chosen = [Selected(key=key, name=name, metrics={}) for key, name in named.items()]
    elif source is None:
        chosen = _of_search(experiment)
    elif is_published(source):
        chosen = [Selected(key=one.key, name=one.name, metrics=one.metrics) for one in best_published(experiment)]
    else:
        selected = read_selected(source / SELECTED)
        check_in_store(selected, source)
        chosen = _of_source(experiment, source, selected)
    return write_selected(chosen, output or experiment.folder / SELECTED)


# ---- from a search -----------------------------------------------------------------------------------------------------


def _of_search(experiment: Experiment) -> list[Selected]:
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
    return [_selected(experiment, row) for _, row in ranked.iterrows()]


def _good_enough(table: pandas.DataFrame, experiment: Experiment) -> pandas.DataFrame:
    """Return the trials within the limits. Raises SpecError if there is none, or trials have no such metric."""
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
    """Return the trials with those on the Pareto front of score and FLOPs first; otherwise the order stays."""
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


# ---- from another experiment -------------------------------------------------------------------------------------------


def _of_source(experiment: Experiment, source: Path, selected: Sequence[Selected]) -> list[Selected]:
    """Return the best of another experiment's selected operators, by mean score over seeds; adds them to this store.

    Raises SpecError if that experiment has no table of scores, or no operator in it is good enough.
    """
    within = experiment.select.within
    scores, metric = _scores(source)
    found = {one.key: metric.quality(scores[one.key]) for one in selected if one.key in scores}
    if not found:
        raise SpecError(
            f"no operator of {source} can be taken: none of those that were selected there is in {source / SCORES_FILE}; train "
            "them, then run `syno tables` again"
        )
    good = [one for one in selected if one.key in found]
    if within is not None:
        if ORIGINAL not in scores:
            raise SpecError(
                f"select: within compares with the original network, which {source / SCORES_FILE} does not have; train it "
                "(`syno baseline`), then run `syno tables`"
            )
        least = metric.quality(scores[ORIGINAL]) - within
        good = [one for one in good if found[one.key] >= least]
    if not good:
        shown = ", ".join(f"{one.name} {metric.text(scores[one.key])}" for one in selected if one.key in scores)
        raise SpecError(
            f"no operator of {source} can be taken: the original's {metric.name} there is {metric.text(scores[ORIGINAL])}, the "
            f"operators' are {shown}, and select: within is {within:g}; raise it, or search longer"
        )
    best = sorted(good, key=lambda one: -found[one.key])[: experiment.select.count]
    theirs, ours = OperatorStore(source), OperatorStore(experiment.folder)
    for one in best:
        ours.add(theirs.get(one.key))
    return best


def _scores(source: Path) -> tuple[dict[str, float], ScoreMetric]:
    """Return the mean score of each key, and the metric."""
    table = read_parquet(source / SCORES_FILE, "syno tables", ("key", "metric", "score"))
    if table.empty:
        raise SpecError(f"{source / SCORES_FILE} has no row; train there first, then run `syno tables` again")
    known = table[table["score"].notna()]
    return dict(zip(known["key"], known["score"], strict=True)), METRICS[table["metric"].iloc[0]]


# ---- the file ----------------------------------------------------------------------------------------------------------


def write_selected(chosen: list[Selected], file: Path) -> list[Selected]:
    """Write a selection; returns it."""
    write_whole(file, json_with_checksum(Selection(selected=tuple(chosen)).model_dump(mode="json")))
    return chosen


def read_selected(file: Path) -> list[Selected]:
    """Return the selection in a file. Lists without a checksum, as earlier versions wrote them, are read, too.

    Raises SpecError if the file does not exist, holds something else, or does not agree with its checksum.
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
                f"{store.path} has no operator {one.key}, which {folder / SELECTED} has as {one.name}; run `syno freeze` if "
                "the operator's file was lost, or `syno select` again if the key was changed"
            )


def _refused(file: Path, problem: str) -> SpecError:
    return SpecError(f"{file} holds no selection: {problem}; delete it and run `syno select` again")
