"""The client of the fork server: a command runs in a child of a process that has imported everything already.

`syno` calls `run_forked` before it imports anything large. Without a server, or if the server cannot do what this process would
do, the command runs in this process as always. `syno.base.fork_server` has the other side.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from socket import socket

VARIABLE, OFF = "SYNO_FORK_SERVER", "off"  # the server's socket
CODE = Path(__file__).parents[1]  # the package syno
FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
PATIENCE_SECONDS = 120.0  # for the answer of a server that still imports
STREAMS = (0, 1, 2)
LENGTH_BYTES = 8  # length prefix of a request
# Variables that Python or libraries read when they are loaded; a command reads the others when it begins: numbers of threads
# and visible GPUs can still be set then.
READ_ONCE = (
    "ATEN_", "CUDA_", "DNNL_", "GLIBC_", "GOMP_", "KMP_", "LANG", "LC_", "LD_", "MALLOC_", "MKL_", "MPL", "OMP_", "ONEDNN_",
    "OPENBLAS_", "PYTHON", "PYTORCH", "TORCH",
)  # fmt: skip
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
SET_LATER = (*THREADS, "CUDA_VISIBLE_DEVICES")


def run_forked(arguments: list[str]) -> int | None:
    """Run a command in a child of the fork server, and return its exit code; None if this process has to run the command.

    Signals are forwarded to the child. If a signal ends the child, the same signal ends this process.

    Args:
        arguments: `sys.argv`.
    """
    address = os.environ.get(VARIABLE, OFF)
    if address in ("", OFF):
        return None
    try:
        connection = _connect(address)
        with connection:
            return _follow(connection, arguments)
    except (OSError, ValueError):  # there is no server, or it has ended; or a stream of this process is closed
        return None


def identity() -> dict[str, Any]:
    """Return, as JSON, the process state that must be equal in the server for a child of the server to run the command."""
    import resource

    names = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    return {
        "python": [sys.version, sys.prefix, list(sys.flags), sys.warnoptions, list(map(str, sys._xoptions.items()))],
        "code": str(CODE),
        "user": [os.getuid(), os.getgid(), sorted(os.getgroups())],
        "limits": [list(resource.getrlimit(getattr(resource, name))) for name in names],
        "processor": [sorted(os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, 0)],
        "threads": [os.environ.get(name, "").isdecimal() for name in THREADS],
        "variables": {
            name: value for name, value in sorted(os.environ.items()) if name.startswith(READ_ONCE) and name not in SET_LATER
        },
    }


def _connect(address: str) -> socket:
    import socket

    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE_SECONDS)
    try:
        connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


def _follow(connection: socket, arguments: list[str]) -> int | None:
    """Send the request to the server, and wait for the child to end; None if the server does not run it."""
    import signal

    answers = connection.makefile("r", encoding="ascii")
    if not answers.readline():  # blocks until the server accepts this client; meanwhile, signals end this process
        return None
    received: list[int] = []
    child = 0  # its process id, once it has started

    def tell(number: int) -> None:
        """Send a signal to the child directly: the server may be busy importing a module for seconds."""
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(child, number)

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if child:
            tell(number)
        else:
            with suppress(OSError):
                connection.send(bytes([number]))  # the server then starts no child, unless it has already

    forwarded = [int(getattr(signal, name)) for name in FORWARDED]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, forwarded)  # until they can be sent behind the request
    try:
        _send_request(connection, arguments)
        before = {number: signal.signal(number, forward) for number in forwarded if not _is_ignored(number)}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    answer = ""
    try:
        if started := answers.readline():
            signal.pthread_sigmask(signal.SIG_BLOCK, forwarded)
            child = int(started.removeprefix("started "))
            for number in received:
                tell(number)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            connection.settimeout(None)
            answer = answers.readline()
    except OSError:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if not answer:  # the server refused the request, or it has ended together with the child
        for number in received:
            os.kill(os.getpid(), number)
        return None
    code = int(answer)
    if code < 0:
        with suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code if code >= 0 else 128 - code


def _send_request(connection: socket, arguments: list[str]) -> None:
    import json
    import signal
    import socket

    for stream in STREAMS:
        os.fstat(stream)  # OSError if it is closed
    umask = os.umask(0o077)
    os.umask(umask)
    request = {
        "identity": identity(),
        "arguments": arguments,
        "folder": str(Path.cwd()),
        "environment": dict(os.environ),
        "path": sys.path,
        "umask": umask,
        "ignored": [name for name in FORWARDED if _is_ignored(getattr(signal, name))],
    }
    content = json.dumps(request).encode()
    socket.send_fds(connection, [len(content).to_bytes(LENGTH_BYTES, "big")], STREAMS)
    connection.sendall(content)


def _is_ignored(number: int) -> bool:
    import signal

    return signal.getsignal(number) is signal.SIG_IGN
