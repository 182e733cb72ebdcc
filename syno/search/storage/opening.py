"""Opening storages by URL: databases and journals."""

from __future__ import annotations

import math
import os
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.trial import FrozenTrial
from sqlalchemy import inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from syno.base.errors import SpecError, StorageError
from syno.search.storage.errors import repeated, storage_errors, unusable
from syno.search.storage.journal import LOCK_SECONDS, Journal
from syno.search.storage.leases import Heartbeats, LeaseFiles, Leases, NoLeases

SUFFIXES = (".log", ".journal")
WAIT_SECONDS = 120  # for the lock of another writer of an SQLite file
LOCK_TRIAL_SECONDS = 20  # locking is immediate, but starting Python may be slow on a busy machine
TRY_LOCK = """
import fcntl, sys
try:
    with open(sys.argv[1], "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1 << 30)  # a byte in the range of SQLite's locks
        fcntl.lockf(file, fcntl.LOCK_UN, 1, 1 << 30)
except OSError as error:
    print(error.strerror or error)
"""


def journal_file(url: str) -> Path | None:
    """Return the journal file of a URL "journal:PATH" or a path that ends in .log or .journal; None for other URLs."""
    if url.startswith("journal:"):
        return Path(url.removeprefix("journal:"))
    return Path(url) if "://" not in url and url.endswith(SUFFIXES) else None


def sqlite_file(url: str) -> Path | None:
    """Return the file of an SQLite URL; None for other storages and for a database in memory."""
    try:
        parts = make_url(url)
    except ArgumentError:
        return None
    if parts.get_backend_name() != "sqlite" or not parts.database or ":memory:" in parts.database:
        return None
    return Path(parts.database)


def open_storage(url: str, interval: float = 60, grace: float = 180) -> tuple[BaseStorage, Leases]:
    """Return the storage at `url`, which is created if needed, and its leases.

    Args:
        url: `sqlite:///trials.db` (three slashes and a relative path, or four), `journal:trials.log`, a path that ends in
            .log or .journal, or any database URL that Optuna takes, such as `postgresql://user@host/name`; "memory:" for
            a storage that ends with the process.
        interval: seconds between two renewals of a lease.
        grace: seconds without renewal after which a trial is stale. For databases, both are rounded up to whole seconds.

    Raises:
        SpecError: the URL is none of these, or its database driver is not installed.
        StorageError: the storage cannot be used, or is damaged.
    """
    if url == "memory:":
        return optuna.storages.InMemoryStorage(), NoLeases()
    path = journal_file(url)
    if path is not None:
        with storage_errors(url):
            path.parent.mkdir(parents=True, exist_ok=True)
            storage: BaseStorage = JournalStorage(Journal(path, min(LOCK_SECONDS, grace)))
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
    """Return the storage at a database URL. It appends trials of dead workers, which it ends, to the list `ended`.

    Raises StorageError for a damaged SQLite file, and the errors of SQLAlchemy and Optuna.
    """
    options: dict[str, Any] = {"pool_pre_ping": True}  # a lost connection is replaced by a new one
    file = sqlite_file(url)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        _check_locks(url, file)
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


@cache
def _check_locks(url: str, file: Path) -> None:
    """Raise StorageError if files cannot be locked in the folder of an SQLite database, as on some network file systems.

    SQLite would wait forever for the lock, or two workers would write at once. The lock is tested in another process, since a
    blocking call cannot be interrupted from within.
    """
    reason = ""
    try:
        descriptor, name = tempfile.mkstemp(prefix=".syno-lock-", dir=file.parent)
    except OSError:
        return  # SQLite says what is wrong with the folder
    os.close(descriptor)
    try:
        done = subprocess.run(
            [sys.executable, "-S", "-c", TRY_LOCK, name], capture_output=True, text=True, timeout=LOCK_TRIAL_SECONDS
        )
        reason = done.stdout.strip()
    except subprocess.TimeoutExpired:
        reason = f"no answer within {LOCK_TRIAL_SECONDS} s"
    finally:
        with suppress(OSError):
            Path(name).unlink()
    if reason:
        raise StorageError(
            f"the storage {url} cannot be used: files in {file.parent} cannot be locked ({reason}), as on some network file "
            "systems. Give study: {storage: journal}, which needs no such locks, or a folder on a disk of this machine"
        )


def _check_sqlite(url: str, file: Path) -> None:
    """Raise StorageError if SQLite finds damage in the file: in pages, tables or inconsistent indexes."""
    if not file.exists() or not file.stat().st_size:
        return
    try:
        with closing(sqlite3.connect(file, timeout=WAIT_SECONDS)) as connection:
            (answer,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            missing = _missing_tables(connection) if answer == "ok" else []
    except sqlite3.Error as error:
        raise unusable(url, error) from error
    if answer != "ok" or missing:
        reason = " ".join(str(answer).split()) if answer != "ok" else f"without its table {missing[0]}"
        raise unusable(url, sqlite3.DatabaseError(f"{file} is damaged: {reason}"))


def _missing_tables(connection: sqlite3.Connection) -> list[str]:
    """Return Optuna's tables that are missing from a database that once had all of them; Optuna would recreate them empty."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    written_last = [name for name in ("version_info", "alembic_version") if name in names]
    if not any(connection.execute(f"SELECT 1 FROM {name}").fetchone() for name in written_last):
        return []  # another worker is creating the tables, or died during that
    return sorted(_tables_of_optuna() - names)


@cache
def _tables_of_optuna() -> frozenset[str]:
    """Return the names of the tables that Optuna creates in one transaction, taken from a database in memory.

    Alembic's table is excluded: it is created in a second transaction, so it may be missing for a moment.
    """
    engine = RDBStorage("sqlite://").engine
    try:
        return frozenset(inspect(engine).get_table_names()) - {"alembic_version"}
    finally:
        engine.dispose()
