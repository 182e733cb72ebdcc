"""Programs, daemons and other processes: started, waited for, written down, stopped by what was written down."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from slurm_settings import FOLDER

STARTED = FOLDER / "processes"  # names and ids
PATIENCE = 300.0  # seconds for a daemon to come up, or to go


class NoSlurmError(Exception):
    """There can be no Slurm here, and why."""


def path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def found(program: str) -> str:
    return shutil.which(program, path=path()) or program


def run(program: str, *arguments: str) -> str:
    """What it printed. NoSlurmError if it failed."""
    done = subprocess.run([found(program), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoSlurmError(f"{program} {' '.join(arguments)}: {(done.stderr or done.stdout).strip()}; logs are in {FOLDER}/log")
    return done.stdout


def said(program: str, *arguments: str) -> str:
    """What it printed; "" if it failed."""
    try:
        return run(program, *arguments)
    except NoSlurmError:
        return ""


def works(program: str, *arguments: str) -> bool:
    """Whether it ends well."""
    try:
        run(program, *arguments)
    except NoSlurmError:
        return False
    return True


def wait(what: str, true: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > until:
            raise NoSlurmError(f"not within {PATIENCE:g} s: {what}; logs are in {FOLDER}/log")
        time.sleep(0.1)


def note(name: str, file: Path) -> None:
    wait(f"{file} is there", file.exists)
    write_down(name, int(file.read_text(encoding="ascii")))


def write_down(name: str, pid: int) -> None:
    with STARTED.open("a", encoding="utf-8") as processes:
        processes.write(f"{name} {pid}\n")


def name_of(pid: int) -> str:
    """Of a running process; "" if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    name, _, rest = stat.partition("(")[2].rpartition(")")
    return "" if rest.split()[0] in ("Z", "X") else name


def processes(*words: str) -> dict[int, dict[str, str]]:
    """The environments of running processes, by their ids: all, or Python on a program of this name with such arguments."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                variables = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
            except OSError:  # it has ended
                continue
            if not words or [Path(word).name for word in command[1 : 1 + len(words)]] == list(words):
                found[int(entry.name)] = {name: value for name, _, value in (line.partition("=") for line in variables)}
    return found


def folder_of(pid: int) -> Path | None:
    """Where a process runs; None if it has ended."""
    try:
        return Path(f"/proc/{pid}/cwd").resolve(strict=True)
    except OSError:
        return None


def owned(folder: Path, user: str, mode: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    owner = pwd.getpwnam(user)
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    folder.chmod(mode)


def stop(name: str, pid: int) -> None:
    """Stop a process, if it still is what it was."""
    if name_of(pid) != name:
        return
    os.kill(pid, signal.SIGTERM)
    wait(f"{name} has ended", lambda: name_of(pid) != name)


def stop_all() -> None:
    """Stop what was started and written down, the last first."""
    if not STARTED.exists():
        return
    for line in reversed(STARTED.read_text(encoding="utf-8").splitlines()):
        name, pid = line.split()
        stop(name, int(pid))
    STARTED.unlink()
