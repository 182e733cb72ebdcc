"""Measurements on this machine that another one asked for: each is a folder, and a process that outlives the connection.

The folders are in ~/.cache/syno/measurements (or $XDG_CACHE_HOME), named by the hash of the order. A folder is removed when its
record has been received, so that the same order later is a new measurement.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from syno.base.devices import require_device
from syno.base.errors import DeviceError, SynoError
from syno.base.files import write_whole
from syno.measure.compilers import compiler_named
from syno.measure.measuring import FINDINGS, REQUEST, Findings, Request
from syno.measure.ssh.protocol import MIB, MODULE
from syno.measure.tuning import tune

RECORD, FAULT, LOG, ALIVE, STARTS = "record.json", "fault.txt", "log", "alive", "starts"
STARTING, MEASURING, TRIALS = "starting.lock", "measuring.lock", "trials"  # beside the folders
MOST_STARTS = 3  # of a measurement whose process died, as when the machine was switched off
LEAST_FREE_MIB = 64
TAIL_CHARACTERS = 500


def place() -> Path:
    """Return the folder of all measurements."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "syno" / "measurements"


def folders() -> list[Path]:
    """Return the folders of the measurements that are running, or not fetched."""
    return [file.parent for file in place().glob(f"*/{REQUEST}")]


def free_mib(folder: Path) -> int:
    """Return the free MiB on the disk of a folder, which need not exist yet."""
    there = next(one for one in (folder, *folder.parents) if one.exists())
    return shutil.disk_usage(there).free // MIB


def require_room() -> None:
    """Raise DeviceError if a disk that measurements write to is full."""
    for folder in (place(), Path(tempfile.gettempdir())):
        free = free_mib(folder)
        if free < LEAST_FREE_MIB:
            raise DeviceError(
                f"the disk of {folder} is full: {free} MiB are free, and a measurement needs {LEAST_FREE_MIB} MiB"
            )


# ---- in the processes of connections -------------------------------------------------------------------------------------


@contextmanager
def _locked(name: str) -> Iterator[None]:
    """Wait for a lock beside the folders, and hold it."""
    place().mkdir(parents=True, exist_ok=True)
    with (place() / name).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def ensure_started(folder: Path, request: Request) -> None:
    """Start a measurement, unless it runs or has finished.

    Raises DeviceError if its process died too often.
    """
    with _locked(STARTING):
        if ending(folder) is not None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ALIVE).open("a") as alive:
            try:
                fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            starts = _starts(folder) + 1
            if starts > MOST_STARTS:
                said = _tail(folder)
                shutil.rmtree(folder)
                raise DeviceError(f"the process of the measurement died {MOST_STARTS} times; its last words: {said or 'none'}")
            write_whole(folder / STARTS, str(starts))
            write_whole(folder / REQUEST, request.model_dump_json())
            with (folder / LOG).open("ab") as log:
                subprocess.Popen(
                    [sys.executable, "-m", MODULE, "run", str(folder)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=[alive.fileno()],  # the process holds the lock as long as it lives
                    start_new_session=True,  # it outlives the connection
                )


def is_alive(folder: Path) -> bool:
    """Return whether the process of a measurement lives."""
    try:
        with (folder / ALIVE).open("r") as alive:
            fcntl.flock(alive, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def ending(folder: Path) -> tuple[str, str] | None:
    """Return how a measurement ended: "record" and the record, or "fault" and a sentence; None if it has not."""
    for kind, name in (("record", RECORD), ("fault", FAULT)):
        with suppress(OSError):
            return kind, (folder / name).read_text(encoding="utf-8")
    return None


def findings(folder: Path) -> Findings | None:
    """Return what a measurement has found so far; None if nothing."""
    try:
        return Findings.model_validate_json((folder / FINDINGS).read_bytes())
    except (OSError, ValidationError):
        return None


def death(folder: Path) -> str:
    """Return why a measurement may have ended without a record."""
    free = free_mib(place())
    why = f"the disk of {place()} is full" if free < 1 else f"its last words: {_tail(folder) or 'none'}"
    return f"the process of the measurement died; {why}"


def remove(folder: Path) -> None:
    """Remove a measurement that has ended, if nobody has started it anew."""
    with _locked(STARTING):
        if ending(folder) is not None or not is_alive(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _starts(folder: Path) -> int:
    try:
        return int((folder / STARTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0


def _tail(folder: Path) -> str:
    with suppress(OSError):
        return " ".join((folder / LOG).read_text(encoding="utf-8", errors="replace").split())[-TAIL_CHARACTERS:]
    return ""


# ---- in the process of the measurement -----------------------------------------------------------------------------------


def run(folder: Path) -> None:
    """Measure what the folder's request says, once no other measurement runs here, and write the record or a fault."""
    try:
        request = Request.model_validate_json((folder / REQUEST).read_bytes())
        require_device(request.device)  # before it waits for others
        _write(folder, Findings(phase="waiting"))
        with _locked(MEASURING):
            _measured(folder, request)
    except SynoError as error:
        write_whole(folder / FAULT, str(error))
    except Exception as error:
        write_whole(folder / FAULT, f"{type(error).__name__}: {error}")
        raise  # for the log


def _measured(folder: Path, request: Request) -> None:
    written = Findings()

    def tell(found: Findings) -> None:
        nonlocal written
        if found != written:
            written = found
            _write(folder, found)

    compiler = compiler_named(request.compiler)
    own: dict[str, Any] = (
        {} if compiler.settings is None else {compiler.group: compiler.settings.model_validate(request.options)}
    )
    kept = place() / TRIALS / request.folder.name if str(request.folder) != "." else None
    tune(
        request.subject,
        request.compiler,
        request.device,
        request.settings,
        time_limit_s=request.time_limit_s,
        memory_limit_mib=request.memory_limit_mib,
        folder=kept,
        progress=tell,
        **own,
    ).write(folder / RECORD)


def _write(folder: Path, found: Findings) -> None:
    write_whole(folder / FINDINGS, found.model_dump_json(), durable=False)
