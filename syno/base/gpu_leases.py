"""Leases of GPUs: each GPU of this machine is used by at most one process at a time.

>>> with leased("cpu") as gpu:  # for "cuda", it is a GPU, and CUDA_VISIBLE_DEVICES names it
...     print(gpu)
None

A lease is a lock on a file. Children that inherit its descriptor share the lease: if their parent is killed, the GPU is free
again once they have ended, too.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from syno.base.devices import VISIBLE, Gpu, check_number, counted_by_pytorch, gpu_number, visible_gpus
from syno.base.errors import DeviceError, MissingDeviceError
from syno.base.files import name_from
from syno.base.progress import Display, Progress, display

# Lock files of GPUs, shared by the processes of all users of this machine.
#
# `filelock` locks other files of Syno. It does not serve here: children do not inherit its descriptor, and so not the lease;
# and it cannot lock files of other users, which are only readable.
#
# The lock is an flock: the system releases it when the last process that has the file open ends, however it ends. The text in
# the file tells people who locked it.


FOLDER_VARIABLE, OFF = "SYNO_GPU_LEASES", "off"
FOLDER = Path("/tmp/syno-gpus")  # fixed, since TMPDIR may differ between users
FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC
MOST_CHARACTERS = 60  # of a command line


def leases_folder() -> Path | None:
    """Return the folder of lock files; None if the environment variable SYNO_GPU_LEASES is "off"."""
    setting = os.environ.get(FOLDER_VARIABLE, "")
    return None if setting == OFF else Path(setting) if setting else FOLDER


def lock(file: Path) -> int | None:
    """Lock a file, which is created if needed, and return its descriptor; None if another process holds the lock.

    The lock is released when all copies of the descriptor are closed, including those of child processes.

    Raises DeviceError if the file can't be made or opened.
    """
    try:
        descriptor = _open_or_make(file)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(file, descriptor):  # the file was deleted meanwhile, and other processes lock its successor
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
    """Return the holder of a lock file, such as "pid 12 (syno train a.yaml original, since 14:02)"; "" if it is not locked."""
    try:
        descriptor = os.open(file, os.O_RDONLY | FLAGS)
    except OSError:  # never locked
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _in_words(os.pread(descriptor, 4096, 0))
    finally:
        os.close(descriptor)
    return ""


def _open_or_make(file: Path) -> int:
    """Return a descriptor of the file, creating it if needed.

    An existing file is opened without O_CREAT, which Linux may refuse for files of other users.
    """
    with suppress(FileNotFoundError):
        return _open(file)
    if not file.parent.is_dir():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.parent.chmod(0o1777)  # all users create files; none deletes another user's
    with suppress(FileExistsError):
        made = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | FLAGS)
        os.fchmod(made, 0o666)  # independent of the umask
        return made
    return _open(file)


def _open(file: Path) -> int:
    try:
        return os.open(file, os.O_RDWR | FLAGS)
    except PermissionError:
        return os.open(file, os.O_RDONLY | FLAGS)  # reading is enough for flock


def _is_at(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _write_holder(descriptor: int) -> None:
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name
    command = " ".join([name, *sys.argv[1:]])
    since = datetime.now().astimezone().isoformat(timespec="seconds")
    text = json.dumps({"pid": os.getpid(), "host": platform.node(), "user": _user(), "job": command, "since": since})
    with suppress(OSError):  # another user's file is not writable; the lock is held all the same
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)


def _user() -> str:
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return str(os.getuid())


def _in_words(text: bytes) -> str:
    """Return the text of a lock file as a phrase: process, job and time. Any user may have written the text."""
    try:
        fields = json.loads(text)
        pid, job = int(fields["pid"]), str(fields["job"])[:MOST_CHARACTERS]
        since, user = datetime.fromisoformat(fields["since"]), str(fields["user"])[:MOST_CHARACTERS]
    except (ValueError, KeyError, TypeError):
        return "another process"
    gone = "" if Path("/proc", str(pid)).exists() else "children of "
    of = "" if user == _user() else f" of {user}"
    said = f"{gone}pid {pid}{of} ({job}, since {since:%Y-%m-%d %H:%M})"
    return "".join(character if character.isprintable() else "?" for character in said)


POLL_SECONDS = 1.0  # between two attempts to lock a GPU


@dataclass(frozen=True)
class Lease:
    """A lease of one GPU.

    Attributes:
        gpu: the GPU.
        descriptor: file descriptor of the locked file.
    """

    gpu: Gpu
    descriptor: int


_held: tuple[Lease, ...] = ()  # the leases of this process
_last: Gpu | None = None  # the GPU of its last lease


@contextmanager
def leased(
    device: str, setting: str = "the device", *, count: int = 1, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Gpu | None]:
    """Lease a GPU for the duration of the block; while all are leased to others, wait and display a message.

    "cuda" means the first free GPU among those that this process sees; CUDA_VISIBLE_DEVICES then names only this GPU. "cuda:1"
    means GPU 1. Nested blocks share the lease. Yields the GPU, the first of several; None for "cpu", and if leases are turned
    off.

    Args:
        device: a device of this machine.
        setting: the setting that names the device, for messages, such as "training.device".
        count: number of GPUs to lease; for "cuda" only.
        sleep: waits for a number of seconds between two attempts.

    Raises:
        MissingDeviceError: this machine has no such GPU.
        DeviceError: the folder of leases can't be used.
    """
    global _held, _last
    number, folder = gpu_number(device, setting), leases_folder()
    if number is None or folder is None or _held:
        yield _held[0].gpu if number is not None and _held else None
        return
    gpus = visible_gpus() or counted_by_pytorch()
    check_number(device, len(gpus), setting)
    if count > len(gpus):
        raise MissingDeviceError(f"{setting} needs {count} GPUs, and this machine has {len(gpus)}; give training: processes")
    _held = _take(folder, _candidates(device, number, gpus), count, sleep)
    _last, before = _held[0].gpu, os.environ.get(VISIBLE)
    os.environ[VISIBLE] = ",".join(gpu.name for gpu in ([lease.gpu for lease in _held] if device == "cuda" else gpus))
    try:
        yield _last
    finally:
        for lease in _held:
            os.close(lease.descriptor)  # no unlock: children that still run keep the lease
        _held = ()
        if before is None:
            del os.environ[VISIBLE]
        else:
            os.environ[VISIBLE] = before


def lease_descriptors() -> tuple[int, ...]:
    """Return the descriptors that a child must inherit to share this process's lease: `pass_fds` of subprocess."""
    return tuple(lease.descriptor for lease in _held)


def usage() -> list[tuple[Gpu, str]]:
    """Return the GPUs that this process sees, each with the description of its lease's holder; "" if it is free."""
    folder = leases_folder()
    return [(gpu, "" if folder is None else holder(_file(folder, gpu))) for gpu in visible_gpus()]


def _candidates(device: str, number: int, gpus: Sequence[Gpu]) -> Sequence[Gpu]:
    """Return the GPUs that a lease of `device` may choose from."""
    if device != "cuda":
        return (gpus[number],)
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return gpus
    return (_last or gpus[torch.cuda.current_device()],)  # once CUDA has started, the process cannot change its GPU


def _file(folder: Path, gpu: Gpu) -> Path:
    return folder / f"{name_from(gpu.name)}.lease"


def _take(folder: Path, candidates: Sequence[Gpu], count: int, sleep: Callable[[float], None]) -> tuple[Lease, ...]:
    """Lock the first `count` free GPUs and return their leases. While fewer are free, locks none and waits."""
    with ExitStack() as stack:
        shown: Display | None = None
        while True:
            leases: list[Lease] = []
            for gpu in candidates:
                if (descriptor := lock(_file(folder, gpu))) is not None:
                    leases.append(Lease(gpu, descriptor))
                if len(leases) == count:
                    if shown is not None:
                        shown.show(Waiting.over(gpu))
                    return tuple(leases)
            for lease in leases:  # no hold and wait: two processes would deadlock
                os.close(lease.descriptor)
            shown = shown or stack.enter_context(display())
            shown.show(Waiting.of([holder(_file(folder, gpu)) for gpu in candidates]))
            sleep(POLL_SECONDS)


@dataclass(frozen=True)
class Waiting(Progress):
    """Progress of the wait for a GPU.

    Attributes:
        said: the text of the line: which GPUs are in use, and by whom.
    """

    said: str = ""

    @classmethod
    def of(cls, holders: Sequence[str]) -> Waiting:
        """Return the progress line while all GPUs are leased. `holders` describes one holder for each; "" if its lease has just
        ended.
        """
        used = [holder for holder in holders if holder]
        return cls("waiting for a GPU", 0, 1, 0, said=f"{len(used)} of {len(holders)} are in use, by {'; '.join(used)}")

    @classmethod
    def over(cls, gpu: Gpu) -> Waiting:
        """Progress line shown once a GPU is acquired and the wait is over."""
        return cls("waiting for a GPU", 1, 1, 0, said=f"{gpu.name} is free now")

    def __str__(self) -> str:
        return f"{self.title}: {self.said}"
