"""One attempt at a trial: the evaluation of its operator, and the storing of its result."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from optuna import TrialPruned

from syno.base.errors import StorageError
from syno.search.claims import RunningTrial
from syno.search.dispatch import Dispatch
from syno.search.faults import Fault, fault_of
from syno.search.reward import Failure, Reward
from syno.search.storage.records import Kind, Result
from syno.search.storage.screenings import SCREENING, screening_attribute
from syno.train.contract import Evaluation, Report, Screening
from syno.train.progress import Paused


@dataclass
class TrialReport(Report):
    """The report of one trial, which stops or pauses its evaluation.

    Attributes:
        trial: the trial.
        dispatch: the worker's view of the study.
        by: what trials are compared by at their rungs: "loss", where the evaluation gives it, or the reported "score".
    """

    trial: RunningTrial
    dispatch: Dispatch
    by: Literal["loss", "score"] = "loss"
    _loss: tuple[float, float] | None = None  # the last one, with its step

    @property
    def passed(self) -> float:  # type: ignore[override]
        """The step after which the evaluation of this operator paused before; 0 if it did not."""
        return self.trial.passed

    @property
    def looks(self) -> tuple[float, ...]:  # type: ignore[override]
        """The steps between two values, after which the recent loss is wanted, too; ascending."""
        keep = self.dispatch.ledger.keep if self.by == "loss" else {}
        return tuple(step for step in keep if not isinstance(step, int))

    def recent_loss(self, step: float, loss: float) -> None:
        """Take the recent loss of a training: before its value at this step is reported, or at a look.

        Raises Paused at a look if the trial is to pause.
        """
        self._loss = (step, loss)
        if step in self.looks:
            self._compare(step, -loss)

    def __call__(self, step: int, value: float) -> None:
        """Store a value at a step. Raise TrialPruned if the pruner stops the trial, Paused if it is to pause."""
        if self.dispatch.store.report(self.trial.trial_id, step, value):
            raise TrialPruned(f"pruned at step {step}, where {value:g} was reported")
        at, loss = self._loss or (None, 0.0)
        compared = -loss if self.by == "loss" and at == step else value
        self._compare(step, compared)

    def _compare(self, step: float, value: float) -> None:
        if not self.dispatch.goes_on(self.trial, step, value):
            raise Paused(f"paused after step {step:g}: others are ahead", step)


def run_trial(
    trial: RunningTrial, evaluate: Evaluation, reward: Reward, dispatch: Dispatch, by: Literal["loss", "score"] = "loss"
) -> Fault | None:
    """Evaluate the trial's operator, store the result and end the trial. Return the fault if the evaluation raised an error.

    If the machine is at fault, the trial is interrupted, so that it is retried. KeyboardInterrupt and SystemExit interrupt
    it, too, and are raised.

    Args:
        trial: the trial, which this worker has just begun.
        evaluate: returns the metrics of an operator.
        reward: the study's reward.
        dispatch: the worker's view of the study.
        by: what trials are compared by; see `TrialReport`.
    """
    began, fault, report = time.monotonic(), None, TrialReport(trial, dispatch, by)
    known: Mapping[str, float] = trial.screening or {}

    def finish(result: Result) -> bool:
        seconds = round(time.monotonic() - began, 3)
        return dispatch.finish(trial, replace(result, seconds=seconds, metrics={**known, **result.metrics}))

    try:
        with dispatch.store.leases.kept(trial.trial_id):
            screening = _screening(trial, evaluate, dispatch)
            known = screening.metrics
            if screening.unmet is None:
                metrics = {**known, **evaluate(trial.operator, report)}
                measured = {str(name): float(value) for name, value in metrics.items()}
                result = _result(measured, reward(measured))
            else:
                result = Result("screened", message=screening.unmet, cause=screening.kind)
    except TrialPruned as error:
        result = Result("pruned", message=str(error))
    except Paused as error:
        result = Result("paused", message=str(error), step=error.step)
    except StorageError:  # nothing can be stored now; the next worker evaluates the operator again
        raise
    except Exception as error:
        fault = fault_of(error)
        kind: Kind = "interrupted" if fault.kind == "machine" else "failed"
        result = Result(kind, message=fault.message, fault=fault.kind, cause=fault.cause)
    except BaseException:
        finish(Result("interrupted", message="the worker was told to stop"))
        raise
    if finish(result):
        return fault
    warnings.warn(
        f"the result of trial {trial.number} came too late: no sign of life for longer than the grace, so the trial is "
        "retried. Raise grace_seconds if evaluations block the whole process",
        stacklevel=2,
    )
    return None


def _screening(trial: RunningTrial, evaluate: Evaluation, dispatch: Dispatch) -> Screening:
    """Return the screening of a trial's operator, which is stored if it was passed, so that no retry repeats it."""
    if trial.screening is not None:
        return Screening(trial.screening)
    found = evaluate.screen(trial.operator)
    if found is None:
        return Screening()
    if found.unmet is None:
        dispatch.store.annotate(trial.trial_id, SCREENING, screening_attribute(found.metrics))
    return found


def _result(measured: Mapping[str, float], reward: float | Failure) -> Result:
    """Return the result of an evaluation that returned metrics."""
    if isinstance(reward, Failure):
        return Result("failed", metrics=measured, message=reward.reason, fault=reward.fault, cause=reward.reason)
    return Result("complete", metrics=measured, reward=reward)
