"""Worker processes: their identity, several of them on one machine, and stopping them by signals.

A signal that raises in the middle of a database transaction leaves the database locked. So while trials are stored, a signal is
only recorded; it stops the worker in its evaluation, or when the worker next looks for work.
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

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C, and what schedulers send when the time is up
PATIENCE_SECONDS = 20.0  # for a worker that was told to stop
ERROR_EXIT = 2  # exit code of a process that ended with an error message
SUSPENDED = ("T", "t")  # states of a process that was stopped: by Ctrl-Z, a scheduler or a debugger
INTERRUPTED_EXIT = 130  # exit code of a process that was told to stop, as in shells


@dataclass(frozen=True)
class Worker:
    """The identity of a process that evaluates trials, by which others see whether it still runs.

    Attributes:
        host: name of its machine, for people.
        pid: its process id.
        started: start time in ticks of its machine, which tells it from a later process of the same id; 0 if unknown.
        system: where its process id is valid: one boot of a machine, one namespace of processes; "" if unknown.
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
        """Return the worker that `stored` was made from."""
        return cls(str(stored["host"]), int(stored["pid"]), int(stored["started"]), str(stored["system"]))

    def stored(self) -> dict[str, Any]:
        """Return the worker as it is stored with a trial."""
        return asdict(self)

    def is_gone(self) -> bool:
        """Return whether the process is known to have ended. False if that cannot be seen from this process."""
        return self._is_visible and self._state() is None

    def is_running(self) -> bool:
        """Return whether the process runs, and is not suspended. False for one that cannot be seen, as on another machine."""
        return self._is_visible and self._state() not in (None, *SUSPENDED)

    @property
    def _is_visible(self) -> bool:
        return bool(self.system) and self.system == _system()

    def _state(self) -> str | None:
        """Return the state of the process, a letter as in proc(5); None if it has ended. It must be visible."""
        state, started = _process(self.pid) or (None, 0)
        return state if started == self.started else None

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


@cache
def _system() -> str:
    """Return the machine's boot and the namespace of processes, in which process ids are valid. "" where they are unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _process(pid: int) -> tuple[str, int] | None:
    """Return the process's state, and its start in ticks since boot; None if there is no such process, or it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the name before may hold anything, spaces too
    return None if state in ("Z", "X") else (state, int(fields[18]))


@contextmanager
def worker_processes(work: Callable[..., None], arguments: tuple[Any, ...], count: int) -> Iterator[None]:
    """Run `work(*arguments)` in `count` processes, beside the body of the context, and wait until they have ended.

    If the body raises, they are told to stop. A warning names processes that broke; a SynoError is one line on standard error.
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
    """Let a process give its trial back (`Interruption`), or end at once if it has not begun; kill it if that does not help."""
    if process.is_alive():
        process.terminate()
        process.join(PATIENCE_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()


class Interruption:
    """Turns SIGINT and SIGTERM into KeyboardInterrupt where that is allowed; a second Ctrl-C raises anywhere.

    A second SIGTERM does not: Slurm sends two when the time is up, and the trial is given back between them. Use it as a
        context in a process's main thread; in others it does nothing.
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
        self._is_allowed = False  # the cleaning up that follows must not be interrupted
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has come."""
        if self._asked:
            self._stop()

    @contextmanager
    def allowed(self, yes: bool = True) -> Iterator[None]:
        """Let signals raise at once within the context, or, with `yes=False`, only record them."""
        before, self._is_allowed = self._is_allowed, yes
        try:
            if yes:
                self.check()
            yield
        finally:
            self._is_allowed = before
