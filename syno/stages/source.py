"""A selection that is taken from another experiment: of the operators that were selected there, those that proved good."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from syno.config import Experiment
from syno.errors import SpecError
from syno.evaluate.settings import ORIGINAL
from syno.stages.freeze import read_parquet
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
    scores, more_is_better = _scores(source)
    sign = 1 if more_is_better else -1
    good = [one for one in selected if one.key in scores]
    if within is not None:
        limit = _original(scores, source) - sign * within
        good = [one for one in good if sign * scores[one.key] >= sign * limit]
    if not good:
        raise SpecError(f"no operator of {source} can be taken: {_reason(selected, scores, experiment)}")
    best = sorted(good, key=lambda one: -sign * scores[one.key])[: experiment.select.count]
    theirs, ours = OperatorStore(source), OperatorStore(experiment.folder)
    for one in best:
        ours.add(theirs.get(one.key))
    return best


def _scores(source: Path) -> tuple[dict[str, float], bool]:
    """The mean score of each key, and whether more is better."""
    table = read_parquet(source / SCORES, "syno tables")
    if table.empty:
        raise SpecError(f"{source / SCORES} has no row; train there first, then run `syno tables` again")
    known = table[table["score"].notna()]
    return dict(zip(known["key"], known["score"], strict=True)), table["metric"].iloc[0] != "loss"


def _original(scores: dict[str, float], source: Path) -> float:
    if ORIGINAL not in scores:
        raise SpecError(
            f"select: within compares with the original network, which {source / SCORES} does not have; train it there "
            "(`syno baseline`), then run `syno tables`"
        )
    return scores[ORIGINAL]


def _reason(selected: Sequence[Selected], scores: dict[str, float], experiment: Experiment) -> str:
    found = [f"{one.name} {scores[one.key]:.4f}" for one in selected if one.key in scores]
    if not found:
        return "none of those that were selected there is in its table of scores; train them, then run `syno tables` again"
    return (
        f"the original's score there is {scores[ORIGINAL]:.4f}, the operators' are {', '.join(found)}, and select: within is "
        f"{experiment.select.within:g}; raise it, or search longer"
    )
