"""Leases on running trials.

A worker renews a lease on its trial while it evaluates the trial. A trial whose lease is too old is stale: its worker is dead.
Databases keep leases as Optuna's heartbeats and compare them by the database's clock. A journal file has no heartbeats: each
lease is a file beside it, whose modification time counts, by the file server's clock. No worker's clock matters.
"""

from __future__ import annotations

import threading
import uuid
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from syno.search.storage.errors import file_errors

WATCHED = "watched"  # attribute of a trial that another worker has seen running


class Leases(ABC):
    """Leases on the trials of one study.

    Attributes:
        interval: seconds between two renewals.
    """

    def __init__(self, interval: float = 60) -> None:
        self.interval = interval

    @abstractmethod
    def renew(self, trial_id: int) -> None:
        """Record that the trial is being evaluated now."""

    @abstractmethod
    def end_stale(self, study: optuna.Study, running: Mapping[int, FrozenTrial]) -> bool:
        """End those running trials whose lease is too old, and return whether there were any. Give a lease to those without.

        Args:
            study: the study.
            running: the trials by their ids.
        """

    def forget(self, trial_id: int) -> None:  # noqa: B027  (there may be nothing to remove)
        """Remove the lease of a trial that has ended."""

    @contextmanager
    def kept(self, trial_id: int) -> Iterator[None]:
        """Renew the lease on the trial in a thread while the context lasts."""
        over = threading.Event()

        def renew() -> None:
            try:
                self.renew(trial_id)
            except Exception as error:  # the storage may be back before the lease runs out
                warnings.warn(f"the lease on trial {trial_id} was not renewed: {error}", stacklevel=2)

        def renew_until_over() -> None:
            while not over.wait(self.interval):
                renew()

        renew()
        thread = threading.Thread(target=renew_until_over, name=f"lease on trial {trial_id}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.forget(trial_id)


class NoLeases(Leases):
    """For a storage in memory: its workers die together with it."""

    def renew(self, trial_id: int) -> None:
        """Do nothing."""

    def end_stale(self, study: optuna.Study, running: Mapping[int, FrozenTrial]) -> bool:
        """Return False: no trial becomes stale."""
        return False


class Heartbeats(Leases):
    """Optuna's heartbeats in a database, without its RetryHeartbeatStaleTrialCallback: a worker killed after the end of the old
    trial and before the creation of the new one would lose an operator. Here, the trials to retry follow from what is stored.
    """

    def __init__(self, storage: BaseStorage, interval: float, ended: list[FrozenTrial]) -> None:
        """`ended` is the list to which the storage's `heartbeat_stale_trial_callback` adds the trials that it ends."""
        super().__init__(interval)
        self._storage = storage
        self._ended = ended

    def renew(self, trial_id: int) -> None:
        """Record a heartbeat."""
        try:
            self._storage.record_heartbeat(trial_id)  # type: ignore[attr-defined]  # a storage with heartbeats has it
        except Exception:
            self._storage.remove_session()  # the next renewal gets a new connection
            raise

    def end_stale(self, study: optuna.Study, running: Mapping[int, FrozenTrial]) -> bool:
        """Let Optuna end stale trials.

        Optuna takes a trial without a heartbeat for alive, so the first worker that sees one records one. If all who look did,
        the trial of a dead worker would stay alive.
        """
        self._ended.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            optuna.storages.fail_stale_trials(study)
        for trial_id, trial in running.items():
            if WATCHED in trial.user_attrs:
                continue
            with suppress(optuna.exceptions.UpdateFinishedTrialError):
                self._storage.set_trial_user_attr(trial_id, WATCHED, True)
                self.renew(trial_id)
        return bool(self._ended)


class LeaseFiles(Leases):
    """A folder of files beside a journal, one for each running trial.

    Attributes:
        grace: seconds without renewal after which a lease is too old.
    """

    def __init__(self, storage: BaseStorage, folder: Path, interval: float, grace: float) -> None:
        super().__init__(interval)
        self.grace = grace
        self._storage = storage
        self._folder = folder

    def renew(self, trial_id: int) -> None:
        """Touch the trial's file. Raises StorageError where that fails, such as on a full disk."""
        self._touched(str(trial_id))

    def end_stale(self, study: optuna.Study, running: Mapping[int, FrozenTrial]) -> bool:
        """End the trials whose file was not touched in time."""
        now, some = self._now() if running else 0.0, False
        for trial_id in running:
            try:
                age = now - (self._folder / str(trial_id)).stat().st_mtime
            except FileNotFoundError:
                self.renew(trial_id)
                continue
            if age > self.grace:
                some |= end_trial(self._storage, trial_id)
                self.forget(trial_id)
        return some

    def forget(self, trial_id: int) -> None:
        """Remove the trial's file. A file that stays, on a read-only disk, does no harm: its trial has ended."""
        with suppress(OSError):
            (self._folder / str(trial_id)).unlink()

    def _now(self) -> float:
        """Return the file server's time."""
        clock = self._touched(f"now-{uuid.uuid4().hex}")
        with file_errors(self._folder):
            try:
                return clock.stat().st_mtime
            finally:
                clock.unlink(missing_ok=True)

    def _touched(self, name: str) -> Path:
        with file_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / name).touch()
        return self._folder / name


def end_trial(storage: BaseStorage, trial_id: int, state: TrialState = TrialState.FAIL, reward: float | None = None) -> bool:
    """Give a trial its last state. Return False if it has one already: the first to end it wins."""
    try:
        return storage.set_trial_state_values(trial_id, state, None if reward is None else [reward])
    except optuna.exceptions.UpdateFinishedTrialError:
        return False
