"""One attempt at a trial: the evaluation of its operator, and the storing of its result."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import replace

from optuna import TrialPruned

from syno.base.errors import StorageError
from syno.search.dispatch import Dispatch, RunningTrial
from syno.search.evaluation import Evaluate
from syno.search.faults import Fault, fault_of
from syno.search.reward import Failure, Reward
from syno.search.storage.records import Kind, Result


def run_trial(trial: RunningTrial, evaluate: Evaluate, reward: Reward, dispatch: Dispatch) -> Fault | None:
    """Evaluate the trial's operator, store the result and end the trial. Return the fault if the evaluation raised an error.

    If the machine is at fault, the trial is interrupted, so that it is retried. KeyboardInterrupt and SystemExit interrupt
    it, too, and are raised.

    Args:
        trial: the trial, which this worker has just begun.
        evaluate: returns the metrics of an operator.
        reward: the study's reward.
        dispatch: the worker's view of the study.
    """
    began, fault = time.monotonic(), None

    def report(step: int, value: float) -> None:
        if dispatch.store.report(trial.trial_id, step, value):
            raise TrialPruned(f"pruned at step {step}, where {value:g} was reported")

    def finish(result: Result) -> bool:
        return dispatch.finish(trial, replace(result, seconds=round(time.monotonic() - began, 3)))

    try:
        with dispatch.store.leases.kept(trial.trial_id):
            metrics = evaluate(trial.operator, report)
            measured = {str(name): float(value) for name, value in metrics.items()}
            result = _result(measured, reward(measured))
    except TrialPruned as error:
        result = Result("pruned", message=str(error))
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


def _result(measured: Mapping[str, float], reward: float | Failure) -> Result:
    """Return the result of an evaluation that returned metrics."""
    if isinstance(reward, Failure):
        return Result("failed", metrics=measured, message=reward.reason, fault=reward.fault, cause=reward.reason)
    return Result("complete", metrics=measured, reward=reward)
