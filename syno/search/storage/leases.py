"""Leases on running trials, by which dead workers are detected.

A worker renews the lease on its trial during the evaluation. A trial whose lease has expired is stale: its worker is dead. In
databases, leases are Optuna's heartbeats, compared by the database's clock. For a journal file, each lease is a file beside it,
whose modification time is compared by the file server's clock. No worker's clock matters.
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
        """Renew the lease on a trial."""

    @abstractmethod
    def end_stale(self, study: optuna.Study, running: Mapping[int, FrozenTrial]) -> bool:
        """End the running trials whose lease has expired; return whether there were any. Trials without a lease get one.

        Args:
            study: the study.
            running: the trials by their ids.
        """

    def forget(self, trial_id: int) -> None:  # noqa: B027  (there may be nothing to remove)
        """Remove the lease on a trial that has ended."""

    @contextmanager
    def kept(self, trial_id: int) -> Iterator[None]:
        """Renew the lease on the trial in a background thread during the block."""
        over = threading.Event()

        def renew() -> None:
            try:
                self.renew(trial_id)
            except Exception as error:  # the storage may recover before the lease expires
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
    """Leases that do nothing, for a storage in memory, whose workers end with it."""

    def renew(self, trial_id: int) -> None:
        """Do nothing."""

    def end_stale(self, study: optuna.Study, running: Mapping[int, FrozenTrial]) -> bool:
        """Return False: no trial becomes stale."""
        return False


class Heartbeats(Leases):
    """Optuna's heartbeats in a database.

    Optuna's RetryHeartbeatStaleTrialCallback is not used: a worker killed between the end of the old trial and the creation of
    its retry would lose an operator. Here, the trials to retry are derived from the stored trials.
    """

    def __init__(self, storage: BaseStorage, interval: float, ended: list[FrozenTrial]) -> None:
        """Create the leases.

        The storage's `heartbeat_stale_trial_callback` appends the trials that it ends to the list `ended`.
        """
        super().__init__(interval)
        self._storage = storage
        self._ended = ended

    def renew(self, trial_id: int) -> None:
        """Record a heartbeat of this worker for the trial."""
        try:
            self._storage.record_heartbeat(trial_id)  # type: ignore[attr-defined]  # a storage with heartbeats has it
        except Exception:
            self._storage.remove_session()  # the next renewal gets a new connection
            raise

    def end_stale(self, study: optuna.Study, running: Mapping[int, FrozenTrial]) -> bool:
        """Let Optuna end the trials whose heartbeat is too old.

        Optuna considers a trial without a heartbeat alive, so the first worker that sees such a trial records one, once. If
        every worker recorded one, the trial of a dead worker would stay alive.
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
    """Leases as files in a folder beside a journal, one for each running trial.

    Attributes:
        grace: seconds without renewal after which a lease expires.
    """

    def __init__(self, storage: BaseStorage, folder: Path, interval: float, grace: float) -> None:
        super().__init__(interval)
        self.grace = grace
        self._storage = storage
        self._folder = folder

    def renew(self, trial_id: int) -> None:
        """Touch the trial's lease file. Raises StorageError if that fails, as on a full disk."""
        self._touched(str(trial_id))

    def end_stale(self, study: optuna.Study, running: Mapping[int, FrozenTrial]) -> bool:
        """End the trials whose lease file was not touched in time."""
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
        """Remove the trial's lease file. If that fails, as on a read-only disk, it does no harm: the trial has ended."""
        with suppress(OSError):
            (self._folder / str(trial_id)).unlink()

    def _now(self) -> float:
        """Return the current time by the file server's clock."""
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
    """Set the final state of a trial. Return False if it has a final state already: the first worker to end a trial wins."""
    try:
        return storage.set_trial_state_values(trial_id, state, None if reward is None else [reward])
    except optuna.exceptions.UpdateFinishedTrialError:
        return False
