"""A run as a value: what its records say of its trials, its networks and their layers, with the verdicts by its goal."""

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
        name: as in the other tables of the page, if it is in them; else that of the store, by the first trial that found it.
        id: of the operator; "" if the table does not have it.
    """

    name: str
    id: str


@dataclass(frozen=True)
class Kept:
    """The files of an experiment that its users can take home.

    Attributes:
        experiment: The experiment, as commands take it; "" if they cannot.
        operators: What `syno get` finds an operator by, where that is not its name.
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
        operator: its name.
        saving: the time that it saves there, as a share of the original network's; below 0 if it takes longer.
        loss: what it is charged with, in the unit of the score; None if it could not be trained.
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
        name: of the mixture.
        base: the network around the operators: "original", or the name of a pruned one.
        operators: by their layers. The other layers stay.
        options: what there was to choose from in each layer of the base.
        expected: how many times as fast as the original it was to be, by the sum of what its operators save; infinity if
            that is all of the time or more.
        speedup: how many times as fast it was, by the measurement by which it was chosen.
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
        layers: those that can be replaced, each with its share of the original network's time; None where that is not known.
        by_hand: layers of which the experiment's settings say what is in them.
        mixtures: that were chosen, the best first.
    """

    layers: Mapping[str, float | None]
    by_hand: frozenset[str]
    mixtures: tuple[MixtureLayers, ...]


@dataclass(frozen=True, eq=False)
class Run:
    """A run of an experiment. Every part may be empty; a run in a folder reads a part when it is asked for.

    Attributes:
        name: of the experiment.
        trials: of the search.
        scores: of the networks that were trained, all of one metric, the best first, with the verdicts by the goal.
        latencies: of whole networks.
        layers: latencies of single layers, if layers were measured by themselves.
        parts: where the networks' time goes, if that was measured.
        rounds: the score of each network, seed and round of its training.
        goal: of the search; None without one.
        judged: the networks but the original, with the verdicts; those that were measured where none was trained.
        answer: sentences that say whether the goal is met; none without a goal.
        speedups: for each network, device and compiler with a known speedup.
        operators: by the name that the networks have, without the original.
        reward_at_goal: the reward of an operator that just meets the goal; None where that is not defined.
        notes: lines that say where the numbers come from.
        network: a row for each kind of layer of the network (`syno.model.layer_row.as_table`).
        kept: what can be taken home, and the experiment's file.
        choice: what is in each layer of the mixtures, and why; None without any.
        majority: the most frequent label of the test data, and its share of the labels; None where that is not known.
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

        All trials of a study have one name, which is that of the network. So an operator is recognized by its id.
        """
        known = {operator.id: name for name, operator in self.operators.items()}
        operators: dict[int, TrialOperator] = {}
        for trial in self.trials:
            id_ = trial.operator_id
            name = known.setdefault(id_, f"{self.name}_{trial.number}") if id_ else trial.name
            operators[trial.number] = TrialOperator(name, id_)
        return operators


def metrics_of(trials: Iterable[Trial]) -> list[str]:
    """Return the names of the metrics of trials, in the order in which they first come."""
    return list(dict.fromkeys(name for trial in trials for name in trial.metrics))


def shown_metrics(names: Iterable[str]) -> list[str]:
    """Return those metrics of trials that are measurements of operators.

    Left out are metrics of the original network, predictions, and the ends of intervals.
    """
    beginnings, ends = (OF_ORIGINAL, CHANCE, "predicted_"), ("_low", "_high")
    return [name for name in names if not (name.startswith(beginnings) or name.endswith(ends))]


def search_rows(trials: Iterable[Trial], study: str, count: int) -> list[Row]:
    """Return a row for each of the best trials, the highest reward first, and the earlier trial first among equals.

    A row has the name of the trial's operator in the store, its reward and its metrics. FLOPs are shares of the original's, if
    that has any: as they are, they are of a batch in a training, and of the replaced layers where costs are counted.
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
