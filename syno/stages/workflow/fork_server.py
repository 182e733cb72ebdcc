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
# With these, no library starts a thread when it is imported.
ONE_THREAD = {**dict.fromkeys(THREADS, "1"), "JE_ARROW_MALLOC_CONF": "background_thread:false"}


def start_fork_server(workflow: Any) -> None:
    """Start the server for the jobs of a workflow, which find it by an environment variable. It ends with this process.

    Does nothing where jobs run on other machines or in environments of their own, with `SYNO_FORK_SERVER=off`, and on systems
    other than Linux. If the variable already names a running server, jobs use that server.

    Snakemake's times and memory of a job (`benchmark/`) are those of the command that waits for the server's child: Snakemake
    asks for descendants, and Linux lets no process adopt another's child.

    Args:
        workflow: Snakemake's workflow.
    """
    runs_jobs = workflow.is_main_process and workflow.local_exec and not workflow.touch
    is_of_use = runs_jobs and not workflow.deployment_settings.deployment_method
    if not is_of_use or os.environ.get(VARIABLE) == OFF or not hasattr(os, "pidfd_open"):
        return
    if Path(os.environ.get(VARIABLE, "")).is_socket():
        return
    folder = Path(tempfile.mkdtemp(prefix="syno-fork-"))  # for this user only
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = str(folder / "server")
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(address)
        except OSError:  # the path is too long for a socket
            return
        Path(address).chmod(0o600)
        listener.listen(socket.SOMAXCONN)
        server = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,  # Python finds modules in it first
            env={**os.environ, **ONE_THREAD},
            start_new_session=True,  # Ctrl-C is for the clients
            pass_fds=[listener.fileno()],
        )
    assert server.stdin is not None
    atexit.register(server.stdin.close)  # the server ends when this pipe does, however this process ends
    os.environ[VARIABLE] = address
