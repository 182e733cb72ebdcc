"""TVM's RPC trackers and servers: queries of a tracker, with an error after seconds, and servers run on this machine.

>>> with local_devices({"cpu0": 2}) as address:  # doctest: +SKIP
...     print(servers_of(address))
{'cpu0': Servers(total=2, free=2)}
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from syno.base.errors import DeviceError
from syno.lower.tvm import installed
from syno.measure.tvm import serving
from syno.measure.tvm.targets import LOCAL, Address, DeviceSettings

ANSWER_SECONDS = 5.0  # in which a tracker in reach has answered
LOOK_SECONDS = 0.5  # between two looks at a tracker
START_SECONDS = 60.0  # in which a process on a busy machine has imported TVM and listens
HOST = "127.0.0.1"  # nobody else on the network gets in: there is no password
TRACKER_PORT, SERVER_PORT = 9190, 9090
TAIL_CHARACTERS = 500
# The protocol of trackers, as `tvm.rpc.base` has it: to load TVM takes seconds, which asking a tracker need not wait for.
LENGTH = struct.Struct("<i")  # of a message, in JSON
MAGIC = LENGTH.pack(0x2F271)
SUMMARY = 6  # the question for all servers


@dataclass(frozen=True)
class Servers:
    """The number of servers with one key that a tracker lists, and the number of them without a session."""

    total: int
    free: int


@dataclass(frozen=True)
class Reached:
    """A device that answered.

    Attributes:
        name: name of the device in the settings.
        tracker, key: the address of the tracker that lists its servers, and their key there.
        servers: the numbers of its servers at the last query.
    """

    name: str
    tracker: Address
    key: str
    servers: int

    def describe(self) -> str:
        """Return a description of the device for messages."""
        return f'device "{self.name}" (key "{self.key}" at the tracker {self.tracker})'

    def how_to_serve(self) -> str:
        """Return the command that starts a server on the device."""
        return f"python serving.py server --tracker {self.tracker} --key {self.key}"


@dataclass(frozen=True)
class DeviceStatus:
    """The state of a remote device: its tracker and key, its servers, and a sentence about the fault ("" if there is none)."""

    name: str
    tracker: str
    key: str
    servers: Servers | None = None
    fault: str = ""

    def cells(self) -> dict[str, object]:
        """Return the state as a row of a table: values by the names of the columns."""
        if self.tracker == LOCAL:
            said = "made when needed"
        else:
            said = "none" if self.servers is None else f"{self.servers.free} of {self.servers.total} free"
        return {"device": self.name, "tracker": self.tracker, "key": self.key, "servers": said}


def servers_of(tracker: Address, seconds: float = ANSWER_SECONDS) -> dict[str, Servers]:
    """Return the servers that a tracker knows, by key. Raises DeviceError if it does not answer within `seconds`."""
    installed.require()  # says what to do where it is missing
    end = time.monotonic() + seconds
    try:
        with socket.create_connection(tracker, timeout=seconds) as connection:
            connection.sendall(MAGIC)
            if _received(connection, len(MAGIC), end) != MAGIC:
                raise DeviceError(f"at {tracker} is something else than a tracker of TVM: look at the address")
            question = json.dumps([SUMMARY]).encode()
            connection.sendall(LENGTH.pack(len(question)) + question)
            (length,) = LENGTH.unpack(_received(connection, LENGTH.size, end))
            _, summary = json.loads(_received(connection, length, end))
    except (OSError, ValueError, struct.error) as error:
        raise DeviceError(
            f"the tracker {tracker} does not answer ({error}); start one there with `syno devices serve`, "
            "or look at the address and the firewall"
        ) from None
    totals = Counter(server["key"].partition(":")[2] for server in summary["server_info"])
    return {key: Servers(count, summary["queue_info"].get(key, {}).get("free", 0)) for key, count in totals.items()}


def _received(connection: socket.socket, count: int, end: float) -> bytes:
    """Return the next `count` bytes of an answer. OSError if it ends before, or does not come until the time `end`."""
    found = b""
    while len(found) < count:
        connection.settimeout(max(0.01, end - time.monotonic()))
        part = connection.recv(count - len(found))
        if not part:
            raise OSError("the connection ended")
        found += part
    return found


def reach(name: str, tracker: Address, key: str, seconds: float = ANSWER_SECONDS) -> Reached:
    """Return the device if the tracker has servers of its key, else raise DeviceError, which says how to start a server."""
    try:
        found = servers_of(tracker, seconds)
    except DeviceError as error:
        raise DeviceError(f'device "{name}": {error}') from None
    if key not in found:
        there = ", ".join(f'"{other}"' for other in sorted(found)) or "none"
        raise DeviceError(
            f'device "{name}": the tracker {tracker} has no server of key "{key}"; its keys: {there}. Start a server on the '
            f"device: {Reached(name, tracker, key, 0).how_to_serve()}"
        )
    return Reached(name, tracker, key, found[key].total)


def status_of(name: str, device: DeviceSettings) -> DeviceStatus:
    """Ask a device's tracker, and return the device's state; takes seconds at most."""
    key, address = device.key or name, device.address
    if address is None:
        return DeviceStatus(name, LOCAL, key)
    try:
        reach(name, address, key)
        return DeviceStatus(name, str(address), key, servers_of(address).get(key))
    except DeviceError as error:
        return DeviceStatus(name, str(address), key, fault=str(error))


@contextmanager
def reached(name: str, device: DeviceSettings) -> Iterator[Reached]:
    """Yield the device, after a query of its tracker; with `tracker: local`, a tracker and servers run within the context.

    Raises DeviceError, within seconds, if there is no tracker or no server.
    """
    key = device.key or name
    with ExitStack() as stack:
        address = device.address or stack.enter_context(local_devices({key: device.servers}))
        yield reach(name, address, key)


@dataclass(frozen=True)
class Served:
    """A process that runs a tracker or a server, the leader of its own group, and the file with its output."""

    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """Kill the process and its sessions, as if the device were switched off."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its sessions are in its group

    def said(self) -> str:
        """Return the output of the process so far."""
        return self.log.read_text(encoding="utf-8", errors="replace").strip()


@contextmanager
def tracker(host: str = HOST, port: int = TRACKER_PORT) -> Iterator[Address]:
    """Run a tracker at the first free port from `port`. Raises DeviceError if it does not start."""
    with _served(["tracker", f"--host={host}", f"--port={port}", f"--port-end={port + 100}"]) as served:
        yield Address(host, _port(served))


@contextmanager
def server(at: Address, key: str, host: str = HOST, port: int = SERVER_PORT) -> Iterator[Served]:
    """Run a server of this machine's devices that reports to a tracker. `await_servers` waits until it can be reached."""
    arguments = [f"--host={host}", f"--port={port}", f"--port-end={port + 100}", f"--tracker={at}", f"--key={key}"]
    with _served(["server", *arguments]) as served:
        yield served


@contextmanager
def local_devices(keys: Mapping[str, int], host: str = HOST, port: int = TRACKER_PORT) -> Iterator[Address]:
    """Run a tracker and servers within the context, so many for each key; yield the address once all servers are listed.

    Raises DeviceError, with the output of the process, if one does not start.
    """
    with ExitStack() as stack:
        address = stack.enter_context(tracker(host, port))
        wanted = [key for key, count in keys.items() for _ in range(count)]
        await_servers(address, [stack.enter_context(server(address, key, host)) for key in wanted], keys)
        yield address


def await_servers(at: Address, started: Sequence[Served], keys: Mapping[str, int]) -> None:
    """Wait until a tracker lists these servers as free. Raises DeviceError if a server ends, or after `START_SECONDS`."""
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
def _served(arguments: list[str]) -> Iterator[Served]:
    """Run `serving.py` in a process within the context; it also ends if this process is killed."""
    with tempfile.TemporaryDirectory(prefix="syno-serving-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "log"
        imports = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)  # so that the other process finds TVM
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-P", serving.__file__, *arguments, "--end-with-input"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                env={**os.environ, "PYTHONPATH": imports, "TMPDIR": folder},
                start_new_session=True,
            )
        served = Served(process, log)
        try:
            yield served
        finally:
            served.kill()
            process.communicate()


def _port(served: Served) -> int:
    """Return the port on which a process listens, as its output says."""
    output = served.process.stdout
    assert output is not None
    ready, _, _ = select.select([output], [], [], START_SECONDS)
    word, _, port = (output.readline() if ready else b"").decode().partition(" ")
    if word != "port":
        raise DeviceError(f"a tracker did not start; it said: {served.said()[-TAIL_CHARACTERS:] or 'nothing'}")
    return int(port)
