"""The store of speedups: a folder with one file for each measurement, which several studies and workers share.

A file's name is a hash of everything that the measurement depends on, the machine included. So what was measured elsewhere, or
with other versions, is never found, and a file that was renamed is not believed.

That a process died is not kept: it depends on what else the machine did.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from syno.base.errors import SpecError
from syno.measure.speedup_record import Conditions, SpeedupRecord

LOCKS = "locks"
BY_LIMIT = ("timeout", "out_of_memory")  # how a measurement ends that might succeed with more time or memory


class SpeedupStore:
    """The records in a folder.

    Args:
        folder: is made when the first record is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, conditions: Conditions) -> Path:
        """Return the file of the measurement under these conditions."""
        return self.folder / f"{conditions.key}.json"

    def read(
        self, conditions: Conditions, time_limit_s: float | None = None, memory_limit_mib: float | None = None
    ) -> SpeedupRecord | None:
        """Return the record of the measurement under these conditions; None if there is none that is valid.

        A damaged record is not valid, nor is one of other conditions, whatever its name, nor one that ended by a limit which
        was smaller than the given one, nor one of a process that died, which earlier versions kept.
        """
        try:
            record = SpeedupRecord.read(self.file(conditions))
        except SpecError:
            return None
        limits = ((record.time_limit_s, time_limit_s), (record.memory_limit_mib, memory_limit_mib))
        if (
            record.conditions != conditions
            or not is_kept(record)
            or (record.status in BY_LIMIT and any(_is_less(*each) for each in limits))
        ):
            return None
        return record

    def write(self, record: SpeedupRecord) -> None:
        """Write a record, unless it is one of a process that died; readers see all of it or nothing.

        Raises SpecError if it cannot be written.
        """
        if is_kept(record):
            record.write(self.file(record.conditions))

    def records(self) -> Iterator[SpeedupRecord]:
        """Yield all valid records, of any conditions, in the order of their files' names."""
        for file in sorted(self.folder.glob("*.json")):
            with suppress(SpecError):
                record = SpeedupRecord.read(file)
                if self.file(record.conditions) == file and is_kept(record):
                    yield record

    @contextmanager
    def locked(self, conditions: Conditions) -> Iterator[None]:
        """Hold the lock of a measurement in the block; wait while another process has it.

        The system releases the lock of a process that ends, however it ends. Raises SpecError if the folder cannot be used.
        """
        file = self.folder / LOCKS / conditions.key
        try:
            descriptor = _lock(file)
        except OSError as error:
            raise SpecError(
                f"the store of latencies {self.folder} cannot be used: {error.strerror or error}; give another folder"
            ) from error
        try:
            yield
        finally:
            file.unlink(missing_ok=True)  # those who wait notice that it is another file
            os.close(descriptor)


def is_kept(record: SpeedupRecord) -> bool:
    """Return whether a record says something about the operator, rather than about what else the machine did."""
    without_limit = record.status == "out_of_memory" and record.memory_limit_mib is None
    return record.status != "crashed" and not without_limit


def _lock(file: Path) -> int:
    """Return the descriptor of the file, locked. A file that was deleted meanwhile is not the lock: another one is made."""
    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(file.stat(), os.fstat(descriptor)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_less(before: float | None, now: float | None) -> bool:
    """Return whether a limit was smaller than it is now; None is no limit."""
    return before is not None and (now is None or before < now)
