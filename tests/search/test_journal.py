"""Journals: lines that count whole or not at all, also where a disk is full or read-only or a line is damaged."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from small_journals import by_optuna, finished_study, line_with, rewards_of, store_at

from syno.base.errors import StorageError
from syno.search.storage.store import read_trials

optuna.logging.set_verbosity(optuna.logging.WARNING)

Damage = Callable[[bytes], bytes]


class TestFullDisk:
    @pytest.fixture
    def full(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int | None], None]]:
        """Sets how many bytes there is room for; None for enough."""
        room: list[int | None] = [None]
        write = os.write

        def limited(opened: int, data: bytes) -> int:
            if room[0] is None:
                return write(opened, data)
            if not room[0]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = write(opened, data[: room[0]])
            room[0] -= written
            return written

        monkeypatch.setattr("syno.search.storage.journal.os.write", limited)
        yield lambda given: room.__setitem__(0, given)

    @pytest.mark.parametrize("space", [0, 1, 50])
    def test_leaves_no_half_line_to_another_worker(self, tmp_path: Path, space: int, full: Callable[..., None]) -> None:
        path = tmp_path / "trials.log"
        first, second = store_at(path), store_at(path)
        slow = second.create({"fingerprint": "slow"})
        before = path.read_bytes()
        full(space)
        with pytest.raises(StorageError, match=r"trials.log cannot be used: No space left on device.*then run again"):
            first.create({"fingerprint": "a"})
        assert path.read_bytes() == before
        full(None)
        assert second.end(slow, TrialState.COMPLETE, 0.5)
        first.create({"fingerprint": "a"})
        assert [trial.user_attrs["fingerprint"] for trial in by_optuna(path)] == ["slow", "a"]
        assert rewards_of(by_optuna(path)) == {"slow": 0.5}

    def test_what_a_dead_writer_left_is_cut_off_by_who_appends_next(self, tmp_path: Path) -> None:
        path = tmp_path / "trials.log"
        store = store_at(path)
        trial_id = store.create({"fingerprint": "a"})
        with path.open("ab") as journal:
            journal.write(b'{"op_code":4,"worker_id":"dead","stu')
        with pytest.warns(UserWarning, match=r"trials.log: the last line was not finished, and is cut off"):
            assert store.end(trial_id, TrialState.COMPLETE, 0.5)
        assert rewards_of(by_optuna(path)) == {"a": 0.5}


def test_a_read_only_disk_is_one_message_and_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trials.log"
    expected = finished_study(path)
    store = store_at(path)

    def refuse(*given: object, **more: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for name in ("mkdir", "touch"):
        monkeypatch.setattr(Path, name, refuse)
    monkeypatch.setattr("syno.search.storage.journal.os.open", refuse)
    for action in (lambda: store.create({}), lambda: store.leases.renew(0)):
        with pytest.raises(StorageError, match="cannot be used: Read-only file system"):
            action()
    with pytest.raises(StorageError, match=r"trials.log.leases cannot be used: Read-only"):
        store.end_stale(store.trials())
    with pytest.warns(UserWarning, match="the lease on trial 0 was not renewed"), store.leases.kept(0):
        pass
    assert rewards_of(read_trials(f"journal:{path}", "study")) == expected


class TestDamage:
    @pytest.mark.parametrize(
        ("where", "damage"),
        [
            pytest.param('"f3"', lambda line: line.replace(b'"f3"', b'"fX"'), id="a letter of a trial"),
            pytest.param('"values":[0.375]', lambda line: line[:20] + b"\xff" + line[21:], id="a byte of no UTF-8"),
            pytest.param('"values":[0.25]', lambda line: bytes(len(line)), id="zeros"),
            pytest.param('"f2"', lambda line: line[:-30], id="the end of a line"),
            pytest.param('"f2"', lambda line: line[30:], id="its beginning"),
            pytest.param('"values":[0.25]', lambda line: line.replace(b'_id":2', b'_id":6'), id="the id of the trial"),
            pytest.param('"f4"', lambda line: b"4", id="a number"),
        ],
    )
    def test_is_one_message_with_the_command_that_keeps_what_is_before_it(
        self, tmp_path: Path, where: str, damage: Damage
    ) -> None:
        path = tmp_path / "trials.log"
        expected = finished_study(path)
        lines = path.read_bytes().split(b"\n")
        index = line_with(lines, where)
        path.write_bytes(b"\n".join([*lines[:index], damage(lines[index]), *lines[index + 1 :]]))
        for action in (lambda: store_at(path), lambda: read_trials(f"journal:{path}", "study")):
            with pytest.raises(
                StorageError, match=rf"trials.log is damaged: line {index + 1} is not .* before it: head"
            ) as error:
                action()
        command = str(error.value).partition("before it: ")[2]
        subprocess.run(command, shell=True, check=True, cwd=tmp_path)
        left = b"\n".join(lines[:index]).decode()
        kept = {fingerprint: reward for fingerprint, reward in expected.items() if f'"values":[{reward}]' in left}
        store = store_at(path)
        assert rewards_of(store.trials()) == kept and len(store.trials()) == left.count('"op_code":4')
        assert store.end(store.create({"fingerprint": "more"}), TrialState.COMPLETE, 0.5)
        assert rewards_of(by_optuna(path)) == {**kept, "more": 0.5}

    @pytest.mark.parametrize("content", [b"# Notes\n\nof mine\n", b"# Notes", bytes(4096), b"\x89PNG\r\n\x1a\n\0\0"])
    def test_another_file_is_left_alone(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "notes.log"
        path.write_bytes(content)
        with pytest.raises(StorageError, match="its first line is not one of a journal"):
            store_at(path)
        assert path.read_bytes() == content


def test_a_file_that_was_taken_away_is_one_message(tmp_path: Path) -> None:
    path = tmp_path / "trials.log"
    store = store_at(path)
    path.unlink()
    with pytest.raises(StorageError, match="cannot be used: No such file"):
        store.create({})
    assert not path.exists()


def test_lines_of_optuna_itself_are_read(tmp_path: Path) -> None:
    path = tmp_path / "trials.log"
    finished_study(path, 2)
    study: Any = optuna.load_study(study_name="study", storage=JournalStorage(JournalFileBackend(str(path))))
    study.tell(study.ask(), 0.875)
    store = store_at(path)
    store.end(store.create({"fingerprint": "after"}), TrialState.COMPLETE, 0.75)
    assert [trial.value for trial in store_at(path).trials()] == [0.0, 0.125, None, 0.875, 0.75]
    assert all(json.loads(line) for line in path.read_bytes().splitlines())
