"""Damaged SQLite files: every case ends with the trials as they were, or with one clear line."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest
from damage import KINDS, damaged
from optuna.trial import FrozenTrial
from small_studies import evaluate, study

from syno.base.errors import SpecError, StorageError
from syno.search.storage.store import read_trials

optuna.logging.set_verbosity(optuna.logging.WARNING)

TRIALS = 24


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study."""
    path = tmp_path_factory.mktemp("finished") / "trials.db"
    study(f"sqlite:///{path}").run(evaluate, TRIALS)
    return path


def facts(trials: list[FrozenTrial]) -> Any:
    """What matters of each trial. Times of start and end have no checksum."""
    return json.loads(json.dumps([(trial.number, trial.user_attrs, trial.state, trial.value) for trial in trials]))


def copy(database: Path, folder: Path, name: str = "trials.db") -> tuple[Path, str]:
    path = folder / name
    path.write_bytes(database.read_bytes())
    return path, f"sqlite:///{path}"


@pytest.mark.slow
@pytest.mark.parametrize("cases", [pytest.param(2, id="quick"), pytest.param(25, id="thorough", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_changed_in_silence(database: Path, tmp_path: Path, kind: str, cases: int) -> None:
    before = facts(read_trials(f"sqlite:///{database}", "study"))
    data, refused = database.read_bytes(), 0
    for seed in range(cases):
        path, url = copy(database, tmp_path, f"{seed}.db")
        path.write_bytes(damaged(data, kind, seed))
        try:
            assert facts(read_trials(url, "study")) == before, f"{kind} {seed}"
        except SpecError as error:
            assert "\n" not in str(error) and str(path) in str(error)
            refused += 1
    assert refused >= cases // 4  # much of a small database is room between rows


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "UPDATE trial_user_attributes SET value_json = replace(value_json, '\"reward\": 0.', '\"reward\": 1.')",
            "its result does",
        ),
        ("UPDATE trial_user_attributes SET value_json = 'means' WHERE key = 'fingerprint'", "cannot be used: Expecting value"),
        (
            "UPDATE trial_user_attributes SET value_json = replace(value_json, 'means', 'meant') WHERE key = 'fingerprint'",
            "its op",
        ),
        ("UPDATE trial_values SET value = 0.25", "its value is not the reward of its result"),
        ("UPDATE trials SET number = 7 WHERE number = 6", "at trial 6: there is trial 7 in its place"),
        ("UPDATE trials SET state = 'COMPLFTE' WHERE number = 3", "cannot be used: .*COMPLFTE"),
        ("UPDATE trials SET datetime_start = 'once'", "cannot be used: .*once"),
        ("UPDATE alembic_version SET version_num = 'v9'", "cannot be used: .*no longer compatible"),
        ("DROP TABLE trial_user_attributes", "cannot be used: .*without its table trial_user_attributes"),
    ],
)
def test_what_sqlite_does_not_see_is_seen(database: Path, tmp_path: Path, statement: str, message: str) -> None:
    path, url = copy(database, tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement).rowcount
    for read in (lambda: read_trials(url, "study"), lambda: study(url).run(evaluate, TRIALS + 1)):
        with pytest.raises(StorageError, match=message):
            read()


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    path.write_text("# Notes of mine\n" * 100, encoding="utf-8")
    with pytest.raises(StorageError, match="cannot be used: file is not a database"):
        study(f"sqlite:///{path}")
    assert path.read_text(encoding="utf-8").startswith("# Notes")
