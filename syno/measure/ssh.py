"""Measurement on another machine by ssh: the OpenSSH client runs `syno.measure.answering` there.

Keys, addresses and known hosts are those of the user's ssh. ssh never prompts (BatchMode), and host keys are always checked.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ValidationError

from syno.base.errors import DeviceError, one_line
from syno.base.release import DISTRIBUTION, VERSION
from syno.measure.compilers import compiler_named
from syno.measure.devices import SshSettings
from syno.measure.native.store import StoreWarning
from syno.measure.protocol import (
    LOOK_SECONDS,
    SIGN_OF_LIFE_SECONDS,
    SILENCE_SECONDS,
    About,
    Code,
    Connection,
    Findings,
    Request,
    Tell,
)
from syno.measure.tuning_record import TuningRecord
from syno.measure.tvm.targets import TvmSettings

MODULE = "syno.measure.answering"  # the program on the other machine
CONNECT_SECONDS = 15  # timeout of ssh's connection
ABOUT_SECONDS = 60.0  # timeout of the description of a connected machine: importing PyTorch there may take long
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0  # between two attempts to reconnect
MOST_LOSSES = 5  # lost connections in one measurement, each of which starts it anew
SAID_CHARACTERS = 300
SSH_FAILED, NOT_FOUND, NOT_EXECUTABLE = 255, 127, 126  # exit codes of ssh, and of a shell there

Model = TypeVar("Model", bound=BaseModel)


class ConnectionLostError(DeviceError):
    """An error of a connection that was lost, and may come back."""


# Patterns of ssh's messages, their meanings, and whether the error may be temporary.
MEANINGS: tuple[tuple[str, str, bool], ...] = (
    (r"Could not resolve hostname", "there is no such host: look at the name, or describe it in ~/.ssh/config", True),
    (
        r"IDENTIFICATION HAS CHANGED",
        "its host key is not the one that is known: find out why; if it was installed anew, `ssh-keygen -R {host}`",
        False,
    ),
    (
        r"Host key verification failed",
        "its host key is not known here: run `ssh {host}` once, and compare the fingerprint",
        False,
    ),
    (r"Permission denied", "it refuses the login: a key without a password prompt is needed (`ssh-copy-id {host}`)", False),
    (r"Connection refused", "nothing listens at its ssh port: start sshd there, or look at the address", True),
    (r"timed out|No route to host|unreachable", "it does not answer: look at the address and the network", True),
    (
        r"Bad configuration option|Can't open user config|Bad owner or permissions|terminating, ",
        "ssh has a wrong setting",
        False,
    ),
)


class Session(Connection):
    """A connection by one ssh process.

    Args:
        name: the name of the device, for messages.
        device: the settings of the device.
        arguments: the arguments of `syno.measure.answering`.
        connect_seconds: the timeout of the connection.
    """

    def __init__(self, name: str, device: SshSettings, *arguments: str, connect_seconds: int = CONNECT_SECONDS) -> None:
        self._name, self._device = name, device
        self._errors = Path(tempfile.mkstemp(prefix="syno-ssh-")[1])
        try:
            with self._errors.open("wb") as errors:
                process = subprocess.Popen(
                    command(device, *arguments, connect_seconds=connect_seconds),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    bufsize=0,
                )
        except FileNotFoundError:
            self._errors.unlink()
            raise DeviceError(
                f'device "{name}": the command ssh is not installed here (apt-get install openssh-client)'
            ) from None
        super().__init__(process)

    def close(self) -> None:
        """End ssh, and with it the measuring process on the other machine."""
        self.process.kill()
        self.process.wait()
        self._input.close()
        self._output.close()
        self._errors.unlink(missing_ok=True)

    def messages(self) -> Iterator[tuple[str, Any]]:
        """Yield messages as `syno.measure.protocol.Connection.messages`, and send heartbeats.

        Raises:
            ConnectionLostError: ssh failed for a temporary reason, or no message has come for `SILENCE_SECONDS`.
            DeviceError: ssh failed for another reason, the other side reports a fault, or it runs another version of Syno.
        """
        began = said = time.monotonic()
        for kind, content in super().messages():
            now = time.monotonic()
            if kind == "hello" and (different := Code.of_this().difference(self.read(Code, content))):
                raise DeviceError(f"{self.where}: {different}")
            if kind == "fault":
                raise DeviceError(f"{self.where}: {content}")
            if kind == "warning":
                warnings.warn(f"{self.where}: {content}", StoreWarning, stacklevel=2)
            if now - max(began, self.heard) > SILENCE_SECONDS:
                raise ConnectionLostError(f"{self.where}: nothing was heard for {SILENCE_SECONDS:.0f} s")
            if now - said > SIGN_OF_LIFE_SECONDS:
                self.send("")
                said = now
            yield kind, content
        if code := self.process.wait():
            raise self._failure(code)

    def read(self, model: type[Model], content: object) -> Model:
        """Return the content of a message as a model. Raises DeviceError if it does not have the model's fields."""
        try:
            return model.model_validate(content)
        except ValidationError as error:
            raise DeviceError(
                f"{self.where}: it says what this version of Syno does not understand: {one_line(error)}"
            ) from None

    @property
    def where(self) -> str:
        """The name of the device and its host, for messages."""
        return f'device "{self._name}" (ssh {self._device.host})'

    def _failure(self, code: int) -> DeviceError:
        """Return the error to raise for an exit code of ssh."""
        errors = self._errors.read_text(encoding="utf-8", errors="replace")
        said = errors.strip().splitlines()
        last = said[-1].strip()[:SAID_CHARACTERS] if said else "nothing"
        if code in (SSH_FAILED, -9, -15):
            for pattern, meaning, passes in MEANINGS:
                if re.search(pattern, errors):
                    kind = ConnectionLostError if passes else DeviceError
                    return kind(f"{self.where}: {meaning.format(host=self._device.host)} (ssh said: {last})")
            return ConnectionLostError(f"{self.where}: the connection ended (ssh said: {last})")
        return DeviceError(f"{self.where}: {self._of_python(code, errors)} (it said: {last})")

    def _of_python(self, code: int, errors: str) -> str:
        """Return the meaning of the exit code of the Python command on the other machine; `errors` is its stderr."""
        python = self._device.python
        if code in (NOT_FOUND, NOT_EXECUTABLE):
            what = "there is no program" if code == NOT_FOUND else "it cannot execute"
            return f'{what} "{python}" there: give the setting python'
        missing = re.search(r"No module named '?([\w.]+)", errors)
        if missing is None:
            return f"{python} ended there with exit code {code}"
        package = missing[1].partition(".")[0]
        if missing[1] == f"{MODULE}" or (package == "syno" and missing[1] != "syno"):
            return f"Syno there is of another version: install the same one in {python}"
        what = "Syno" if package == "syno" else f"the package {package}, which Syno needs,"
        return f"{what} is not installed there: {python} -m pip install {DISTRIBUTION}=={VERSION}"


def command(device: SshSettings, *arguments: str, connect_seconds: int = CONNECT_SECONDS) -> list[str]:
    """Return the ssh command that runs `syno.measure.answering` on the host; each word is quoted for the remote shell."""
    options = ["-T", "-o", "BatchMode=yes"]
    if device.ssh_config is not None:
        options += ["-F", str(device.ssh_config.expanduser())]
    defaults = {"ConnectTimeout": connect_seconds, "ServerAliveInterval": int(SIGN_OF_LIFE_SECONDS), "ServerAliveCountMax": 6}
    options += [word for name, value in defaults.items() for word in ("-o", f"{name}={value}")]
    home, python = ("~/", device.python[2:]) if device.python.startswith("~/") else ("", device.python)
    words = [home + shlex.quote(python), *map(shlex.quote, ("-m", MODULE, *arguments))]
    return ["ssh", *options, "--", device.host, " ".join(words)]


def as_ordered(request: Request, there: SshSettings) -> Request:
    """Return the request for the other machine: with that machine's device and target, and a hash as folder of trials."""
    trials = hashlib.blake2b(str(request.folder).encode(), digest_size=8).hexdigest() if request.folder != Path() else "."
    changes: dict[str, Any] = {"device": there.device, "folder": Path(trials)}
    if compiler_named(request.compiler).settings is TvmSettings:
        changes["options"] = {**request.options, "target": there.target}
    return request.model_copy(update=changes)


class RemoteProcess:
    """Client of a measuring process on another machine; it connects at the first request, and ends with the `with` block.

    If the connection is lost, it reconnects and starts the measurement anew. TVM's trials are kept on the other machine, so
    that tuning is resumed.

    Args:
        name: the name of the device, for messages.
        device: the settings of the device.
    """

    def __init__(self, name: str, device: SshSettings) -> None:
        self._name, self._device = name, device
        self._session: Session | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection. The next request makes another one."""
        if self._session is not None:
            self._session.close()
        self._session = None

    def findings(self, request: Request, progress: Tell = lambda _: None) -> Findings:
        """Return the final findings, which have a status. For a latency, they have all fields of its record.

        Args:
            request: the request.
            progress: callback with the findings so far, several times a second.

        Raises:
            DeviceError: the machine cannot be reached or cannot measure, or the connection was lost for longer than
                `wait_seconds` or more than `MOST_LOSSES` times.
        """
        text = as_ordered(request, self._device).model_dump_json()
        heard, pause, losses = 0.0, FIRST_PAUSE_SECONDS, 0  # `heard`: time of the last message; 0: none yet
        while True:
            began = time.monotonic()
            self._session = session = self._session or Session(self._name, self._device, "there")
            try:
                return self._answer(session, text, progress)
            except ConnectionLostError as error:
                lost = error
                self.close()
            except BaseException:  # what it would answer is of no use
                self.close()
                raise
            if session.heard:
                heard, pause, losses = max(session.heard, began), FIRST_PAUSE_SECONDS, losses + 1
            if not heard:
                raise lost  # it has never been reached, so that waiting makes no sense
            if losses >= MOST_LOSSES:
                raise DeviceError(f"{lost}; it was lost {losses} times, and with it what was measured: look at the network")
            if time.monotonic() - heard > self._device.wait_seconds:
                waited = f"{self._device.wait_seconds:g} s (wait_seconds)"
                raise DeviceError(f"{lost}; it did not come back within {waited}")
            warnings.warn(f"{one_line(lost)}; trying again, and the measurement begins anew", stacklevel=2)
            end = time.monotonic() + pause
            while time.monotonic() < end:
                progress(Findings(phase="connecting"))
                time.sleep(min(LOOK_SECONDS, pause))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _answer(self, session: Session, request: str, progress: Tell) -> Findings:
        """Send the request, and return the final findings."""
        session.send(request)
        found = Findings(phase="connecting")
        for kind, content in session.messages():
            if kind == "findings":
                found = session.read(Findings, content)
                if found.status is not None:
                    return found
            progress(found)
        raise ConnectionLostError(f"{session.where}: the connection ended")


def measured_there(name: str, device: SshSettings, request: Request, progress: Tell = lambda _: None) -> TuningRecord:
    """Return the record of a latency measured on another machine; see `RemoteProcess`."""
    with RemoteProcess(name, device) as process:
        found = process.findings(request, progress)
    try:
        return TuningRecord.model_validate_json(json.dumps(found.fields))  # as JSON: dates are text, tuples are lists
    except ValidationError as error:
        raise DeviceError(f'device "{name}" (ssh {device.host}): its record cannot be read: {one_line(error)}') from None


def about(name: str, device: SshSettings, connect_seconds: int = CONNECT_SECONDS) -> About:
    """Return a machine's description of itself. Raises DeviceError if it cannot be reached, or cannot measure on the device."""
    end = time.monotonic() + connect_seconds + ABOUT_SECONDS
    with Session(name, device, "about", device.device, connect_seconds=connect_seconds) as session:
        for kind, content in session.messages():
            if kind == "about":
                return session.read(About, content)
            if time.monotonic() > end:
                raise DeviceError(f"{session.where}: it did not say what it is within {connect_seconds + ABOUT_SECONDS:.0f} s")
        raise DeviceError(f"{session.where}: it said nothing; is {device.python} a Python?")


@dataclass(frozen=True)
class SshStatus:
    """The state of a remote device: its machine's description, or a sentence about the fault."""

    name: str
    device: SshSettings
    about: About | None = None
    fault: str = ""

    def cells(self) -> dict[str, object]:
        """Return the state as a row of a table: values by the names of the columns."""
        found = self.about
        there = {} if found is None else {"is": found.device, "python": found.python, "torch": found.torch, "tvm": found.tvm}
        empty = dict.fromkeys(("is", "python", "torch", "tvm", "c++", "free disk"), "")
        rest = {} if found is None else {"c++": found.cpp, "free disk": f"{found.free_mib / 1024:.1f} GiB"}
        return {"device": self.name, "ssh": self.device.host, **empty, **there, **rest}


def status_by_ssh(name: str, device: SshSettings, connect_seconds: int = CONNECT_SECONDS) -> SshStatus:
    """Connect to a device's machine, and return its state; this takes seconds."""
    try:
        return SshStatus(name, device, about(name, device, connect_seconds))
    except DeviceError as error:
        return SshStatus(name, device, fault=str(error))
