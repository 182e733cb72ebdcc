"""Where trials are kept, and how dead workers are told from slow ones."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import JournalStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import OperationalError, PendingRollbackError

from syno.base.errors import SpecError, StorageError
from syno.search import workers as worker_module
from syno.search.storage.leases import LeaseFiles, NoLeases
from syno.search.storage.opening import journal_file, open_storage
from syno.search.storage.store import TrialStore
from syno.search.workers import Worker

STORED = {"fingerprint": "a", "path": [], "attempt": 0, "told": []}


def stored(**more: object) -> dict[str, object]:
    return {**STORED, "worker": Worker.here().stored(), **more}


class TestUrls:
    @pytest.mark.parametrize(
        ("url", "path"),
        [
            ("journal:trials", "trials"),
            ("journal:/a/b.log", "/a/b.log"),
            ("trials.log", "trials.log"),
            ("a/trials.journal", "a/trials.journal"),
            ("sqlite:///trials.log", None),
            ("postgresql://host/trials.log", None),
        ],
    )
    def test_journals(self, url: str, path: str | None) -> None:
        assert journal_file(url) == (None if path is None else Path(path))

    def test_anything_else_is_an_error_that_lists_what_is_allowed(self) -> None:
        with pytest.raises(SpecError, match='"trials.db" is no storage; give "sqlite:///trials.db", "journal:trials.log"'):
            open_storage("trials.db")

    def test_an_unknown_kind_of_database(self) -> None:
        with pytest.raises(SpecError, match="cannot be opened.*nosql"):
            open_storage("nosql://host/name")

    def test_a_driver_that_is_not_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "psycopg", None)
        with pytest.raises(SpecError, match=r"needs a database driver that is not installed: .*psycopg"):
            open_storage("postgresql://host/name")

    def test_folders_are_made(self, tmp_path: Path) -> None:
        open_storage(f"sqlite:///{tmp_path}/a/b/trials.db")
        open_storage(f"journal:{tmp_path}/c/d/trials")
        assert (tmp_path / "a/b/trials.db").exists() and (tmp_path / "c/d/trials").exists()


class TestTornJournal:
    def test_a_last_line_that_was_cut_off_is_left_out(self, tmp_path: Path) -> None:
        path = tmp_path / "trials.log"
        store = TrialStore(*open_storage(str(path)), "study")
        store.create(stored())
        store.create(stored())
        whole = path.read_bytes()
        lines = whole.splitlines(keepends=True)
        assert all(json.loads(line) for line in lines)
        path.write_bytes(whole[: -len(lines[-1]) // 2])
        torn = TrialStore(*open_storage(str(path)), "study")
        assert len(torn.trials()) == 1
        with pytest.warns(UserWarning, match="the last line was not finished, and is cut off"):
            torn.create(stored())
        assert len(TrialStore(*open_storage(str(path)), "study").trials()) == 2

    def test_a_whole_one_is_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "trials.log"
        TrialStore(*open_storage(str(path)), "study").create(stored())
        before = path.read_bytes()
        TrialStore(*open_storage(str(path)), "study")
        assert path.read_bytes() == before


@pytest.mark.parametrize("kind", ["memory:", "sqlite:///{}/trials.db", "journal:{}/trials"])
class TestTrialStore:
    def store(self, kind: str, folder: Path) -> TrialStore:
        return TrialStore(*open_storage(kind.format(folder)), "study")

    def test_trials_are_numbered_as_created_and_whole_at_once(self, kind: str, tmp_path: Path) -> None:
        store = self.store(kind, tmp_path)
        ids = [store.create(stored(fingerprint=name)) for name in "abc"]
        assert [store.stored(trial_id).number for trial_id in ids] == [0, 1, 2]
        assert [trial.user_attrs["fingerprint"] for trial in store.trials()] == ["a", "b", "c"]
        assert all(trial.state == TrialState.RUNNING for trial in store.trials())

    def test_the_first_to_end_a_trial_wins(self, kind: str, tmp_path: Path) -> None:
        store = self.store(kind, tmp_path)
        trial_id = store.create(stored())
        assert store.annotate(trial_id, "result", {"kind": "complete"})
        assert store.end(trial_id, TrialState.COMPLETE, 0.5)
        assert not store.end(trial_id, TrialState.FAIL)
        assert not store.annotate(trial_id, "result", {"kind": "failed"})
        (trial,) = store.trials()
        assert (trial.state, trial.value, trial.user_attrs["result"]) == (TrialState.COMPLETE, 0.5, {"kind": "complete"})

    def test_the_study_is_described_once_for_all(self, kind: str, tmp_path: Path) -> None:
        store = self.store(kind, tmp_path)
        store.describe("syno", {"seed": 1})
        assert store.attributes["syno"] == {"seed": 1}


class TestLeases:
    def test_of_a_journal_end_by_the_file_servers_clock(self, tmp_path: Path) -> None:
        store = TrialStore(*open_storage(f"journal:{tmp_path}/trials", interval=60, grace=100), "study")
        old, young, without = (store.create(stored(fingerprint=name)) for name in "abc")
        for trial_id in (old, young):
            store.leases.renew(trial_id)
        assert isinstance(store.leases, LeaseFiles)
        lease = tmp_path / "trials.leases" / str(old)
        os.utime(lease, (time.time() - 101,) * 2)
        assert store.end_stale(store.trials())
        assert [trial.state for trial in store.trials()] == [TrialState.FAIL, TrialState.RUNNING, TrialState.RUNNING]
        assert sorted(path.name for path in lease.parent.iterdir()) == sorted(map(str, (young, without)))

    def test_a_trial_whose_worker_died_before_its_first_heartbeat_becomes_stale_too(self, tmp_path: Path) -> None:
        storage = f"sqlite:///{tmp_path}/trials.db"
        store = TrialStore(*open_storage(storage, interval=1, grace=1), "study")
        store.create(stored())
        for _ in range(2):  # who comes to look does not keep it alive
            other = TrialStore(*open_storage(storage, interval=1, grace=1), "study")
            assert not other.end_stale(other.trials())
        assert store.trials()[0].state == TrialState.RUNNING
        time.sleep(3)
        other = TrialStore(*open_storage(storage, interval=1, grace=1), "study")
        assert other.end_stale(other.trials())
        assert store.trials()[0].state == TrialState.FAIL

    def test_are_renewed_as_long_as_the_context_lasts(self) -> None:
        class Counting(NoLeases):
            renewed = 0

            def renew(self, trial_id: int) -> None:
                self.renewed += 1

        leases = Counting()
        leases.interval = 0.01
        with leases.kept(1):
            assert leases.renewed == 1
            time.sleep(0.1)
        after = leases.renewed
        assert after >= 3
        time.sleep(0.05)
        assert leases.renewed == after

    def test_a_renewal_that_fails_is_no_end(self) -> None:
        class Failing(NoLeases):
            calls = 0

            def renew(self, trial_id: int) -> None:
                self.calls += 1
                if self.calls == 2:
                    raise OSError("the server is away")

        leases = Failing()
        leases.interval = 0.01
        with pytest.warns(UserWarning, match="the lease on trial 1 was not renewed: the server is away"), leases.kept(1):
            time.sleep(0.1)
        assert leases.calls > 2


class TestRestartedServer:
    """A database server that is away, for a second or for good. What it is like really: test_postgresql.py."""

    def store(self, monkeypatch: pytest.MonkeyPatch, failures: list[Exception]) -> TrialStore:
        store = TrialStore(*open_storage("memory:"), "study", place="postgresql://host/name")
        get = store.storage.get_all_trials

        def get_all_trials(*given: Any, **more: Any) -> list[FrozenTrial]:
            if failures:
                raise failures.pop()
            return get(*given, **more)

        monkeypatch.setattr(store.storage, "get_all_trials", get_all_trials)
        monkeypatch.setattr("syno.search.storage.errors.time.sleep", lambda seconds: None)
        return store

    def lost(self, *, kind: type[Exception] = ConnectionError) -> Exception:
        cause, error = OperationalError("SELECT 1", None, kind("server closed")), StorageInternalError("at the commit")
        error.__cause__ = cause
        return error

    def test_is_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        failures = [PendingRollbackError("of the connection that was lost"), self.lost(), self.lost()]
        store = self.store(monkeypatch, failures)
        store.create(stored())
        assert len(store.trials()) == 1 and not failures

    def test_is_given_up_after_a_while(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("syno.search.storage.errors.RECONNECTION_SECONDS", -1)
        with pytest.raises(StorageError, match="the storage postgresql://host/name cannot be used: server closed"):
            self.store(monkeypatch, [self.lost()]).trials()

    def test_is_no_sqlite_file(self, monkeypatch: pytest.MonkeyPatch) -> None:
        failures = [self.lost(), self.lost(kind=sqlite3.OperationalError)]
        with pytest.raises(StorageError, match="cannot be used: server closed"):
            self.store(monkeypatch, failures).trials()
        assert len(failures) == 1


class TestWorker:
    def test_this_process_is_there(self) -> None:
        here = Worker.here()
        assert here.pid == os.getpid() and not here.is_gone()
        assert here.is_running() is bool(here.system)
        assert Worker.read(json.loads(json.dumps(here.stored()))) == here
        assert str(here).endswith(f":{os.getpid()}")

    def test_a_process_that_ended_is_gone(self) -> None:
        code = "import json; from syno.search.workers import Worker; print(json.dumps(Worker.here().stored()))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        worker = Worker.read(json.loads(done.stdout))
        assert worker.system == Worker.here().system
        if worker.system:
            assert worker.is_gone() and not worker.is_running()

    def test_a_suspended_process_is_neither_gone_nor_running(self) -> None:
        code = "import json, os; from syno.search.workers import Worker; print(json.dumps(Worker.here().stored()), flush=True)"
        code += "; os.kill(os.getpid(), 19)"
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            worker = Worker.read(json.loads(process.stdout.readline()))
            os.waitpid(process.pid, os.WUNTRACED)
            assert not worker.is_gone() and not worker.is_running()
            process.kill()

    def test_another_process_of_the_same_id_is_another(self) -> None:
        here = Worker.here()
        if here.system:
            assert replace(here, started=here.started - 1).is_gone()

    def test_what_cannot_be_seen_is_not_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        gone = replace(Worker.here(), pid=2**22 + 1)
        there = [replace(one, system="another machine") for one in (gone, Worker.here())]
        assert not any(one.is_gone() or one.is_running() for one in there)
        monkeypatch.setattr(worker_module, "_system", lambda: "")
        assert not replace(gone, system="").is_gone()


def test_journals_are_what_optuna_reads(tmp_path: Path) -> None:
    store = TrialStore(*open_storage(f"{tmp_path}/trials.log"), "study")
    store.end(store.create(stored()), TrialState.COMPLETE, 0.25)
    storage = JournalStorage(optuna.storages.journal.JournalFileBackend(f"{tmp_path}/trials.log"))
    assert optuna.load_study(study_name="study", storage=storage).best_value == 0.25
