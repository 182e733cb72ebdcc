"""Processes that are copies of one which has imported what they need: importing takes seconds, and tests start many."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from tempfile import NamedTemporaryFile

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["syno.notebook.speed_up"])


class Forked:
    """A call of a function in a process of its own, with the methods of `subprocess.Popen` that tests take.

    Args:
        function: of a module.
        arguments: of the function.
    """

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self._errors = NamedTemporaryFile("r", encoding="utf-8")  # noqa: SIM115 it is there as long as this is
        given = (self._errors.name, function, arguments)
        self._process: BaseProcess = FORKS.Process(target=_call, args=given, daemon=True)
        self._process.start()

    @property
    def returncode(self) -> int | None:
        """The exit status, or minus the number of the signal that ended it; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit status as it is now."""
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def communicate(self, timeout: float | None = None) -> tuple[None, str]:
        """Wait for its end, and return None and its errors. Raises TimeoutExpired if that takes longer."""
        self._process.join(timeout)
        if self._process.is_alive():
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return None, self._errors.read()


def _call(errors: str, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    os.dup2(os.open(errors, os.O_WRONLY | os.O_APPEND), 2)
    function(*arguments)
