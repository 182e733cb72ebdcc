"""Lock files of GPUs, which processes of all users of this machine share.

The lock is an flock: the system releases it when the last process that has the file open ends, however it ends. The text in the
file tells people who locked it.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import platform
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from syno.base.errors import DeviceError

FOLDER_VARIABLE, OFF = "SYNO_GPU_LEASES", "off"
FOLDER = Path("/tmp/syno-gpus")  # whatever a user's TMPDIR is
FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC
MOST_CHARACTERS = 60  # of a command line


def leases_folder() -> Path | None:
    """Return the folder of lock files; None if the environment variable SYNO_GPU_LEASES is "off"."""
    given = os.environ.get(FOLDER_VARIABLE, "")
    return None if given == OFF else Path(given) if given else FOLDER


def lock(file: Path) -> int | None:
    """Lock a file, which is made if it does not exist, and return its descriptor; None if another process has locked it.

    The lock is released when all copies of the descriptor are closed, those of child processes too.

    Raises DeviceError if the file can't be made or opened.
    """
    try:
        descriptor = _open_or_make(file)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(file, descriptor):  # it was deleted meanwhile, and others lock a new one
                raise BlockingIOError
            _write_holder(descriptor)
        except BlockingIOError:
            os.close(descriptor)
            return None
    except OSError as error:
        raise DeviceError(
            f"the lease of a GPU, {file}, cannot be used: {error.strerror or error}; {FOLDER_VARIABLE} may name another "
            f'folder, the same for all users of this machine, or be "{OFF}" if no other process computes on its GPUs'
        ) from error
    return descriptor


def holder(file: Path) -> str:
    """Return who has locked a file, such as "pid 12 (syno train a.yaml original, since 14:02)"; "" if it is not locked."""
    try:
        descriptor = os.open(file, os.O_RDONLY | FLAGS)
    except OSError:  # nobody ever locked it
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _in_words(os.pread(descriptor, 4096, 0))
    finally:
        os.close(descriptor)
    return ""


def _open_or_make(file: Path) -> int:
    """Return a descriptor of the file. An existing one is opened without O_CREAT: Linux may refuse that for files of others."""
    with suppress(FileNotFoundError):
        return _opened(file)
    if not file.parent.is_dir():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.parent.chmod(0o1777)  # everybody makes files, and nobody deletes another's
    with suppress(FileExistsError):
        made = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | FLAGS)
        os.fchmod(made, 0o666)  # whatever the umask is
        return made
    return _opened(file)


def _opened(file: Path) -> int:
    try:
        return os.open(file, os.O_RDWR | FLAGS)
    except PermissionError:
        return os.open(file, os.O_RDONLY | FLAGS)  # which is enough for the lock


def _is_at(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


# ---- who has it ----------------------------------------------------------------------------------------------------------


def _write_holder(descriptor: int) -> None:
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name
    command = " ".join([name, *sys.argv[1:]])
    since = datetime.now().astimezone().isoformat(timespec="seconds")
    text = json.dumps({"pid": os.getpid(), "host": platform.node(), "user": _user(), "job": command, "since": since})
    with suppress(OSError):  # it may be a file of another user; only the lock counts
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)


def _user() -> str:
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return str(os.getuid())


def _in_words(text: bytes) -> str:
    """Return who has locked a file, by its text. Any user may have written it."""
    try:
        found = json.loads(text)
        pid, job = int(found["pid"]), str(found["job"])[:MOST_CHARACTERS]
        since, user = datetime.fromisoformat(found["since"]), str(found["user"])[:MOST_CHARACTERS]
    except (ValueError, KeyError, TypeError):
        return "another process"
    gone = "" if Path("/proc", str(pid)).exists() else "children of "
    of = "" if user == _user() else f" of {user}"
    said = f"{gone}pid {pid}{of} ({job}, since {since:%Y-%m-%d %H:%M})"
    return "".join(character if character.isprintable() else "?" for character in said)
