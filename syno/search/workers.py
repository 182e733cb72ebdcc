"""Worker processes: their identity, several workers on one machine, and stopping them by signals.

A signal that raises an exception in the middle of a database transaction leaves the database locked. So while trials are
stored, signals are deferred; they stop the worker during its evaluation, or before its next trial.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from syno.base.errors import SynoError

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C, and the signal of schedulers at the time limit
PATIENCE_SECONDS = 20.0  # for a worker that was told to stop
ERROR_EXIT = 2  # exit code of a process that ended with an error message
SUSPENDED = ("T", "t")  # states of a process that was stopped: by Ctrl-Z, a scheduler or a debugger
INTERRUPTED_EXIT = 130  # exit code of a process that was told to stop, as in shells


@dataclass(frozen=True)
class Worker:
    """The identity of a process that evaluates trials, by which other workers detect whether it is still running.

    Attributes:
        host: name of the process's machine, for display.
        pid: the process id.
        started: start time in clock ticks, which distinguishes it from a later process with the same id; 0 if unknown.
        system: the boot and the PID namespace in which its process id is valid; "" if unknown.
    """

    host: str
    pid: int
    started: int
    system: str

    @classmethod
    def here(cls) -> Worker:
        """Return the identity of this process."""
        _, started = _process(os.getpid()) or ("", 0)
        return cls(platform.node(), os.getpid(), started, _system())

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Worker:
        """Return the worker from the JSON object that `stored` returned."""
        return cls(str(stored["host"]), int(stored["pid"]), int(stored["started"]), str(stored["system"]))

    def stored(self) -> dict[str, Any]:
        """Return the worker as a JSON object, to be stored with a trial."""
        return asdict(self)

    def is_gone(self) -> bool:
        """Return whether the process is known to have ended. False if it is not visible from this process."""
        return self._is_visible and self._state() is None

    def is_running(self) -> bool:
        """Return whether the process runs and is not suspended. False if it is not visible, as on another machine."""
        return self._is_visible and self._state() not in (None, *SUSPENDED)

    @property
    def _is_visible(self) -> bool:
        return bool(self.system) and self.system == _system()

    def _state(self) -> str | None:
        """Return the state of a visible process, a letter as in proc(5); None if it has ended."""
        state, started = _process(self.pid) or (None, 0)
        return state if started == self.started else None

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


@cache
def _system() -> str:
    """Return the machine's boot id and the PID namespace, in which process ids are valid; "" if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _process(pid: int) -> tuple[str, int] | None:
    """Return the process's state, and its start time in ticks since boot; None if it does not exist or has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the process's name may contain spaces and parentheses
    return None if state in ("Z", "X") else (state, int(fields[18]))


@contextmanager
def worker_processes(work: Callable[..., None], arguments: tuple[Any, ...], count: int) -> Iterator[None]:
    """Run `work(*arguments)` in `count` processes beside the block, and wait until they have ended.

    If the block raises, they are stopped. A warning names processes that failed; a SynoError is one line on standard error.
    `work` and its arguments are pickled.
    """
    context = multiprocessing.get_context("spawn")  # threads and libraries of this process are not copied
    processes = [context.Process(target=_run, args=(work, arguments), name=f"worker {i}") for i in range(2, count + 2)]
    for process in processes:
        process.start()
    try:
        yield
        for process in processes:
            process.join()
    except BaseException:
        for process in processes:
            _stop(process)
        raise
    for process in processes:
        if process.exitcode not in (0, INTERRUPTED_EXIT):
            warnings.warn(f"{process.name} ended with exit code {process.exitcode}; what it says is above", stacklevel=3)


def _run(work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    try:
        work(*arguments)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED_EXIT)
    except SynoError as error:
        print(f"error: {multiprocessing.current_process().name}: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        sys.exit(ERROR_EXIT)


def _stop(process: SpawnProcess) -> None:
    """Stop a process: SIGTERM lets it requeue its trial (`Interruption`); kill it if it does not end."""
    if process.is_alive():
        process.terminate()
        process.join(PATIENCE_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()


class Interruption:
    """Turns SIGINT and SIGTERM into KeyboardInterrupt where it is allowed; a second Ctrl-C raises anywhere.

    A second SIGTERM does not: Slurm sends two at the time limit, and the trial is requeued between them. Use it as a context in
    a process's main thread; in other threads it does nothing.
    """

    def __init__(self) -> None:
        self._asked = self._is_allowed = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_second_ctrl_c = self._asked and number == signal.SIGINT
        self._asked = True
        if self._is_allowed or is_second_ctrl_c:
            self._stop()

    def _stop(self) -> None:
        self._is_allowed = False  # the clean-up after it must not be interrupted
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal was received."""
        if self._asked:
            self._stop()

    @contextmanager
    def allowed(self, yes: bool = True) -> Iterator[None]:
        """Let signals raise KeyboardInterrupt at once within the block; with `yes=False`, defer them."""
        before, self._is_allowed = self._is_allowed, yes
        try:
            if yes:
                self.check()
            yield
        finally:
            self._is_allowed = before
