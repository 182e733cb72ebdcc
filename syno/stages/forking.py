"""The fork server of a workflow: `syno.base.fork_server` for the jobs that Snakemake runs on this machine."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from syno.base.fork_client import OFF, THREADS, VARIABLE

MODULE = "syno.cli.forked"


def start_fork_server(workflow: Any) -> None:
    """Start the server for the jobs of a workflow, which find it by a variable. It ends with this process.

    Does nothing where jobs run on other machines or in environments of their own, with `SYNO_FORK_SERVER=off`, and on systems
    other than Linux.

    Args:
        workflow: Snakemake's workflow.
    """
    is_here = workflow.is_main_process and workflow.local_exec and not workflow.deployment_settings.deployment_method
    if not is_here or os.environ.get(VARIABLE) == OFF or not hasattr(os, "pidfd_open"):
        return
    folder = Path(tempfile.mkdtemp(prefix="syno-fork-"))  # for this user only
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = str(folder / "server")
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(address)
        except OSError:  # the path is too long for a socket
            return
        listener.listen(socket.SOMAXCONN)
        server = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **dict.fromkeys(THREADS, "1")},
            start_new_session=True,  # Ctrl-C is for the clients
            pass_fds=[listener.fileno()],
        )
    assert server.stdin is not None
    atexit.register(server.stdin.close)  # the server ends when this pipe does, however this process ends
    os.environ[VARIABLE] = address
