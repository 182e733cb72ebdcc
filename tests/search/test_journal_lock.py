"""The lock of a journal file: dead holders, read-only disks, holders that lost it."""

from __future__ import annotations

import errno
import os
import warnings
from pathlib import Path

import pytest
from optuna.storages.journal import JournalFileSymlinkLock
from optuna.trial import TrialState
from small_journals import by_optuna, rewards_of, store_at

from syno.search.storage.journal import Journal
from syno.search.storage.leases import JournalLock


class TestLock:
    def test_of_a_dead_holder_is_taken_also_where_the_journal_has_a_relative_path(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        path = Path("results/trials.log")
        path.parent.mkdir()
        Path("results/trials.log.lock").symlink_to("results/trials.log")  # as earlier versions made it
        JournalLock(path, 0.05).acquire()

    def test_of_a_dead_holder_on_a_read_only_disk_is_an_error_and_no_end_of_waiting(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "trials.log"
        JournalLock(path, 0.05).acquire()

        def refuse(*given: object) -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        monkeypatch.setattr(Path, "rename", refuse)
        with pytest.raises(OSError, match="Read-only file system"):
            JournalLock(path, 0.05).acquire()

    def test_is_the_file_that_optuna_locks(self, tmp_path: Path) -> None:
        path = tmp_path / "trials.log"
        JournalFileSymlinkLock(str(path)).acquire()
        own = JournalLock(path, 0.05)
        own.acquire()  # after its grace
        assert own.is_held() and len(list(tmp_path.iterdir())) == 1

    def test_who_lost_it_releases_nobody_elses(self, tmp_path: Path) -> None:
        path = tmp_path / "trials.log"
        first, second = JournalLock(path, 0.05), JournalLock(path, 0.05)
        first.acquire()
        second.acquire()
        assert not first.is_held() and second.is_held()
        first.release()
        assert second.is_held()
        second.release()
        assert [found.name for found in tmp_path.iterdir()] == []

    def test_a_line_of_who_lost_it_counts_where_it_stands(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A worker is stopped just before it writes, for longer than the lock's grace; others write meanwhile."""
        path = tmp_path / "trials.log"
        slow = store_at(path)
        other = store_at(path)
        write = Journal._write

        def late(journal: Journal, opened: int, data: bytes) -> None:
            monkeypatch.setattr(Journal, "_write", write)
            journal.lock.release()  # as taken away
            other.create({"fingerprint": "other"})
            write(journal, opened, data)

        monkeypatch.setattr(Journal, "_write", late)
        mine = slow.create({"fingerprint": "mine"})
        assert slow.end(mine, TrialState.COMPLETE, 0.5)
        assert [trial.user_attrs["fingerprint"] for trial in other.trials()] == ["other", "mine"]
        assert rewards_of(by_optuna(path)) == rewards_of(other.trials()) == {"mine": 0.5}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert rewards_of(store_at(path).trials()) == {"mine": 0.5}
