"""An OpenSSH server of one's own on the loopback address, with keys and a client's configuration in a folder."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from command_lines import HANGS_AFTER

from syno.measure.devices import SshSettings

ROOT, TESTS = Path(__file__).parents[2], Path(__file__).parent
RUN = Path("/run/sshd")  # the server wants it if it runs as root
HOST = "board"  # its name in the client's configuration


def missing() -> str:
    """Return why no server can be started here; an empty text if one can."""
    if shutil.which("ssh") is None or program() is None:
        return "OpenSSH is not installed: apt-get install openssh-server openssh-client"
    return ""


def program() -> str | None:
    """The server, which refuses to be run by a relative path."""
    return shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin")


@dataclass
class SshServer:
    """A server, and the machine that it stands for: a Python with a cache of its own.

    Attributes:
        folder: keys, configurations, `python` and `cache`.
        port: of the server.
        process: the server; None while it is stopped.
    """

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None)

    def settings(self, **changes: Any) -> SshSettings:
        """The settings of a device."""
        given = {"host": HOST, "python": str(self.folder / "python"), "ssh_config": self.folder / "config"}
        return SshSettings(**{"kind": "ssh", **given, **changes})

    def start(self) -> None:
        """Start the server, and wait until it listens."""
        with (self.folder / "sshd.log").open("ab") as log:
            command = [str(program()), "-D", "-e", "-f", str(self.folder / "sshd_config")]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + HANGS_AFTER
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            assert self.process.poll() is None and time.monotonic() < end, (self.folder / "sshd.log").read_text()
            time.sleep(0.05)

    def cut(self) -> int:
        """Kill the processes of the connections, as when the network fails; return how many there were."""
        assert self.process is not None
        found = [one for one in psutil.Process(self.process.pid).children(recursive=True) if "sshd" in one.name()]
        for one in found:
            with suppress(psutil.Error):
                one.kill()
        return len(found)

    def stop(self) -> None:
        """Stop the server and its connections."""
        if self.process is not None:
            self.cut()
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@contextmanager
def ssh_server(folder: Path) -> Iterator[SshServer]:
    """A running server in an empty folder; it ends with the context."""
    assert not missing(), missing()
    if os.geteuid() == 0:
        RUN.mkdir(exist_ok=True)
    for name in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    server = SshServer(folder, _free_port())
    public = (folder / "host_key.pub").read_text(encoding="ascii").split()
    _write(folder / "known_hosts", f"[127.0.0.1]:{server.port} {public[0]} {public[1]}\n")
    shutil.copy(folder / "key.pub", folder / "authorized_keys")
    _write(
        folder / "sshd_config",
        f"ListenAddress 127.0.0.1\nPort {server.port}\nHostKey {folder}/host_key\nAuthorizedKeysFile {folder}/authorized_keys\n"
        "StrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nPermitRootLogin yes\n"
        f"PidFile none\nMaxStartups 100\n",
    )
    _write(folder / "config", client_config(server))
    # Another machine's Python: it finds Syno, and modules of tests, but does not share this one's cache.
    paths = f"PYTHONPATH={ROOT}:{TESTS}"
    _write(folder / "python", f'#!/bin/sh\nexport {paths} XDG_CACHE_HOME={folder}/cache\nexec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def client_config(server: SshServer, **changes: object) -> str:
    """The text of a client's configuration; changes are its options."""
    options = {
        "HostName": "127.0.0.1",
        "Port": server.port,
        "User": pwd.getpwuid(os.geteuid()).pw_name,
        "IdentityFile": server.folder / "key",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "UserKnownHostsFile": server.folder / "known_hosts",
        "GlobalKnownHostsFile": "none",
        **changes,
    }
    return f"Host {HOST}\n" + "".join(f"  {name} {value}\n" for name, value in options.items())


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
