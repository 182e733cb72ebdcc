"""Journals: trials in a text file, to which any number of workers append and which Optuna reads.

A line counts as a whole or not at all. A writer whose disk is full removes what it wrote of a line; the unfinished line of a
dead writer is cut off by whoever appends next. A damaged line costs that line (`journal_recovery`). Lines are on the disk
before `append_logs` returns.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from optuna.storages.journal import BaseJournalBackend

from syno.base.errors import SpecError, StorageError
from syno.base.files import replaced
from syno.search.storage.errors import file_errors
from syno.search.storage.journal_lines import Log, Position, encode
from syno.search.storage.journal_recovery import Recovered, read, recover
from syno.search.storage.leases import JournalLock

START = b'{"op_code":'


class JournalView(BaseJournalBackend):
    """A journal as it is now, read only. The file is not changed, and no lock is taken."""

    def __init__(self, path: Path) -> None:
        """Raises StorageError if it cannot be read, or is no journal. A warning says what is damaged."""
        with file_errors(path):
            data = path.read_bytes()
        data = data[: data.rfind(b"\n") + 1]  # another worker may be writing the rest now
        logs = read(data, Position())
        if logs is None:
            recovered = _recovered(path, data)
            warnings.warn(f"{path}: {recovered}. The next worker repairs it", stacklevel=2)
            logs = recovered.logs
        self._logs = logs

    def read_logs(self, log_number_from: int) -> list[Log]:
        """Return the operations from this number on."""
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[Log]) -> None:
        """Raise StorageError: the journal is read only."""
        raise StorageError("a journal that is open for reading takes no entries")


class Journal(BaseJournalBackend):
    """A journal to which trials are added.

    Attributes:
        path: its file.
        lock: held by the worker that appends or repairs.
    """

    def __init__(self, path: Path, lock: JournalLock) -> None:
        """Make the file if it is not there, and repair it if it is damaged.

        Raises StorageError if the file cannot be used, or is no journal.
        """
        self.path = path
        self.lock = lock
        self._position = Position()  # behind the last line that was read
        self._offset = 0  # the same place in bytes
        self._identity = (0, 0)  # device and inode of the file: a repair replaces it
        self._logs: list[Log] = []  # the operations that were read last
        self._first = 0  # the number of the first of these
        with file_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
                _make_durable(path.parent)
        with self._locked() as opened:
            self._catch_up(opened, is_locked=True)

    def read_logs(self, log_number_from: int) -> Iterator[Log]:
        """Return the operations from this number on. Damage in them is repaired first, with a warning."""
        if log_number_from < self._first:
            self._position, self._offset, self._logs, self._first = Position(), 0, [], 0
        with file_errors(self.path), _opened(self.path, os.O_RDONLY) as opened:
            is_whole = self._catch_up(opened, is_locked=False)
        if not is_whole:
            with self._locked() as opened:
                self._catch_up(opened, is_locked=True)
        del self._logs[: log_number_from - self._first]
        self._first = log_number_from
        return iter(list(self._logs))

    def append_logs(self, logs: list[Log]) -> None:
        """Add operations and return when they are on the disk.

        Raises StorageError if that is not possible, such as on a full disk; then the file is as it was.
        """
        while True:
            with self._locked() as opened:
                self._catch_up(opened, is_locked=True)
                position, lines = self._position.copy(), []
                for log in logs:
                    lines.append(encode(log, position) + b"\n")
                    position.pass_over(log)
                self._write(opened, b"".join(lines))
                if _identity(os.fstat(opened)) == _identity(self.path.stat()):
                    return  # else the lock was taken away and the file replaced meanwhile

    def _catch_up(self, opened: int, *, is_locked: bool) -> bool:
        """Read new lines. Return False if there is damage and the lock to repair it is not held."""
        found = os.fstat(opened)
        if _identity(found) != self._identity:
            self._offset = _offset_of_line(os.pread(opened, found.st_size, 0), self._position.line, self.path)
            self._identity = _identity(found)
        if found.st_size < self._offset:
            raise StorageError(f"{self.path} is shorter than it was: somebody else has changed it. Run again")
        if found.st_size == self._offset:
            return True
        data = os.pread(opened, found.st_size - self._offset, self._offset)
        end, position = data.rfind(b"\n") + 1, self._position.copy()
        logs = read(data[:end], position)
        if logs is not None:
            self._logs += logs
            self._position, self._offset = position, self._offset + end
        if not is_locked:
            return logs is not None
        if logs is None or end < len(data):
            self._repair(opened)
        return True

    def _repair(self, opened: int) -> None:
        """Cut off an unfinished line, or replace the file by one without damage and read that."""
        data = os.pread(opened, os.fstat(opened).st_size, 0)
        recovered = _recovered(self.path, data)
        whole = data[: data.rfind(b"\n") + 1]
        if recovered.raw == whole:
            os.ftruncate(opened, len(whole))
            os.fsync(opened)
            warnings.warn(f"{self.path}: the last line was not finished, and is cut off; it never counted", stacklevel=2)
            return
        kept = _keep_beside(self.path) if recovered.damaged else None
        try:
            with replaced(self.path) as temporary:
                with temporary.open("wb") as file:
                    file.write(recovered.raw)
                    file.flush()
                    os.fsync(file.fileno())
                if not self.lock.is_held():
                    raise StorageError("it took too long, and another worker has taken the lock; run again")
        except SpecError as error:
            if kept not in (None, self.path):
                kept.unlink()
            raise StorageError(f"{self.path} is damaged, and cannot be repaired now: {error}") from error
        _make_durable(self.path.parent)
        if kept is not None:  # else a line was only written late
            warnings.warn(f"{self.path} is repaired: {recovered}. The file as it was: {kept}", stacklevel=2)
        with _opened(self.path, os.O_RDWR | os.O_APPEND) as repaired:
            os.dup2(repaired, opened)
        self._catch_up(opened, is_locked=True)

    def _write(self, opened: int, data: bytes) -> None:
        """Write whole lines or nothing. If the lock is lost meanwhile, half a line may stay, which others cut off."""
        before = os.fstat(opened).st_size
        written = 0
        try:
            while written < len(data):
                written += os.write(opened, data[written:])
        except OSError:
            with suppress(OSError):
                if self.lock.is_held():
                    os.ftruncate(opened, before + data.rfind(b"\n", 0, written) + 1)
            raise
        os.fsync(opened)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Hold the lock. Yield the file, open for reading and appending."""
        with file_errors(self.path):
            self.lock.acquire()
            try:
                with _opened(self.path, os.O_RDWR | os.O_APPEND) as opened:
                    yield opened
            finally:
                self.lock.release()


def _recovered(path: Path, data: bytes) -> Recovered:
    recovered = recover(data)
    is_first_line = b"\n" not in data and (data.startswith(START) or START.startswith(data))  # unfinished by its writer
    if not recovered.logs and not is_first_line:
        raise StorageError(
            f"{path} cannot be used: no line of it is one of a journal. If it was one, nothing of it is left: take it away and "
            "start again"
        )
    return recovered


def _offset_of_line(data: bytes, number: int, path: Path) -> int:
    """Return the byte where the line with this number begins, counted from 0."""
    offset = 0
    for _ in range(number):
        offset = data.find(b"\n", offset) + 1
        if not offset:
            raise StorageError(f"{path} has fewer lines than it had: somebody else has changed it. Run again")
    return offset


def _keep_beside(path: Path) -> Path:
    """Return a second name (hard link) for a damaged file, which keeps its content; its own name where links are impossible."""
    kept, count = path.with_name(f"{path.name}.damaged"), 1
    while True:
        try:
            kept.hardlink_to(path)
        except FileExistsError:
            count += 1
            kept = path.with_name(f"{path.name}.damaged-{count}")
        except OSError:
            return path
        else:
            return kept


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _make_durable(folder: Path) -> None:
    """Write the folder's entries to the disk, where the file system can do that."""
    with suppress(OSError), _opened(folder, os.O_RDONLY) as opened:
        os.fsync(opened)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    opened = os.open(path, flags)
    try:
        yield opened
    finally:
        os.close(opened)
