"""Where trials are kept: an Optuna storage, and the few operations that a study needs of it.

All that a worker relies on to share a study with others is stated at `TrialStore.create` and `end`: trials are created
whole and numbered in the order of their creation, and the first to end a trial wins. Every Optuna storage gives that.
"""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import optuna
from optuna.pruners import BasePruner
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from syno.errors import SpecError
from syno.search.leases import Heartbeats, LeaseFiles, Leases, NoLeases, end
from syno.search.withdrawal import marked

T = TypeVar("T")

SUFFIXES = (".log", ".journal")
OPENING_ATTEMPTS = 10
LOCK_SECONDS = 30  # after which the lock of a journal is taken from a writer that died while writing


def journal_file(url: str) -> Path | None:
    """The file of a journal: what follows "journal:", or a path that ends in .log or .journal. None for other URLs."""
    if url.startswith("journal:"):
        return Path(url.removeprefix("journal:"))
    return Path(url) if "://" not in url and url.endswith(SUFFIXES) else None


def open_storage(url: str, interval: float = 60, grace: float = 180) -> tuple[BaseStorage, Leases]:
    """The storage at `url`, made if it is not there, and its leases.

    Args:
        url: `sqlite:///trials.db` (three slashes and a relative path, or four), `journal:trials.log`, a path that ends in
            .log or .journal, or any database URL that Optuna takes, such as `postgresql://user@host/name`; "memory:" for
            one that is gone with the process.
        interval, grace: seconds between two renewals of a lease, and without one until a trial is stale. Whole numbers for
            databases: parts are rounded up.

    Raises SpecError for a URL that is none of these, or whose database driver is not installed.
    """
    if url == "memory:":
        return optuna.storages.InMemoryStorage(), NoLeases()
    path = journal_file(url)
    if path is not None:
        return _open_journal(path, interval, grace)
    if "://" not in url:
        raise SpecError(
            f'"{url}" is no storage; give "sqlite:///trials.db", "journal:trials.log", a path that ends in '
            f'{" or ".join(SUFFIXES)}, or a database URL such as "postgresql://user@host/name"'
        )
    ended: list[FrozenTrial] = []
    try:
        storage = _patiently(lambda: _open_database(url, interval, grace, ended))
    except ImportError as error:
        raise SpecError(
            f'the storage "{url}" needs a database driver that is not installed: {error.__cause__ or error}'
        ) from error
    return storage, Heartbeats(storage, interval, ended)


def _open_database(url: str, interval: float, grace: float, ended: list[FrozenTrial]) -> BaseStorage:
    options: dict[str, Any] = {}
    if url.startswith("sqlite:"):
        file = url.removeprefix("sqlite:///")
        if file and ":memory:" not in file:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
        options["connect_args"] = {"timeout": 120}  # seconds to wait for another writer
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


def _open_journal(path: Path, interval: float, grace: float) -> tuple[BaseStorage, Leases]:
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = JournalFileSymlinkLock(str(path), grace_period=max(3, min(LOCK_SECONDS, int(grace))))
    lock.acquire()
    try:
        _mend(path)
    finally:
        lock.release()
    storage = JournalStorage(JournalFileBackend(str(path), lock_obj=lock))
    return storage, LeaseFiles(storage, path.with_name(f"{path.name}.leases"), interval, grace)


def _mend(path: Path) -> None:
    """Cut off a last line that its writer did not live to finish. To be called with the journal's lock held."""
    if not path.exists() or not path.stat().st_size:
        return
    with path.open("r+b") as journal:
        journal.seek(-1, os.SEEK_END)
        if journal.read() != b"\n":
            journal.seek(0)
            journal.truncate(journal.read().rfind(b"\n") + 1)


def read_trials(url: str, name: str) -> list[FrozenTrial]:
    """The trials of a study, in the order of their numbers, without taking part in it. Nothing is made or changed.

    Raises SpecError if there is no such study, or what is there cannot be read.
    """
    file = journal_file(url) or (Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None)
    if file is not None and not file.is_file():
        raise SpecError(f'there is no study "{name}": {file} is not there; `syno search` makes it')
    with understood(url):
        storage, _ = open_storage(url)
        try:
            study = storage.get_study_id_from_name(name)
        except KeyError:
            names = ", ".join(study.study_name for study in storage.get_all_studies()) or "none"
            raise SpecError(f'{url} holds no study "{name}"; it has: {names}') from None
        return marked(storage.get_all_trials(study, deepcopy=False), storage.get_study_user_attrs(study))


@contextmanager
def understood(url: str) -> Iterator[None]:
    """What goes wrong with a storage within it becomes a SpecError: a damaged file, a full disk, a lost connection."""
    try:
        yield
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError, json.JSONDecodeError) as error:
        cause: BaseException = error
        while not isinstance(cause, SQLAlchemyError) and cause.__cause__ is not None:
            cause = cause.__cause__
        said = str(getattr(cause, "orig", None) or cause).splitlines()[0]
        raise SpecError(
            f"the storage {url} cannot be used: {said}. Trials that were stored stay there; if the file is damaged, "
            "take it away and start again"
        ) from error


def _open_study(storage: BaseStorage, name: str, pruner: BasePruner) -> optuna.Study:
    sampler = optuna.samplers.RandomSampler(seed=0)  # never draws: trials have no parameters
    try:
        return optuna.load_study(study_name=name, storage=storage, sampler=sampler, pruner=pruner)
    except KeyError:
        return optuna.create_study(
            study_name=name, storage=storage, sampler=sampler, pruner=pruner, direction="maximize", load_if_exists=True
        )


def _patiently(action: Callable[[], T]) -> T:
    """Do it again where another worker does the same at the same moment, such as making the tables of a new database."""
    for attempt in range(OPENING_ATTEMPTS):
        try:
            return action()
        except ArgumentError as error:
            raise SpecError(f"the storage cannot be opened: {error}") from error
        except (SQLAlchemyError, optuna.exceptions.StorageInternalError):
            if attempt == OPENING_ATTEMPTS - 1:
                raise
            time.sleep(0.05 * (attempt + 1))
    raise AssertionError("the last attempt returns or raises")


class TrialStore:
    """The trials of one study in a storage."""

    def __init__(self, storage: BaseStorage, leases: Leases, name: str, pruner: BasePruner | None = None) -> None:
        self.storage = storage
        self.leases = leases
        self.study = _patiently(lambda: _open_study(storage, name, pruner or optuna.pruners.NopPruner()))
        self._study_id = storage.get_study_id_from_name(name)

    @property
    def attributes(self) -> dict[str, Any]:
        """What is stored with the study itself."""
        return self.storage.get_study_user_attrs(self._study_id)

    def describe(self, key: str, value: object) -> None:
        """Store something with the study itself."""
        self.storage.set_study_user_attr(self._study_id, key, value)

    def trials(self) -> list[FrozenTrial]:
        """All trials, in the order of their numbers, as they are stored now. Not to be changed."""
        return self.storage.get_all_trials(self._study_id, deepcopy=False)

    def create(self, attributes: Mapping[str, object]) -> int:
        """Create a running trial with these attributes, all at once: nobody ever sees it without them. Returns its id.

        Trials are numbered in the order of creation, and whoever has created one sees all of lower numbers. (SQLite has one
        writer at a time; on other databases Optuna locks the study's row; a journal is a sequence.)
        """
        template = create_trial(state=TrialState.RUNNING, user_attrs=dict(attributes))
        return self.storage.create_new_trial(self._study_id, template)

    def stored(self, trial_id: int) -> FrozenTrial:
        """One trial, as it is stored now. Not to be changed."""
        return self.storage.get_trial(trial_id)

    def annotate(self, trial_id: int, key: str, value: object) -> bool:
        """Store something with a running trial. False if it has ended."""
        try:
            self.storage.set_trial_user_attr(trial_id, key, value)
        except optuna.exceptions.UpdateFinishedTrialError:
            return False
        return True

    def end(self, trial_id: int, state: TrialState, reward: float | None = None) -> bool:
        """Give a trial its last state. False if it has one already: the first to end it wins."""
        return end(self.storage, trial_id, state, reward)

    def trial(self, trial_id: int) -> optuna.Trial:
        """The trial as an object that reports intermediate values and asks the pruner."""
        return optuna.Trial(self.study, trial_id)
