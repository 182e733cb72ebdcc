"""Read-only access to a study while workers write it: the storage is not changed, and no worker waits for the reader.

A journal is read without its lock, and only the lines since the last read. A database is opened read-only; trials that have
ended are read once. Optuna closes each transaction before the next, so nothing stays locked.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.trial import FrozenTrial
from sqlalchemy import create_engine, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from syno.base.errors import SpecError, StorageError
from syno.search.storage.errors import storage_errors
from syno.search.storage.journal import Journal
from syno.search.storage.opening import journal_file, sqlite_file
from syno.search.storage.store import Verification

SECONDS = 10  # timeout of a database
WRITTEN_LAST = "alembic_version"  # the last of the tables that Optuna makes


class NotBegunError(SpecError):
    """Raised if the study does not exist yet."""


class Stored(NamedTuple):
    """The stored trials of a study in the order of their numbers, and its attributes. They must not be changed."""

    trials: list[FrozenTrial]
    attributes: Mapping[str, Any]


class StudyView:
    """A study in a storage, for repeated reading."""

    def __init__(self, url: str, name: str) -> None:
        """Create the view of a study. `url` is the storage's, as in `syno.search.storage.opening.open_storage`.

        Nothing is opened yet.
        """
        self._url, self._name = url, name
        self._storage: BaseStorage | None = None
        self._verification = Verification(url)

    def read(self) -> Stored:
        """Return the current trials and attributes of the study.

        Raises SpecError if the search has not begun, or its storage is in memory; StorageError if the storage cannot be reached
        or read, after which a retry may succeed.
        """
        try:
            with storage_errors(self._url):
                storage = self._storage = self._storage or self._open()
                try:
                    study = storage.get_study_id_from_name(self._name)
                except KeyError:
                    names = ", ".join(study.study_name for study in storage.get_all_studies()) or "none"
                    raise self._not_begun(f"{self._url} holds no study of this name; it has: {names}") from None
                trials = self._verification.verified(storage.get_all_trials(study, deepcopy=False))
                return Stored(trials, storage.get_study_user_attrs(study))
        except (SpecError, StorageError):
            self._storage, self._verification = None, Verification(self._url)  # the next read starts anew
            raise
        finally:
            if self._storage is not None:
                self._storage.remove_session()  # it returns the connection

    def _open(self) -> BaseStorage:
        if self._url == "memory:":
            raise SpecError(
                f'the search "{self._name}" cannot be watched: its trials are in the memory of the process that searches. '
                "Give it a storage that others can read: study: {storage: journal}"
            )
        journal = journal_file(self._url)
        file = journal or sqlite_file(self._url)
        if file is not None and not file.is_file():
            raise self._not_begun(f"{file} is not there")
        if journal is not None:
            return JournalStorage(Journal(journal))
        return self._database(file)

    def _database(self, file: Path | None) -> BaseStorage:
        """Return a database storage that refuses writes. `file` is the file of an SQLite database."""
        options: dict[str, Any] = {"execution_options": {"postgresql_readonly": True}, "pool_pre_ping": True}
        if file is not None:
            address = f"{file.absolute().as_uri()}?mode=ro"
            options = {"creator": lambda: sqlite3.connect(address, uri=True, timeout=SECONDS, check_same_thread=False)}
        elif make_url(self._url).get_backend_name() == "postgresql":
            options["connect_args"] = {"connect_timeout": SECONDS}
        try:
            engine = create_engine(self._url, **options)
            is_made = inspect(engine).has_table(WRITTEN_LAST)
            engine.dispose()
        except ImportError as error:
            raise SpecError(f'the storage "{self._url}" needs a database driver that is not installed: {error}') from error
        except OperationalError as error:
            if file is not None:
                raise
            reason = str(error.orig).strip().splitlines()[0]
            raise StorageError(
                f"the storage {self._url} cannot be reached: {reason}. See that its server runs and lets this machine in"
            ) from error
        if not is_made:
            raise self._not_begun(f"{self._url} has no tables of studies")
        database = RDBStorage(self._url, engine_kwargs=options, skip_compatibility_check=True, skip_table_creation=True)
        return optuna.storages.get_storage(database)  # adds Optuna's cache of finished trials

    def _not_begun(self, reason: str) -> NotBegunError:
        return NotBegunError(f'the search "{self._name}" has not begun: {reason}')
