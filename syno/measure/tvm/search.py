"""Search for schedules with MetaSchedule, one task after another, where the database has too few trials.

Importing this module loads neither TVM nor PyTorch: the processes that build schedules on this machine import it, too.

Paper: section 7.1 (tuning with MetaSchedule).
"""

from __future__ import annotations

import importlib
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from syno.measure.job import TrialCount
from syno.measure.tuning_record import TaskResult
from syno.measure.tvm.database import TrialDatabase
from syno.measure.tvm.runner import callbacks
from syno.measure.tvm.settings import TvmSettings

# How many schedules a round of the search begins with. Few are enough if only few are measured; on GPUs most of them
# exceed some limit, and with few a search may end without any.
FEW, MANY = 64, 512
FEW_TRIALS = 128

INTRINSICS = "tvm.s_tir.tensor_intrin"
ELSEWHERE = ("cuda", "rocm", "hexagon")  # kinds of targets that have a module of intrinsics
MOST_SEED = 2**31 - 2  # of TVM's random numbers, which begin with 1 at least


class _OutOfTimeError(Exception):
    """Ends a search at its deadline; trials so far are in the database."""


@dataclass
class _Search:
    """The search for schedules of one task after another, with one database, builder, runner and cost model."""

    database: TrialDatabase
    target: Any
    settings: TvmSettings
    runner: Any
    builder: Any
    cost_model: Any
    deadline: float
    progress: Callable[[str], None]
    count: Callable[[int, int], None]  # the task, and its trials so far

    def task(self, number: int, of: int, name: str, task: Any, trials: int) -> None:
        """Measure so many more schedules, or fewer if there are no more. Raises _OutOfTimeError at the deadline."""
        if time.monotonic() > self.deadline:
            raise _OutOfTimeError
        from tvm.s_tir import meta_schedule

        many, have = trials > FEW_TRIALS, self.database.counts([task])[0]
        context = meta_schedule.TuneContext(
            task,
            target=self.target,
            space_generator="post-order-apply",
            search_strategy=meta_schedule.search_strategy.EvolutionarySearch(
                population_size=MANY if many or self.target.kind.name != "llvm" else FEW, genetic_num_iters=4 if many else 1
            ),
            task_name=name,
            rand_state=(self.settings.seed * 1_000_003 + have) % MOST_SEED + 1,  # earlier schedules are not drawn again
            num_threads=self.settings.builders,
        ).clone()

        def told(measured: int) -> None:
            best = self.database.best_ms(task, self.target)
            self.count(number, have + measured)
            said = "no valid schedule yet" if best is None else f"best {best:.4g} ms"
            self.progress(f"task {number} of {of}, {name}: {have + measured} of {have + trials} trials, {said}")

        self.count(number, have)
        remote = hasattr(self.runner, "measuring")  # failures of a remote device are not results of the candidate
        storing = callbacks(self.runner) if remote else meta_schedule.measure_callback.MeasureCallback.create("default")
        stopped: list[BaseException] = []
        try:
            meta_schedule.tune_tasks(
                tasks=[context],
                task_weights=[1.0],
                work_dir=str(self.database.folder),
                max_trials_global=trials,
                num_trials_per_iter=min(self.settings.trials_per_iteration, trials),
                builder=self.builder,
                runner=self.runner,
                database=self.database.trials,
                cost_model=self.cost_model,
                measure_callbacks=[*storing, _callback(told, self.deadline, stopped)],
                task_scheduler="round-robin",
            )
        except RuntimeError:  # TVM turns the errors of callbacks into these
            if stopped:
                raise stopped[0] from None
            raise


def tune_network(
    module: Any,
    target: Any,
    folder: Path,
    settings: TvmSettings,
    *,
    runner: Any = None,
    builder: Any = None,
    deadline: float = float("inf"),
    progress: Callable[[str], None] = lambda line: None,
    count: Callable[[TrialCount], None] = lambda trials: None,
) -> list[TaskResult]:
    """Bring every task of a network to its number of trials, and return the results of all tasks.

    Trials of earlier runs count, so an interrupted run is continued, and a repeated one measures nothing.

    Args:
        module: a fused network (`syno.measure.tvm.compilation.fused`).
        target: a `tvm.target.Target`.
        folder: of the target and device (`database.folder_for`); the caller is its only writer.
        settings: the number of trials, and how they are made.
        runner, builder: MetaSchedule's; by default those of this machine. `runner` measures on the device.
        deadline: a time of `time.monotonic`, after which no trials begin.
        progress: gets a line after each iteration.
        count: gets the trials of all tasks before the first and after each iteration.
    """
    from tvm.s_tir import meta_schedule

    logging.getLogger("tvm.s_tir.meta_schedule").setLevel(logging.CRITICAL)
    database = TrialDatabase(folder)
    extracted = list(meta_schedule.relax_integration.extract_tasks(module, target, {}))
    tasks = [task.dispatched[0] for task in extracted]
    before, wanted = database.counts(tasks), settings.trials_per_task
    so_far = list(before)

    def counted(number: int, trials: int) -> None:
        so_far[number - 1] = trials
        count(TrialCount(task=number, tasks=len(tasks), trials=sum(so_far), trials_wanted=wanted * len(tasks)))

    count(TrialCount(task=0, tasks=len(tasks), trials=sum(so_far), trials_wanted=wanted * len(tasks)))
    open_tasks = [index for index, task in enumerate(tasks) if before[index] < wanted and database.exhausted(task) < wanted]
    if open_tasks:
        load_intrinsics(target.kind.name)
        search = _Search(
            database=database,
            target=target,
            settings=settings,
            runner=runner or local_runner(settings),
            builder=builder or local_builder(settings),
            cost_model=meta_schedule.cost_model.CostModel.create(settings.cost_model, num_tuning_cores=settings.builders),
            deadline=deadline,
            progress=progress,
            count=counted,
        )
        try:
            for index in open_tasks:
                search.task(index + 1, len(tasks), extracted[index].task_name, tasks[index], wanted - before[index])
                if database.counts([tasks[index]])[0] < wanted:  # there are no more schedules
                    database.exhaust(tasks[index], wanted)
        except _OutOfTimeError:
            progress("tuning stopped at its deadline")
        finally:
            database.keep_checksums()
    after = database.counts(tasks)
    return [
        TaskResult(
            name=str(found.task_name),
            calls=int(found.weight),
            trials=after[index],
            measured=after[index] - before[index],
            best_ms=database.best_ms(tasks[index], target),
            exhausted=after[index] < wanted <= database.exhausted(tasks[index]),
        )
        for index, found in enumerate(extracted)
    ]


def _callback(told: Callable[[int], None], deadline: float, stopped: list[BaseException]) -> Any:
    """Return a callback that reports the trials after each iteration, and ends the search if the next would end too late.

    It puts the error that it raises into `stopped`.
    """
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule

    class Watch(meta_schedule.measure_callback.PyMeasureCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.measured, self.began = 0, time.monotonic()

        def apply(self, scheduler: Any, task: int, candidates: Any, built: Any, ran: Any) -> None:
            try:
                self.measured += len(ran)
                told(self.measured)
                now = time.monotonic()
                took, self.began = now - self.began, now
                if now + took > deadline:
                    raise _OutOfTimeError
            except BaseException as error:
                stopped.append(error)
                raise

    return derived_object(Watch)()


def build_schedule(module: Any, target: Any, parameters: Any) -> Any:
    """Build a scheduled PrimFunc. TVM's own function would first import all intrinsics.

    It runs in a fresh process, to which it is sent, so it imports what it needs.
    """
    import tvm
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    return tvm.tirx.build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target=target)


def local_builder(settings: TvmSettings) -> Any:
    """Return a `meta_schedule.builder.Builder` on this machine."""
    from tvm.s_tir.meta_schedule.builder import LocalBuilder

    return LocalBuilder(max_workers=settings.builders, timeout_sec=settings.build_seconds, f_build=build_schedule)


def local_runner(settings: TvmSettings) -> Any:
    """Return a `meta_schedule.runner.Runner` on this machine, with as many threads as TVM_NUM_THREADS says."""
    from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, LocalRunner

    evaluator = EvaluatorConfig(number=1, repeat=2, min_repeat_ms=settings.least_ms // 2)
    return LocalRunner(timeout_sec=settings.run_seconds, evaluator_config=evaluator)


def load_intrinsics(kind: str) -> None:
    """Load the intrinsics of processors, and those of targets of this kind, before MetaSchedule makes its first schedule.

    TVM's package parses the instructions of all kinds, which takes 25 seconds; 20 of them go to NVIDIA's GPUs.
    """
    if INTRINSICS not in sys.modules:
        absent = [f"{INTRINSICS}.{name}" for name in ELSEWHERE if f"{INTRINSICS}.{name}" not in sys.modules]
        sys.modules.update((name, ModuleType(name)) for name in absent)  # an import that finds them looks no further
        try:
            package = importlib.import_module(INTRINSICS)
        finally:
            for name in absent:
                del sys.modules[name]
        for name in absent:
            package.__dict__.pop(name.rpartition(".")[2], None)
    if kind in ELSEWHERE:
        importlib.import_module(f"{INTRINSICS}.{kind}")
