"""Locks of processor cores, so that a latency is never measured while this machine trains on the same cores.

A training computes on its cores together with others; a measurement of latency has its cores alone:

>>> with computing():  # around each epoch of a training
...     pass
>>> with alone():  # around the timing
...     pass

There is one lock file for each core, and the cores of a process are those that the system lets it run on. The locks are flocks:
the system releases those of a process that ends, however it ends. A measurement that waits keeps later trainings waiting, so it
gets its turn at the end of the running epochs.
"""

from __future__ import annotations

import fcntl
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER_VARIABLE, OFF = "SYNO_CORE_LOCKS", "off"
FOLDER = Path("/tmp/syno-cores")  # whatever a user's TMPDIR is
FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC  # which is enough for a lock, on files of other users too

_held: list[int] = []  # descriptors of the locks of this process
_way: int | None = None  # how they are held: fcntl.LOCK_SH or fcntl.LOCK_EX


@contextmanager
def computing(device: str = "cpu") -> Iterator[float]:
    """Hold the cores of this process in the block together with others; wait while a measurement has one of them.

    Yields the seconds that it waited. A block within another one, or within `alone`, does nothing, nor one on another device
    than the processor: GPUs have leases.
    """
    if _way is not None or device != "cpu":
        yield 0.0
        return
    began = time.perf_counter()
    with _cores(fcntl.LOCK_SH):
        yield time.perf_counter() - began


@contextmanager
def alone(device: str = "cpu") -> Iterator[None]:
    """Hold the cores of this process in the block alone; wait while others compute on one of them.

    If this process holds them for `computing`, it gives them up before, and takes them again after the block. Does nothing on
    another device than the processor.
    """
    if _way == fcntl.LOCK_EX or device != "cpu":
        yield
        return
    with given_up(), _cores(fcntl.LOCK_EX):
        yield


@contextmanager
def given_up() -> Iterator[None]:
    """Give up the cores that this process holds for the block, in which it waits for another one that measures."""
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
    """Lock the cores, in the order of their numbers, in which every process does.

    Each core has two files. The lock of the first is held only while waiting for the lock of the second: who waits there comes
    before those who arrive later, also where these could share the second with its holders.
    """
    global _way
    folder = _folder()
    if folder is None:
        return
    _way = way
    try:
        for core in sorted(os.sched_getaffinity(0)):
            gate = _opened(folder / f"{core}.next")
            try:
                fcntl.flock(gate, fcntl.LOCK_EX)
                _held.append(_opened(folder / f"{core}.core"))
                fcntl.flock(_held[-1], way)
            finally:
                os.close(gate)
    except OSError as error:
        _release()
        warnings.warn(
            f"the locks of cores in {folder} cannot be used ({error.strerror or error}), so trainings may disturb latencies: "
            f'{FOLDER_VARIABLE} may name another folder, the same for all users of this machine, or be "{OFF}"',
            stacklevel=4,
        )


def _release() -> None:
    global _way
    while _held:
        fcntl.flock(_held[-1], fcntl.LOCK_UN)  # whoever has a copy of the descriptor keeps nothing
        os.close(_held.pop())
    _way = None


def _forget() -> None:
    """Close the descriptors in a process that was forked: the locks are its parent's."""
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


def _opened(file: Path) -> int:
    """Return a descriptor of the file, which is made if it does not exist."""
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
