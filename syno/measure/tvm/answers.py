"""What a tracker answers about its servers, or a clear error within seconds."""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from dataclasses import dataclass

from syno.base.errors import DeviceError, SynoError
from syno.lower.tvm import installed
from syno.measure.tvm.devices import Address

ANSWER_SECONDS = 5.0  # in which a tracker in reach has answered
LOOK_SECONDS = 0.5  # between two looks at a tracker


@dataclass(frozen=True)
class Servers:
    """How many servers of one key a tracker knows, and how many of them are in no session."""

    total: int
    free: int


@dataclass(frozen=True)
class Reached:
    """Where the servers of a device are.

    Attributes:
        name: of the device in the settings.
        tracker, key: whom to ask, and for what.
        servers: how many there were when it was looked at.
    """

    name: str
    tracker: Address
    key: str
    servers: int

    def describe(self) -> str:
        """For messages."""
        return f'device "{self.name}" (key "{self.key}" at the tracker {self.tracker})'

    def how_to_serve(self) -> str:
        """The command for the device itself."""
        return f"python serving.py server --tracker {self.tracker} --key {self.key}"


def servers_of(tracker: Address, seconds: float = ANSWER_SECONDS) -> dict[str, Servers]:
    """The servers that a tracker knows, by key. DeviceError if it does not answer within so many seconds."""
    installed.tvm()  # says what to do where it is missing
    from tvm.rpc import base

    try:
        with socket.create_connection(tracker, timeout=seconds) as connection:
            connection.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
            if base.recvall(connection, 4) != struct.pack("<i", base.RPC_TRACKER_MAGIC):
                raise DeviceError(f"at {tracker} is something else than a tracker of TVM: look at the address")
            base.sendjson(connection, [base.TrackerCode.SUMMARY])
            _, summary = base.recvjson(connection)
    except (OSError, ValueError, struct.error) as error:
        raise DeviceError(
            f"the tracker {tracker} does not answer ({error}); start one there with `syno devices serve`, "
            "or look at the address and the firewall"
        ) from None
    totals = Counter(server["key"].partition(":")[2] for server in summary["server_info"])
    return {key: Servers(count, summary["queue_info"].get(key, {}).get("free", 0)) for key, count in totals.items()}


def reach(name: str, tracker: Address, key: str, seconds: float = ANSWER_SECONDS) -> Reached:
    """Look whether the tracker has servers of that key. DeviceError says what is there instead, and what to start."""
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


def comes_back(device: Reached, seconds: float) -> bool:
    """Whether the device has a server, now or within so many seconds."""
    end = time.monotonic() + seconds
    while True:
        try:
            reach(device.name, device.tracker, device.key, min(ANSWER_SECONDS, max(seconds, LOOK_SECONDS)))
            return True
        except SynoError:
            if time.monotonic() > end:
                return False
            time.sleep(LOOK_SECONDS)
