"""Opening a storage by its URL: databases and journals."""

from __future__ import annotations

import math
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages._rdb.models import BaseModel
from optuna.trial import FrozenTrial
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from syno.base.errors import SpecError, StorageError
from syno.search.storage.errors import repeated, storage_errors, unusable
from syno.search.storage.journal import Journal
from syno.search.storage.leases import Heartbeats, JournalLock, LeaseFiles, Leases, NoLeases

SUFFIXES = (".log", ".journal")
LOCK_SECONDS = 30  # after which the lock of a journal is taken from a writer that died while writing
WAIT_SECONDS = 120  # for another writer of an SQLite file


def journal_file(url: str) -> Path | None:
    """Return the file of a journal: what follows "journal:", or a path that ends in .log or .journal. None for other URLs."""
    if url.startswith("journal:"):
        return Path(url.removeprefix("journal:"))
    return Path(url) if "://" not in url and url.endswith(SUFFIXES) else None


def sqlite_file(url: str) -> Path | None:
    """Return the file of an SQLite database. None for other storages, and for a database in memory."""
    try:
        parts = make_url(url)
    except ArgumentError:
        return None
    if parts.get_backend_name() != "sqlite" or not parts.database or ":memory:" in parts.database:
        return None
    return Path(parts.database)


def open_storage(url: str, interval: float = 60, grace: float = 180) -> tuple[BaseStorage, Leases]:
    """Return the storage at `url`, which is made if it is not there, and its leases.

    Args:
        url: `sqlite:///trials.db` (three slashes and a relative path, or four), `journal:trials.log`, a path that ends in
            .log or .journal, or any database URL that Optuna takes, such as `postgresql://user@host/name`; "memory:" for
            a storage that ends with the process.
        interval: seconds between two renewals of a lease.
        grace: seconds without a renewal after which a trial is stale. Databases round both up to whole seconds.

    Raises:
        SpecError: the URL is none of these, or its database driver is not installed.
        StorageError: the storage cannot be used. A damaged journal is repaired, with a warning.
    """
    if url == "memory:":
        return optuna.storages.InMemoryStorage(), NoLeases()
    path = journal_file(url)
    if path is not None:
        with storage_errors(url):
            storage: BaseStorage = JournalStorage(Journal(path, JournalLock(path, max(3, min(LOCK_SECONDS, grace)))))
        return storage, LeaseFiles(storage, path.with_name(f"{path.name}.leases"), interval, grace)
    if "://" not in url:
        raise SpecError(
            f'"{url}" is no storage; give "sqlite:///trials.db", "journal:trials.log", a path that ends in '
            f'{" or ".join(SUFFIXES)}, or a database URL such as "postgresql://user@host/name"'
        )
    ended: list[FrozenTrial] = []
    try:
        with storage_errors(url):
            storage = repeated(lambda: _open_database(url, interval, grace, ended))
    except StorageError as error:
        if isinstance(error.__cause__, ImportError):
            driver = error.__cause__.__cause__ or error.__cause__
            raise SpecError(f'the storage "{url}" needs a database driver that is not installed: {driver}') from error
        raise
    return storage, Heartbeats(storage, interval, ended)


def _open_database(url: str, interval: float, grace: float, ended: list[FrozenTrial]) -> BaseStorage:
    """Return the storage at a database URL. It adds trials that it ends, because their workers died, to `ended`.

    Raises StorageError for a damaged SQLite file, and the errors of SQLAlchemy and Optuna.
    """
    options: dict[str, Any] = {"pool_pre_ping": True}  # a lost connection is replaced by a new one
    file = sqlite_file(url)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        _check_sqlite(url, file)
    if url.startswith("sqlite"):
        options = {"connect_args": {"timeout": WAIT_SECONDS}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        database = RDBStorage(
            url,
            engine_kwargs=options,
            heartbeat_interval=max(1, math.ceil(interval)),
            grace_period=max(1, math.ceil(grace)),
            heartbeat_stale_trial_callback=lambda study, trial: ended.append(trial),
        )
    return optuna.storages.get_storage(database)  # adds Optuna's cache of finished trials


def _check_sqlite(url: str, file: Path) -> None:
    """Raise StorageError if SQLite finds damage in the file: in pages, in tables, or in indexes that disagree with them."""
    if not file.exists() or not file.stat().st_size:
        return
    try:
        with closing(sqlite3.connect(file, timeout=WAIT_SECONDS)) as connection:
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            missing = _missing_tables(connection) if found == "ok" else []
    except sqlite3.Error as error:
        raise unusable(url, error) from error
    if found != "ok" or missing:
        reason = " ".join(str(found).split()) if found != "ok" else f"without its table {missing[0]}"
        raise unusable(url, sqlite3.DatabaseError(f"{file} is damaged: {reason}"))


def _missing_tables(connection: sqlite3.Connection) -> list[str]:
    """Return Optuna's tables that are missing from a database that once had all of them. Optuna would make them empty."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    written_last = [name for name in ("version_info", "alembic_version") if name in names]
    if not any(connection.execute(f"SELECT 1 FROM {name}").fetchone() for name in written_last):
        return []  # another worker is making the tables now, or died while it did
    return sorted(BaseModel.metadata.tables.keys() - names)
