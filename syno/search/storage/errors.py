"""Conversion of file and database errors to StorageError, and retries while a database server is unreachable."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import optuna
from optuna.storages import BaseStorage
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError, PendingRollbackError, SQLAlchemyError

from syno.base.errors import SpecError, StorageError, SynoError

T = TypeVar("T")

RECONNECTION_SECONDS = 60.0  # longest outage of a database server
LONGEST_PAUSE = 2.0  # seconds between two attempts
OPENING_ATTEMPTS = 10
DATABASE_ERRORS = (SQLAlchemyError, optuna.exceptions.StorageInternalError)


@contextmanager
def database_errors(url: str) -> Iterator[None]:
    """Convert database errors, such as a lost connection or malformed text, to StorageError."""
    try:
        yield
    except (*DATABASE_ERRORS, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise unusable(url, error) from error


@contextmanager
def storage_errors(url: str) -> Iterator[None]:
    """Convert every error to StorageError. For blocks that only access a storage.

    A damaged database may contain anything, and Optuna fails on it in many ways. Errors that concern a trial or a study, not
    the storage, are raised unchanged.
    """
    try:
        yield
    except (SynoError, optuna.exceptions.UpdateFinishedTrialError, optuna.exceptions.DuplicatedStudyError):
        raise
    except Exception as error:
        raise unusable(url, error) from error


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Convert errors of the operating system to StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path} cannot be used: {error.strerror or error}. What was stored stays there; "
            "see to the disk's room and permissions, then run again"
        ) from error


def unusable(url: str, error: BaseException) -> StorageError:
    """Return the StorageError that reports this error of the storage at `url`."""
    cause = _cause(error)
    lines = str(getattr(cause, "orig", None) or cause).strip().splitlines()
    reason = lines[0] if lines else type(cause).__name__
    return StorageError(
        f"the storage {url} cannot be used: {reason}. Trials that were stored stay there; if the disk is full, make room and "
        "run again; if the file is damaged, take it away and start again"
    )


def reconnecting(storage: BaseStorage, action: Callable[[], T]) -> T:
    """Return the action's result; retry for up to a minute while the database server is unreachable, as during a restart.

    The action must be idempotent: its first call may have taken effect before the connection was lost.
    """
    end, pause = time.monotonic() + RECONNECTION_SECONDS, 0.05
    while True:
        try:
            return action()
        except DATABASE_ERRORS as error:
            if not _is_away(error) or time.monotonic() > end:
                raise
            storage.remove_session()  # it belongs to the lost connection
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def repeated(action: Callable[[], T]) -> T:
    """Return the action's result; retry a few times on collisions of workers, such as concurrent creation of tables."""
    for attempt in range(OPENING_ATTEMPTS):
        try:
            return action()
        except ArgumentError as error:
            raise SpecError(f"the storage cannot be opened: {error}") from error
        except DATABASE_ERRORS:
            if attempt == OPENING_ATTEMPTS - 1:
                raise
            time.sleep(0.05 * (attempt + 1))
    raise AssertionError("the last attempt returns or raises")


def _cause(error: BaseException) -> BaseException:
    """Return the database error that caused an error of Optuna."""
    while not isinstance(error, SQLAlchemyError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_away(error: BaseException) -> bool:
    """Return whether the connection to a server failed. SQLite has no server: its errors concern its file."""
    cause = _cause(error)
    if isinstance(cause, PendingRollbackError):  # the connection failed before, and the session still uses it
        return True
    if not isinstance(cause, DBAPIError) or type(cause.orig).__module__.startswith("sqlite3"):
        return False
    return cause.connection_invalidated or isinstance(cause, OperationalError | InterfaceError)
