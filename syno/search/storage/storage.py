"""Where trials are kept: an Optuna storage, and the few operations that a study needs of it.

All that a worker relies on to share a study with others is stated at `TrialStore.create` and `end`: trials are created
whole and numbered in the order of their creation, and the first to end a trial wins. Every Optuna storage gives that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import optuna
from optuna.pruners import BasePruner
from optuna.storages import BaseStorage, JournalStorage
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from syno.base.errors import SpecError, StorageError
from syno.search.storage.database import open_database, sqlite_file
from syno.search.storage.journal import Journal, JournalView
from syno.search.storage.journal_lock import JournalLock
from syno.search.storage.leases import Heartbeats, LeaseFiles, Leases, NoLeases, end
from syno.search.storage.storage_errors import all_understood, reconnecting, understood
from syno.search.storage.verification import Verification
from syno.search.storage.withdrawal import marked

__all__ = ["TrialStore", "journal_file", "open_storage", "read_trials", "understood"]

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

    Raises SpecError for a URL that is none of these, or whose database driver is not installed; StorageError for a storage that
    cannot be used. A damaged journal is repaired, with a warning.
    """
    if url == "memory:":
        return optuna.storages.InMemoryStorage(), NoLeases()
    path = journal_file(url)
    if path is not None:
        with all_understood(url):
            return _open_journal(path, interval, grace)
    if "://" not in url:
        raise SpecError(
            f'"{url}" is no storage; give "sqlite:///trials.db", "journal:trials.log", a path that ends in '
            f'{" or ".join(SUFFIXES)}, or a database URL such as "postgresql://user@host/name"'
        )
    ended: list[FrozenTrial] = []
    try:
        with all_understood(url):
            storage = _patiently(lambda: open_database(url, interval, grace, ended))
    except StorageError as error:
        if isinstance(error.__cause__, ImportError):
            driver = error.__cause__.__cause__ or error.__cause__
            raise SpecError(f'the storage "{url}" needs a database driver that is not installed: {driver}') from error
        raise
    return storage, Heartbeats(storage, interval, ended)


def _open_journal(path: Path, interval: float, grace: float) -> tuple[BaseStorage, Leases]:
    lock = JournalLock(path, max(3, min(LOCK_SECONDS, grace)))
    storage = JournalStorage(Journal(path, lock))
    return storage, LeaseFiles(storage, path.with_name(f"{path.name}.leases"), interval, grace)


def read_trials(url: str, name: str) -> list[FrozenTrial]:
    """The trials of a study, in the order of their numbers, without taking part in it. Nothing is made or changed.

    Raises SpecError if there is no such study, or what is there cannot be read.
    """
    journal = journal_file(url)
    file = journal or sqlite_file(url)
    if file is not None and not file.is_file():
        raise SpecError(f'there is no study "{name}": {file} is not there; `syno search` makes it')
    with all_understood(url):
        storage = JournalStorage(JournalView(journal)) if journal is not None else open_storage(url)[0]
        try:
            study = storage.get_study_id_from_name(name)
        except KeyError:
            names = ", ".join(study.study_name for study in storage.get_all_studies()) or "none"
            raise SpecError(f'{url} holds no study "{name}"; it has: {names}') from None
        trials = Verification(url).verified(storage.get_all_trials(study, deepcopy=False))
        return marked(trials, storage.get_study_user_attrs(study))


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
    """The trials of one study in a storage.

    What goes wrong with the storage is raised as StorageError. Where a database server is away, each operation waits a minute
    for it to come back.
    """

    def __init__(
        self, storage: BaseStorage, leases: Leases, name: str, pruner: BasePruner | None = None, place: str = "of this study"
    ) -> None:
        """Open the study of this name, or make it. `place` is the storage's URL, for messages."""
        self.storage = storage
        self.leases = leases
        self.place = place
        with all_understood(place):
            self.study = _patiently(lambda: _open_study(storage, name, pruner or optuna.pruners.NopPruner()))
            self._study_id = storage.get_study_id_from_name(name)
        self._verification = Verification(place)

    def _do(self, action: Callable[[], T]) -> T:
        """Do something with the storage."""
        with all_understood(self.place):
            return reconnecting(self.storage, action)

    @property
    def attributes(self) -> dict[str, Any]:
        """What is stored with the study itself."""
        return self._do(lambda: self.storage.get_study_user_attrs(self._study_id))

    def describe(self, key: str, value: object) -> None:
        """Store something with the study itself."""
        self._do(lambda: self.storage.set_study_user_attr(self._study_id, key, value))

    def trials(self) -> list[FrozenTrial]:
        """All trials, in the order of their numbers, as they are stored now. Not to be changed.

        Raises StorageError if one of them was changed since it was stored.
        """
        return self._verification.verified(self._do(lambda: self.storage.get_all_trials(self._study_id, deepcopy=False)))

    def create(self, attributes: Mapping[str, object]) -> int:
        """Create a running trial with these attributes, all at once: nobody ever sees it without them. Returns its id.

        Trials are numbered in the order of creation, and whoever has created one sees all of lower numbers. (SQLite has one
        writer at a time; on other databases Optuna locks the study's row; a journal is a sequence.) Where the connection to a
        server breaks in the midst of it, the trial may be there twice; the ledger gives the second no role.
        """
        template = create_trial(state=TrialState.RUNNING, user_attrs=dict(attributes))
        return self._do(lambda: self.storage.create_new_trial(self._study_id, template))

    def stored(self, trial_id: int) -> FrozenTrial:
        """One trial, as it is stored now. Not to be changed."""
        return self._do(lambda: self.storage.get_trial(trial_id))

    def annotate(self, trial_id: int, key: str, value: object) -> bool:
        """Store something with a running trial. False if it has ended."""
        try:
            self._do(lambda: self.storage.set_trial_user_attr(trial_id, key, value))
        except optuna.exceptions.UpdateFinishedTrialError:
            return False
        return True

    def end(self, trial_id: int, state: TrialState, reward: float | None = None) -> bool:
        """Give a trial its last state. False if it has one already: the first to end it wins."""
        return self._do(lambda: end(self.storage, trial_id, state, reward))

    def end_stale(self, running: Sequence[FrozenTrial]) -> bool:
        """End those of the running trials whose lease is too old. Returns whether there were any."""
        return self._do(lambda: self.leases.end_stale(self.study, running))

    def report(self, trial_id: int, step: int, value: float) -> bool:
        """Store an intermediate value of a running trial. Whether the pruner stops the trial there."""
        trial = optuna.Trial(self.study, trial_id)
        self._do(lambda: trial.report(value, step))
        return self._do(trial.should_prune)
