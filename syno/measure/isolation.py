"""Running a command in a process of its own, within limits of time and memory, and leaving nothing of it behind."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

End: TypeAlias = Literal["done", "crashed", "timeout", "out_of_memory"]

LOOK_SECONDS = 0.2  # between two looks at the process: seldom, so that looking does not slow down what is timed
TAIL_CHARACTERS = 2000
MIB = 2**20


class Member(NamedTuple):
    """A process. Numbers are used again; with the time of its start it is this one."""

    process: int
    start: int


@dataclass(frozen=True)
class Ending:
    """How a command ended.

    Attributes:
        end: "done" for exit code 0; "crashed" for another one or a signal; "timeout" and "out_of_memory" where it was killed
            for a limit.
        reason: one sentence; empty for "done".
        tail: the end of what it wrote to its output and error streams.
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

    The memory is what the command and its descendants hold at the same time, as the system counts resident pages; what
    processes share is counted for each. It is looked at every 0.2 s. Address space is not limited, because frameworks
    reserve far more of it than they use.

    Args:
        command: the program and its arguments.
        log: a file for its output and error streams.
        time_limit_s: seconds from its start.
        memory_limit_mib: in MiB; None for no limit. Watched where there is a /proc file system (Linux), nowhere else.
        environment: variables of the environment that are set for it besides those of this process.
        look: called every 0.2 s while it runs.
    """
    with log.open("wb") as stream:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        family: set[Member] = set()  # ever seen: those whose parent has died are found no other way
        try:
            end, reason = _watch(process, time.monotonic() + time_limit_s, time_limit_s, memory_limit_mib, family, look)
        finally:  # also when this process is interrupted
            _kill(process, family)
    return Ending(end, reason, log.read_text(encoding="utf-8", errors="replace")[-TAIL_CHARACTERS:])


def _watch(
    process: subprocess.Popen[bytes],
    deadline: float,
    time_limit_s: float,
    memory_limit_mib: float | None,
    family: set[Member],
    look: Callable[[], None] | None,
) -> tuple[End, str]:
    while True:
        code = process.poll()
        if code is not None:
            return ("done", "") if code == 0 else ("crashed", _crash(code))
        if look is not None:
            look()
        living = _members(process.pid, family)
        family |= living.keys()
        used = sum(living.values()) / MIB
        if time.monotonic() > deadline:
            return "timeout", f"it was stopped at its time limit of {time_limit_s:g} s"
        if memory_limit_mib is not None and used > memory_limit_mib:
            return "out_of_memory", f"it held {used:.0f} MiB, more than its limit of {memory_limit_mib:g} MiB"
        with suppress(subprocess.TimeoutExpired):
            process.wait(min(LOOK_SECONDS, max(deadline - time.monotonic(), 0.001)))


def _crash(code: int) -> str:
    if code > 0:
        return f"the process ended with exit code {code}"
    hint = "; the system does that where memory is short" if -code == signal.SIGKILL else ""
    return f"the process was ended by signal {-code} ({signal.strsignal(-code)}){hint}"


def _kill(process: subprocess.Popen[bytes], family: set[Member]) -> None:
    """Kill the group that the process leads, and descendants that made groups of their own; wait for the process."""
    family |= _members(process.pid, family).keys()  # before they lose their parent
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # a group outlives the process whose id it has
    for member in _members(process.pid, family):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(member.process, signal.SIGKILL)
    process.wait()


def _members(session: int, family: set[Member]) -> dict[Member, int]:
    """The living processes of a session, of a family known before, and all their descendants, with their resident bytes."""
    parents: dict[int, list[int]] = {}
    found: dict[int, tuple[Member, int]] = {}
    pending: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        number = int(folder.name)
        member = Member(number, int(fields[19]))
        found[number] = member, int(fields[21]) * resource.getpagesize()
        parents.setdefault(int(fields[1]), []).append(number)
        if int(fields[3]) == session or member in family:
            pending.append(number)
    members: dict[Member, int] = {}
    while pending:
        number = pending.pop()
        member, used = found[number]
        if member not in members:
            members[member] = used
            pending += parents.get(number, [])
    return members
