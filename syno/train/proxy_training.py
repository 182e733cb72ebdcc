"""Evaluation of operators by a short (proxy) training."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from statistics import fmean

from syno.base.errors import TrainingError
from syno.ir.graph import PGraph
from syno.space.complete import cost
from syno.space.spec import OperatorSpec
from syno.train.checkpoint import DamagedCheckpointError
from syno.train.contract import FIT_ERROR, Evaluation, Report
from syno.train.layer_fit import LayerFit
from syno.train.progress import TrainingResult
from syno.train.workload import Workload


@dataclass(frozen=True)
class ProxyTraining(Evaluation):
    """An evaluation of operators: the score after a short training, and the network's costs for one batch.

    Attributes:
        workload: the network and the data.
        spec: the spec of the operators.
        checkpoints: folder for checkpoints of running and paused trainings; None: no checkpoints.
        original: metrics of the original network's score, for rewards that compare with it.
        check_gradients: whether operators that cannot learn on the first batch fail without training.
    """

    workload: Workload
    spec: OperatorSpec
    checkpoints: Path | None = None
    original: Mapping[str, float] = field(default_factory=dict)
    check_gradients: bool = True

    def __call__(self, operator: PGraph, report: Report) -> Mapping[str, float]:
        """Return metrics by name: the score by its key, "epochs" (the number of rounds), costs, and those of `original`.

        With `initialization: fit`, `fit_error` is the mean fit error over the layers (`LayerFit.after`), which is reported
        before a new training begins.

        A training that was interrupted or paused resumes from its checkpoint. If that is missing or damaged, it begins anew,
        with a warning.

        Args:
            operator: the operator that replaces the network's layers.
            report: called after every round with a value of which more is better: the accuracy, or minus the loss. It may raise
                an exception to end the training, or Paused. Before that, its `recent_loss` is called with the round and its
                recent loss; it is also called at each fractional round in its `looks`.

        Raises TrainingError if the training diverged, if the device ran out of memory, or if the operator cannot learn on the
        first batch; see `syno.train.first_batch`.
        """
        counted = cost(operator, self.spec).metrics(self.workload.original)
        file, passed = self._file(operator.id), report.passed
        has_begun = file is not None and file.exists()
        if passed and not has_begun and not self.workload.fits:
            place = "" if file is None else f": {file} is not there"
            warnings.warn(f"a training that paused after round {passed:g} begins anew{place}", stacklevel=2)
        if self.check_gradients and not has_begun:
            fault = self.workload.fault_on_first_batch(operator)
            if fault is not None:
                raise TrainingError(f"{operator.name} was not trained: {fault}")
        known: dict[str, float] = {}
        try:
            result = self._train(operator, report, file, known)
        except DamagedCheckpointError as error:
            warnings.warn(f"a training begins anew: {str(error).partition(';')[0]}", stacklevel=2)
            self.forget(operator)
            result = self._train(operator, report, file, known)
        if result.broken:
            raise TrainingError(f"training {operator.name} broke: {result.stopped}")
        return {result.metric: result.score, "epochs": float(len(result.scores)), **known, **counted, **self.original}

    def forget(self, operator: PGraph) -> None:
        """Delete the checkpoint of an operator's training that will not be resumed."""
        file = self._file(operator.id)
        if file is not None:
            with suppress(OSError):
                file.unlink(missing_ok=True)

    def _file(self, operator_id: str) -> Path | None:
        return None if self.checkpoints is None else self.checkpoints / f"{operator_id}.pt"

    def _train(self, operator: PGraph, report: Report, file: Path | None, known: dict[str, float]) -> TrainingResult:
        """Train the operator's network, and add the fit error to the metrics `known`."""
        metric = self.workload.metric

        def fitted(fits: Sequence[LayerFit]) -> None:
            error = fmean(fit.after for fit in fits)
            if isfinite(error):
                known[FIT_ERROR] = error
                report.measured({FIT_ERROR: error})

        return self.workload.train(
            operator,
            report=lambda number, score: report(number, metric.quality(score)),
            checkpoint=file,
            recent_loss=report.recent_loss,
            looks=report.looks,
            fitted=fitted,
        )
