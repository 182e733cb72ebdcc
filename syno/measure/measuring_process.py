"""The client of the process that measures speedups: it starts it, sends requests, watches its limits, and restarts it.

Starting the process and importing PyTorch are paid once for many operators. A process that dies is the fault of the machine
first, such as of memory that was short for a moment: the request is sent to a new one. Only if that dies again and again, while
the original network is measured, the operator is the cause.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from syno.base.core_locks import Wait
from syno.base.errors import DeviceError
from syno.measure.devices import SshSettings
from syno.measure.isolation import (
    LOOK_SECONDS,
    MOST_DEATHS,
    PAUSE_SECONDS,
    TAIL_CHARACTERS,
    crash_in_words,
    deaths_in_words,
    kill,
    used_mib,
)
from syno.measure.job import Phase
from syno.measure.measuring import Findings, SpeedupRequest
from syno.measure.ssh.connection import ConnectionLostError, Session
from syno.measure.ssh.protocol import Code, difference, parsed, send
from syno.measure.tuning import as_ordered, environment, place_of_caches

COMMAND = (sys.executable, "-m", "syno.measure.speedup_process")
SPEEDUPS = "speedups"  # the argument of the command on a machine that is reached by ssh
START_SECONDS = 300.0  # of a new process, which do not count as time of the first operator


class FaultError(DeviceError):
    """A failure of the device, or of the original network, which the process reports: no operator is the cause."""


class ProcessDiedError(DeviceError):
    """The end of the process before it answered.

    Args:
        phase: in which it was.
        reason: how it ended, in words.
    """

    def __init__(self, phase: Phase, reason: str) -> None:
        super().__init__(f"{phase}: {reason}")
        self.phase, self.reason = phase, reason


class LocalProcess:
    """The process on this machine, in a session of its own, with empty caches of compilers."""

    def __init__(self, threads: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="syno-speedups-", dir=place_of_caches(), ignore_cleanup_errors=True)
        working = Path(self._folder.name)
        self._log, self._family = working / "log", set[Any]()
        with self._log.open("wb") as errors:
            self.process = subprocess.Popen(
                (*COMMAND, self._folder.name),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                env={**os.environ, **environment(working, threads)},
                start_new_session=True,  # an interrupt from the keyboard is for this process, which then ends that one
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process, and everything that it started."""
        kill(self.process, self._family)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self._folder.cleanup()

    def send(self, text: str) -> None:
        """Send a line. One that does not arrive is noticed by reading."""
        assert self.process.stdin is not None
        send(self.process.stdin, text)

    def messages(self) -> Iterator[tuple[str, Any]]:
        """Yield the messages, and ("", None) several times a second while there is none, until the process has ended."""
        assert self.process.stdout is not None
        output, rest = self.process.stdout.fileno(), b""
        while True:
            if not select.select([output], [], [], LOOK_SECONDS)[0]:
                yield "", None
                continue
            read = os.read(output, 2**16)
            if not read:
                return
            *lines, rest = (rest + read).split(b"\n")
            for text in lines:
                if (message := parsed(text.decode(errors="replace"))) is not None:
                    yield message

    @property
    def used_mib(self) -> float:
        """MiB that the process and its descendants hold."""
        return used_mib(self.process, self._family)

    @property
    def death(self) -> str:
        """The reason why the process has ended, with its last words."""
        code = self.process.wait()
        words = self._log.read_text(encoding="utf-8", errors="replace")[-TAIL_CHARACTERS:].strip().splitlines()[-1:]
        said = f"; its last words: {words[0][:300]}" if words else ""
        return f"{crash_in_words(code) if code else 'the process ended'}{said}"


class MeasuringProcess:
    """Sends requests to a process that is started for the first of them.

    Args:
        threads: CPU threads.
        name, there: the name and the settings of a machine that is reached by ssh; None for this machine.

    Attributes:
        progress: gets the phase of a measurement, several times a second.
    """

    def __init__(self, threads: int, name: str = "", there: SshSettings | None = None) -> None:
        self._threads, self._name, self._there = threads, name, there
        self._connection: LocalProcess | Session | None = None
        self._is_used = False
        self.progress: Callable[[Findings], None] = lambda _: None

    def close(self) -> None:
        """End the process. The next request starts another one."""
        if self._connection is not None:
            self._connection.__exit__(None, None, None)
        self._connection, self._is_used = None, False

    def fields(self, request: SpeedupRequest) -> dict[str, Any]:
        """Return the fields of the record of a request.

        A process that dies, or whose memory does not suffice without a limit, is tried again as a new one, and so is one that
        passes its limit of memory after it has measured others: what these left behind may be the reason.

        Raises DeviceError if a remote device does not answer, or was lost, or processes die for which the operator is not the
        cause.
        """
        if self._there is not None:
            request = as_ordered(request, self._there)
        lost_since, deaths = None, list[ProcessDiedError]()
        while True:
            was_used = self._is_used
            try:
                found = self._answer(request)
            except ConnectionLostError:
                now = time.monotonic()
                lost_since = lost_since or now
                self.close()
                if not was_used or self._there is None or now - lost_since > self._there.wait_seconds:
                    raise
                time.sleep(PAUSE_SECONDS)
                self._is_used = True  # it has answered before: it is worth waiting for
                continue
            except ProcessDiedError as death:
                self.close()
                deaths.append(death)
                if len(deaths) >= MOST_DEATHS:
                    return self._after_deaths(request, deaths)
                time.sleep(PAUSE_SECONDS)
                continue
            except BaseException:  # what it would answer is of no use
                self.close()
                raise
            if not (was_used and found["status"] == "out_of_memory"):
                return found

    def _after_deaths(self, request: SpeedupRequest, deaths: list[ProcessDiedError]) -> dict[str, Any]:
        """Return the fields for an operator with which the process died again and again, while the original is measured.

        Raises DeviceError if the original is not measured either, or the processes died before they saw the operator.
        """
        said = f"{deaths[-1]}{deaths_in_words(len(deaths))}"
        if all(one.phase == "starting" for one in deaths):
            raise DeviceError(
                f"the process that measures cannot start ({said}): see whether memory and the disk of temporary files are free"
            )
        short = request.settings.model_copy(update={"warm_up_ms": 0.0, "least_ms": 0.0})
        original = request.subject.model_copy(update={"operator": None})
        try:
            found = self._answer(request.model_copy(update={"subject": original, "settings": short}))
            failed = "" if found["status"] in ("ok", "partial") else f"{found['status']}: {found['reason']}"
        except ProcessDiedError as death:
            failed = str(death)
        finally:
            self.close()
        if failed:
            raise DeviceError(
                f"the process that measures died ({said}), and with the original network alone it does not work either "
                f"({failed}): the machine is to blame, perhaps for want of memory"
            )
        return {"status": "crashed", "reason": f"{said}, while the original network was measured"}

    def _answer(self, request: SpeedupRequest) -> dict[str, Any]:
        """Send the request, and return what is answered; end a process that passes a limit.

        Raises ProcessDiedError if the process ends, or cannot do its work for want of memory.
        """
        if self._connection is None:
            there = self._there
            self._connection = LocalProcess(self._threads) if there is None else Session(self._name, there, SPEEDUPS)
        connection, left, before = self._connection, START_SECONDS, time.monotonic()
        phase: Phase = "starting"
        wait = Wait()
        connection.send(request.model_dump_json())
        try:
            for kind, content in connection.messages():
                now = time.monotonic()
                left, before = left - (0.0 if phase == "waiting" else now - before), now
                if kind == "phase":
                    left, phase = request.time_limit_s if phase == "starting" else left, content
                elif kind == "fields":
                    if content["status"] == "out_of_memory" and request.memory_limit_mib is None:
                        raise ProcessDiedError(phase, content["reason"])  # the machine had no more
                    self._is_used = True
                    return dict(content)
                elif kind == "fault":
                    raise FaultError(content)
                elif kind == "hello" and (different := difference(here=Code.of_this(), there=Code.model_validate(content))):
                    raise DeviceError(f'device "{self._name}": {different}')
                wait.look(phase == "waiting" and self._there is None)
                self.progress(Findings(phase=phase))
                if left < 0 and phase == "starting":
                    raise ProcessDiedError(phase, f"it did not start within {START_SECONDS:g} s")
                if (ending := self._passed_limit(request, left)) is not None:
                    self.close()
                    return {"status": ending[0], "reason": f"{phase}: {ending[1]}"}
            death = connection.death if isinstance(connection, LocalProcess) else "the process ended"
        except (ConnectionLostError, FaultError, ProcessDiedError):
            raise
        except DeviceError as error:
            if isinstance(connection, LocalProcess) or not connection.heard or phase == "starting":
                raise
            death = str(error)
        raise ProcessDiedError(phase, death)

    def _passed_limit(self, request: SpeedupRequest, left: float) -> tuple[str, str] | None:
        """Return the status and the reason if the process has passed a limit. The memory of another machine is not known."""
        if left < 0:
            return "timeout", f"it was stopped at its time limit of {request.time_limit_s:g} s"
        limit = request.memory_limit_mib
        if limit is not None and isinstance(self._connection, LocalProcess) and (used := self._connection.used_mib) > limit:
            return "out_of_memory", f"it held {used:.0f} MiB, more than its limit of {limit:g} MiB"
        return None
