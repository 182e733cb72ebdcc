"""The selection of the operators that are trained again and measured: from a search, or from another experiment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import nan
from pathlib import Path
from statistics import mean

from syno.base.errors import NoneSelectedError, SpecError, SynoError
from syno.base.files import ORIGINAL
from syno.base.registry import own_paths
from syno.config import Experiment
from syno.ir.text import parse_stored
from syno.run.metric import front
from syno.run.run import metrics_of
from syno.run.story import nothing_meets
from syno.run.table import trials_in
from syno.run.values import Trial, best_first
from syno.stages.fastest import ahead, fastest
from syno.stages.goal import nearest_first
from syno.stages.kinds import source_of
from syno.stages.operators import check_fit
from syno.stages.places import SELECTED, SHORTLIST, training_file
from syno.stages.provenance import differences_of_training
from syno.stages.selection import Selected, check_in_store, read_selection, write_selected
from syno.stages.source import FLOPS, choose_from_source, for_shortlist, scores_in
from syno.stages.store import OperatorStore, add_chosen
from syno.stages.study import read_frozen
from syno.train.metric import ACCURACY, LOSS, METRICS, Metric, score_of

ROUNDING = 1e-9  # of the difference of two scores: 0.79 is within 0.01 of 0.80


def compared_trainings(experiment: Experiment) -> list[Path]:
    """Return the record files of the original's trainings with which `select: within` compares; [] without this setting."""
    if experiment.select.within is None or experiment.select.source is not None:
        return []
    return [training_file(experiment, ORIGINAL, seed) for seed in experiment.train.seeds]


def near_the_original(trials: list[Trial], experiment: Experiment) -> list[Trial]:
    """Return the trials whose scores are within `select: within` of the original network's mean score over seeds.

    Without that setting, all trials are returned.

    Raises SpecError if the original network is not trained, or trials have no such score; NoneSelectedError if no trial is good
    enough, with the distance of the best one.
    """
    within = experiment.select.within
    if within is None:
        return trials
    score, metric = original_score(experiment)
    scored = _with_quality(trials, metric, f"within is {within:g}", experiment)
    near = [trial for quality, trial in scored if quality >= metric.quality(score) - within - ROUNDING]
    if not near:
        _, best = max(scored, key=lambda pair: pair[0])
        nearest = best.metrics[metric.key]
        raise NoneSelectedError(
            f'no trial of "{experiment.name}" can be selected: the original has the {metric.name} {metric.text(score)}, '
            f"and the nearest trial, {best.number}, has {metric.text(nearest)}, which is "
            f"{metric.quality(score) - metric.quality(nearest):.4g} worse; select: within is {within:g}; raise it, "
            "or search longer"
        )
    return near


def _with_quality(trials: Iterable[Trial], metric: Metric, limit: str, experiment: Experiment) -> list[tuple[float, Trial]]:
    """Return pairs (quality, trial) of the trials with a score. SpecError, naming the option `limit`, without any."""
    found = [(metric.quality(score), trial) for trial in trials if (score := trial.metrics.get(metric.key)) is not None]
    if not found:
        raise SpecError(f'select: {limit}, but the trials of "{experiment.name}" have no {metric.name}; leave it out')
    return found


def original_score(experiment: Experiment) -> tuple[float, Metric]:
    """Return the mean score of the original network over the seeds of `train`, and its metric.

    Raises SpecError if one of these trainings is missing, failed, or has other settings than the search's trainings.
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
        if record.operator_id is not None or differences_of_training(record, workload):
            raise SpecError(
                f"{file} is of another network or training than the search's; delete it and train again (`syno baseline`)"
            )
        metric = METRICS[record.metric]
        if record.stopped is not None and record.score in (metric.of_broken, float("inf")):
            raise SpecError(
                f"the training of the original network in {file} broke ({record.stopped}), so nothing compares with it"
            )
        scores.append(record.score)
    assert metric is not None  # there is a seed
    return mean(scores), metric


def select(experiment: Experiment, output: Path | None = None) -> list[Selected]:
    """Choose operators by the settings `select`; write them to a file and return them. If there are none, the file has the
    reason.

    Candidates are the frozen trials (sorted by reward, or by distance to the goal), another experiment's selection or import
    (sorted by score), or operators that the config names (in its order). With `by: latency`, the fastest of the shortlist are
    chosen; with `by: front`, those of the shortlist on the Pareto front of latency and score.

    Raises SpecError if the frozen table, the other experiment's selection, the shortlist or the measurements are missing.
    """
    chosen = partial(_of_shortlist if experiment.compares_latencies else choose, experiment)
    return _write(chosen, output or experiment.folder / SELECTED)


def shortlist(experiment: Experiment, output: Path | None = None) -> list[Selected]:
    """Choose the operators whose latencies `select` compares; write them to a file and return them.

    They are the best `shortlist` operators within the limits, by reward or by the score in the source. With `by: front`,
    operators on the front of score and FLOPs in the search come first.

    Raises SpecError if the selection compares no latencies; see `select`.
    """
    if not experiment.compares_latencies:
        raise SpecError(
            f'experiment "{experiment.name}" selects by {experiment.select.by} (select: by), which needs no shortlist; run '
            "`syno select`"
        )
    return _write(partial(choose, for_shortlist(experiment)), output or experiment.folder / SHORTLIST)


def _write(choose: Callable[[], list[Selected]], file: Path) -> list[Selected]:
    try:
        return write_selected(choose(), file)
    except NoneSelectedError as error:  # a result: what was measured until here still gets its tables and its page
        return write_selected([], file, str(error))


def choose(experiment: Experiment) -> list[Selected]:
    """Return the operators that `select` chooses by the known scores, latencies and verdicts; add them to the operator store.

    Raises NoneSelectedError if none can be selected.
    """
    source = experiment.select.source
    if experiment.select.operators:
        named = add_chosen(experiment.select.operators, OperatorStore(experiment.folder))
        return [Selected(key=key, name=name, metrics={}) for key, name in named.items()]
    if source is None:
        return _select_from_search(experiment)
    chosen, theirs, ours = choose_from_source(experiment), OperatorStore(source), OperatorStore(experiment.folder)
    if _can_make_the_network(experiment):
        for one in chosen:
            check_fit(experiment, "select: source", one.name, partial(theirs.get, one.key))
    for one in chosen:
        ours.add(theirs.get(one.key))
    return chosen


def _can_make_the_network(experiment: Experiment) -> bool:
    """Return whether the network can be made without user code, which the stage `select` does not run."""
    if experiment.workload is None or any(own_paths(experiment.workload.model_dump(mode="json"))):
        return False
    try:
        return bool(experiment.network.layers)
    except SynoError:  # the stage `data` says what is wrong
        return False


def _of_shortlist(experiment: Experiment) -> list[Selected]:
    """Return the operators of the shortlist that are fastest or on the front, with the devices on which they are fastest."""
    shortlisted = read_selection(experiment.folder / SHORTLIST)
    if not shortlisted.selected:
        raise NoneSelectedError(shortlisted.none_because)
    listed = {one.key: one for one in shortlisted.selected}
    check_in_store(list(listed.values()), experiment.folder)
    names = {key: one.name for key, one in listed.items()}
    by_latency = experiment.select.by == "latency"
    found = fastest(experiment, names) if by_latency else ahead(experiment, names, _qualities(experiment, listed))
    return [listed[key].model_copy(update={"fastest_on": places}) for key, places in found.items()]


def _qualities(experiment: Experiment, listed: Mapping[str, Selected]) -> dict[str, float]:
    """Return the quality (higher is better) of each operator of the shortlist, by key, from its score before measuring."""
    source = experiment.select.source
    if source is not None and source_of(source) is None:
        scores, metric = scores_in(source)
        return {key: metric.quality(scores.get(key, nan)) for key in listed}
    known = score_of(set.intersection(*(set(one.metrics) for one in listed.values())))
    if known is None:
        raise SpecError(f'select: by is "front", but operators of "{experiment.name}" have no score')
    return {key: METRICS[known].quality(one.metrics[known]) for key, one in listed.items()}


def _select_from_search(experiment: Experiment) -> list[Selected]:
    settings, trials = experiment.select, trials_in(read_frozen(experiment))
    complete = [trial for trial in trials if trial.outcome == "complete"]
    if not complete:
        raise NoneSelectedError(_why_none_is_complete(experiment, trials))
    ranked = best_first(_good_enough(complete, experiment))
    if settings.by == "goal" and experiment.goal is not None:
        return [_selected(experiment, trial) for trial in nearest_first(ranked, experiment.goal)[: settings.count]]
    if settings.by in ("pareto", "front"):
        ahead, others = _front(ranked, METRICS.get(score_of(metrics_of(trials)) or ""), experiment)
        ranked = ahead if settings.by == "front" else ahead + others
    return [_selected(experiment, trial) for trial in best_first(ranked[: settings.count])]


def _why_none_is_complete(experiment: Experiment, trials: Sequence[Trial]) -> str:
    if not trials:
        return f'the search of "{experiment.name}" found no operator in its space'
    if experiment.goal is not None and (nothing := nothing_meets(experiment.goal, trials)) is not None:
        return nothing
    messages = [trial.message for trial in trials if trial.message]
    last = messages[-1].splitlines()[0] if messages else "no reason was stored"
    return f'no trial of "{experiment.name}" can be selected: none is complete; the last says: {last}'


def _good_enough(trials: list[Trial], experiment: Experiment) -> list[Trial]:
    """Return the trials within the limits of `select`. NoneSelectedError without any, SpecError if metrics are missing."""
    settings = experiment.select
    limits = (("least_accuracy", ACCURACY, settings.least_accuracy or None), ("most_loss", LOSS, settings.most_loss))
    for option, metric, limit in limits:
        if limit is None:
            continue
        scored = _with_quality(trials, metric, f"{option} is {limit:g}", experiment)
        trials = [trial for quality, trial in scored if quality >= metric.quality(limit)]
        if not trials:
            raise NoneSelectedError(
                f'no trial of "{experiment.name}" can be selected: none that is complete meets select: {option}: {limit:g}; '
                "search longer, or change this limit"
            )
    return near_the_original(trials, experiment)


def _front(ranked: Sequence[Trial], metric: Metric | None, experiment: Experiment) -> tuple[list[Trial], list[Trial]]:
    """Return the trials on the Pareto front of score and FLOPs, and the others, both in the order of `ranked`."""
    if metric is None or not any(FLOPS in trial.metrics for trial in ranked):
        raise SpecError(
            f'select: by is "{experiment.select.by}", but the trials of "{experiment.name}" have no score, or '
            "no flops; give select: {by: reward}"
        )
    measured = [(trial.metrics.get(FLOPS, nan), trial.metrics.get(metric.key, nan)) for trial in ranked]
    on_front = set(front([(flops, metric.quality(score)) for flops, score in measured]))
    ahead = [trial for place, trial in enumerate(ranked) if place in on_front]
    return ahead, [trial for place, trial in enumerate(ranked) if place not in on_front]


def _selected(experiment: Experiment, trial: Trial) -> Selected:
    number = trial.number
    operator = parse_stored(trial.operator, f"operator of trial {number}", f"{experiment.name}_{number}")
    key = OperatorStore(experiment.folder).add(operator)
    return Selected(key=key, name=operator.name, trial=number, reward=trial.reward, metrics=dict(trial.metrics))
