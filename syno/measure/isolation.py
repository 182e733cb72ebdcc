"""Run a command in a process of its own, within limits of time and memory, and leave nothing of it behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from syno.base.errors import MissingPackageError

try:
    import psutil
except ImportError:  # then only the command's group of processes is known, and no memory limit can be watched
    psutil = None

from syno.base.gpu_leases import lease_descriptors

End: TypeAlias = Literal["done", "crashed", "timeout", "out_of_memory"]

LOOK_SECONDS = 0.2  # between two looks at the process: looking often would slow down what is timed
TAIL_CHARACTERS = 2000
MOST_DEATHS = 3  # of a measurement's process: the machine may be at fault, as where memory was short for a moment
PAUSE_SECONDS = 2.0  # before a new process is started for one that died
MIB = 2**20


@dataclass(frozen=True)
class Ending:
    """The ending of a command.

    Attributes:
        end: "done" for exit code 0; "crashed" for another one or a signal; "timeout" and "out_of_memory" where it was killed
            for a limit.
        reason: one sentence; empty for "done".
        tail: the end of its output and error streams.
    """

    end: End
    reason: str
    tail: str


def run_limited(
    command: Sequence[str],
    log: Path,
    *,
    time_limit_s: float,
    memory_limit_mib: float | None = None,
    environment: Mapping[str, str] | None = None,
    look: Callable[[], None] | None = None,
) -> Ending:
    """Run `command` in a session of its own; at the end, kill everything that it started.

    The memory is the sum of the resident pages of the command and its descendants; shared pages count for each process. It is
    read every 0.2 s. Address space is not limited, because frameworks reserve far more of it than they use.

    Args:
        command: the program and its arguments.
        log: a file for its output and error streams.
        time_limit_s: seconds from its start.
        memory_limit_mib: in MiB; None for no limit.
        environment: variables that are set for it besides those of this process.
        look: called every 0.2 s while it runs.

    Without psutil, descendants that lead groups of their own are not killed. Raises MissingPackageError if it is needed for a
    memory limit.
    """
    if memory_limit_mib is not None and psutil is None:
        raise MissingPackageError(
            "a memory limit is watched by psutil, which is not installed: pip install psutil, or set no memory limit"
        )
    with log.open("wb") as stream:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            pass_fds=lease_descriptors(),  # if this process is killed, the GPU stays leased until the command has ended
        )
        family: set[psutil.Process] = set()  # all ever seen: a process whose parent has died is found no other way
        try:
            end, reason = _watch(process, time_limit_s, memory_limit_mib, family, look)
        finally:  # also when this process is interrupted
            kill(process, family)
    return Ending(end, reason, log.read_text(encoding="utf-8", errors="replace")[-TAIL_CHARACTERS:])


def _watch(
    process: subprocess.Popen[bytes],
    time_limit_s: float,
    memory_limit_mib: float | None,
    family: set[psutil.Process],
    look: Callable[[], None] | None,
) -> tuple[End, str]:
    deadline = time.monotonic() + time_limit_s
    while True:
        code = process.poll()
        if code is not None:
            return ("done", "") if code == 0 else ("crashed", crash_in_words(code))
        if look is not None:
            look()
        used = used_mib(process, family)
        if time.monotonic() > deadline:
            return "timeout", f"it was stopped at its time limit of {time_limit_s:g} s"
        if memory_limit_mib is not None and used > memory_limit_mib:
            return "out_of_memory", f"it held {used:.0f} MiB, more than its limit of {memory_limit_mib:g} MiB"
        with suppress(subprocess.TimeoutExpired):
            process.wait(min(LOOK_SECONDS, max(deadline - time.monotonic(), 0.001)))


def used_mib(process: subprocess.Popen[bytes], family: set[psutil.Process]) -> float:
    """Return the MiB that a process, which leads its session, and its descendants hold; those are added to the family."""
    living = _members(process.pid, family)
    family |= living
    return sum(map(_resident_bytes, living)) / MIB


def crash_in_words(code: int) -> str:
    """Return in words how a process ended, by its exit code, which is not 0."""
    if code > 0:
        return f"the process ended with exit code {code}"
    hint = "; the system does that where memory is short" if -code == signal.SIGKILL else ""
    return f"the process was ended by signal {-code} ({signal.strsignal(-code)}){hint}"


def deaths_in_words(count: int) -> str:
    """Return in words that the process of a measurement ended so often."""
    return "" if count < 2 else f"; it ended so {count} times, each time as a new process"


def kill(process: subprocess.Popen[bytes], family: set[psutil.Process]) -> None:
    """Kill the group that the process leads, and descendants that made groups of their own; wait for the process."""
    family |= _members(process.pid, family)  # before they lose their parent
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # a group outlives the process whose id it has
    for member in _members(process.pid, family):  # there are none without psutil
        with suppress(psutil.Error):
            member.kill()
    process.wait()


def _members(session: int, family: set[psutil.Process]) -> set[psutil.Process]:
    """Return the living processes of a session, of a family known before, and all their descendants."""
    found: set[psutil.Process] = set()
    if psutil is None:
        return found
    for process in psutil.process_iter():  # two are equal if their number and the time of their start are
        if process not in found and (process in family or _session(process.pid) == session):
            found.add(process)
            with suppress(psutil.Error):
                found.update(process.children(recursive=True))
    return found


def _session(process: int) -> int | None:
    try:
        return os.getsid(process)
    except OSError:  # it has ended meanwhile, or is somebody else's
        return None


def _resident_bytes(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0
