"""The lock of a journal file: dead holders, read-only disks, holders that lost it."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest
from optuna.storages.journal import JournalFileOpenLock
from optuna.trial import TrialState
from small_journals import by_optuna, rewards_of, store_at

from syno.base.errors import StorageError
from syno.search.storage import journal
from syno.search.storage.journal import Journal
from syno.search.storage.opening import open_storage
from syno.search.storage.store import TrialStore


class TestLock:
    def test_of_a_dead_holder_is_taken(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "trials.log"
        store = TrialStore(*open_storage(f"journal:{path}", interval=1, grace=3), "study")
        JournalFileOpenLock(str(path)).acquire()
        now, wait = time.monotonic, time.sleep
        monkeypatch.setattr("time.monotonic", lambda: 1000 * now())  # a grace of milliseconds
        monkeypatch.setattr("time.sleep", lambda seconds: wait(min(seconds, 0.01)))
        store.create({"fingerprint": "a"})
        assert len(by_optuna(path)) == 1 and [file.name for file in tmp_path.iterdir()] == ["trials.log"]

    def test_of_a_dead_holder_on_a_read_only_disk_is_an_error_and_no_end_of_waiting(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "trials.log"
        store = store_at(path)
        JournalFileOpenLock(str(path)).acquire()
        open_file = os.open

        def refuse(file: object, flags: int, mode: int = 0o777) -> int:
            if flags & (os.O_RDWR | os.O_WRONLY) and not flags & os.O_EXCL:  # of what is there, O_EXCL says that first
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            return open_file(file, flags, mode)  # type: ignore[arg-type]

        monkeypatch.setattr("os.open", refuse)
        with pytest.raises(StorageError, match="Read-only file system"):
            store.create({"fingerprint": "a"})

    def test_a_line_of_who_lost_it_counts_where_it_stands(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A worker is stopped just before it writes, for longer than the lock's grace; others write meanwhile."""
        path = tmp_path / "trials.log"
        slow, other = store_at(path), store_at(path)
        write = journal._write

        def late(opened: int, data: bytes) -> None:
            monkeypatch.setattr(journal, "_write", write)
            JournalFileOpenLock(str(path)).release()  # as taken away
            other.create({"fingerprint": "other"})
            write(opened, data)

        monkeypatch.setattr(journal, "_write", late)
        mine = slow.create({"fingerprint": "mine"})
        assert slow.end(mine, TrialState.COMPLETE, 0.5)
        assert [trial.user_attrs["fingerprint"] for trial in other.trials()] == ["other", "mine"]
        assert rewards_of(by_optuna(path)) == rewards_of(other.trials()) == rewards_of(store_at(path).trials()) == {"mine": 0.5}

    def test_what_others_wrote_after_a_lock_was_lost_is_not_removed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The disk is full after half of a line, and another worker, who has the lock now, has written, too."""
        path = tmp_path / "trials.log"
        path.write_bytes(b'{"op_code":0}\n')
        write = os.write

        def half(opened: int, data: bytes) -> int:
            if len(data) < 20:
                with path.open("ab") as file:
                    file.write(b"other\n")
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(opened, data[:20])

        monkeypatch.setattr("syno.search.storage.journal.os.write", half)
        with pytest.raises(StorageError, match="No space left"):
            Journal(path).append_logs([{"op_code": 0}])
        assert path.read_bytes().endswith(b"other\n")
