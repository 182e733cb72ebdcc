"""Trackers and servers on this machine: processes in sessions of their own, of which nothing is left at the end.

>>> with local_devices({"cpu0": 2}) as address:  # doctest: +SKIP
...     print(servers_of(address))
{'cpu0': Servers(total=2, free=2)}
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from syno.base.errors import DeviceError
from syno.measure.tvm import serving
from syno.measure.tvm.answers import LOOK_SECONDS, Reached, reach, servers_of
from syno.measure.tvm.devices import Address, DeviceSettings

START_SECONDS = 60.0  # in which a process on a busy machine has imported TVM and listens
HOST = "127.0.0.1"  # nobody else on the network gets in: there is no password
TRACKER_PORT, SERVER_PORT = 9190, 9090
TAIL_CHARACTERS = 500


@dataclass(frozen=True)
class Served:
    """A process that serves, the leader of its own group, and the file with what it says."""

    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """End it and its sessions, as when a device is switched off."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its sessions are in its group

    def said(self) -> str:
        """What it wrote."""
        return self.log.read_text(encoding="utf-8", errors="replace").strip()


@contextmanager
def tracker(host: str = HOST, port: int = TRACKER_PORT) -> Iterator[Address]:
    """A tracker at the first free port from `port`. DeviceError if it does not start."""
    with _served(["tracker", f"--host={host}", f"--port={port}", f"--port-end={port + 100}"]) as served:
        yield Address(host, _port(served))


@contextmanager
def server(at: Address, key: str, host: str = HOST, port: int = SERVER_PORT) -> Iterator[Served]:
    """A server of this machine's devices that reports to a tracker. `await_servers` waits until it can be reached."""
    arguments = [f"--host={host}", f"--port={port}", f"--port-end={port + 100}", f"--tracker={at}", f"--key={key}"]
    with _served(["server", *arguments]) as served:
        yield served


@contextmanager
def local_devices(keys: Mapping[str, int], host: str = HOST, port: int = TRACKER_PORT) -> Iterator[Address]:
    """A tracker, and as many servers of each key as are asked for, all of which it lists.

    Raises DeviceError if one does not start; it says what that one wrote.
    """
    with ExitStack() as stack:
        address = stack.enter_context(tracker(host, port))
        wanted = [key for key, count in keys.items() for _ in range(count)]
        await_servers(address, [stack.enter_context(server(address, key, host)) for key in wanted], keys)
        yield address


def await_servers(at: Address, started: Sequence[Served], keys: Mapping[str, int]) -> None:
    """Wait until a tracker has these servers free. DeviceError if one ends instead, or it takes too long."""
    end = time.monotonic() + START_SECONDS
    while True:
        found = servers_of(at)
        if all(key in found and found[key].free >= count for key, count in keys.items()):
            return
        ended = [one for one in started if one.process.poll() is not None]
        if ended or time.monotonic() > end:
            said = (ended or started)[0].said()[-TAIL_CHARACTERS:]
            raise DeviceError(f"servers of {dict(keys)} did not start at the tracker {at}; one said: {said or 'nothing'}")
        time.sleep(LOOK_SECONDS / 5)


@contextmanager
def reached(name: str, device: DeviceSettings) -> Iterator[Reached]:
    """The device, after a look at its tracker; with `tracker: local`, servers of its own for as long as it is used.

    Raises DeviceError, within seconds, where there is no tracker or no server.
    """
    key = device.key or name
    with ExitStack() as stack:
        address = device.address or stack.enter_context(local_devices({key: device.servers}))
        yield reach(name, address, key)


@contextmanager
def _served(arguments: list[str]) -> Iterator[Served]:
    """Run `serving.py` until the end of the context; it also ends when this process does, however that comes about."""
    with tempfile.TemporaryDirectory(prefix="syno-serving-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-P", serving.__file__, *arguments, "--end-with-input"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                env={**os.environ, "PYTHONPATH": _imports(), "TMPDIR": folder},
                start_new_session=True,
            )
        served = Served(process, log)
        try:
            yield served
        finally:
            served.kill()
            process.communicate()


def _imports() -> str:
    """What this process imports, so that the other finds TVM."""
    return os.pathsep.join(path or str(Path.cwd()) for path in sys.path)


def _port(served: Served) -> int:
    """The port at which a process says that it listens."""
    output = served.process.stdout
    assert output is not None
    ready, _, _ = select.select([output], [], [], START_SECONDS)
    word, _, port = (output.readline() if ready else b"").decode().partition(" ")
    if word != "port":
        raise DeviceError(f"a tracker did not start; it said: {served.said()[-TAIL_CHARACTERS:] or 'nothing'}")
    return int(port)
