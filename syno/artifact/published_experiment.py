"""A selection of what was published: of the operators whose graphs an import has, those with the best scores in a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from syno.artifact.paper import LANGUAGE_DATA
from syno.base.errors import SpecError
from syno.base.names import ORIGINAL
from syno.config import Experiment
from syno.results.metric import METRICS
from syno.stages.artifact import MADE_BY, RECORD, ImportRecord
from syno.stages.measurements import read_measurements
from syno.stages.store import OperatorStore

if TYPE_CHECKING:
    import pandas

SEARCHED_ON = ("cifar100", LANGUAGE_DATA)  # the proxy data sets, by whose scores operators are chosen, as in the paper


class PublishedScore(NamedTuple):
    """An operator that was published, and its scores, by the name of the metric."""

    key: str
    name: str
    metrics: dict[str, float]


def is_published(source: Path) -> bool:
    """Whether a folder of results has been written by an import."""
    return (source / RECORD).is_file()


def best_published(experiment: Experiment) -> list[PublishedScore]:
    """The best operators that were published with their graph for the experiment's network; its store has them then.

    Scores are the authors' on their proxy data set. ResNet-34 was not searched; it has the operators of ResNet-18.

    Args:
        experiment: its `select` has the import's folder as its source, how many to take (`count`), and how much worse than the
            network's as it is a score may be (`within`).

    Raises SpecError if none was published, or none is good enough.
    """
    from syno.report.paper.end_to_end import SEARCHED_AS

    source, within = experiment.select.source, experiment.select.within
    assert source is not None and experiment.workload is not None  # a source needs a workload
    model = experiment.workload.model
    keys = {one.name: one.key for one in ImportRecord.read(source / RECORD).operators if one.key is not None}
    rows = read_measurements(source, MADE_BY)
    rows = rows[rows["data"].isin(SEARCHED_ON) & rows["metric"].isin(list(METRICS))]
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
            raise SpecError(
                f"no operator of {source} can be taken: {model}'s {metric.name} there is {metric.text(original)}, the best "
                f"operator's is {most}, and select: within is {within:g}; raise it"
            )
    theirs, ours = OperatorStore(source), OperatorStore(experiment.folder)
    chosen = best[: experiment.select.count]
    for name in chosen:
        ours.add(theirs.get(keys[name]))
    return [PublishedScore(keys[name], name, {metric.name: scores[name]}) for name in chosen]


def _original(rows: pandas.DataFrame, model: str, source: Path) -> float:
    """The score of the network as it is."""
    found = rows[(rows["operator"] == ORIGINAL) & (rows["model"] == model)]
    if found.empty:
        raise SpecError(f"select: within compares with {model} as it is, of which {source} has no score; leave it out")
    return float(found["value"].iloc[0])
