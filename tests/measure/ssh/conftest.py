"""A stand-in for the command ssh, and an SSH server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ssh_server
from ssh_server import SshServer

Says = Callable[..., Path]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    if ssh_server.missing():
        pytest.skip(ssh_server.missing())
    with ssh_server.ssh_server(tmp_path_factory.mktemp("ssh")) as server:
        yield server


@pytest.fixture
def server(running: SshServer) -> SshServer:
    """A server that runs, without measurements."""
    if running.process is None:
        running.start()
    return running


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Says:
    """Put a command `ssh` in the path that runs these shell commands, those of its first call, of its second, and so on.

    It writes its arguments and what it reads into the returned folder.
    """
    folder = tmp_path / "ssh"
    folder.mkdir()

    def make(*calls: str) -> Path:
        cases = "".join(f"{number}) {call} ;;\n" for number, call in enumerate(calls, start=1))
        program = folder / "ssh"
        program.write_text(
            f'#!/bin/sh\necho x >> {folder}/calls\nn=$(wc -l < {folder}/calls)\nprintf "%s\\n" "$@" > {folder}/arguments\n'
            f"case $((n)) in\n{cases}*) exit 9;;\nesac\n",
            encoding="utf-8",
        )
        program.chmod(0o755)
        return folder

    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return make
