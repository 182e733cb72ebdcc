"""A selection that is taken from another experiment: of the operators that were selected there, those that proved good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.errors import SpecError
from syno.base.names import ORIGINAL
from syno.config import Experiment
from syno.results.metric import METRICS, ScoreMetric
from syno.results.parquet import read_parquet
from syno.stages.store import OperatorStore

if TYPE_CHECKING:
    from syno.stages.select import Selected

SCORES = Path("tables") / "scores.parquet"  # in the source's folder of results


def taken(experiment: Experiment, selected: Sequence[Selected]) -> list[Selected]:
    """The best of what the source selected, by its mean score over seeds there, the best first; this store has them then.

    Args:
        experiment: its `select` has the source, how many to take (`count`), and how much worse than the original network's a
            score may be (`within`).
        selected: what the source selected.

    Raises SpecError if the source has no table of scores, or no operator in it is good enough.
    """
    source, within = experiment.select.source, experiment.select.within
    assert source is not None
    scores, metric = _scores(source)
    found = {one.key: metric.quality(scores[one.key]) for one in selected if one.key in scores}
    if not found:
        raise SpecError(
            f"no operator of {source} can be taken: none of those that were selected there is in {source / SCORES}; train "
            "them, then run `syno tables` again"
        )
    good = [one for one in selected if one.key in found]
    if within is not None:
        least = metric.quality(_original(scores, source)) - within
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
    """The mean score of each key, and what they are."""
    table = read_parquet(source / SCORES, "syno tables", ("key", "metric", "score"))
    if table.empty:
        raise SpecError(f"{source / SCORES} has no row; train there first, then run `syno tables` again")
    known = table[table["score"].notna()]
    return dict(zip(known["key"], known["score"], strict=True)), METRICS[table["metric"].iloc[0]]


def _original(scores: Mapping[str, float], source: Path) -> float:
    if ORIGINAL not in scores:
        raise SpecError(
            f"select: within compares with the original network, which {source / SCORES} does not have; train it there "
            "(`syno baseline`), then run `syno tables`"
        )
    return scores[ORIGINAL]
