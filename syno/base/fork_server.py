"""The fork server: a process that has imported everything, and runs each requested command in a child process.

A command whose work takes a second otherwise spends several on imports. The server has one thread and has used no GPU, since a
forked child inherits neither. It refuses the requests of a client whose process state differs from its own in a property that a
child inherits (`syno.base.fork_client.identity`), and all requests after a file of Syno has changed.
"""

# It pays: `syno run quickstart` takes 203 CPU-seconds with the server and 278 without (2026-11-25, two cores), and twelve
# trainings of a second 29 s in place of 68 s (docs/measured/short_jobs.md). Simpler ways were considered. Groups of Snakemake
# save its own time only: each job of a group is a process of its own. A command that trains several seeds would make one job of
# them, with one log, one `benchmark` and one restart; the demo with such jobs, and one of tables, figures and page, takes 75
# CPU-seconds more than with the server (2026-11-29). `multiprocessing`'s forkserver has no client that is a command: it gives
# its children neither the terminal, the folder, the variables nor the signals of a process that is not their parent's.

from __future__ import annotations

import ctypes
import gc
import io
import json
import os
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import invalidate_caches
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any

from syno.base.fork_client import CODE, FORWARDED, LENGTH_BYTES, STREAMS, identity

IDLE_SECONDS = 900.0
GPUS = ("/dev/nvidia", "/dev/kfd", "/dev/dri")  # device files that are open in a process that has used a GPU
PATIENCE_SECONDS = 5.0  # for the rest of a request that has begun to arrive
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15


# Requests: how one arrives, and how a child of the server becomes the process that it asks for.


@dataclass(frozen=True)
class Request:
    """A client's request to run a command.

    Attributes:
        arguments: `sys.argv`.
        folder: the working directory.
        environment: all environment variables.
        path: `sys.path`.
        umask: permission mask for new files.
        ignored: names of signals that the client ignores.
        streams: file descriptors of stdin, stdout and stderr.
    """

    arguments: list[str]
    folder: str
    environment: dict[str, str]
    path: list[str]
    umask: int
    ignored: list[str]
    streams: tuple[int, ...]


def received(connection: socket.socket) -> tuple[Request, Any]:
    """Return a request that arrives on the connection, and the client's identity. ValueError if malformed, OSError if late."""
    connection.settimeout(PATIENCE_SECONDS)
    # The client sends its streams only after this line: while it waits in the queue, they must not be held open.
    connection.sendall(b"ready\n")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    start, streams, _, _ = socket.recv_fds(connection, LENGTH_BYTES, len(STREAMS))
    try:
        if user != os.getuid() or len(streams) != len(STREAMS) or len(start) != LENGTH_BYTES:
            raise ValueError("no request of this user")
        with connection.makefile("rb") as stream:
            fields = json.loads(stream.read(int.from_bytes(start, "big")))
        theirs = fields.pop("identity")
        request = Request(**fields, streams=tuple(streams))
    except BaseException:
        for descriptor in streams:
            os.close(descriptor)
        raise
    connection.setblocking(False)
    return request, theirs


def end_with(parent: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Let the system send this process the signal `by` as soon as its parent, the process `parent`, has ended."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:
        os._exit(1)  # the parent ended before the call


def become(request: Request, server: int) -> None:
    """Set the environment, folder, arguments and streams of this child to those of the request."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(PR_SET_NAME, f"syno {' '.join(request.arguments[1:])}".encode()[:15])
    end_with(server)
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
    tempfile.tempdir = None  # tempfile caches the folder
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))


# The server.


@dataclass
class _Job:
    """A running child.

    Attributes:
        connection: the socket of its client; None once the client has ended.
        process: the child's pidfd.
        measures: whether the child's command measures times.
    """

    connection: socket.socket | None
    process: int
    measures: bool


class ForkServer:
    """A fork server, which ends when its owner ends.

    Args:
        listener: a listening Unix socket.
        owner: a descriptor whose other end the owner holds; once it is closed, the server ends after the last child.
        imports: each step imports some of the modules; taken while no request waits and no `measuring` command runs.
        measuring: first words of commands that measure times, which imports at the same time would disturb.
        idle_seconds: the server ends after this time without children and requests.
    """

    def __init__(
        self,
        listener: socket.socket,
        owner: int,
        imports: Iterator[object],
        measuring: frozenset[str] = frozenset(),
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._listener, self._owner, self._idle_seconds = listener, owner, idle_seconds
        self._imports, self._measuring = imports, measuring
        self._jobs: dict[int, _Job] = {}  # by process id
        self._selector = DefaultSelector()
        self._code, self._folder = _times_of_code(), Path(listener.getsockname()).parent
        self._identity = json.loads(json.dumps(identity()))

    def serve(self) -> Request | None:
        """Serve until the owner has ended. Returns None in the server, and in each child the request to run."""
        self._selector.register(self._listener, EVENT_READ, self._accept)
        self._selector.register(self._owner, EVENT_READ, self._stop_listening)
        has_more = True
        while self._is_listening or self._jobs:
            imports = has_more and self._is_listening and not any(job.measures for job in self._jobs.values())
            events = self._selector.select(0 if imports else self._idle_seconds)
            for key, _ in events:
                if key.fileobj in self._selector.get_map():  # else an earlier event of this round unregistered it
                    request: Request | None = key.data()
                    if request is not None:
                        return request
            if not events and imports:
                has_more = next(self._imports, None) is not None
            elif not events and not self._jobs:
                self._stop_listening()
        with suppress(OSError):
            self._folder.rmdir()
        return None

    @property
    def _is_listening(self) -> bool:
        return self._listener.fileno() >= 0

    def _stop_listening(self) -> None:
        """Close the socket. Running children continue."""
        with suppress(OSError):
            Path(self._listener.getsockname()).unlink()
        self._selector.unregister(self._owner)
        self._selector.unregister(self._listener)
        self._listener.close()

    def _accept(self) -> Request | None:
        """Accept a client. Returns its request in the forked child, None in the server."""
        connection = self._listener.accept()[0]
        try:
            request, theirs = received(connection)
        except (OSError, ValueError):
            connection.close()
            return None
        try:
            fits = theirs == self._identity and can_fork() and _times_of_code() == self._code
            if fits and not _has_more(connection):
                return self._fork(connection, request)
            connection.close()  # the client runs the command itself
            return None
        finally:
            for stream in request.streams:
                os.close(stream)

    def _fork(self, connection: socket.socket, request: Request) -> Request | None:
        gc.freeze()  # a collection in a child would copy all pages
        server = os.getpid()
        try:
            child = os.fork()
        except OSError:  # no memory, or too many processes
            connection.close()
            return None
        if child == 0:
            self._selector.close()
            for opened in (self._listener, connection, *[job.connection for job in self._jobs.values()]):
                if opened is not None:
                    opened.close()
            for job in self._jobs.values():
                os.close(job.process)
            become(request, server)
            return request
        with suppress(OSError):
            os.setpgid(child, child)  # the child calls it, too: either process may be first
        process = os.pidfd_open(child)
        measures = not self._measuring.isdisjoint(request.arguments[1:2])
        self._jobs[child] = _Job(connection, process, measures)
        self._selector.register(process, EVENT_READ, lambda: self._end(child))
        self._selector.register(connection, EVENT_READ, lambda: self._listen(child))
        _tell(connection, f"started {child}")
        return None

    def _listen(self, child: int) -> None:
        """Kill the process group of a child whose client has closed its connection.

        Bytes of the client mean signals that it got while the child started; it sends them to the child itself.
        """
        job = self._jobs[child]
        assert job.connection is not None
        with suppress(OSError):
            if job.connection.recv(64):
                return
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        self._selector.unregister(job.connection)
        job.connection.close()
        job.connection = None

    def _end(self, child: int) -> None:
        """Send the child's exit status to the client."""
        job = self._jobs.pop(child)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self._selector.unregister(job.process)
        os.close(job.process)
        if job.connection is not None:
            _tell(job.connection, str(code))
            self._selector.unregister(job.connection)
            job.connection.close()


def _tell(connection: socket.socket, line: str) -> None:
    with suppress(OSError):  # the client has ended; the selector says so
        connection.send(f"{line}\n".encode())


def _has_more(connection: socket.socket) -> bool:
    """Return whether the client has closed the connection, or sent more bytes since its request (which mean a signal)."""
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    return True


def can_fork() -> bool:
    """Return whether this process has one thread only and has used no GPU."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of the listed folder itself is closed by now
            if str(descriptor.readlink()).startswith(GPUS):
                return False
    return len(list(Path("/proc/self/task").iterdir())) == 1


def _times_of_code() -> dict[str, int]:
    """Return the modification time of each file of Syno, by its path."""
    return {
        entry.path: entry.stat().st_mtime_ns
        for folder, _, _ in os.walk(CODE)
        for entry in os.scandir(folder)
        if entry.name.endswith(".py")
    }
