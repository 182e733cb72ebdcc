"""The operators that an experiment takes from another experiment's results, or from published data (`select: source`)."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from pathlib import Path

from syno.base.errors import NoneSelectedError, SpecError
from syno.base.files import ORIGINAL
from syno.config import Experiment
from syno.run.metric import front
from syno.run.parquet import read_parquet
from syno.run.table import rows_in
from syno.stages.kinds import source_of
from syno.stages.places import SCORES_FILE, SELECTED
from syno.stages.selection import Selected, check_in_store, read_selection
from syno.train.metric import METRICS, Metric

FLOPS = "flops"  # in the metrics of trials


def choose_from_source(experiment: Experiment) -> list[Selected]:
    """Return the operators that an experiment takes from another experiment's results, or from published data, the best first.

    Raises SpecError if the source's results are missing or incomplete, NoneSelectedError if no operator is good enough.
    """
    if experiment.compares_latencies:
        experiment = for_shortlist(experiment)
    source = experiment.select.source
    assert source is not None
    if (kind := source_of(source)) is not None:
        if experiment.select.by == "front":
            raise SpecError(
                f"select: by: front compares latencies, or FLOPs, which {source} does not have; give compilers and devices to "
                "measure with (tune: compilers)"
            )
        return kind.choose(experiment)
    theirs = read_selection(source / SELECTED)
    if not theirs.selected:
        raise NoneSelectedError(f"{source} has selected no operator: {theirs.none_because}")
    check_in_store(theirs.selected, source)
    return _best_of_source(experiment, source, theirs.selected)


def for_shortlist(experiment: Experiment) -> Experiment:
    """Return the experiment with the `select` settings that choose its shortlist: as many as it holds, by reward or front."""
    settings = experiment.select
    best = settings.model_copy(update={"by": "reward" if settings.by == "latency" else "pareto", "count": settings.shortlist})
    return experiment.model_copy(update={"select": best})


def _best_of_source(experiment: Experiment, source: Path, selected: Sequence[Selected]) -> list[Selected]:
    """Return the best of another experiment's selected operators, by mean score over seeds.

    Raises SpecError if that experiment has no table of scores, NoneSelectedError if no operator in it is good enough.
    """
    within = experiment.select.within
    scores, metric = scores_in(source)
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
        raise NoneSelectedError(
            f"no operator of {source} can be taken: the original's {metric.name} there is {metric.text(scores[ORIGINAL])}, the "
            f"operators' are {shown}, and select: within is {within:g}; raise it, or search longer"
        )
    if experiment.select.by == "front":
        good = [good[place] for place in front([(one.metrics.get(FLOPS, nan), found[one.key]) for one in good])]
        if not good:
            raise SpecError(
                f'select: by is "front", and no operator of {source} has flops; measure latencies (tune: compilers), or select '
                "by reward"
            )
    return sorted(good, key=lambda one: -found[one.key])[: experiment.select.count]


def scores_in(source: Path) -> tuple[dict[str, float], Metric]:
    """Return the mean scores in an experiment's tables by the operators' keys, and their metric."""
    rows = rows_in(read_parquet(source / SCORES_FILE, "syno tables", ("key", "metric", "score")))
    if not rows:
        raise SpecError(f"{source / SCORES_FILE} has no row; train there first, then run `syno tables` again")
    scores = {row.text("key"): score for row in rows if (score := row.number("score")) is not None}
    return scores, METRICS[rows[0].text("metric")]
