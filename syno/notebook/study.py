"""Studies for Python users: a space, an objective, and the storage of trials.

It wraps `syno.search.study.Study` with the defaults of experiments, in this process. Other processes may work on the same
study.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pandas
from pydantic import ValidationError

from syno.base.errors import SpecError, suggestion
from syno.base.files import name_from
from syno.base.identity import Identity, identity_of
from syno.base.progress import Progress, display
from syno.base.registry import OWN_PACKAGE
from syno.base.validation import explained
from syno.config.experiment import policy_settings
from syno.config.stages import OF_TRAINING
from syno.ir.graph import PGraph
from syno.run.metric import front
from syno.run.run import outcomes, shown_metrics
from syno.run.table import METRIC, trials_in
from syno.search.policies.presets import named_policy
from syno.search.reward import REWARDS, Failure, Metrics, Outcome, Reward, from_settings
from syno.search.settings import OWN_CODE, OWN_NETWORK
from syno.search.storage.opening import SUFFIXES
from syno.search.storage.records import TrialRecord
from syno.search.study import Study as StoredStudy
from syno.space.space import Space
from syno.space.spec import OperatorSpec
from syno.train.contract import Evaluation, FunctionEvaluation, Report
from syno.train.metric import METRICS
from syno.train.metric import score_of as score_in

if TYPE_CHECKING:
    from syno.train.contract import Evaluation


# A user's own function as the evaluation of operators: it takes an operator, and returns a number or metrics by name.


VALUE = "value"  # the metric that a number becomes
Objective: TypeAlias = Callable[..., float | Mapping[str, float]]


class NetworkObjective(ABC):
    """An objective that evaluates operators in a network, and can evaluate the original network."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The settings on which the objective's results depend, as JSON."""

    @property
    def identity(self) -> Identity | None:
        """Identity of the user's own network and data; None without user code."""
        return None

    @abstractmethod
    def train_original(self) -> dict[str, Any]:
        """Train the original network, and return its score in the form that `evaluation` takes."""

    @abstractmethod
    def evaluation(self, spec: OperatorSpec, original: Mapping[str, Any] | None = None) -> Evaluation:
        """Return the evaluation of a spec's operators, which adds the original network's metrics to the operators' metrics.

        Raises SpecError if the spec is for other layers.
        """


class ValueReward(Reward):
    """The metric `value` itself, which must be from 0 to 1."""

    name = VALUE
    needs = (VALUE,)

    def of(self, metrics: Metrics) -> Outcome:
        """Return the metric `value` as the reward; a Failure if it is below 0 or above 1."""
        value = float(metrics[VALUE])
        if 0 <= value <= 1:
            return value
        return Failure(f"the objective returned {value:g}; without a reward it must be from 0 to 1, more is better", "function")


def evaluation_of(objective: Objective) -> Evaluation:
    """Return the evaluation that calls a function with an operator, or with an operator and a `syno.train.contract.Report`.

    A number that it returns becomes the metric `value`.

    Raises SpecError if the function accepts neither.
    """
    takes_report = _takes_report(objective)

    def evaluate(operator: PGraph, report: Report) -> Mapping[str, float]:
        result: Any = objective(operator, report) if takes_report else objective(operator)
        return result if isinstance(result, Mapping) else {VALUE: float(result)}

    return FunctionEvaluation(evaluate)


def _takes_report(objective: Objective) -> bool:
    """Return whether a function takes a report as second argument. SpecError if it takes neither one nor two arguments."""
    if not callable(objective):
        raise SpecError(
            f"the objective is {objective!r}; give a syno.Training, or a function that takes an operator and returns a number "
            "or metrics by name"
        )
    try:
        signature = inspect.signature(objective)
    except (TypeError, ValueError):  # such as a function in C
        return False
    for count in (2, 1):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        if count == 1 or _is_needed(signature):
            return count == 2
    raise SpecError(f"the objective takes {signature}; it must take an operator, or an operator and a report")


def _is_needed(signature: inspect.Signature) -> bool:
    """Return whether a function's second argument is required, or is called `report`."""
    places = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return len(places) > 1 and (places[1].default is inspect.Parameter.empty or places[1].name == "report")


# The table of a study's trials, as notebooks show it.


ID_DIGITS = 8
FIRST = ("number", "outcome", "reward")


class TrialTable(pandas.DataFrame):
    """A pandas frame with a row for each trial and the columns of `syno.search.storage.records.table`.

    When it is printed or shown by a notebook, it has only the main columns: the outcome, the reward, the metrics of the
    operator, and its id. Selections from it, such as some of its columns, are plain frames.
    """

    @property
    def short(self) -> pandas.DataFrame:
        """The displayed columns: metrics under their own names, the first digits of the operator's id, and messages."""
        names = [str(name).removeprefix(METRIC) for name in self if str(name).startswith(METRIC)]
        metrics, whole = {f"{METRIC}{name}": name for name in shown_metrics(names)}, pandas.DataFrame(self)
        shown = whole[[name for name in (*FIRST, *metrics, "seconds") if name in whole]].rename(columns=metrics)
        if "operator" in whole:
            shown["operator"] = [text.rstrip().rpartition("id ")[2][:ID_DIGITS] for text in whole["operator"]]
        if "message" in whole and whole["message"].any():
            shown["message"] = [text.partition("\n")[0] for text in whole["message"]]
        return shown.set_index("number").rename_axis(index=None, columns="number") if "number" in shown else shown

    def __repr__(self) -> str:
        return repr(self.short)

    def _repr_html_(self) -> str:
        """Return the HTML table that notebooks display."""
        return str(self.short.to_html(max_rows=60, border=0))


MEMORY = "memory:"
ORIGINAL = "original"  # under which the score of the original network is kept with the study
FUNCTION_POLICY = "mcts"  # of studies without a training, as in experiments


class Study:
    """A search for operators: trials of operators of a space, which are stored and can be resumed.

    >>> import syno
    >>> space = syno.Space(syno.preset("resnet18").with_(depth=4))
    >>> study = syno.Study(space, lambda operator: 1 / len(operator.weights), name="few_weights")
    >>> study.run(5, progress=False)
    >>> study
    <study few_weights: 5 trials (5 complete), best reward 1>
    >>> float(study.trials["reward"].max()) == study.best.reward
    True

    Attributes:
        space: the space of operators.
        name: name of the study in its storage.
        storage: URL of the storage.
    """

    def __init__(
        self,
        space: Space | OperatorSpec,
        objective: NetworkObjective | Objective,
        *,
        name: str | None = None,
        storage: str | Path | None = None,
        reward: str | Mapping[str, Any] | Reward | None = None,
        policy: str | Mapping[str, Any] | None = None,
        warm_start: Sequence[PGraph] = (),
        seed: int = 0,
    ) -> None:
        """Open or create a study.

        Args:
            space: the space of operators, or its spec.
            objective: a `syno.Training`; or a function that takes an operator, and returns a number from 0 to 1, more is
                better, or metrics by name, among them `value` or those that the reward reads. With a second argument, it also
                gets a report, to be called with a step and a value (`syno.search.evaluation.Report`). An exception fails the
                trial, and the study continues.
            name: name of the study in its storage; by default that of the space.
            storage: a file, such as "trials.db" (a database) or "trials.log" (a journal), or the URL of a database. An existing
                study in it continues. None: the trials are lost at the end of the process.
            reward: computes the reward in [0, 1] from the metrics: a name in `syno.REWARDS`, a mapping with its name and
                settings, or a Reward. By default "relative" for a training, and the metric `value` for a function.
            policy: the policy that proposes operators: a name in `syno.POLICIES`, or a mapping with its name and settings.
                Default: "surrogate" for a training, "mcts" for a function.
            warm_start: operators of the space that the first trials evaluate, in this order.
            seed: seed of the policy.

        Raises SpecError if the storage has a study of this name with other settings (the message names them), or if an argument
        is invalid; UnknownNameError for an unknown policy or reward.
        """
        from optuna import logging  # slow to import

        logging.set_verbosity(logging.WARNING)
        self.space = space if isinstance(space, Space) else Space(space)
        self.objective = objective
        self.storage = storage_url(storage)
        spec, training = self.space.spec, objective if isinstance(objective, NetworkObjective) else None
        self.name = name_from(spec.name) if name is None else name
        chosen = named_policy(policy or (OF_TRAINING["policy"] if training else FUNCTION_POLICY))
        self._reward = make_reward(reward or (OF_TRAINING["reward"] if training else ValueReward()))
        self._evaluate = None if isinstance(objective, NetworkObjective) else evaluation_of(objective)
        more: dict[str, Any] = {"spec": spec.model_dump(mode="json", exclude={"name"})}
        things: dict[str, Any] = {} if type(self._reward).__module__.startswith(OWN_PACKAGE) else {"the reward": self._reward}
        if training is not None:
            training.evaluation(spec)  # raises if the space is not the network's
            more["workload"] = training.settings
            more |= {OWN_NETWORK: training.identity.stored} if training.identity is not None else {}
        else:
            things["the objective"] = objective
        more |= {OWN_CODE: identity_of(things).stored} if things else {}
        self._stored = StoredStudy(
            self.space,
            space_id=spec.id,
            more_settings=more,
            name=self.name,
            storage=self.storage,
            policy=str(chosen.get("name", FUNCTION_POLICY)),
            policy_settings=policy_settings(chosen),
            seed=seed,
            reward=self._reward,
            warm_start=warm_start,
        )

    def run(self, n_trials: int, *, progress: bool = True) -> None:
        """Evaluate operators until the study has `n_trials` trials, including those of earlier runs, or no operator is left.

        It can be interrupted (Ctrl-C, or the notebook's stop button) and called again; the interrupted trial is repeated. A
        study with `syno.Training` begins with a training of the original network, whose score is stored with the study.

        Args:
            n_trials: the total number of trials. Interrupted and duplicate trials do not count.
            progress: whether the progress is shown: a bar on a terminal, a line every 30 seconds elsewhere.

        Raises SearchStoppedError if evaluations fail for reasons other than the operators, such as an objective that always
        raises an exception.
        """
        shown = display() if progress else None
        self._stored.run(self._evaluation(progress), n_trials, display=shown)

    def _evaluation(self, progress: bool) -> Evaluation:
        """Return the evaluation; trains the original network first, if the reward needs its score and it is not stored yet."""
        if self._evaluate is None:
            training, original = self.objective, None
            assert isinstance(training, NetworkObjective)
            if self._reward.compares_scores:
                original = self._stored.kept(ORIGINAL)
                if original is None:
                    if progress:
                        with display() as shown:
                            shown.show(Progress(f"{self.name}, training the network as it is", 0, 1, 0))
                    original = training.train_original()
                    self._stored.keep(ORIGINAL, original)
            self._evaluate = training.evaluation(self.space.spec, original)
        return self._evaluate

    @property
    def trials(self) -> TrialTable:
        """All trials, one row each, as a pandas frame; `syno.search.storage.records.table` documents the columns."""
        return TrialTable(self._stored.trials)

    @property
    def best(self) -> TrialRecord:
        """The trial with the highest reward: `operator`, `reward`, `metrics`, `number`. SpecError if no trial has a reward."""
        best = self.best_trials(1)
        if not best:
            raise SpecError(f"the study {self.name} has {outcomes(trials_in(self.trials))}, none with a reward; {self._why()}")
        return best[0]

    def best_trials(self, count: int = 5) -> list[TrialRecord]:
        """Return the trials with the highest rewards, best first. Operators are named after the study and the trial."""
        return [
            replace(record, operator=record.operator.renamed(f"{name_from(self.name)}_{record.number}"))
            for record in self._stored.best(count)
        ]

    def front(self, cost: str = "flops", score: str | None = None) -> TrialTable:
        """Return the trials on the Pareto front: no other trial costs less and is better. Sorted by ascending cost.

        Args:
            cost: a metric of which less is better.
            score: a metric of which more is better, except metrics with another direction, such as "loss"; None: the score of a
                training, otherwise the reward.

        Raises SpecError if no complete trial has these metrics; the message lists the existing ones.
        """
        done = rewarded(self.trials)
        chosen = score_of(done) if score is None else score
        names = [metric_column(done, metric) for metric in (cost, chosen)]
        sign = -1 if chosen in METRICS and not METRICS[chosen].more_is_better else 1
        points = [(float(x), sign * float(y)) for x, y in done[names].itertuples(index=False)]
        return TrialTable(done.iloc[front(points)])

    def _why(self) -> str:
        trials = self.trials
        messages = [] if trials.empty else [str(message).splitlines()[0] for message in trials["message"] if message]
        return f"the last one says: {messages[-1]}" if messages else "call run(n_trials) first"

    def __repr__(self) -> str:
        trials = self.trials
        best = self.best_trials(1)
        return f"<study {self.name}: {outcomes(trials_in(trials))}{f', best reward {best[0].reward:.4g}' if best else ''}>"


def storage_url(storage: str | Path | None) -> str:
    """Return the URL of a storage: a file's path is a journal if it ends in .log or .journal, else an SQLite database."""
    if storage is None:
        return MEMORY
    text = str(storage)
    if isinstance(storage, str) and (text == MEMORY or "://" in text or text.startswith("journal:")):
        return text
    return text if text.endswith(SUFFIXES) else f"sqlite:///{text}"


def rewarded(trials: pandas.DataFrame) -> pandas.DataFrame:
    """Return the complete trials, sorted by number."""
    return trials[(trials["outcome"] == "complete") & trials["reward"].notna()].sort_values("number")


def make_reward(reward: str | Mapping[str, Any] | Reward) -> Reward:
    """Return a reward from its name, or its name and settings. Raises UnknownNameError or SpecError."""
    if isinstance(reward, Reward):
        return reward
    settings = {"name": reward} if isinstance(reward, str) else reward
    try:
        return from_settings(settings)
    except ValidationError as error:
        raise SpecError(f"reward: {explained(error, REWARDS.find(settings.get('name', 'accuracy')))}") from None


def score_of(trials: Any) -> str:
    """Return the metric by which trials are compared: their score if they have one, otherwise their reward."""
    return score_in(str(name).removeprefix(METRIC) for name in trials.columns if str(name).startswith(METRIC)) or "reward"


def metric_column(trials: Any, name: str) -> str:
    """Return the column of a metric (also "reward" and "seconds") in a table of trials. SpecError if there is none."""
    if name in ("reward", "seconds") and name in trials.columns:
        return name
    if f"{METRIC}{name}" in trials.columns:
        return f"{METRIC}{name}"
    known = [str(column).removeprefix(METRIC) for column in trials.columns if str(column).startswith(METRIC)]
    raise SpecError(
        f'no complete trial has the metric "{name}"; there are: {", ".join(["reward", *known])}. An objective returns metrics '
        f"by name, as {{'value': 0.9, 'flops': 1e6}}.{suggestion(name, known)}"
    )
