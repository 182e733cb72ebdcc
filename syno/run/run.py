"""A run as a value: its trials, its networks and their layers by the records, with the verdicts by the goal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from syno.base.errors import SpecError
from syno.base.interval import Interval
from syno.base.text_tables import Row, plural
from syno.ir.graph import PGraph
from syno.run.values import Latency, Round, Score, Speedup, TimedPart, Trial
from syno.search.goal import Goal
from syno.train.metric import ACCURACY, CHANCE, METRICS, OF_ORIGINAL, Metric, score_of


class TrialOperator(NamedTuple):
    """A trial's operator.

    Attributes:
        name: the operator's name in the other tables of the page; for operators that are in none, the store's name, after the
            first trial with this operator.
        id: the operator's id; "" if the table of trials lacks it.
    """

    name: str
    id: str


@dataclass(frozen=True)
class Kept:
    """The files of an experiment that its users can take home.

    Attributes:
        experiment: The experiment's name in commands; "" if no command can read it.
        operators: The argument of `syno get` for each operator whose name does not suffice, by name.
        networks: The networks with trained weights, by the name that the tables use.
        settings: The experiment's file, without passwords.
    """

    experiment: str = ""
    operators: Mapping[str, str] = field(default_factory=dict)
    networks: tuple[str, ...] = ()
    settings: str = ""


@dataclass(frozen=True)
class LayerOption:
    """An operator in place of one layer, as it was measured for the choice of mixtures.

    Attributes:
        operator: the operator's name.
        saving: the time that it saves there, as a share of the original network's time; below 0 if it takes longer.
        loss: the loss of score attributed to it, in the unit of the score; None if it could not be trained.
        fit: the error of its fit to the layer; None for a layer with fewer channels, which is not fitted.
    """

    operator: str
    saving: float
    loss: float | None
    fit: float | None


@dataclass(frozen=True)
class MixtureLayers:
    """A mixture, layer by layer.

    Attributes:
        name: the mixture's name.
        base: the network around the operators: "original", or the name of a pruned network.
        operators: the operators' names by layer. The other layers stay.
        options: the alternatives in each layer of the base.
        expected: the expected speedup over the original, by the sum of its operators' savings; infinity if they save all of
            the time or more.
        speedup: the measured speedup by which it was chosen.
    """

    name: str
    base: str
    operators: Mapping[str, str]
    options: Mapping[str, tuple[LayerOption, ...]]
    expected: float
    speedup: Interval


@dataclass(frozen=True)
class LayerChoice:
    """The choice of an operator for each layer.

    Attributes:
        layers: the replaceable layers, each with its share of the original network's time; None where it is not known.
        by_hand: layers whose operator the experiment's settings fix.
        mixtures: the chosen mixtures, the best first.
    """

    layers: Mapping[str, float | None]
    by_hand: frozenset[str]
    mixtures: tuple[MixtureLayers, ...]


@dataclass(frozen=True, eq=False)
class Run:
    """A run of an experiment. Every part may be empty; a run in a folder reads each part lazily.

    Attributes:
        name: the experiment's name.
        trials: trials of the search.
        scores: scores of the trained networks, all of one metric, the best first, with the verdicts by the goal.
        latencies: latencies of whole networks.
        layers: latencies of single layers, if layers were measured by themselves.
        parts: the networks' time by parts, if a breakdown was measured.
        rounds: the score of each network, seed and round of its training.
        goal: the goal of the search; None without one.
        judged: all networks except the original, with their verdicts; if none was trained, the measured networks.
        answer: sentences that say whether the goal is met; none without a goal.
        speedups: the known speedups, one for each network, device and compiler.
        operators: the operators by their networks' names, without the original.
        reward_at_goal: the reward of an operator that just meets the goal; None if it is not defined.
        notes: lines that say where the numbers come from.
        network: a row for each kind of layer of the network (`syno.model.layer_row.as_table`).
        kept: the networks and operators that can be taken home, and the experiment's file.
        choice: the operator in each layer of each mixture, with the alternatives; None without mixtures.
        majority: the most frequent label of the test data, and its share of the labels; None if it is not known.
        none_because: why no operator was selected, as a sentence; None if one was.
    """

    name: str
    trials: Sequence[Trial] = ()
    scores: Sequence[Score] = ()
    latencies: Sequence[Latency] = ()
    operators: Mapping[str, PGraph] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    layers: Sequence[Latency] = ()
    parts: Sequence[TimedPart] = ()
    rounds: Sequence[Round] = ()
    goal: Goal | None = None
    judged: Sequence[Score] = ()
    answer: tuple[str, ...] = ()
    speedups: Sequence[Speedup] = ()
    reward_at_goal: float | None = None
    network: tuple[Row, ...] = ()
    kept: Kept = field(default_factory=Kept)
    choice: LayerChoice | None = None
    majority: tuple[int, float] | None = None
    none_because: str | None = None

    @cached_property
    def metric(self) -> Metric:
        """The metric of the scores; without scores, the metric of the trials; without both, accuracy."""
        names = list(dict.fromkeys(one.metric for one in self.scores))
        if len(names) > 1 or (names and names[0] not in METRICS):
            raise SpecError(f"the metric in the scores table is {', '.join(names)}; it must be one of: {', '.join(METRICS)}")
        return METRICS[names[0]] if names else METRICS.get(score_of(metrics_of(self.trials)) or "", ACCURACY)

    @cached_property
    def trial_operators(self) -> dict[int, TrialOperator]:
        """The operator of each trial, by the trial's number.

        Operators are identified by id, since all trials of a study have the network's name.
        """
        known = {operator.id: name for name, operator in self.operators.items()}
        operators: dict[int, TrialOperator] = {}
        for trial in self.trials:
            id_ = trial.operator_id
            name = known.setdefault(id_, f"{self.name}_{trial.number}") if id_ else trial.name
            operators[trial.number] = TrialOperator(name, id_)
        return operators


def metrics_of(trials: Iterable[Trial]) -> list[str]:
    """Return the names of the trials' metrics, in the order of their first occurrence."""
    return list(dict.fromkeys(name for trial in trials for name in trial.metrics))


def shown_metrics(names: Iterable[str]) -> list[str]:
    """Return those metrics of trials that are measurements of operators.

    Metrics of the original network, predictions, and the ends of intervals are left out.
    """
    beginnings, ends = (OF_ORIGINAL, CHANCE, "predicted_"), ("_low", "_high")
    return [name for name in names if not (name.startswith(beginnings) or name.endswith(ends))]


def search_rows(trials: Iterable[Trial], study: str, count: int) -> list[Row]:
    """Return a row for each of the best trials, the highest reward first, and the earlier trial first among equals.

    A row has the name of the trial's operator in the store, its reward and its metrics. FLOPs are shares of the original's, if
    that is known: the metric itself counts a batch of a training, or only the replaced layers.
    """
    complete = [trial for trial in trials if trial.outcome == "complete"]
    best = sorted(complete, key=lambda trial: (trial.reward is None, -(trial.reward or 0.0), trial.number))[:count]
    names, flops, of_original = metrics_of(best), "flops", f"{OF_ORIGINAL}flops"
    rows: list[Row] = []
    for trial in best:
        values: dict[str, object] = {name: trial.metrics.get(name) for name in shown_metrics(names)}
        if of_original in names and flops in trial.metrics:
            values[flops] = f"{trial.metrics[flops] / trial.metrics[of_original]:.1%}"
        named = {"FLOPs of original" if of_original in names and name == flops else name: one for name, one in values.items()}
        rows.append({"operator": f"{study}_{trial.number}", "reward": trial.reward, **named})
    return rows


def outcomes(trials: Sequence[Trial]) -> str:
    """Return the number of trials by outcome, in words: `30 trials (22 complete, 5 pruned, 3 failed)`."""
    count, kinds = plural(len(trials), "trial", ","), Counter(trial.outcome for trial in trials).most_common()
    return f"{count} ({', '.join(f'{number:,} {outcome}' for outcome, number in kinds)})" if kinds else count
