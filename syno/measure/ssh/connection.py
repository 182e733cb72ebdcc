"""One run of the OpenSSH client: what is sent, what comes back, and what went wrong, in words.

Keys, addresses and known hosts are those of the user's ssh. It never asks (BatchMode), and hosts' keys are always checked.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from syno.base.errors import DeviceError
from syno.measure.devices import SshSettings
from syno.measure.ssh.protocol import MODULE, SIGN_OF_LIFE_SECONDS, SILENCE_SECONDS, parsed, send

CONNECT_SECONDS = 15  # in which a machine answers
TICK_SECONDS = 0.5
SAID_CHARACTERS = 300
SSH_FAILED, NOT_FOUND, NOT_EXECUTABLE = 255, 127, 126  # exit codes of ssh, and of a shell there


class ConnectionLostError(DeviceError):
    """A connection that ended, and may come back."""


# What ssh says, and what it means. The last field says whether it may pass by itself.
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


class Session:
    """One run of ssh, in a `with` block.

    Args:
        name: of the device, for messages.
        device: its settings.
        arguments: of `syno.measure.remote_measurement`.

    Attributes:
        heard: the time of `time.monotonic` when the last message came; 0 for none.
    """

    def __init__(self, name: str, device: SshSettings, *arguments: str) -> None:
        self._name, self._device = name, device
        self._errors = Path(tempfile.mkstemp(prefix="syno-ssh-")[1])
        self.heard = 0.0
        try:
            with self._errors.open("wb") as errors:
                self._process = subprocess.Popen(
                    command(device, *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0
                )
        except FileNotFoundError:
            self._errors.unlink()
            raise DeviceError(
                f'device "{name}": the command ssh is not installed here (apt-get install openssh-client)'
            ) from None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        """End ssh, and with it what runs on the other machine."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._errors.unlink(missing_ok=True)

    def send(self, text: str) -> None:
        """Send a line. One that does not arrive is noticed by reading."""
        assert self._process.stdin is not None
        send(self._process.stdin, text)

    def close_input(self) -> None:
        """Say that no more is sent."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def messages(self) -> Iterator[tuple[str, Any]]:
        """Yield the messages, and ("", None) twice a second while there is none, until the other side has ended.

        Raises:
            ConnectionLostError: ssh failed for a reason that may pass, or nothing came for long.
            DeviceError: it failed for another reason.
        """
        assert self._process.stdout is not None
        output, rest, began = self._process.stdout.fileno(), b"", time.monotonic()
        while True:
            if not select.select([output], [], [], TICK_SECONDS)[0]:
                if time.monotonic() - max(began, self.heard) > SILENCE_SECONDS:
                    raise ConnectionLostError(f"{self.where}: nothing was heard for {SILENCE_SECONDS:.0f} s")
                yield "", None
                continue
            read = os.read(output, 2**16)
            if not read:
                break
            *lines, rest = (rest + read).split(b"\n")
            for text in lines:
                message = parsed(text.decode(errors="replace"))
                if message is not None:
                    self.heard = time.monotonic()
                    yield message
        code = self._process.wait()
        if code:
            raise self._failure(code)

    @property
    def where(self) -> str:
        """The device and its host, for messages."""
        return f'device "{self._name}" (ssh {self._device.host})'

    def _failure(self, code: int) -> DeviceError:
        """Return the error for an exit code of ssh."""
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
        """Return the meaning of an exit code of the command there."""
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
        return f"{what} is not installed there: {python} -m pip install syno"


def command(device: SshSettings, *arguments: str) -> list[str]:
    """Return the command that runs `syno.measure.remote_measurement` there. The shell there gets each word quoted."""
    options = ["-T", "-o", "BatchMode=yes"]
    if device.ssh_config is not None:
        options += ["-F", str(device.ssh_config.expanduser())]
    defaults = {"ConnectTimeout": CONNECT_SECONDS, "ServerAliveInterval": int(SIGN_OF_LIFE_SECONDS), "ServerAliveCountMax": 6}
    options += [word for name, value in defaults.items() for word in ("-o", f"{name}={value}")]
    home, python = ("~/", device.python[2:]) if device.python.startswith("~/") else ("", device.python)
    words = [home + shlex.quote(python), *map(shlex.quote, ("-m", MODULE, *arguments))]
    return ["ssh", *options, "--", device.host, " ".join(words)]
