"""Leases of GPUs: a process that computes on a GPU of this machine has one that no other process computes on.

>>> with leased("cpu") as gpu:  # for "cuda", it is a GPU, and CUDA_VISIBLE_DEVICES names it
...     print(gpu)
None

A lease is a lock on a file. Children that inherit its descriptor compute in the same lease: if their parent is killed, the GPU
is free again when they have ended, too.
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

# Lock files of GPUs, which processes of all users of this machine share.
#
# `filelock` locks other files of Syno. It cannot do this: its descriptor is its own, so no child inherits the lease; and it
# does not lock files of other users that can only be read.
#
# The lock is an flock: the system releases it when the last process that has the file open ends, however it ends. The text in
# the file tells people who locked it.


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
        return _open(file)
    if not file.parent.is_dir():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.parent.chmod(0o1777)  # everybody makes files, and nobody deletes another's
    with suppress(FileExistsError):
        made = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | FLAGS)
        os.fchmod(made, 0o666)  # whatever the umask is
        return made
    return _open(file)


def _open(file: Path) -> int:
    try:
        return os.open(file, os.O_RDWR | FLAGS)
    except PermissionError:
        return os.open(file, os.O_RDONLY | FLAGS)  # which is enough for the lock


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


POLL_SECONDS = 1.0  # between two looks for a free GPU


@dataclass(frozen=True)
class Lease:
    """A lease: the GPU, and the descriptor of the locked file."""

    gpu: Gpu
    descriptor: int


_held: tuple[Lease, ...] = ()  # the leases of this process
_last: Gpu | None = None  # the GPU of its last lease


@contextmanager
def leased(
    device: str, setting: str = "the device", *, count: int = 1, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Gpu | None]:
    """Hold a GPU for this process in the block, if the device is one; wait, with a message, while others hold them all.

    For "cuda", it is the first free GPU of those that this process sees, and CUDA_VISIBLE_DEVICES names only it. For "cuda:1",
    it is this one. A block within another one uses the same lease. Yields the GPU, the first one of several; None for "cpu",
    and where leases are turned off.

    Args:
        device: a device of this machine.
        setting: what names it, as messages call it, such as "training.device".
        count: of GPUs, all of which CUDA_VISIBLE_DEVICES then names; for "cuda" only.
        sleep: waits for a number of seconds, before the next look for a free GPU.

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
    os.environ[VISIBLE] = ",".join(gpu.name for gpu in ([one.gpu for one in _held] if device == "cuda" else gpus))
    try:
        yield _last
    finally:
        for one in _held:
            os.close(one.descriptor)  # without unlocking: children that go on keep the lease
        _held = ()
        if before is None:
            del os.environ[VISIBLE]
        else:
            os.environ[VISIBLE] = before


def lease_descriptors() -> tuple[int, ...]:
    """Return the descriptors that a child must inherit to compute in this process's lease, as `pass_fds` of subprocess."""
    return tuple(one.descriptor for one in _held)


def usage() -> list[tuple[Gpu, str]]:
    """Return the GPUs that this process sees, each with who holds it in words; "" if nobody does."""
    folder = leases_folder()
    return [(gpu, "" if folder is None else holder(_file(folder, gpu))) for gpu in visible_gpus()]


def _candidates(device: str, number: int, gpus: Sequence[Gpu]) -> Sequence[Gpu]:
    """Return the GPUs that a lease of the device may be of."""
    if device != "cuda":
        return (gpus[number],)
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return gpus
    return (_last or gpus[torch.cuda.current_device()],)  # CUDA has started: the process stays with its GPU


def _file(folder: Path, gpu: Gpu) -> Path:
    return folder / f"{name_from(gpu.name)}.lease"


def _take(folder: Path, candidates: Sequence[Gpu], count: int, sleep: Callable[[float], None]) -> tuple[Lease, ...]:
    """Lock the first `count` free GPUs and return their leases. Waits, and holds none, while there are fewer."""
    with ExitStack() as stack:
        shown: Display | None = None
        while True:
            found: list[Lease] = []
            for gpu in candidates:
                if (descriptor := lock(_file(folder, gpu))) is not None:
                    found.append(Lease(gpu, descriptor))
                if len(found) == count:
                    if shown is not None:
                        shown.show(Waiting.over(gpu))
                    return tuple(found)
            for one in found:  # two processes that hold some and wait for others would wait for ever
                os.close(one.descriptor)
            shown = shown or stack.enter_context(display())
            shown.show(Waiting.of([holder(_file(folder, gpu)) for gpu in candidates]))
            sleep(POLL_SECONDS)


@dataclass(frozen=True)
class Waiting(Progress):
    """The progress of a process that waits for a GPU. `said` is what it waits for, in words."""

    said: str = ""

    @classmethod
    def of(cls, holders: Sequence[str]) -> Waiting:
        """Return the progress while the GPUs have these holders, in words; "" stands for one that has ended meanwhile."""
        used = [one for one in holders if one]
        return cls("waiting for a GPU", 0, 1, 0, said=f"{len(used)} of {len(holders)} are in use, by {'; '.join(used)}")

    @classmethod
    def over(cls, gpu: Gpu) -> Waiting:
        """Progress line shown once a GPU is acquired and the wait is over."""
        return cls("waiting for a GPU", 1, 1, 0, said=f"{gpu.name} is free now")

    def __str__(self) -> str:
        return f"{self.title}: {self.said}"
