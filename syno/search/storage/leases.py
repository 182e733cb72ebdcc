"""Telling the trials of dead workers from those of slow ones.

A worker renews a lease on its trial while it evaluates it. A trial whose lease is too old is stale: its worker is dead.
Databases keep the leases as Optuna's heartbeats, by the database's clock. Journal files know no heartbeats; beside a
journal, each lease is a file whose time of change is what counts, by the file server's clock. No worker's clock matters.
"""

from __future__ import annotations

import threading
import uuid
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from syno.search.storage.journal import usable

WATCHED = "watched"  # the attribute of a trial that somebody else has seen running


class Leases(ABC):
    """Leases on the trials of one study.

    Attributes:
        interval: seconds between two renewals.
    """

    def __init__(self, interval: float) -> None:
        self.interval = interval

    @abstractmethod
    def renew(self, trial_id: int) -> None:
        """The trial is being evaluated now."""

    @abstractmethod
    def end_stale(self, study: optuna.Study, running: Sequence[FrozenTrial]) -> bool:
        """Give the state FAIL to those of the running trials whose lease is too old. Returns whether there were any.

        A trial without a lease, as its worker died before the first, gets one now, so that it becomes stale in time.
        """

    def forget(self, trial_id: int) -> None:  # noqa: B027  (there may be nothing to clear away)
        """The trial has ended."""

    def kept(self, trial_id: int) -> Renewal:
        """A context in which the lease on the trial is renewed in a thread."""
        return Renewal(self, trial_id)


class NoLeases(Leases):
    """For storages in memory, whose workers die together with them."""

    def __init__(self) -> None:
        super().__init__(interval=60)

    def renew(self, trial_id: int) -> None:
        """Nothing."""

    def end_stale(self, study: optuna.Study, running: Sequence[FrozenTrial]) -> bool:
        """There are none."""
        return False


class Heartbeats(Leases):
    """Optuna's heartbeats, of a database.

    Its RetryHeartbeatStaleTrialCallback is not used: it adds the new trial after the old one was ended, and a worker killed
    between the two would lose an operator. What is to be retried follows here from what is stored.
    """

    def __init__(self, storage: BaseStorage, interval: float, ended: list[FrozenTrial]) -> None:
        """`ended` is where the storage puts trials that it ends, as its `heartbeat_stale_trial_callback`."""
        super().__init__(interval)
        self._storage = storage
        self._ended = ended

    def renew(self, trial_id: int) -> None:
        """Record a heartbeat."""
        try:
            self._storage.record_heartbeat(trial_id)  # type: ignore[attr-defined]  # a storage with heartbeats has it
        except Exception:
            self._storage.remove_session()  # the next one gets a connection of its own
            raise

    def end_stale(self, study: optuna.Study, running: Sequence[FrozenTrial]) -> bool:
        """Let Optuna end them.

        It takes trials without a first heartbeat for alive. So each gets one from whoever sees it first; once, lest the trial
        of a dead worker be kept alive by everybody who comes to look.
        """
        self._ended.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            optuna.storages.fail_stale_trials(study)
        for trial in running:
            if WATCHED in trial.user_attrs:
                continue
            with suppress(optuna.exceptions.UpdateFinishedTrialError):
                self._storage.set_trial_user_attr(trial._trial_id, WATCHED, True)
                self.renew(trial._trial_id)
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
        """Touch the trial's file. Raises StorageError where that is not possible, such as on a full disk."""
        with usable(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / str(trial_id)).touch()

    def end_stale(self, study: optuna.Study, running: Sequence[FrozenTrial]) -> bool:
        """End the trials whose file was not touched in time."""
        now, some = self._now() if running else 0.0, False
        for trial in running:
            try:
                age = now - (self._folder / str(trial._trial_id)).stat().st_mtime
            except FileNotFoundError:
                self.renew(trial._trial_id)
                continue
            if age > self.grace:
                some |= end(self._storage, trial._trial_id)
                self.forget(trial._trial_id)
        return some

    def forget(self, trial_id: int) -> None:
        """Remove the trial's file. One that stays, as the disk is read-only, does no harm: its trial has ended."""
        with suppress(OSError):
            (self._folder / str(trial_id)).unlink(missing_ok=True)

    def _now(self) -> float:
        """The file server's time."""
        with usable(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            clock = self._folder / f"now-{uuid.uuid4().hex}"
            clock.touch()
            try:
                return clock.stat().st_mtime
            finally:
                clock.unlink(missing_ok=True)


class Renewal:
    """Renews a lease in a thread until the context is left."""

    def __init__(self, leases: Leases, trial_id: int) -> None:
        self._leases = leases
        self._trial_id = trial_id
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease on trial {trial_id}", daemon=True)

    def _renew(self) -> None:
        while not self._over.wait(self._leases.interval):
            self._renew_once()

    def _renew_once(self) -> None:
        try:
            self._leases.renew(self._trial_id)
        except Exception as error:  # the storage may be back before the lease runs out
            warnings.warn(f"the lease on trial {self._trial_id} was not renewed: {error}", stacklevel=2)

    def __enter__(self) -> Renewal:
        self._renew_once()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self._leases.forget(self._trial_id)


def end(storage: BaseStorage, trial_id: int, state: TrialState = TrialState.FAIL, reward: float | None = None) -> bool:
    """Give a trial its last state. False if it has one already: the first to end it wins."""
    try:
        return storage.set_trial_state_values(trial_id, state, None if reward is None else [reward])
    except optuna.exceptions.UpdateFinishedTrialError:
        return False
