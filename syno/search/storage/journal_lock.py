"""The lock of a journal: a symbolic link beside it, as Optuna makes it, so that Optuna's own journals respect it."""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from pathlib import Path

from optuna.storages.journal._file import LOCK_FILE_SUFFIX, BaseJournalFileLock

LONGEST_PAUSE = 0.25  # seconds between two attempts
Identity = tuple[int, int]


class JournalLock(BaseJournalFileLock):
    """A lock that is taken from its holder after a grace, and whose holder can see that.

    Optuna's JournalFileSymlinkLock looks at the journal through the link, which leads nowhere where the journal was given by a
    relative path: it then waits for a dead holder for ever. And whoever held it once too long releases that of another.

    Attributes:
        grace: seconds after which the lock is taken from a holder that has died, or was stopped, while writing.
    """

    def __init__(self, journal: Path, grace: float) -> None:
        self.grace = grace
        self._journal = journal.absolute()
        self._link = Path(f"{self._journal}{LOCK_FILE_SUFFIX}")
        self._own: Identity | None = None

    def acquire(self) -> bool:
        """Wait for the lock and take it. Always true. Raises OSError where a link cannot be made or removed."""
        pause, seen, since = 0.001, None, time.monotonic()
        while True:
            try:
                self._link.symlink_to(self._journal)
            except FileExistsError:
                holder, now = _identity(self._link), time.monotonic()
                if holder != seen:
                    seen, since = holder, now
                elif holder is not None and now - since > self.grace:
                    self._remove(holder)
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                self._own = _identity(self._link)
                return True

    def is_held(self) -> bool:
        """Whether this object holds the lock: it has taken it, and nobody took it away."""
        return self._own is not None and _identity(self._link) == self._own

    def release(self) -> None:
        """Give the lock back. Nothing happens if it was taken away."""
        own, self._own = self._own, None
        if own is not None:
            with suppress(OSError):  # it stays until its grace is over
                self._remove(own)

    def _remove(self, holder: Identity) -> None:
        """Remove the link of this holder and no other. Raises OSError where that is not allowed."""
        aside = self._link.with_name(f"{self._link.name}{uuid.uuid4()}.rename")
        with suppress(FileNotFoundError, FileExistsError):  # another one was faster
            if _identity(self._link) != holder:
                return
            self._link.rename(aside)
            if _identity(aside) != holder:  # it changed hands between the last two steps
                os.link(aside, self._link, follow_symlinks=False)
            aside.unlink()


def _identity(link: Path) -> Identity | None:
    """What tells one link from all others of that name; None if there is none. A renamed link keeps it."""
    try:
        found = link.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
