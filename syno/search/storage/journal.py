"""Journals: trials in a text file to which any number of workers append. In Optuna's format, each line is an operation."""

from __future__ import annotations

import json
import os
import warnings
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from syno.base.errors import StorageError
from syno.search.storage.errors import file_errors

START = b'{"op_code":'  # beginning of every line
CHECKSUM = "crc"  # key of a line's checksum, which Optuna ignores; lines of Optuna itself have none
LOCK_SECONDS = 30  # after which the lock of a dead writer is broken


class Journal(JournalFileBackend):
    """An Optuna journal file with atomic appends and a checksum in each line.

    Optuna's own writers append to the half line of a writer that was killed, or whose disk was full, which makes the file
    unreadable. Here, a writer whose disk is full truncates its half line, and the next writer cuts off the half line of a dead
    one. The lines need checksums of their own, since checksums of trials do not cover the trial's number in a line.

    Attributes:
        path: the journal file.
        lock: held during appends; a file beside the journal, which also works on network file systems.
    """

    def __init__(self, path: Path, lock_seconds: float = LOCK_SECONDS) -> None:
        """Create the file if needed. Raises StorageError if it cannot be used or is no journal."""
        with file_errors(path):
            super().__init__(str(path))
            with path.open("rb") as file:
                head = file.read(len(START))
        if not START.startswith(head):
            raise StorageError(
                f"{path} cannot be used: its first line is not one of a journal. If it was one, nothing of it is left: take it "
                "away and start again"
            )
        self.path = path
        self.lock = JournalFileOpenLock(str(path), max(3, round(lock_seconds)))

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:  # type: ignore[override]
        """Yield the operations from the number `log_number_from` on. Raises StorageError at the first damaged line."""
        whole = log_number_from  # number of intact lines
        with file_errors(self.path):
            try:
                for log in super().read_logs(log_number_from):
                    if log.pop(CHECKSUM, None) not in (None, _checksum(log)):
                        raise ValueError
                    yield log
                    whole += 1
            except (ValueError, AttributeError, TypeError) as error:  # no JSON, no object, or another checksum
                raise StorageError(
                    f"{self.path} is damaged: line {whole + 1} is not as it was written. To go on with the trials before it: "
                    f"head -n {whole} {self.path} > whole.log && mv whole.log {self.path}"
                ) from error

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append operations; return when they are on the disk.

        Raises StorageError if that fails, as on a full disk; the file is then unchanged.
        """
        data = b"".join(json.dumps({**log, CHECKSUM: _checksum(log)}, separators=(",", ":")).encode() + b"\n" for log in logs)
        with file_errors(self.path):
            # Opened before the lock is taken: on a read-only disk, Optuna waits for ever for the lock of a dead writer.
            opened = os.open(self.path, os.O_RDWR | os.O_APPEND)
            try:
                self.lock.acquire()
                try:
                    self._cut_off_half_line(opened)
                    _write(opened, data)
                finally:
                    with suppress(RuntimeError):  # another writer broke the lock, because this process was suspended too long
                        self.lock.release()
            finally:
                os.close(opened)

    def _cut_off_half_line(self, opened: int) -> None:
        size = os.fstat(opened).st_size
        if size and os.pread(opened, 1, size - 1) != b"\n":
            os.ftruncate(opened, os.pread(opened, size, 0).rfind(b"\n") + 1)
            warnings.warn(f"{self.path}: the last line was not finished, and is cut off; it never counted", stacklevel=2)


def _checksum(log: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(log, separators=(",", ":")).encode())


def _write(opened: int, data: bytes) -> None:
    """Append all of the data to an open file, or nothing."""
    before, written = os.fstat(opened).st_size, 0
    try:
        while written < len(data):
            written += os.write(opened, data[written:])
        os.fsync(opened)
    except OSError:
        with suppress(OSError):
            if os.fstat(opened).st_size == before + written:  # else another writer broke the lock and appended
                os.ftruncate(opened, before)
        raise
