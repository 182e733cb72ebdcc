"""An import of the published data in a folder of results: its record, and the operators that it offers to experiments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, ConfigDict

from syno.base.errors import NoneSelectedError, SpecError
from syno.base.files import ORIGINAL
from syno.base.record import Number, Record
from syno.paper.artifact import RECORD
from syno.paper.artifact.places import Problem
from syno.paper.numbers import LANGUAGE_DATA, SEARCH_DATA, SEARCHED_AS, SEARCHED_WITH
from syno.run.table import read_measurements
from syno.train.metric import METRICS

if TYPE_CHECKING:
    import pandas

MADE_BY = "syno artifact import"


class ImportedOperator(BaseModel):
    """An operator of the published data.

    Attributes:
        name: Its name in the measurements.
        operator_id: The id of its graph; None where the graph was not published.
        key: The key of its file in the operator store; None if its graph was not published.
        path: Its path in the search that found it.
        folders: The folders of the data that contain it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    operator_id: str | None
    key: str | None
    path: str
    folders: tuple[str, ...]


class ImportRecord(Record):
    """The record of an import: the operators and the number of measurements read, and the problems.

    Attributes:
        artifact: The folder of the artifact, as the user wrote it.
        measurements: The number of measurements, including the numbers that only the paper prints.
        operators: The distinct operators.
        problems: Files and folders that were missing, damaged or contradictory.
        versions: The versions of the packages that took part.
    """

    kind_of_record = "record of an import"
    again = f"run `{MADE_BY}`"
    passing = frozenset({"artifact"})

    artifact: str
    measurements: Number
    operators: tuple[ImportedOperator, ...]
    problems: tuple[Problem, ...]
    versions: dict[str, str]


class PublishedScore(NamedTuple):
    """A published operator, and its scores by the name of the metric."""

    key: str
    name: str
    metrics: dict[str, float]


def is_published(source: Path) -> bool:
    """Return whether a folder of results was written by an import."""
    return (source / RECORD).is_file()


def best_scores(source: Path, model: str, count: int, within: float | None) -> list[PublishedScore]:
    """Return the best operators published with a graph for a network, the best first.

    Scores are the authors', on the data set of their search. ResNet-34 was not searched, and gets ResNet-18's operators.

    Args:
        source: The folder of the import.
        model: The network.
        count: The largest number of operators.
        within: The largest loss of score against the original network; None for any.

    Raises SpecError if none was published, NoneSelectedError if none is good enough.
    """
    model = SEARCHED_WITH.get(model, model)
    keys = {one.name: one.key for one in ImportRecord.read(source / RECORD).operators if one.key is not None}
    rows = read_measurements(source, MADE_BY)
    rows = rows[rows["data"].isin((SEARCH_DATA, LANGUAGE_DATA)) & rows["metric"].isin(list(METRICS))]
    known = rows[rows["operator"].isin(list(keys))]
    found = known[known["model"] == SEARCHED_AS.get(model, model)].drop_duplicates("operator")
    if found.empty:
        models = ", ".join(dict.fromkeys(known["model"])) or "none"
        raise SpecError(f"no operator was published with its graph for {model}: {source} has some for {models}")
    metric = METRICS[found["metric"].iloc[0]]
    scores = dict(zip(found["operator"], found["value"], strict=True))
    best = sorted(scores, key=lambda name: (-metric.quality(scores[name]), name))
    if within is not None:
        original = _original(rows, model, source)
        best = [name for name in best if metric.quality(scores[name]) >= metric.quality(original) - within]
        if not best:
            most = metric.text(max(scores.values(), key=metric.quality))
            raise NoneSelectedError(
                f"no operator of {source} can be taken: {model}'s {metric.name} there is {metric.text(original)}, the best "
                f"operator's is {most}, and select: within is {within:g}; raise it"
            )
    return [PublishedScore(keys[name], name, {metric.name: scores[name]}) for name in best[:count]]


def _original(rows: pandas.DataFrame, model: str, source: Path) -> float:
    """Return the published score of the original network."""
    found = rows[(rows["operator"] == ORIGINAL) & (rows["model"] == model)]
    if found.empty:
        raise SpecError(f"select: within compares with {model} as it is, of which {source} has no score; leave it out")
    return float(found["value"].iloc[0])
