"""Who evaluates a trial, so that others can tell whether it still does."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Worker:
    """A process that evaluates trials.

    Attributes:
        host: name of its machine, for people.
        pid: its process id.
        started: when it started, in ticks of its machine, so that a later process of the same id is another one; 0 if unknown.
        system: what its process ids belong to: one boot of a machine, one namespace of processes; "" if unknown.
    """

    host: str
    pid: int
    started: int
    system: str

    @classmethod
    def here(cls) -> Worker:
        """This process."""
        return cls(platform.node(), os.getpid(), _started(os.getpid()) or 0, _system())

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Worker:
        """What `stored` gave."""
        return cls(str(stored["host"]), int(stored["pid"]), int(stored["started"]), str(stored["system"]))

    def stored(self) -> dict[str, Any]:
        """As it is kept with a trial."""
        return asdict(self)

    def is_gone(self) -> bool:
        """Whether the process is known to have ended. False if that cannot be seen from here."""
        return bool(self.system) and self.system == _system() and _started(self.pid) != self.started

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


@cache
def _system() -> str:
    """What process ids mean here: the machine's boot and the namespace of processes. "" where the system doesn't tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> int | None:
    """When the process started, in ticks since boot; None if there is no such process, or it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the name before may hold anything, blanks too
    return None if state in ("Z", "X") else int(fields[18])
