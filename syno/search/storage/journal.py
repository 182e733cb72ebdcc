"""Journals: trials in a text file, to which any number of workers append and which Optuna reads.

Each line is one operation of Optuna as JSON, with a stamp under the key "syno", which Optuna ignores: the line's number, and a
checksum. Optuna numbers studies and trials by counting the operations that create them, so a line that went missing would give
all later results to other trials. As in the write-ahead log of a database, the first damaged line therefore ends the journal:
it and what is behind it no longer count, and the file as it was is kept beside it. Lines without a stamp, of Optuna itself, are
read.

A writer whose disk is full removes what it wrote of a line; the unfinished line of a dead writer is cut off by whoever appends
next. Lines are on the disk before `append_logs` returns.
"""

from __future__ import annotations

import json
import os
import re
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from optuna.storages.journal import BaseJournalBackend

from syno.base.errors import SpecError, StorageError
from syno.base.files import replaced
from syno.search.storage.errors import file_errors
from syno.search.storage.leases import JournalLock

Log: TypeAlias = dict[str, Any]  # an operation, as Optuna gives and takes it

KEY = "syno"
CHECKSUM = b',"crc":"%08x"}}'  # the end of a line; it covers all bytes before it
CHECKSUM_SIZE = len(CHECKSUM % 0)
CHECKED = re.compile(rb'"crc":"[0-9a-f]{8}"')
START = b'{"op_code":'


@dataclass
class Reader:
    """The state of reading a journal from its beginning on.

    Attributes:
        line: how many lines were read.
        checksums: of the lines that were read, by the number in their stamp.
    """

    line: int = 0
    checksums: dict[int, bytes] = field(default_factory=dict)

    def read(self, data: bytes) -> tuple[list[Log], int]:
        """Read the lines that follow. Return their operations, and the bytes of the lines up to the first that is damaged.

        An unfinished last line is not read.
        """
        logs, offset = [], 0
        for raw in data.split(b"\n")[:-1]:
            log = self._read_line(raw)
            if log is None:
                break
            logs.append(log)
            offset += len(raw) + 1
        return logs, offset

    def encode(self, log: Log) -> bytes:
        """Return an operation as the next line, and count it as read."""
        body = json.dumps({**log, KEY: {"line": self.line}}, separators=(",", ":")).encode()[:-2]
        raw = body + CHECKSUM % zlib.crc32(body)
        self._pass_over(self.line, raw)
        return raw + b"\n"

    def copy(self) -> Reader:
        """Return an independent copy."""
        return Reader(self.line, dict(self.checksums))

    def _read_line(self, raw: bytes) -> Log | None:
        """Return the operation of the next line; None if the line is damaged, or does not belong here."""
        is_checked = raw[-CHECKSUM_SIZE:] == CHECKSUM % zlib.crc32(raw[:-CHECKSUM_SIZE])
        try:
            log: Log = json.loads(raw)
            stamp = log.pop(KEY, None)
            if not isinstance(log["op_code"], int) or not isinstance(log["worker_id"], str):
                return None
            if stamp is None:
                number = None if CHECKED.search(raw) is None else -1  # -1: its stamp was damaged
            else:
                number = int(stamp["line"]) if is_checked else -1
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None
        if number is not None and number != self.line and not self._is_late(number, raw):
            return None
        self._pass_over(number, raw)
        return log

    def _is_late(self, number: int, raw: bytes) -> bool:
        """Return whether a line with an earlier number may stand here.

        A worker that was stopped for longer than the lock's grace writes its line behind those of others. It has the number of
        a line that is there already; with the same content, it would be that line a second time.
        """
        return 0 <= number < self.line and self.checksums.get(number) not in (None, raw[-CHECKSUM_SIZE:])

    def _pass_over(self, number: int | None, raw: bytes) -> None:
        if number is not None:
            self.checksums.setdefault(number, raw[-CHECKSUM_SIZE:])
        self.line += 1


class JournalView(BaseJournalBackend):
    """A journal as it is now, read only. The file is not changed, and no lock is taken."""

    def __init__(self, path: Path) -> None:
        """Raises StorageError if it cannot be read, or is no journal. A warning says what is damaged."""
        with file_errors(path):
            data = path.read_bytes()
        data = data[: data.rfind(b"\n") + 1]  # another worker may be writing the rest now
        self._logs, offset = Reader().read(data)
        if offset < len(data):
            warnings.warn(f"{path}: {_damage(path, data, offset, self._logs)}. The next worker cuts it off", stacklevel=2)

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
        self._reader = Reader()  # behind the last line that was read
        self._offset = 0  # the same place in bytes
        self._identity = (0, 0)  # device and inode of the file: a repair replaces it
        self._logs: list[Log] = []  # the operations that were read last
        self._first = 0  # the number of the first of these
        with file_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
                _make_durable(path.parent)
        with self._hold_lock() as opened:
            self._catch_up(opened, is_locked=True)

    def read_logs(self, log_number_from: int) -> Iterator[Log]:
        """Return the operations from this number on. Damage in them is repaired first, with a warning."""
        if log_number_from < self._first:
            self._reader, self._offset, self._logs, self._first = Reader(), 0, [], 0
        with file_errors(self.path), _open(self.path, os.O_RDONLY) as opened:
            is_whole = self._catch_up(opened, is_locked=False)
        if not is_whole:
            with self._hold_lock() as opened:
                self._catch_up(opened, is_locked=True)
        del self._logs[: log_number_from - self._first]
        self._first = log_number_from
        return iter(list(self._logs))

    def append_logs(self, logs: list[Log]) -> None:
        """Add operations and return when they are on the disk.

        Raises StorageError if that is not possible, such as on a full disk; then the file is as it was.
        """
        while True:
            with self._hold_lock() as opened:
                self._catch_up(opened, is_locked=True)
                writer = self._reader.copy()  # what is written counts as read when it is read
                self._write(opened, b"".join(map(writer.encode, logs)))
                if _identity(os.fstat(opened)) == _identity(self.path.stat()):
                    return  # else the lock was taken away and the file replaced meanwhile

    def _catch_up(self, opened: int, *, is_locked: bool) -> bool:
        """Read new lines. Return False if there is damage and the lock to cut it off is not held."""
        found = os.fstat(opened)
        if _identity(found) != self._identity:
            self._identity = _identity(found)
            if os.pread(opened, self._offset, 0).count(b"\n") < self._reader.line:
                raise StorageError(f"{self.path} has fewer lines than it had: it was damaged, and cut off. Run again")
        if found.st_size < self._offset:
            raise StorageError(f"{self.path} is shorter than it was: somebody else has changed it. Run again")
        if found.st_size == self._offset:
            return True
        data = os.pread(opened, found.st_size - self._offset, self._offset)
        end = data.rfind(b"\n") + 1
        logs, whole = self._reader.read(data[:end])
        self._logs += logs
        self._offset += whole
        if whole < end:
            if is_locked:
                self._cut_off(opened, end - whole)
            return is_locked
        if end < len(data) and is_locked:
            if not (self._offset or data.startswith(START) or START.startswith(data)):
                raise _not_a_journal(self.path)
            os.ftruncate(opened, self._offset)
            os.fsync(opened)
            warnings.warn(f"{self.path}: the last line was not finished, and is cut off; it never counted", stacklevel=2)
        return True

    def _cut_off(self, opened: int, count: int) -> None:
        """Replace the file by one that ends before the first damaged line. `count`: bytes of whole lines behind it."""
        data = os.pread(opened, self._offset + count, 0)
        what = _damage(self.path, data, self._offset, self._logs or [{}] * self._reader.line)
        kept = _keep_beside(self.path)
        try:
            with replaced(self.path) as temporary:
                with temporary.open("wb") as file:
                    file.write(data[: self._offset])
                    file.flush()
                    os.fsync(file.fileno())
                if not self.lock.is_held():
                    raise StorageError("it took too long, and another worker has taken the lock; run again")
        except SpecError as error:
            if kept != self.path:
                kept.unlink()
            raise StorageError(f"{self.path} is damaged, and cannot be repaired now: {error}") from error
        _make_durable(self.path.parent)
        warnings.warn(f"{self.path}: {what}, and are cut off. The file as it was: {kept}", stacklevel=2)
        with _open(self.path, os.O_RDWR | os.O_APPEND) as repaired:
            os.dup2(repaired, opened)
        self._identity = _identity(os.fstat(opened))

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
    def _hold_lock(self) -> Iterator[int]:
        """Hold the lock. Yield the file, open for reading and appending."""
        with file_errors(self.path):
            self.lock.acquire()
            try:
                with _open(self.path, os.O_RDWR | os.O_APPEND) as opened:
                    yield opened
            finally:
                self.lock.release()


def _damage(path: Path, data: bytes, offset: int, logs: list[Log]) -> str:
    """Return in words what is damaged in a journal whose first `offset` bytes are whole lines with these operations.

    Raises StorageError if there are none, so that this is no journal.
    """
    if not logs:
        raise _not_a_journal(path)
    behind = data.count(b"\n", offset) - 1
    lines = f"the {behind} line{'' if behind == 1 else 's'} behind it" if behind else "nothing behind it"
    return f"line {data.count(bytes([10]), 0, offset) + 1} is damaged. It and {lines} no longer count"


def _not_a_journal(path: Path) -> StorageError:
    return StorageError(
        f"{path} cannot be used: its first line is not one of a journal. If it was one, nothing of it is left: take it away "
        "and start again"
    )


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


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _make_durable(folder: Path) -> None:
    """Write the folder's entries to the disk, where the file system can do that."""
    with suppress(OSError), _open(folder, os.O_RDONLY) as opened:
        os.fsync(opened)


@contextmanager
def _open(path: Path, flags: int) -> Iterator[int]:
    opened = os.open(path, flags)
    try:
        yield opened
    finally:
        os.close(opened)
