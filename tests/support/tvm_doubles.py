"""A builder and a runner for MetaSchedule that build and measure nothing, so that what surrounds them is tested in no time."""

from __future__ import annotations

import tempfile
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerResult


@derived_object
class NoBuilder(PyBuilder):
    def build(self, build_inputs: list[Any]) -> list[Any]:
        return [BuilderResult(f"{tempfile.mkdtemp()}/module.tar", None) for _ in build_inputs]


@derived_object
class _Future(PyRunnerFuture):
    def __init__(self, seconds: float | None) -> None:
        super().__init__()
        self.seconds = seconds

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return RunnerResult(None, "it failed") if self.seconds is None else RunnerResult([self.seconds], None)


@derived_object
class CountingRunner(PyRunner):
    """Says that the n-th trial took 1 / n seconds, or that it failed; counts them."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.fails, self.count = fails, 0

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        futures = []
        for _ in runner_inputs:
            self.count += 1
            futures.append(_Future(None if self.fails else 1.0 / self.count))
        return futures
