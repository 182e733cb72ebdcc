"""Tuning with MetaSchedule: search for schedules of each task that has too few trials in the database.

Importing this module loads neither TVM nor PyTorch, since the processes that build schedules import it, too.

Paper: section 7.1 (tuning with MetaSchedule).
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from syno.base.errors import SpecError
from syno.base.files import checksum, json_with_checksum, read_json, write_whole
from syno.base.record import Number
from syno.measure.job import TrialCount
from syno.measure.tuning_record import TaskResult
from syno.measure.tvm.sessions import callbacks
from syno.measure.tvm.targets import TvmSettings

# The database of trials: one folder for each target and device, which survives killed processes.
#
# TVM's database appends lines to two files, one of tasks and one of trials. It fails on an incomplete line, ignores the target
# in queries, hides failed trials, and has no counts. This module adds these.
#
# Another file has checksums of the lines, written at the end of a tuning and compared when the folder is opened next. Further
# lines without checksums come from a process that was killed, which may leave an incomplete last line.


WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"  # names that TVM has for them
EXHAUSTED, CHECKSUMS, ABOUT, LOCK = "exhausted.json", "checksums.json", "target.json", "lock"
EXHAUSTIONS = TypeAdapter(dict[str, Number])
CHECKSUMS_OF_LINES = TypeAdapter(dict[str, list[str]])  # of the lines of each file
LOOK_SECONDS = 0.5


def folder_for(root: Path, target: Any, device_name: str, version: str) -> Path:
    """Return the folder of a target, device and version of TVM. A new folder gets a file that describes these."""
    about = {"target": json.loads(str(target)), "device": device_name, "tvm": version}
    text = json.dumps(about, indent=1, sort_keys=True)
    kind = re.sub(r"[^0-9A-Za-z]+", "-", str(target.attrs.get("arch") or target.attrs.get("mcpu") or target.kind.name))
    folder = root / f"{kind}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"
    if not (folder / ABOUT).exists():
        write_whole(folder / ABOUT, text + "\n")
    return folder


@contextmanager
def only_writer(folder: Path, deadline: float) -> Iterator[None]:
    """Hold the folder's lock within the context; wait for another process that tunes on the same device.

    Raises SpecError if the lock is not free at `deadline`, a time of `time.monotonic`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK, timeout=max(0.0, deadline - time.monotonic()), poll_interval=LOOK_SECONDS)
    try:
        lock.acquire()  # the system releases the lock of a process that ends, however it ends
    except Timeout:
        raise SpecError(
            f"another process tunes with {folder}, and was not done in time: tune one model after another on a "
            "device, or with folders of their own"
        ) from None
    try:
        yield
    finally:
        lock.release()


class TrialDatabase:
    """The database of a folder's trials; the caller holds the folder's lock. SpecError if its files were damaged or edited.

    Attributes:
        trials: TVM's `JSONDatabase`.
    """

    def __init__(self, folder: Path) -> None:
        from tvm.s_tir import meta_schedule

        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        check_lines(folder, (WORKLOADS, RECORDS))
        repair(folder)
        self.trials = meta_schedule.database.JSONDatabase(work_dir=str(folder))

    def keep_checksums(self) -> None:
        """Write the checksums of all lines."""
        write_checksums(self.folder, (WORKLOADS, RECORDS))

    def counts(self, tasks: list[Any]) -> list[int]:
        """Return the number of trials of each task, including failed trials. A task is a module with one PrimFunc."""
        keys = [json.dumps(self.trials.commit_workload(task).as_json()) for task in tasks]
        numbers: dict[str, int] = {}
        for number, line in enumerate(_lines(self.folder / WORKLOADS)):
            numbers.setdefault(json.dumps(json.loads(line)), number)
        counted = Counter(map(_workload_of, _lines(self.folder / RECORDS)))
        return [counted[numbers[key]] if key in numbers else 0 for key in keys]

    def best_ms(self, task: Any, target: Any) -> float | None:
        """Return the latency of a task's best trial; None if none succeeded."""
        record = self.trials.query_tuning_record(task, target, "main")
        if record is None or not record.run_secs:
            return None
        seconds = [float(value) for value in record.run_secs]
        return 1e3 * sum(seconds) / len(seconds)

    def exhausted(self, task: Any) -> int:
        """Return the number of trials at which a search ran out of new schedules for the task; 0 if none did."""
        found: int = self._exhausted().get(self._key(task), 0)
        return found

    def exhaust(self, task: Any, trials: int) -> None:
        """Record that a search for `trials` trials ran out of new schedules of the task."""
        write_whole(self.folder / EXHAUSTED, json_with_checksum({**self._exhausted(), self._key(task): trials}))

    def _exhausted(self) -> dict[str, int]:
        path = self.folder / EXHAUSTED
        try:
            return EXHAUSTIONS.validate_python(read_json(path)) if path.exists() else {}
        except ValueError as error:
            said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            raise SpecError(f"{path} holds no numbers of trials: {said}; delete it, and tune again") from error

    def _key(self, task: Any) -> str:
        """Return TVM's hash of the task."""
        return str(self.trials.commit_workload(task).as_json()[0])


def repair(folder: Path) -> int:
    """Remove incomplete last lines, which a killed process leaves, and trials of removed tasks; return the number of lines."""
    removed = _cut(folder / WORKLOADS, lambda line: isinstance(json.loads(line), list))
    workloads = sum(1 for _ in _lines(folder / WORKLOADS))
    return removed + _cut(folder / RECORDS, lambda line: _is_record(line, workloads))


def _is_record(line: bytes, workloads: int) -> bool:
    json.loads(line)
    return 0 <= _workload_of(line) < workloads


def _cut(path: Path, is_whole: Callable[[bytes], bool]) -> int:
    """Truncate a file before its incomplete last lines, and return the number of removed lines.

    Raises SpecError if valid lines follow an invalid one, which no killed process leaves.
    """
    if not path.exists():
        return 0
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    kept = len(lines)
    while kept and not _is_good(lines[kept - 1], is_whole):
        kept -= 1
    for number, line in enumerate(lines[:kept], 1):
        if not line.strip():
            continue
        if not _is_good(line, is_whole):
            raise SpecError(
                f"line {number} of {path} is damaged, and lines behind it are not: delete the folder, and tune again"
            )
    if kept < len(lines):
        write_whole(path, b"".join(lines[:kept]))
    return len(lines) - kept


def _is_good(line: bytes, is_whole: Callable[[bytes], bool]) -> bool:
    try:
        return line.endswith(b"\n") and is_whole(line)
    except (ValueError, IndexError, RecursionError):
        return False


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the nonempty lines of a file; none if it does not exist."""
    if path.exists():
        with path.open("rb") as file:
            yield from (line for line in file if line.strip())


def _workload_of(line: bytes) -> int:
    """Return the number of the task with which a trial's line begins, as in `[12,[...`."""
    return int(line[1 : line.index(b",")])


def write_checksums(folder: Path, names: tuple[str, ...]) -> None:
    """Write the checksums of all present lines in these files of a folder."""
    lines = {name: [checksum(line) for line in _all_lines(folder / name)] for name in names}
    write_whole(folder / CHECKSUMS, json_with_checksum(lines))


def check_lines(folder: Path, names: tuple[str, ...]) -> None:
    """Raise SpecError if a line of these files does not match its checksum. A killed tuning leaves no checksums to compare."""
    if not (folder / CHECKSUMS).exists():
        return
    try:
        written = CHECKSUMS_OF_LINES.validate_python(read_json(folder / CHECKSUMS))
    except (OSError, ValueError) as error:
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise SpecError(f"{folder / CHECKSUMS} holds no checksums: {said}; delete the folder, and tune again") from error
    for name in names:
        lines, checksums = _all_lines(folder / name), written.get(name, [])
        whole = sum(line.endswith(b"\n") for line in lines)
        if whole < len(checksums) - 1:  # a process that is killed tears one at most
            raise SpecError(
                f"{folder / name} has {whole} lines of the {len(checksums)} that were written; delete the folder and tune again"
            )
        for number, (line, expected) in enumerate(zip(lines, checksums, strict=False), 1):
            if line.endswith(b"\n") and checksum(line) != expected:
                raise SpecError(
                    f"line {number} of {folder / name} is damaged: it has changed since it was written; delete the folder, and "
                    "tune again"
                )


def _all_lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []


# Initial population of a round of the search. A small one suffices for few trials; but on GPUs most schedules exceed a limit,
# so that a search with a small population may find none.
FEW, MANY = 64, 512
FEW_TRIALS = 128

INTRINSICS = "tvm.s_tir.tensor_intrin"
ELSEWHERE = ("cuda", "rocm", "hexagon")  # kinds of targets that have a module of intrinsics
MOST_SEED = 2**31 - 2  # of TVM's random numbers, which begin with 1 at least


class _OutOfTimeError(Exception):
    """Raised at the deadline of a search; trials so far are in the database."""


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
        """Measure `trials` more schedules of a task, or fewer if there are no more. Raises _OutOfTimeError at the deadline."""
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
        folder: the folder of the target and device (`folder_for`); the caller holds its lock.
        settings: the number of trials, and how they are measured.
        runner, builder: MetaSchedule's runner (which measures on the device) and builder; None: those of this machine.
        deadline: a time of `time.monotonic`, after which no trials begin.
        progress: callback with a line after each iteration.
        count: callback with the trials of all tasks, before the first and after each iteration.
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
    """Return a MetaSchedule callback that calls `told` after each iteration, and stops the search if the next would end too
    late.

    It appends the exception that it raises to `stopped`, since TVM converts exceptions of callbacks.
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
    """Build a scheduled PrimFunc, without importing all intrinsics as TVM's own function does.

    It is pickled and runs in a new process, so that its imports are inside.
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
    """Load TVM's intrinsics for CPUs and for targets of this kind, before MetaSchedule makes its first schedule.

    Importing TVM's package would parse the intrinsics of all kinds, which takes 25 seconds, 20 of them for NVIDIA's GPUs.
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
