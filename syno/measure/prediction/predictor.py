"""Predictions of the speedup of a network by an operator, learnt from measurements on the way.

predictor = SpeedupPredictor().fit(speedups.records())
if predictor.may_meet(operator, 1.5):
    record = speedups.of(operator)  # measure it
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from syno.base.errors import SpecError, SynoError
from syno.ir.graph import PGraph
from syno.measure.network_subject import BackboneSubject
from syno.measure.prediction.description import Description, describe
from syno.measure.prediction.kernels import kernels
from syno.measure.prediction.model import QUANTILE, TimeModel
from syno.measure.speedup_record import Conditions, SpeedupRecord
from syno.model.baselines import read_replacement

LEAST_RECORDS = 8  # with fewer, nothing is predicted


class Prediction(NamedTuple):
    """A predicted speedup, and the interval in which 90 % of the measured ones are."""

    speedup: float
    low: float
    high: float


class SpeedupPredictor:
    """A predictor of one network's speedups by operators, with one compiler on one device.

    It predicts from the kernels that operators run in the network's layers (`kernels`), whose times it learns (`model`). Equal
    records give equal predictions, in any order. It predicts nothing before there are 8 measurements. The less it knows about
    kernels like an operator's, the wider is the interval; then measuring decides.

    Args:
        layers: the sizes of each replaced layer, with the batch; None: those of the network in the first record.
        constant_weights: whether what depends on weights alone was computed once, as all compilers of Syno do now.
    """

    def __init__(self, layers: Sequence[Mapping[str, int]] | None = None, *, constant_weights: bool = True) -> None:
        self._layers = None if layers is None else _counted(layers)
        self._constant_weights = constant_weights
        self._conditions: Conditions | None = None
        self._known: dict[str, Description] = {}
        self.model: TimeModel | None = None

    def fit(self, records: Iterable[SpeedupRecord]) -> Self:
        """Learn from these records, and forget others. Those without a speedup tell nothing.

        Raises SpecError for records that were not measured under the same conditions: they have a predictor each.
        """
        measured = []
        for record in records:
            conditions = record.conditions.model_copy(update={"operator_id": ""})
            if self._conditions is None:
                self._conditions = conditions
                self._layers = self._layers or _layers_of(conditions.network, conditions.settings.batch)
            if conditions != self._conditions:
                raise SpecError(
                    f'records of "{self._conditions.compiler}" and "{conditions.compiler}", or of other networks, devices or '
                    "settings, are not comparable: make a predictor for each"
                )
            operator = read_replacement(record.operator)
            if record.speedup is not None and isinstance(operator, PGraph):
                measured.append((operator, record.speedup))
        return self.learn(measured)

    def learn(self, measured: Iterable[tuple[PGraph, float]]) -> Self:
        """Learn from operators and their speedups, and forget others.

        Raises SpecError for a speedup that is not a positive number.
        """
        speedups = {operator.id: (operator, speedup) for operator, speedup in measured}
        for operator, speedup in speedups.values():
            if not (math.isfinite(speedup) and speedup > 0):
                raise SpecError(f"the speedup of {operator.name} is {speedup}; it must be a positive number")
        described = [
            (one, 1 / speedup) for _, (operator, speedup) in sorted(speedups.items()) if (one := self.described(operator))
        ]
        self.model = None
        if len(described) >= LEAST_RECORDS:
            self.model = TimeModel.fit([one for one, _ in described], np.array([time for _, time in described]))
        return self

    def predict(self, operator: PGraph) -> Prediction | None:
        """Return the speedup to expect; None before there are 8 measurements, or if the operator does not fit the layers."""
        described = None if self.model is None else self.described(operator)
        if self.model is None or described is None:
            return None
        mean, deviation = self.model.estimate(described)
        return Prediction(*(math.exp(-mean + side * QUANTILE * deviation) for side in (0, -1, 1)))

    def may_meet(self, operator: PGraph, speedup: float) -> bool:
        """Return whether the operator may be so fast: unless the upper end of its interval is below `speedup`."""
        predicted = self.predict(operator)
        return predicted is None or predicted.high >= speedup

    def parts(self, operator: PGraph) -> dict[str, float]:
        """Return where the network's time is expected to go, as shares of the original's: by kind of kernel, and the rest.

        Raises SpecError where `predict` knows nothing.
        """
        described = None if self.model is None else self.described(operator)
        if self.model is None or described is None:
            raise SpecError(f"nothing is known about the time of {operator.name}: give {LEAST_RECORDS} measurements or more")
        return self.model.parts(described)

    def described(self, operator: PGraph) -> Description | None:
        """Return the operator's kernels in the network; None if it does not fit the layers."""
        if operator.id not in self._known:
            assert self._layers is not None, "it has learnt nothing, or has the layers"
            try:
                self._known[operator.id] = self._of_layers(operator)
            except SynoError:
                return None
        return self._known[operator.id]

    def _of_layers(self, operator: PGraph) -> Description:
        found = []
        for sizes, count in (self._layers or {}).items():
            values = {name: value for name, value in sizes if name in operator.variables}
            own = kernels(operator, values)
            found.append((count, [one for one in own if not (one.of_weights and self._constant_weights)]))
        return describe(found)


def _counted(layers: Sequence[Mapping[str, int]]) -> dict[tuple[tuple[str, int], ...], int]:
    """Return the distinct sizes of the layers, and how many layers have each."""
    return dict(Counter(tuple(layer.items()) for layer in layers))


def _layers_of(network: BackboneSubject, batch: int) -> dict[tuple[tuple[str, int], ...], int]:
    from syno.model.extraction import replaceable

    found = replaceable(network.backbone(), network.example(batch), network.layers)
    return _counted([layer.values for layer in found])
