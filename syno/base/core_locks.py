"""Locks of processor cores, so that a latency is never measured while this machine trains on the same cores.

A training shares its cores with other trainings; a measurement of latency holds its cores exclusively:

>>> with computing():  # around each epoch of a training
...     waited = make_way()  # in each step
>>> with alone():  # around the timing
...     pass

A process that waits for long says so in a line (`waiting_line`), which names the processes that hold the cores.

There is one lock file for each core, and the cores of a process are those that the system lets it run on. The locks are flocks:
the system releases those of a process that ends, however it ends. While a measurement waits, later trainings wait behind it,
and running ones make way for it at their next step.
"""

# `filelock` locks other files of Syno. It cannot do this: trainings share a lock, which a measurement waits for; a file of
# another user, which can only be read, is locked; and the locks are flocks, whose holders /proc/locks tells. (Its
# `ReadWriteLock` is a database of SQLite, which every user would have to write.)

from __future__ import annotations

import fcntl
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import shorten

from syno.base.text_tables import plural

FOLDER_VARIABLE, OFF = "SYNO_CORE_LOCKS", "off"
FOLDER = Path("/tmp/syno-cores")  # whatever a user's TMPDIR is
FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC  # which is enough for a lock, on files of other users too

SAY_AFTER_SECONDS = 10.0  # of waiting, after which it is said for whom; later when it has lasted twice as long
LOOK_SECONDS = 0.02  # between two looks whether a lock is free, or somebody waits for it; five times that after a second
LONGEST_COMMAND = 120  # characters

_held: list[int] = []  # descriptors of the locks of this process
_way: int | None = None  # how they are held: fcntl.LOCK_SH or fcntl.LOCK_EX
_looked = 0.0  # when this process looked whether a measurement waits


@contextmanager
def computing(device: str = "cpu") -> Iterator[float]:
    """Hold this process's cores for the block, shared with other trainings; wait first while a measurement holds one of them.

    Yields the seconds waited. Nested blocks, blocks within `alone`, and blocks for GPUs (which have leases) do nothing.
    """
    if _way is not None or device != "cpu":
        yield 0.0
        return
    began = time.perf_counter()
    with _cores(fcntl.LOCK_SH):
        yield time.perf_counter() - began


@contextmanager
def alone(device: str = "cpu") -> Iterator[None]:
    """Hold this process's cores exclusively for the block; wait first while another process computes on one of them.

    Within `computing`, the shared locks are released before, and taken again after the block. Does nothing for GPUs.
    """
    if _way == fcntl.LOCK_EX or device != "cpu":
        yield
        return
    with given_up(), _cores(fcntl.LOCK_EX):
        yield


def are_used() -> bool:
    """Return whether locks of cores are used: SYNO_CORE_LOCKS may be "off", and some systems have no locks."""
    return _folder() is not None


def make_way() -> float:
    """Let a waiting measurement have this process's cores first. Returns the seconds that this took.

    Called in each step of a training, within `computing`; elsewhere it does nothing.
    """
    global _looked
    began = time.perf_counter()
    if _way != fcntl.LOCK_SH or began - _looked < LOOK_SECONDS:
        return 0.0
    _looked = began
    if not _measurement_waits():
        return 0.0
    with given_up():
        pass  # who waits has the gate, and passes it before this process does
    return time.perf_counter() - began


def _measurement_waits() -> bool:
    """Return whether a measurement waits for exclusive use of one of this process's cores."""
    folder = _folder()
    if folder is None:
        return False
    for core in sorted(os.sched_getaffinity(0)):
        with suppress(OSError):
            gate = os.open(folder / f"{core}.next", FLAGS)
            try:
                fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(gate)
    return False


@contextmanager
def given_up() -> Iterator[None]:
    """Release this process's cores for the block, in which it waits for a measuring process, and take them again after it."""
    way = _way
    _release()
    try:
        yield
    finally:
        if way is not None:
            _take(way)


@contextmanager
def _cores(way: int) -> Iterator[None]:
    try:
        _take(way)
        yield
    finally:
        _release()


def _take(way: int) -> None:
    """Lock this process's cores, in the order of their numbers. `way` is LOCK_SH to share them or LOCK_EX to hold them alone.

    All processes use this order, so that there is no deadlock. Each core has two files. The first is locked only while waiting
    for the second: a waiting process then comes before all that arrive later, also before those that could share the second
    lock with its holders.
    """
    global _way
    folder = _folder()
    if folder is None:
        return
    _way = way
    try:
        for core in sorted(os.sched_getaffinity(0)):
            gate = _open_or_make(folder / f"{core}.next")
            try:
                _lock(gate, fcntl.LOCK_EX)
                _held.append(_open_or_make(folder / f"{core}.core"))
                _lock(_held[-1], way)
            finally:
                os.close(gate)
    except OSError as error:
        _release()
        warnings.warn(
            f"the locks of cores in {folder} cannot be used ({error.strerror or error}), so trainings may disturb latencies: "
            f'{FOLDER_VARIABLE} may name another folder, the same for all users of this machine, or be "{OFF}"',
            stacklevel=4,
        )


def _lock(descriptor: int, way: int) -> None:
    """Lock a file with `way`, LOCK_SH or LOCK_EX. While another process holds it, print from time to time which one."""
    wait = Wait()
    while True:
        try:
            return fcntl.flock(descriptor, way | fcntl.LOCK_NB)
        except BlockingIOError:
            wait.look()
            time.sleep(LOOK_SECONDS if wait.seconds < 1 else 5 * LOOK_SECONDS)


class Wait:
    """A wait of this process, or of a child, for cores. It prints a line on standard error from time to time."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._say_next = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the wait began; 0 if there is none."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def look(self, is_waiting: bool = True) -> None:
        """Print a line on standard error after a wait of `SAY_AFTER_SECONDS`, and again whenever the wait is twice as long."""
        if not is_waiting:
            self._began = None
            return
        if self._began is None:
            self._began, self._say_next = time.monotonic(), SAY_AFTER_SECONDS
        if self.seconds >= self._say_next:
            self._say_next *= 2
            print(waiting_line(self.seconds), file=sys.stderr, flush=True)


def waiting_line(seconds: float) -> str:
    """Return a line for the user: how long this process or a child has waited, for how many cores, and which processes hold
    them.
    """
    folder, own = _folder(), _own_processes()
    files = [] if folder is None else [folder / f"{core}.core" for core in os.sched_getaffinity(0)]
    holders = [pids for file in files if (pids := _holders(file) - own)]
    cores = "processor cores" if not holders else plural(len(holders), "processor core")
    held_by = "; ".join(map(_description, sorted(set().union(*holders)))) or "another process, perhaps in another container"
    return f"waiting for {seconds:.0f} s for {cores} held by {held_by}; {FOLDER_VARIABLE}=off waits for nobody"


def _own_processes() -> set[int]:
    """Return the ids of this process and of its descendants."""
    import psutil  # only processes that wait need it

    return {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}


def _holders(file: Path) -> set[int]:
    """Return the ids of the processes that hold a lock file. The system does not report processes in other containers."""
    try:
        facts = file.stat()
        rows = [line.split() for line in Path("/proc/locks").read_text(encoding="ascii", errors="replace").splitlines()]
    except OSError:
        return set()
    place = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
    # number, FLOCK, ADVISORY, READ or WRITE, pid, device:inode, start, end; "->" after the number of a lock that waits
    return {int(row[4]) for row in rows if row[1] == "FLOCK" and row[5] == place and int(row[4]) > 0}


def _description(pid: int) -> str:
    """Return the id of a process and its command."""
    import psutil

    try:
        process = psutil.Process(pid)
        stopped = "stopped: " if process.status() == psutil.STATUS_STOPPED else ""
        return f"process {pid} ({stopped}{shorten(' '.join(process.cmdline()), LONGEST_COMMAND, placeholder='...')})"
    except psutil.Error:
        return f"process {pid}"


def _release() -> None:
    global _way
    while _held:
        fcntl.flock(_held[-1], fcntl.LOCK_UN)  # whoever has a copy of the descriptor keeps nothing
        os.close(_held.pop())
    _way = None


def _forget() -> None:
    """Close the descriptors of locks in a forked process: the locks are its parent's."""
    global _way
    while _held:
        os.close(_held.pop())
    _way = None


os.register_at_fork(after_in_child=_forget)


def _folder() -> Path | None:
    """Return the folder of lock files; None if the environment variable SYNO_CORE_LOCKS is "off", or there are no flocks."""
    given = os.environ.get(FOLDER_VARIABLE, "")
    if given == OFF or not hasattr(os, "sched_getaffinity"):
        return None
    return Path(given) if given else FOLDER


def _open_or_make(file: Path) -> int:
    """Return a file descriptor of `file`, which is created if it does not exist."""
    try:
        return os.open(file, FLAGS)
    except FileNotFoundError:
        if not file.parent.is_dir():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.parent.chmod(0o1777)  # everybody makes files, and nobody deletes another's
        try:
            made = os.open(file, FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:  # made by another process meanwhile
            return os.open(file, FLAGS)
        os.fchmod(made, 0o644)  # whatever the umask is
        return made
