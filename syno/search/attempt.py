"""One attempt at a trial: the evaluation of its operator, and what is stored of how it ended."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from optuna import TrialPruned

from syno.base.errors import StorageError
from syno.ir.graph import PGraph
from syno.search.faults import Fault, fault_of
from syno.search.reward import Failure, Reward
from syno.search.storage.records import Result

if TYPE_CHECKING:
    from syno.search.dispatch import Dispatch, Task


class Report(Protocol):
    """Reports how an evaluation is going, at increasing steps such as epochs. Higher values are better.

    Raises TrialPruned if the study's pruner stops the trial, to be let through; or catch it and return what was measured.
    """

    def __call__(self, step: int, value: float) -> None:  # noqa: D102  (the class says it)
        ...


Evaluate: TypeAlias = Callable[[PGraph, Report], Mapping[str, float]]


@dataclass(frozen=True)
class Attempt:
    """An attempt at a trial.

    Attributes:
        dispatch: of the worker.
        reward: of the study.
        task: the trial.
    """

    dispatch: Dispatch
    reward: Reward
    task: Task

    def run(self, evaluate: Evaluate) -> Fault | None:
        """Evaluate the operator, store the result and end the trial. Returns the fault if that is an exception's.

        Where the machine is at fault, the trial is given back: it is interrupted, and to be retried. The same holds for
        KeyboardInterrupt and SystemExit, which are let through.
        """
        began = time.monotonic()
        fault = None
        try:
            with self.dispatch.store.leases.kept(self.task.trial_id):
                metrics = evaluate(self.task.operator, self._report())
                measured = {str(name): float(value) for name, value in metrics.items()}
                reward = self.reward(measured)
            result = _result(measured, reward)
        except TrialPruned as error:
            result = Result("pruned", message=str(error))
        except StorageError:  # nothing can be stored now; whoever goes on with the study evaluates the operator again
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
                f"the result of trial {self.task.number} came too late: no sign of life for longer than the grace, so the "
                "trial is retried. Raise grace_seconds if evaluations block the whole process",
                stacklevel=2,
            )
            return None
        return fault

    def _finish(self, result: Result, began: float) -> bool:
        return self.dispatch.finish(self.task, replace(result, seconds=round(time.monotonic() - began, 3)))

    def _report(self) -> Report:
        def report(step: int, value: float) -> None:
            if self.dispatch.store.report(self.task.trial_id, step, value):
                raise TrialPruned(f"pruned at step {step}, where {value:g} was reported")

        return report


def _result(measured: Mapping[str, float], reward: float | Failure) -> Result:
    """How an evaluation ended that returned metrics."""
    if isinstance(reward, Failure):
        return Result("failed", metrics=measured, message=reward.reason, fault=reward.fault, cause=reward.reason)
    return Result("complete", metrics=measured, reward=reward)
