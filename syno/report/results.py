"""The results of an experiment as tables: the input of its figures, its page and `syno top`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from syno.base.errors import SpecError
from syno.base.interval import Interval
from syno.base.text_tables import Row, plural
from syno.ir.graph import PGraph
from syno.run.breakdown import BREAKDOWN_COLUMNS
from syno.run.metric import metric_of_trials
from syno.run.table import LATENCY_COLUMNS, SCORE_COLUMNS, SPEEDUP_COLUMNS
from syno.run.values import (
    LEARNING_COLUMNS,
    METRIC,
    TRIAL_COLUMNS,
    Latency,
    Score,
    Speedup,
    Trial,
    complete,
    latencies_in,
    scores_in,
    speedups_in,
    trials_in,
)
from syno.search.goal import Goal
from syno.train.metric import ACCURACY, CHANCE, METRICS, OF_ORIGINAL, Metric

if TYPE_CHECKING:
    import pandas

FLOPS = "metric_flops"  # column of trials


def no_layers() -> pandas.DataFrame:
    """Return a table of layers without rows."""
    import pandas

    return pandas.DataFrame(columns=["key", *LATENCY_COLUMNS, "layer"])


def no_speedups() -> pandas.DataFrame:
    """Return a table of speedups without rows."""
    import pandas

    return pandas.DataFrame(columns=list(SPEEDUP_COLUMNS))


def no_breakdown() -> pandas.DataFrame:
    """Return a table of the parts of networks' times without rows."""
    import pandas

    return pandas.DataFrame(columns=list(BREAKDOWN_COLUMNS))


def no_learning() -> pandas.DataFrame:
    """Return a table of learning curves without rows."""
    import pandas

    return pandas.DataFrame(columns=list(LEARNING_COLUMNS))


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


@dataclass(frozen=True)
class Results:
    """The results of one experiment. Each table may be empty.

    Attributes:
        name: The name of the experiment.
        trials: A row for each trial (`syno.search.storage.records.table`).
        scores: A row for each operator, all of one metric (`syno.run.table.score_view`).
        latency: A row for each operator, device and compiler (`syno.run.table.latency_view`).
        layers: A row for each layer, operator, device and compiler, if layers were measured by themselves
            (`syno.run.table.layer_view`).
        operators: The operators by the name that the tables use, without the original.
        notes: Lines that say where the results come from.
        goal: Sentences that say whether the goal of the search is met; none without a goal.
        speedups: A row for each operator, device and compiler with a known speedup (`syno.run.speedups.speedup_view`).
        aim: The goal of the search; None without one.
        reward_at_goal: The reward of an operator that just meets the goal; None where that is not defined.
        breakdown: A row for each part of a network's time, if that was measured
            (`syno.run.breakdown.BREAKDOWN_COLUMNS`).
        network: A row for each kind of layer of the network (`syno.model.layer_row.as_table`).
        kept: What can be taken home, and the experiment's file.
        choice: What is in each layer of the mixtures, and why; None without any.
        majority: The most frequent label of the test data, and its share of the labels; None where that is not known.
        learning: A row for each network, seed and round of its training (`LEARNING_COLUMNS`).
        none_because: Why no operator was selected, as a sentence; None if one was.

    Raises SpecError if a table lacks a column, or the scores are of no metric or of several.
    """

    name: str
    trials: pandas.DataFrame
    scores: pandas.DataFrame
    latency: pandas.DataFrame
    operators: Mapping[str, PGraph]
    notes: tuple[str, ...] = ()
    layers: pandas.DataFrame = field(default_factory=no_layers)
    goal: tuple[str, ...] = ()
    speedups: pandas.DataFrame = field(default_factory=no_speedups)
    aim: Goal | None = None
    reward_at_goal: float | None = None
    breakdown: pandas.DataFrame = field(default_factory=no_breakdown)
    network: tuple[Row, ...] = ()
    kept: Kept = field(default_factory=Kept)
    learning: pandas.DataFrame = field(default_factory=no_learning)
    none_because: str | None = None
    majority: tuple[int, float] | None = None
    choice: LayerChoice | None = None

    def __post_init__(self) -> None:
        complete(self.trials, TRIAL_COLUMNS, "trials")
        complete(self.scores, SCORE_COLUMNS, "scores")
        metric_of(self.scores)
        complete(self.latency, LATENCY_COLUMNS, "latency")

    # The tables as values, each read once.

    @cached_property
    def score_list(self) -> list[Score]:
        """The rows of `scores`."""
        return scores_in(self.scores)

    @cached_property
    def latency_list(self) -> list[Latency]:
        """The rows of `latency`."""
        return latencies_in(self.latency)

    @cached_property
    def layer_list(self) -> list[Latency]:
        """The rows of `layers`."""
        return latencies_in(self.layers, "layers")

    @cached_property
    def speedup_list(self) -> list[Speedup]:
        """The rows of `speedups`."""
        return speedups_in(self.speedups)

    @cached_property
    def trial_list(self) -> list[Trial]:
        """The rows of `trials`."""
        return trials_in(self.trials)

    @cached_property
    def trial_operators(self) -> dict[int, TrialOperator]:
        """The operator of each trial, by the trial's number.

        All trials of a study have one name, which is that of the network. So an operator is recognized by its id.
        """
        known = {operator.id: name for name, operator in self.operators.items()}
        found: dict[int, TrialOperator] = {}
        for trial in self.trial_list:
            id_ = trial.operator_id
            name = known.setdefault(id_, f"{self.name}_{trial.number}") if id_ else trial.name
            found[trial.number] = TrialOperator(name, id_)
        return found

    @property
    def metric(self) -> Metric:
        """The metric of the scores; without scores, the metric of the trials; without both, accuracy."""
        if self.scores.empty:
            return metric_of_trials(self.trials.columns) or ACCURACY
        return metric_of(self.scores)


@dataclass(frozen=True)
class Picture:
    """A figure of the page.

    Attributes:
        title: The title.
        svg: An SVG document.
        caption: How to read it.
    """

    title: str
    svg: str
    caption: str = ""


def metric_of(scores: pandas.DataFrame) -> Metric:
    """Return the metric of a table of scores; accuracy if it is empty. SpecError if it is of none or of several."""
    if scores.empty:
        return ACCURACY
    given = list(map(str, scores["metric"].unique()))
    if len(given) == 1 and given[0] in METRICS:
        return METRICS[given[0]]
    raise SpecError(f"the metric in the scores table is {', '.join(given)}; it must be one of: {', '.join(METRICS)}")


def rewarded(trials: pandas.DataFrame) -> pandas.DataFrame:
    """Return the complete trials by number."""
    return trials[(trials["outcome"] == "complete") & trials["reward"].notna()].sort_values("number")


def search_rows(trials: pandas.DataFrame, study: str, count: int) -> list[Row]:
    """Return a row for each of the best trials, the highest reward first, and the earlier trial first among equals.

    A row has the name of the trial's operator in the store, its reward and its metrics. FLOPs are shares of the original's, if
    that has any: as they are, they are of a batch in a training, and of the replaced layers where costs are counted.
    """
    complete = trials[trials["outcome"] == "complete"]
    best = complete.sort_values(["reward", "number"], ascending=[False, True]).head(count)
    shown, shares = shown_metrics(best), f"{METRIC}{OF_ORIGINAL}flops" in best
    if shares:
        best = best.assign(**{FLOPS: [f"{share:.1%}" for share in best[FLOPS] / best[f"{METRIC}{OF_ORIGINAL}flops"]]})
        shown[FLOPS] = "FLOPs of original"
    return [
        {
            "operator": f"{study}_{row['number']}",
            "reward": row["reward"],
            **{name: row[column] for column, name in shown.items()},
        }
        for _, row in best.iterrows()
    ]


def shown_metrics(trials: pandas.DataFrame) -> dict[str, str]:
    """Return the columns of trials with measurements of operators, and the names of the metrics.

    Left out are metrics of the original network, predictions, and the ends of intervals.
    """
    metrics = {str(column): str(column).removeprefix(METRIC) for column in trials if str(column).startswith(METRIC)}
    left_out = ((OF_ORIGINAL, CHANCE, "predicted_"), ("_low", "_high"))  # beginnings and ends of names
    return {
        column: name for column, name in metrics.items() if not (name.startswith(left_out[0]) or name.endswith(left_out[1]))
    }


def outcomes(trials: pandas.DataFrame) -> str:
    """Return the number of trials by outcome, in words: `30 trials (22 complete, 5 pruned, 3 failed)`."""
    count = plural(len(trials), "trial", ",")
    if trials.empty:
        return count
    return f"{count} ({', '.join(f'{number:,} {outcome}' for outcome, number in trials['outcome'].value_counts().items())})"
