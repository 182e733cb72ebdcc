"""Databases as storages of trials."""

from __future__ import annotations

import math
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, RDBStorage
from optuna.storages._rdb.models import BaseModel
from optuna.trial import FrozenTrial
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from syno.search.storage.storage_errors import unusable

WAIT_SECONDS = 120  # for another writer of an SQLite file


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite database. None for other storages, and for one in memory."""
    try:
        parts = make_url(url)
    except ArgumentError:
        return None
    if parts.get_backend_name() != "sqlite" or not parts.database or ":memory:" in parts.database:
        return None
    return Path(parts.database)


def open_database(url: str, interval: float, grace: float, ended: list[FrozenTrial]) -> BaseStorage:
    """The storage at a database URL, made if it is not there.

    `interval` and `grace` are those of `open_storage`; `ended` is where the storage puts trials whose workers died. Raises
    StorageError for a damaged SQLite file, and the errors of SQLAlchemy and Optuna.
    """
    options: dict[str, Any] = {"pool_pre_ping": True}  # a connection that was lost meanwhile is made anew
    file = sqlite_file(url)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        check_sqlite(url, file)
    if url.startswith("sqlite"):
        options = {"connect_args": {"timeout": WAIT_SECONDS}}
    beat, silence = max(1, math.ceil(interval)), max(1, math.ceil(grace))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        database = RDBStorage(
            url,
            engine_kwargs=options,
            heartbeat_interval=beat,
            grace_period=silence,
            heartbeat_stale_trial_callback=lambda study, trial: ended.append(trial),
        )
    return optuna.storages.get_storage(database)  # adds Optuna's cache of finished trials


def check_sqlite(url: str, file: Path) -> None:
    """Raise StorageError if an SQLite file is damaged, as far as SQLite can tell: pages, tables, and indexes that disagree."""
    if not file.exists() or not file.stat().st_size:
        return
    try:
        with closing(sqlite3.connect(file, timeout=WAIT_SECONDS)) as connection:
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            missing = _missing_tables(connection) if found == "ok" else []
    except sqlite3.Error as error:
        raise unusable(url, error) from error
    if found != "ok" or missing:
        said = " ".join(str(found).split()) if found != "ok" else f"without its table {missing[0]}"
        raise unusable(url, sqlite3.DatabaseError(f"{file} is damaged: {said}"))


def _missing_tables(connection: sqlite3.Connection) -> list[str]:
    """Optuna's tables that are gone from a database that had all of them. It would make them anew, and empty."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    written_last = [name for name in ("version_info", "alembic_version") if name in names]
    if not any(connection.execute(f"SELECT 1 FROM {name}").fetchone() for name in written_last):
        return []  # somebody is making it now, or died over it
    return sorted(BaseModel.metadata.tables.keys() - names)
