"""Which remote devices answer, as a table."""

from __future__ import annotations

from dataclasses import dataclass

from syno.base.errors import DeviceError
from syno.measure.tvm.answers import Servers, reach, servers_of
from syno.measure.tvm.devices import LOCAL, DeviceSettings


@dataclass(frozen=True)
class Status:
    """Of a device: where it should be, its servers, and what is wrong, in one sentence, or nothing."""

    name: str
    tracker: str
    key: str
    servers: Servers | None = None
    fault: str = ""

    def cells(self) -> dict[str, object]:
        """A row of the table."""
        if self.tracker == LOCAL:
            said = "made when needed"
        else:
            said = "none" if self.servers is None else f"{self.servers.free} of {self.servers.total} free"
        return {"device": self.name, "tracker": self.tracker, "key": self.key, "servers": said}


def status_of(name: str, device: DeviceSettings) -> Status:
    """Ask a device's tracker; takes seconds at most."""
    key, address = device.key or name, device.address
    if address is None:
        return Status(name, LOCAL, key)
    try:
        reach(name, address, key)
        return Status(name, str(address), key, servers_of(address).get(key))
    except DeviceError as error:
        return Status(name, str(address), key, fault=str(error))
