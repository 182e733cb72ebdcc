"""The screening of a search with a goal: costs are counted, and latencies measured, before an operator is trained."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from syno.config import Experiment
from syno.results.goal_tables import end_of_search
from syno.search.screening import GoalScreen, ScreenedEvaluation
from syno.space.complete import cost
from syno.stages.speedups import speedups_of

if TYPE_CHECKING:
    import pandas
    from torch import nn

    from syno.ir.graph import PGraph
    from syno.measure.prediction.predictor import Prediction
    from syno.measure.speedup_record import SpeedupRecord
    from syno.measure.speedups import Speedups
    from syno.train.contract import Evaluation

GROWTH = 1.1  # the predictor learns again when there are so many times as many records


def limits(experiment: Experiment) -> tuple[int, float]:
    """Return the number of trials of a study, and how many operators may be screened out."""
    count = experiment.study.n_trials
    return count, inf if experiment.goal is None else experiment.goal.screened_for(count)


@contextmanager
def screened(experiment: Experiment, evaluate: Evaluation) -> Iterator[Evaluation]:
    """Yield the evaluation of an experiment, which screens operators first if there is a goal.

    Raises SpecError or MissingPackageError if this machine cannot measure with the goal's compiler on its device.
    """
    goal = experiment.goal
    if goal is None:
        yield evaluate
        return
    with ExitStack() as stack:
        learning = Learning(stack.enter_context(speedups_of(experiment, goal.compiler, goal.device))) if goal.measures else None
        measure, predict = (None, None) if learning is None else (learning.measure, learning.predict)
        yield ScreenedEvaluation(evaluate, GoalScreen(goal, Shares(experiment), measure, predict))


class Learning:
    """Measurements of speedups, and predictions that are learnt from them on the way, and from those that the store has."""

    def __init__(self, measurements: Speedups) -> None:
        from syno.measure.prediction.predictor import SpeedupPredictor  # imports torch

        self._speedups = measurements
        self._predictor = SpeedupPredictor()
        self._records = {record.operator_id: record for record in measurements.records()}
        self._learnt = 0  # records

    def measure(self, operator: PGraph) -> SpeedupRecord:
        """Return the record of an operator, measured unless the store has it."""
        record = self._records[operator.id] = self._speedups.of(operator)
        return record

    def predict(self, operator: PGraph) -> Prediction | None:
        """Return a prediction; None if too little is known, or the operator was measured before, so that this costs nothing."""
        if operator.id in self._records or self._speedups.known(operator) is not None:
            return None
        if len(self._records) >= max(1, GROWTH * self._learnt):
            self._learnt = len(self._records)
            self._predictor.fit(self._records.values())
        return self._predictor.predict(operator)


@dataclass(frozen=True)
class Shares:
    """The costs of the network with an operator, as shares of the original's."""

    experiment: Experiment

    def __call__(self, operator: PGraph) -> Mapping[str, float]:
        """Return the shares by the names of metrics. The file of weights is counted only if the goal limits it."""
        network, goal = self.experiment.network, self.experiment.goal
        counted, original = cost(operator, self.experiment.operator_spec), network.original
        found = {
            "parameters": counted.parameters / original.parameters,
            "memory_bytes": counted.memory_bytes / original.memory_bytes,
        }
        if goal is not None and goal.most_file_size is not None:
            found["file_bytes"] = _file_bytes(network.network(operator, 0)) / self._original_bytes
        return found

    @cached_property
    def _original_bytes(self) -> int:
        return _file_bytes(self.experiment.network.network(None, 0))


def _file_bytes(network: nn.Module) -> int:
    """Return the bytes of a network's weights and statistics in a file."""
    return sum(tensor.numel() * tensor.element_size() for tensor in network.state_dict().values())


def warn_of_end(experiment: Experiment, trials: pandas.DataFrame) -> None:
    """Warn if a search ended before its number of trials because operators cannot meet the goal. That is a result, too."""
    if experiment.goal is None:
        return
    text = end_of_search(experiment.goal, trials, experiment.study.n_trials)
    if text is not None:
        warnings.warn(f'study "{experiment.name}": {text}', stacklevel=3)
