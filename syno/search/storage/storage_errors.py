"""Errors of a storage as one line each, and waiting for a server that is restarted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import optuna
from optuna.storages import BaseStorage
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, PendingRollbackError, SQLAlchemyError

from syno.base.errors import StorageError, SynoError

T = TypeVar("T")

RECONNECTION_SECONDS = 60.0  # for which a database server may be away
LONGEST_PAUSE = 2.0  # seconds between two attempts


@contextmanager
def understood(url: str) -> Iterator[None]:
    """Errors of a database, and text that is none, become a StorageError: a damaged file, a full disk, a lost connection."""
    try:
        yield
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise unusable(url, error) from error


@contextmanager
def all_understood(url: str) -> Iterator[None]:
    """Every error becomes a StorageError, for blocks that do nothing but use a storage.

    A damaged database may hold anything, and Optuna stumbles over it in many ways. Errors that say something about a trial or
    a study, not about the storage, are let through.
    """
    try:
        yield
    except (SynoError, optuna.exceptions.UpdateFinishedTrialError, optuna.exceptions.DuplicatedStudyError):
        raise
    except Exception as error:
        raise unusable(url, error) from error


def unusable(url: str, error: BaseException) -> StorageError:
    """The error to raise for this one."""
    cause = _cause(error)
    said = str(getattr(cause, "orig", None) or cause).strip().splitlines()
    reason = said[0] if said else type(cause).__name__
    return StorageError(
        f"the storage {url} cannot be used: {reason}. Trials that were stored stay there; if the disk is full, make room and "
        "run again; if the file is damaged, take it away and start again"
    )


def reconnecting(storage: BaseStorage, action: Callable[[], T]) -> T:
    """Do something with a storage; again and again for a minute where its server is away, as when that is restarted.

    The action is one that may be done twice: its first time may have had its effect before the connection was lost.
    """
    end, pause = time.monotonic() + RECONNECTION_SECONDS, 0.05
    while True:
        try:
            return action()
        except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
            if not _is_away(error) or time.monotonic() > end:
                raise
            storage.remove_session()  # it is of the connection that was lost
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def _cause(error: BaseException) -> BaseException:
    """The error of the database behind one of Optuna's."""
    while not isinstance(error, SQLAlchemyError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_away(error: BaseException) -> bool:
    """Whether the error is of a connection to a server. SQLite has none: its errors are of its file."""
    cause = _cause(error)
    if isinstance(cause, PendingRollbackError):  # it was before, and the session still is of that connection
        return True
    if not isinstance(cause, DBAPIError) or type(cause.orig).__module__.startswith("sqlite3"):
        return False
    return cause.connection_invalidated or isinstance(cause, OperationalError | InterfaceError)
