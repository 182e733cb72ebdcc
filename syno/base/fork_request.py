"""Requests of the fork server: how one arrives, and how a child of the server becomes the process that it asks for."""

from __future__ import annotations

import ctypes
import io
import json
import os
import signal
import socket
import struct
import sys
import tempfile
from dataclasses import dataclass
from importlib import invalidate_caches
from typing import Any

from syno.base.fork_client import FORWARDED, LENGTH_BYTES, STREAMS

PATIENCE_SECONDS = 5.0  # for the rest of a request that has begun to arrive
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15


@dataclass(frozen=True)
class Request:
    """A command that a client asks for.

    Attributes:
        arguments: `sys.argv`.
        folder: the working directory.
        environment: all variables.
        path: `sys.path`.
        umask: for new files.
        ignored: names of signals that the client ignores.
        streams: descriptors of its input, output and errors.
        client: the process id.
    """

    arguments: list[str]
    folder: str
    environment: dict[str, str]
    path: list[str]
    umask: int
    ignored: list[str]
    streams: tuple[int, ...]
    client: int


def received(connection: socket.socket) -> tuple[Request, Any]:
    """Return the request, and the identity of the client. Raises ValueError if it is none, OSError if it does not come."""
    connection.settimeout(PATIENCE_SECONDS)
    connection.sendall(b"ready\n")  # before that, the client sends nothing: its streams would be open as long as this waits
    client, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    start, streams, _, _ = socket.recv_fds(connection, LENGTH_BYTES, len(STREAMS))
    try:
        if user != os.getuid() or len(streams) != len(STREAMS) or len(start) != LENGTH_BYTES:
            raise ValueError("no request of this user")
        with connection.makefile("rb") as stream:
            fields = json.loads(stream.read(int.from_bytes(start, "big")))
        theirs = fields.pop("identity")
        request = Request(**fields, streams=tuple(streams), client=client)
    except BaseException:
        for one in streams:
            os.close(one)
        raise
    connection.setblocking(False)
    return request, theirs


def become(request: Request, server: int) -> None:
    """Give this process, a child of the server, what a process has that was started for the request."""
    os.setpgid(0, 0)
    process = ctypes.CDLL(None)
    process.prctl(PR_SET_NAME, f"syno {' '.join(request.arguments[1:])}".encode()[:15])
    process.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)  # the server ended before
    for target, source in zip(STREAMS, request.streams, strict=True):
        os.dup2(source, target)
    for name in FORWARDED:
        default = signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
        signal.signal(getattr(signal, name), signal.SIG_IGN if name in request.ignored else default)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    os.umask(request.umask)
    sys.argv[:], sys.path[:] = request.arguments, request.path
    invalidate_caches()  # of the folders of sys.path
    tempfile.tempdir = None  # which is kept from a first use
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))
