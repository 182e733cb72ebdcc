"""Where an experiment keeps its study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syno.base.errors import StorageError
from syno.config import Experiment
from syno.search.storage import opening
from syno.search.storage.opening import journal_file, open_storage

FIELDS: dict[str, Any] = {"spec": {"preset": "resnet18"}, "evaluate": "cost", "original": {"flops": 2e11, "parameters": 1e7}}


@pytest.mark.parametrize(
    ("given", "storage"),
    [
        (None, "sqlite:///there/trials.db"),
        ("journal", "journal:there/trials.log"),
        ("journal:elsewhere/a.log", "journal:elsewhere/a.log"),
        ("postgresql+psycopg://user@host/name", "postgresql+psycopg://user@host/name"),
    ],
)
def test_of_one_experiment(given: str | None, storage: str) -> None:
    assert Experiment(name="a", output="there", study={"storage": given}, **FIELDS).storage == storage


def test_experiments_with_journals_in_their_folders_share_none() -> None:
    files = {journal_file(Experiment(name=name, study={"storage": "journal"}, **FIELDS).storage) for name in ("a", "b")}
    assert files == {Path("results/a/trials.log"), Path("results/b/trials.log")}


@pytest.mark.parametrize(
    ("lock", "reason"),
    [("print('No locks available')", "No locks available"), ("import time; time.sleep(99)", "no answer within")],
)
def test_a_folder_without_locks_is_found_before_sqlite_waits_there(
    lock: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "TRY_LOCK", lock)  # as on such a file system, with an error or without an end
    monkeypatch.setattr(opening, "LOCK_TRIAL_SECONDS", 5 if "print" in lock else 0.2)
    with pytest.raises(StorageError, match=rf"cannot be locked \({reason}.*\).* Give study: {{storage: journal}}"):
        open_storage(f"sqlite:///{tmp_path}/trials.db")
    assert list(tmp_path.iterdir()) == []
    open_storage(f"journal:{tmp_path}/trials.log")


def test_where_files_can_be_locked_the_trial_leaves_nothing(tmp_path: Path) -> None:
    open_storage(f"sqlite:///{tmp_path}/trials.db")
    assert [file.name for file in tmp_path.iterdir()] == ["trials.db"]
