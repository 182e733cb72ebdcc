"""What a tuning record says about tuning with TVM."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from syno.base.record import Amount, Number


class TrialCount(BaseModel):
    """How far tuning is.

    Attributes:
        task: which one is being tuned, from 1; 0 before the first.
        tasks: how many there are.
        trials: schedules measured of all tasks, in earlier runs too.
        trials_wanted: of all tasks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    task: int
    tasks: int
    trials: int
    trials_wanted: int


class TaskResult(BaseModel):
    """What is known of a task: a kernel at one shape.

    Attributes:
        name: TVM's: what is fused in it.
        calls: how often it occurs in the network.
        trials: schedules measured, in earlier runs too; those that failed count.
        measured: of these, in this run.
        best_ms: latency of the best; None if none succeeded.
        exhausted: whether there are no more schedules to measure.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    calls: Number
    trials: Number
    measured: Number
    best_ms: Amount | None
    exhausted: bool = False


class TuningSummary(BaseModel):
    """How a network was tuned.

    Attributes:
        target: what code was generated for, as attributes of TVM's target.
        dtype: of tensors.
        trials_wanted: of all tasks together.
        trials: that there are, from earlier runs too; those that failed count.
        measured: of these, in this run.
        seconds: of this run's tuning.
        complete: whether each task has the trials that were wanted, or has no more.
        tasks: each one.
        without_schedule: names of tasks of which no schedule works: they run untuned.
        untuned_ms: latency of the network before tuning, the faster of two calls; None if nothing was tuned.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    target: dict[str, Any]
    dtype: str = "float32"
    trials_wanted: Number
    trials: Number
    measured: Number
    seconds: Amount
    complete: bool
    tasks: tuple[TaskResult, ...]
    without_schedule: tuple[str, ...]
    untuned_ms: Amount | None = None

    @classmethod
    def of(
        cls, tasks: list[TaskResult], target: dict[str, Any], per_task: int, seconds: float, untuned_ms: float | None
    ) -> TuningSummary:
        """Of the tasks' results, where so many trials of each were wanted."""
        return cls(
            target=target,
            trials_wanted=per_task * len(tasks),
            trials=sum(task.trials for task in tasks),
            measured=sum(task.measured for task in tasks),
            seconds=seconds,
            complete=all(task.trials >= per_task or task.exhausted for task in tasks),
            tasks=tuple(tasks),
            without_schedule=tuple(task.name for task in tasks if task.best_ms is None),
            untuned_ms=untuned_ms,
        )

    @property
    def shortcoming(self) -> str:
        """Why its latency is not that of a tuned network; empty if it is."""
        if not self.without_schedule:
            return ""
        names = ", ".join(self.without_schedule[:3]) + (", ..." if len(self.without_schedule) > 3 else "")
        why = "their trials failed" if self.complete else "tuning was not finished: tune again, and it goes on"
        return f"{len(self.without_schedule)} of {len(self.tasks)} tasks run untuned ({names}): {why}"
