"""The run in a folder of results: each part is read lazily from its records, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from syno.base.addresses import without_passwords
from syno.base.errors import SpecError
from syno.base.files import ORIGINAL
from syno.base.text_tables import Row
from syno.config import Experiment
from syno.config.kept_file import KEPT
from syno.config.kinds import RESULTS
from syno.ir.graph import PGraph
from syno.model.layer_row import as_table
from syno.model.networks import is_converted
from syno.run.goal import judged_networks
from syno.run.measurement import Measurement
from syno.run.run import Kept, LayerChoice, LayerOption, MixtureLayers, Run
from syno.run.speedups import known_speedups
from syno.run.story import answer, goal_text, mixture_lines
from syno.run.table import measurements_in, read_breakdown, read_measurements, trials_in
from syno.run.values import Latency, Round, Score, Speedup, TimedPart, Trial, best_first
from syno.run.views import latencies_of, layers_of, scores_of
from syno.stages.data import DataRecord
from syno.stages.goal import reward_at_goal
from syno.stages.mixtures import choice_of
from syno.stages.operators import network_of
from syno.stages.places import DATA, OPERATORS, SELECTED, WEIGHTS, training_file, worker_file
from syno.stages.provenance import check_shown
from syno.stages.rivals import rivals_of, speeds_of_rivals
from syno.stages.search import WorkerRecord
from syno.stages.selection import Selection, read_selection, why_none
from syno.stages.speedups import selected_speedups
from syno.stages.store import ID_DIGITS
from syno.stages.study import operators_of, read_frozen, shown_trials
from syno.train.metric import ACCURACY

if TYPE_CHECKING:
    from syno.stages.mixtures import ChoiceRecord
    from syno.stages.rivals import RivalRecord

MADE_BY = "syno tables"


class StoredRun(Run):
    """The run in an experiment's folder. Reading a part raises SpecError if its file is missing, damaged or of other settings.

    Attributes:
        experiment: the experiment of the run.
    """

    experiment: Experiment

    def __init__(self, experiment: Experiment, **known: object) -> None:
        """Make the run of an experiment; `known` are parts that are not read from files."""
        vars(self).update(known, experiment=experiment, name=experiment.name, goal=experiment.goal)

    # Records, each of which is read once.

    @cached_property
    def measured(self) -> list[Measurement]:
        """The measurements in the experiment's table of measurements."""
        if self.experiment.workload is None:
            return []
        return measurements_in(read_measurements(self.experiment.folder, MADE_BY))

    @cached_property
    def data(self) -> DataRecord | None:
        """The record of the data and the network; None if the stage `data` has left none."""
        file = self.experiment.folder / DATA
        return DataRecord.read(file) if file.is_file() else None

    @cached_property
    def selection(self) -> Selection:
        """The selected operators; an empty selection before the stage `select`."""
        file = self.experiment.folder / SELECTED
        return read_selection(file) if file.is_file() else Selection(selected=())

    @cached_property
    def rivals(self) -> dict[str, RivalRecord]:
        """The records of rivals, by name."""
        return rivals_of(self.experiment, self.selection.selected)

    @cached_property
    def choice_record(self) -> ChoiceRecord | None:
        """The record of the choice of mixtures; None if nothing was chosen yet."""
        return choice_of(self.experiment)

    # The parts of a run.

    @cached_property
    def trials(self) -> Sequence[Trial]:
        """The trials in the frozen table; empty if there was no search."""
        return trials_in(read_frozen(self.experiment)) if self.experiment.searches else []

    @cached_property
    def _unjudged(self) -> list[Score]:
        experiment, scores = self.experiment, scores_of(self.measured)
        if experiment.workload is not None and not scores:
            if experiment.train.seeds:
                raise SpecError(f"{experiment.folder / 'train'} has no training record yet; `syno train` writes one")
            if not any(one.metric == "latency" for one in self.measured):  # of networks or layers
                raise SpecError(f"{experiment.folder / 'tune'} has no measurement yet; `syno tune model` writes one")
        return scores

    @cached_property
    def scores(self) -> Sequence[Score]:
        """The scores of the trained networks, with the verdicts by the goal."""
        verdicts = {one.key: one for one in self.judged}
        return [verdicts.get(one.key, one) for one in self._unjudged]

    @cached_property
    def latencies(self) -> Sequence[Latency]:
        """The latencies of whole networks."""
        return latencies_of(self.measured)

    @cached_property
    def layers(self) -> Sequence[Latency]:
        """The latencies of single layers, if the experiment measures them."""
        return layers_of(self.measured) if self.experiment.tune.layers else []

    @cached_property
    def parts(self) -> Sequence[TimedPart]:
        """The parts of the networks' time, by the records of breakdowns."""
        return read_breakdown(self.experiment.folder, MADE_BY) if self.experiment.tune.breakdown else []

    @cached_property
    def judged(self) -> Sequence[Score]:
        """The networks with their verdicts; if none is trained, the measured networks."""
        if self.experiment.goal is None:
            return []
        measured: dict[str, Score] = {}
        for one in () if self._unjudged else self.latencies:
            if not is_converted(one.key):
                measured.setdefault(one.key, Score(one.operator, one.role, one.key, ACCURACY.key))
        searched = {one.key: one.metrics for one in self.selection.selected}
        again = {
            key: record.ratio
            for key, record in selected_speedups(self.experiment).items()
            if record.status == "ok" and record.ratio is not None
        }
        scores, rivals = self._unjudged or list(measured.values()), speeds_of_rivals(self.rivals)
        return judged_networks(self.experiment.goal, scores, self.latencies, searched, self.parts, again, rivals)

    @cached_property
    def speedups(self) -> Sequence[Speedup]:
        """The known speedups over the original, by network, compiler and device."""
        return known_speedups(self.latencies, self.experiment.goal, self.judged, self.parts)

    @cached_property
    def none_because(self) -> str | None:
        """The reason why no operator was selected, as a sentence; None if one was."""
        return why_none(self.selection)

    @cached_property
    def answer(self) -> tuple[str, ...]:
        """Sentences that say which operators meet the goal, or how near they come; () without a goal or networks.

        If no operator was selected, they say why, even without a goal.
        """
        goal, nothing = self.experiment.goal, self.none_because
        metric = self.metric if self._unjudged else None
        if nothing is not None and not self.experiment.rival_names:
            return (*(() if goal is None else (f"Goal: {goal_text(goal, metric)}.",)), nothing)
        if goal is None or not (self._unjudged or self.latencies):
            return () if nothing is None else (nothing,)
        lines = answer(goal, self.judged, metric, self.scores)
        missing = [f"The rival {one.name} is missing: {one.reasons[0]}." for one in self.rivals.values() if one.reasons]
        return (*(lines if nothing is None else [*lines[:-1], nothing]), *mixture_lines(self.choice), *missing)

    @cached_property
    def rounds(self) -> Sequence[Round]:
        """The score of each trained network after each round of each training, from the existing records."""
        from syno.train.training_record import TrainingRecord

        rounds = []
        for one in self._unjudged:
            for seed in self.experiment.train.seeds if not is_converted(one.key) else ():
                file = training_file(self.experiment, one.key, seed)
                if file.is_file():
                    record = TrainingRecord.read(file)
                    of_seed = enumerate(record.scores, 1)
                    rounds += [Round(one.operator, record.metric, seed, number, score) for number, score in of_seed]
        return rounds

    @cached_property
    def operators(self) -> Mapping[str, PGraph]:
        """The operators of the networks, by name; if none was trained or measured, the best operators of the search."""
        rows: dict[str, Score | Latency] = {}
        measured: list[Score | Latency] = [*self._unjudged, *self.latencies, *self.layers]
        for one in measured:
            if one.role != ORIGINAL and not is_converted(one.key) and one.key not in self.experiment.mixture_names:
                rows.setdefault(one.key, one)
        named = {one.operator: network_of(self.experiment, key).replacement for key, one in rows.items()}
        known = {name: operator for name, operator in named.items() if isinstance(operator, PGraph)}
        if any(one.role == "found" for one in rows.values()):
            return known
        return known | _best(self.experiment, self.trials, self.experiment.select.count)

    @cached_property
    def reward_at_goal(self) -> float | None:
        """The reward of an operator that just meets the goal; None where it is not defined (`syno.stages.goal`)."""
        return reward_at_goal(self.experiment, self.trials)

    @cached_property
    def network(self) -> tuple[Row, ...]:
        """The rows of the network's layers; none if the stage `data` has left no record."""
        return () if self.data is None else tuple(as_table(self.data.table, self.data.flops, self.data.time_shares))

    @cached_property
    def majority(self) -> tuple[int, float] | None:
        """The most frequent label of the test data and its share; None if the record of the data does not say it."""
        if self.data is None or self.data.majority is None or self.data.majority_label is None:
            return None
        return self.data.majority_label, self.data.majority

    @cached_property
    def choice(self) -> LayerChoice | None:
        """The operators of each mixture by layer; None without a record of the choice."""
        if self.choice_record is None:
            return None
        times = {} if self.data is None else {layer: self.data.time_shares.get(layer) for layer in self.data.layers}
        return layer_choice(self.choice_record, times)

    @cached_property
    def kept(self) -> Kept:
        """The items that commands can take home: networks with trained weights, operators, and the experiment's file."""
        folder, file, seeds = self.experiment.folder, self.experiment.folder / KEPT, self.experiment.train.seeds
        is_at_hand = folder.is_relative_to(RESULTS)  # where commands look for names
        files = {
            name: folder / OPERATORS / f"{operator.id[:ID_DIGITS]}.txt"
            for name, operator in self.operators.items()
            if not (is_at_hand and operator.name == name)
        }
        return Kept(
            str(folder.relative_to(RESULTS) if is_at_hand else folder),
            {name: str(one) for name, one in files.items() if one.is_file()},
            tuple(
                one.operator
                for one in self._unjudged
                if any(training_file(self.experiment, one.key, seed).with_suffix(WEIGHTS).is_file() for seed in seeds)
            ),
            without_passwords(file.read_text(encoding="utf-8")) if file.is_file() else "",
        )

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Lines on the origin of the numbers, from the records: machines, versions and dates."""
        experiment, workload = self.experiment, self.experiment.workload
        if experiment.searches:
            last = max((trial.ended for trial in self.trials if trial.ended is not None), default=None)
            lines = [
                f"measured here{'' if last is None else f' on {last:%Y-%m-%d}'}: experiment {experiment.name}, "
                f"{len(self.trials)} trials, policy {experiment.policy.get('name', 'mcts')}, seed {experiment.study.seed}",
                f"machine: {', '.join(_machines(experiment)) or 'unknown'}; {_versions(self.trials)}",
            ]
        else:
            origin = experiment.select.source or "the config"
            lines = [f"measured here: experiment {experiment.name}, with operators of {origin}"]
        if workload is not None:
            seeds = ", ".join(map(str, experiment.train.seeds))
            trained = f"{workload.training.epochs} epochs; trained again with seeds {seeds}" if seeds else "not trained"
            placed = "".join(f", with {one.replacement.name} in place of its layers {one.layers}," for one in workload.placed)
            lines.insert(1, f"{workload.model}{placed} on {workload.data}, {trained}")
        lines += [f"left out: device {name}, which was not there: {why}" for name, why in experiment.tune.left_out.items()]
        for what, timed in (("the whole network", self.latencies), ("single layers", self.layers)):
            if timed:
                lines.append(f"latency of {what}: batch {timed[0].batch}, CPU threads: {timed[0].threads}, random weights")
        return tuple(lines)


def read(experiment: Experiment) -> StoredRun:
    """Return the run of an experiment. SpecError if its results are of other settings."""
    check_shown(experiment)
    return StoredRun(experiment)


def so_far(experiment: Experiment, trials: Sequence[Trial], count: int) -> Run:
    """Return the run of a search that may not have ended, by its trials alone.

    Args:
        experiment: the experiment.
        trials: all trials.
        count: number of best operators to show. They are named after the experiment and their trials.
    """
    named = [replace(trial, name=f"{experiment.name}_{trial.number}") for trial in trials]
    nothing: dict[str, object] = {"measured": [], "_unjudged": [], "judged": [], "answer": (), "kept": Kept()}
    nothing |= {"parts": [], "choice": None, "majority": None, "none_because": None}
    return StoredRun(experiment, trials=named, operators=_best(experiment, named, count), **nothing)


def layer_choice(record: ChoiceRecord, times: Mapping[str, float | None]) -> LayerChoice:
    """Return a record's mixtures, each with the operator of each layer and its alternatives there.

    Args:
        record: the record of the choice.
        times: share of the original network's time of each layer that can be replaced, or None where it is not known. Without
                        any, the layers are those with alternatives.
    """
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


def _best(experiment: Experiment, trials: Sequence[Trial], count: int) -> dict[str, PGraph]:
    """Return the operators of the trials with the highest rewards, best first, by the names that the store gives them.

    If no trial has a reward, return the operators that came nearest to the goal.
    """
    shown = shown_trials(experiment, trials)
    ranked = best_first(shown)
    return {one.name: one for one in operators_of(experiment, ranked[:count] if ranked else shown)}


def _versions(trials: Sequence[Trial]) -> str:
    """Return a text with the versions of packages with which the trials ran."""
    known: dict[str, dict[str, None]] = {}
    for trial in trials:
        for package, version in trial.versions.items():
            known.setdefault(package, {})[version] = None
    return ", ".join(f"{package} {'/'.join(versions)}" for package, versions in known.items())


def _machines(experiment: Experiment) -> list[str]:
    """Return the names of the machines on which the search's workers ran, from their records."""
    files = sorted(worker_file(experiment, 1).parent.glob("worker*.json"))
    return list(dict.fromkeys(WorkerRecord.read(file).machine for file in files))
