"""The results of an experiment, read for figures and for the page: trials, measurements and operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from syno.base.addresses import without_passwords
from syno.base.files import ORIGINAL
from syno.base.text_tables import Row
from syno.config import Experiment
from syno.config.kept_file import KEPT
from syno.config.kinds import RESULTS
from syno.ir.graph import PGraph
from syno.model.layer_row import as_table
from syno.model.networks import is_converted
from syno.run.values import (
    LEARNING_COLUMNS,
    TRIAL_COLUMNS,
    Latency,
    Score,
    best_first,
    latencies_in,
    scores_in,
    trials_in,
)
from syno.stages import study as freeze
from syno.stages import tables
from syno.stages.data import DataRecord
from syno.stages.goal import answer_of, reward_at_goal, verdict_table
from syno.stages.kept import check_shown
from syno.stages.mixtures import choice_of
from syno.stages.operators import network_of
from syno.stages.places import DATA, OPERATORS, SELECTED, WEIGHTS, training_file, worker_file
from syno.stages.search import WorkerRecord
from syno.stages.selection import why_none
from syno.stages.store import ID_DIGITS

if TYPE_CHECKING:
    import pandas

    from syno.report.results import Kept, LayerChoice, Results
    from syno.stages.mixtures import ChoiceRecord


def read(experiment: Experiment) -> Results:
    """Return the frozen trials, and the tables if it trains. SpecError if they are not there, or of other settings."""
    import pandas

    from syno.report.results import Results, no_breakdown, no_layers
    from syno.run.breakdown import read_breakdown
    from syno.run.speedups import speedup_view
    from syno.run.table import LATENCY_COLUMNS, SCORE_COLUMNS, layer_view

    check_shown(experiment)
    trials = _trials(experiment)
    if experiment.workload is None:
        scores = pandas.DataFrame(columns=[*SCORE_COLUMNS, "key"])
        latency = pandas.DataFrame(columns=[*LATENCY_COLUMNS, "key"])
        layers = no_layers()
    else:
        found = tables.read_measured(experiment)
        scores, latency = tables.views_of(found, experiment)
        layers = layer_view(found) if experiment.tune.layers else no_layers()
    measured: list[Score | Latency] = [*scores_in(scores), *latencies_in(latency), *latencies_in(layers, "layers")]
    operators = _operators(experiment, trials, measured)
    parts = read_breakdown(experiment.folder) if experiment.tune.breakdown else no_breakdown()
    nothing = why_none(experiment.folder / SELECTED)
    return Results(
        experiment.name,
        trials,
        scores,
        latency,
        operators,
        _notes(experiment, trials, latency, layers),
        layers,
        tuple(line for line in answer_of(experiment, scores, latency) if line != nothing),  # the verdict says it
        speedup_view(latency, experiment.goal, verdict_table(experiment, scores, latency), parts),
        experiment.goal,
        reward_at_goal(experiment, trials),
        parts,
        _network(experiment),
        _takeable(experiment, scores, operators),
        _learning(experiment, scores),
        nothing,
        _majority(experiment),
        _choice(experiment),
    )


def so_far(experiment: Experiment, trials: pandas.DataFrame, count: int) -> Results:
    """Return the results of a search that may still run, from its trials alone.

    Args:
        experiment: the experiment.
        trials: all trials, as in `syno.search.storage.records.table`.
        count: how many of the best operators are shown. They are named after the experiment and their trials.
    """
    import pandas

    from syno.report.results import Results, no_layers
    from syno.run.table import LATENCY_COLUMNS, SCORE_COLUMNS

    if trials.empty:
        trials = pandas.DataFrame(columns=[*TRIAL_COLUMNS, "ended"])
    trials = trials.assign(name=[f"{experiment.name}_{number}" for number in trials["number"]])
    scores, latency = (pandas.DataFrame(columns=[*names, "key"]) for names in (SCORE_COLUMNS, LATENCY_COLUMNS))
    return Results(
        experiment.name,
        trials,
        scores,
        latency,
        _best(experiment, trials, count),
        _notes(experiment, trials, latency, no_layers()),
        aim=experiment.goal,
        reward_at_goal=reward_at_goal(experiment, trials),
        network=_network(experiment),
    )


def _learning(experiment: Experiment, scores: pandas.DataFrame) -> pandas.DataFrame:
    """Return the score of each trained network after each round of each training, as far as the records are there."""
    import pandas

    from syno.train.training_record import TrainingRecord

    rows = []
    for one in scores_in(scores):
        files = (
            {seed: training_file(experiment, one.key, seed) for seed in experiment.train.seeds}
            if not is_converted(one.key)
            else {}
        )
        for seed, file in files.items():
            if file.is_file():
                record = TrainingRecord.read(file)
                rows += [(one.operator, one.role, record.metric, seed, *found) for found in enumerate(record.scores, 1)]
    return pandas.DataFrame(rows, columns=list(LEARNING_COLUMNS))


def _takeable(experiment: Experiment, scores: pandas.DataFrame, operators: Mapping[str, PGraph]) -> Kept:
    """Return the things that commands can take home: networks with trained weights, operators, and the experiment's file."""
    from syno.report.results import Kept

    folder, file = experiment.folder, experiment.folder / KEPT
    is_at_hand = folder.is_relative_to(RESULTS)  # where commands look for names
    files = {
        name: folder / OPERATORS / f"{operator.id[:ID_DIGITS]}.txt"
        for name, operator in operators.items()
        if not (is_at_hand and operator.name == name)
    }
    seeds = experiment.train.seeds
    return Kept(
        str(folder.relative_to(RESULTS) if is_at_hand else folder),
        {name: str(one) for name, one in files.items() if one.is_file()},
        tuple(
            one.operator
            for one in scores_in(scores)
            if any(training_file(experiment, one.key, seed).with_suffix(WEIGHTS).is_file() for seed in seeds)
        ),
        without_passwords(file.read_text(encoding="utf-8")) if file.is_file() else "",
    )


def _majority(experiment: Experiment) -> tuple[int, float] | None:
    """Return the most frequent label of the test data and its share; None if the record of the data does not say it."""
    file = experiment.folder / DATA
    record = DataRecord.read(file) if file.is_file() else None
    if record is None or record.majority is None or record.majority_label is None:
        return None
    return record.majority_label, record.majority


def _choice(experiment: Experiment) -> LayerChoice | None:
    """Return the operators of each mixture by layer; None without a record of the choice."""
    record, file = choice_of(experiment), experiment.folder / DATA
    if record is None:
        return None
    data = DataRecord.read(file) if file.is_file() else None
    times = {} if data is None else {layer: data.time_shares.get(layer) for layer in data.layers}
    return layer_choice(record, times)


def layer_choice(record: ChoiceRecord, times: Mapping[str, float | None]) -> LayerChoice:
    """Return the operators of each mixture of a record by layer, with the alternatives.

    Args:
        record: of the choice.
        times: share of the original network's time of each layer that can be replaced, or None where it is not known. Without
            any, the layers are those that had a choice.
    """
    from syno.report.results import LayerChoice, LayerOption, MixtureLayers

    options: dict[str, dict[str, tuple[LayerOption, ...]]] = {}
    for one in record.alternatives:
        of_base = options.setdefault(one.base, {})
        of_base[one.layer] = (*of_base.get(one.layer, ()), LayerOption(one.operator, one.saving, one.loss, one.fit))
    mixtures = []
    for chosen in record.mixtures:
        mixture = chosen.replacement
        base = ORIGINAL if mixture.base is None else mixture.base.name
        operators = {layer: operator.name for layer, operator in mixture.layers.items()}
        found = options.get(base, {})
        mixtures.append(MixtureLayers(mixture.name, base, operators, found, chosen.expected, chosen.speedup))
    known = times or dict.fromkeys(one.layer for one in record.alternatives)
    return LayerChoice(known, frozenset(record.by_hand), tuple(mixtures))


def _network(experiment: Experiment) -> tuple[Row, ...]:
    """Return the rows of the network's layers; none if the stage `data` has left no record."""
    file = experiment.folder / DATA
    if not file.is_file():
        return ()
    record = DataRecord.read(file)
    return tuple(as_table(record.table, record.flops, record.time_shares))


def _trials(experiment: Experiment) -> pandas.DataFrame:
    """Return the frozen trials; none where there was no search."""
    import pandas

    return freeze.read_frozen(experiment) if experiment.searches else pandas.DataFrame(columns=[*TRIAL_COLUMNS, "ended"])


def _operators(experiment: Experiment, trials: pandas.DataFrame, measured: Iterable[Score | Latency]) -> dict[str, PGraph]:
    """Return the operators in the tables; where none was trained and measured, the best of the search."""
    given: dict[str, PGraph] = {}
    rows: dict[str, Score | Latency] = {}
    for one in measured:
        if one.role != ORIGINAL and not is_converted(one.key):
            rows.setdefault(one.key, one)
    for key, one in rows.items():
        operator = network_of(experiment, key).replacement
        if isinstance(operator, PGraph):
            given[one.operator] = operator
    if any(one.role == "found" for one in rows.values()):
        return given
    return given | _best(experiment, trials, experiment.select.count)


def _best(experiment: Experiment, trials: pandas.DataFrame, count: int) -> dict[str, PGraph]:
    """Return the operators of the trials with the highest rewards, best first, by the names that the store gives them.

    Without any, they are those that came nearest to the goal.
    """
    shown = freeze.shown_trials(experiment, trials_in(trials))
    ranked = best_first(shown)
    return {one.name: one for one in freeze.operators_of(experiment, ranked[:count] if ranked else shown)}


def _notes(
    experiment: Experiment, trials: pandas.DataFrame, latency: pandas.DataFrame, layers: pandas.DataFrame
) -> tuple[str, ...]:
    """Return lines that say where the numbers come from, according to the records."""
    study, workload = experiment.study, experiment.workload
    versions = ", ".join(
        f"{name.removeprefix('version_')} {'/'.join(map(str, trials[name].dropna().unique()))}"
        for name in map(str, trials)
        if name.startswith("version_")
    )
    lines = [
        f"measured here{_day(trials)}: experiment {experiment.name}, {len(trials)} trials, "
        f"policy {experiment.policy.get('name', 'mcts')}, seed {study.seed}",
        f"machine: {', '.join(_machines(experiment)) or 'unknown'}; {versions}",
    ]
    if not experiment.searches:
        origin = experiment.select.source or "the config"
        lines = [f"measured here: experiment {experiment.name}, with operators of {origin}"]
    if workload is not None:
        seeds = ", ".join(map(str, experiment.train.seeds))
        trained = f"{workload.training.epochs} epochs; trained again with seeds {seeds}" if seeds else "not trained"
        placed = "".join(f", with {one.replacement.name} in place of its layers {one.layers}," for one in workload.placed)
        lines.insert(1, f"{workload.model}{placed} on {workload.data}, {trained}")
    lines += [f"left out: device {name}, which was not there: {why}" for name, why in experiment.tune.left_out.items()]
    for what, table in (("the whole network", latency), ("single layers", layers)):
        if not table.empty:
            (first,) = latencies_in(table.head(1))
            lines.append(f"latency of {what}: batch {first.batch}, CPU threads: {first.threads}, random weights")
    return tuple(lines)


def _day(trials: pandas.DataFrame) -> str:
    """Return the day on which the last trial ended, as text."""
    last = trials["ended"].max()
    return "" if last != last else f" on {last:%Y-%m-%d}"


def _machines(experiment: Experiment) -> list[str]:
    """Return the machines on which the search ran."""
    files = sorted(worker_file(experiment, 1).parent.glob("worker*.json"))
    return list(dict.fromkeys(WorkerRecord.read(file).machine for file in files))
