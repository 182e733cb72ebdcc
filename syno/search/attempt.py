"""One attempt at a trial: the evaluation of its operator, and the storing of its result."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

from optuna import TrialPruned

from syno.base.errors import StorageError
from syno.search.dispatch import Dispatch, RunningTrial
from syno.search.evaluation import Evaluate, Report
from syno.search.faults import Fault, fault_of
from syno.search.reward import Failure, Reward
from syno.search.storage.records import Result


@dataclass(frozen=True)
class Attempt:
    """An attempt at a trial.

    Attributes:
        dispatch: the worker's view of the study.
        reward: the study's reward.
        trial: the trial.
    """

    dispatch: Dispatch
    reward: Reward
    trial: RunningTrial

    def run(self, evaluate: Evaluate) -> Fault | None:
        """Evaluate the operator, store the result and end the trial. Return the fault if the evaluation raised an exception.

        If the machine is at fault, the trial is interrupted, so that it is retried. KeyboardInterrupt and SystemExit interrupt
        it, too, and are raised.
        """
        began = time.monotonic()
        fault = None
        try:
            with self.dispatch.store.leases.kept(self.trial.trial_id):
                metrics = evaluate(self.trial.operator, self._report())
                measured = {str(name): float(value) for name, value in metrics.items()}
                reward = self.reward(measured)
            result = _result(measured, reward)
        except TrialPruned as error:
            result = Result("pruned", message=str(error))
        except StorageError:  # nothing can be stored now; the next worker evaluates the operator again
            raise
        except Exception as error:
            fault = fault_of(error)
            kind = "interrupted" if fault.kind == "machine" else "failed"
            result = Result(kind, message=fault.message, fault=fault.kind, cause=fault.cause)  # type: ignore[arg-type]
        except BaseException:
            self._finish(Result("interrupted", message="the worker was told to stop"), began)
            raise
        if not self._finish(result, began):
            warnings.warn(
                f"the result of trial {self.trial.number} came too late: no sign of life for longer than the grace, so the "
                "trial is retried. Raise grace_seconds if evaluations block the whole process",
                stacklevel=2,
            )
            return None
        return fault

    def _finish(self, result: Result, began: float) -> bool:
        return self.dispatch.finish(self.trial, replace(result, seconds=round(time.monotonic() - began, 3)))

    def _report(self) -> Report:
        def report(step: int, value: float) -> None:
            if self.dispatch.store.report(self.trial.trial_id, step, value):
                raise TrialPruned(f"pruned at step {step}, where {value:g} was reported")

        return report


def _result(measured: Mapping[str, float], reward: float | Failure) -> Result:
    """Return the result of an evaluation that returned metrics."""
    if isinstance(reward, Failure):
        return Result("failed", metrics=measured, message=reward.reason, fault=reward.fault, cause=reward.reason)
    return Result("complete", metrics=measured, reward=reward)
