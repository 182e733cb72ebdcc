"""A study that is read while workers write it: the storage is neither made nor changed, and no worker waits for the reader.

A journal is read without its lock, and only what was added since the last look. A database is opened read only. Of its trials,
those that have ended are read once. Optuna closes each of its transactions before the next one, so nothing stays locked.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import FrozenTrial
from sqlalchemy import create_engine, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from syno.base.errors import SpecError, StorageError
from syno.search.storage.errors import file_errors, storage_errors
from syno.search.storage.journal import JournalView, Log, Reader
from syno.search.storage.opening import journal_file, sqlite_file
from syno.search.storage.store import Verification

SECONDS = 10  # for which an answer of a database is waited for
WRITTEN_LAST = "alembic_version"  # the last of the tables that Optuna makes


class NotBegunError(SpecError):
    """There is no study yet."""


class Stored(NamedTuple):
    """The trials of a study in the order of their numbers, and its attributes, as they are stored. Nobody may change them."""

    trials: list[FrozenTrial]
    attributes: Mapping[str, Any]


class StudyView:
    """A study in a storage, read only, as often as one likes."""

    def __init__(self, url: str, name: str) -> None:
        """`url` is the storage's, as in `syno.search.storage.opening.open_storage`. Nothing is opened yet."""
        self._url, self._name = url, name
        self._storage: BaseStorage | None = None
        self._verification = Verification(url)

    def read(self) -> Stored:
        """Return the entries that are stored now.

        Raises SpecError if the search has not begun, or its storage is memory; StorageError if the storage cannot be reached or
        read, which may be different the next time.
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
            self._storage, self._verification = None, Verification(self._url)  # the next look begins anew
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
            return JournalStorage(JournalFollower(journal))
        return self._database(file)

    def _database(self, file: Path | None) -> BaseStorage:
        """Return the storage of a database, in which this process cannot write. `file` is that of SQLite."""
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


class JournalFollower(BaseJournalBackend):
    """A journal that others write, read without its lock. What was read once is not read again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader = Reader()  # behind the last line that was read
        self._offset = 0  # the same place in bytes
        self._identity: tuple[int, int] | None = None  # device and inode of the file: a repair replaces it

    def read_logs(self, log_number_from: int) -> list[Log]:
        """Return the operations from this number on. Raises StorageError if the file cannot be read, or is no journal."""
        with file_errors(self._path), self._path.open("rb") as file:
            found = os.fstat(file.fileno())
            identity = (found.st_dev, found.st_ino)
            if self._identity is None:
                self._identity = identity
            if identity == self._identity and found.st_size >= self._offset and log_number_from == self._reader.line:
                file.seek(self._offset)
                data = file.read()
                data = data[: data.rfind(b"\n") + 1]  # another worker may be writing the rest now
                reader = self._reader.copy()
                logs, whole = reader.read(data)
                if whole == len(data):
                    self._reader, self._offset = reader, self._offset + whole
                    return logs
        return JournalView(self._path).read_logs(log_number_from)  # cut off, or damaged: the whole file, with a warning

    def append_logs(self, logs: list[Log]) -> None:
        """Raise StorageError: the journal is read only."""
        raise StorageError("a journal that is open for reading takes no entries")
