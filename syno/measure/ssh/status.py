"""The state of a machine that is reached by ssh, as `syno devices check` prints it."""

from __future__ import annotations

from dataclasses import dataclass

from syno.base.errors import DeviceError
from syno.measure.devices import SshSettings
from syno.measure.ssh.client import about
from syno.measure.ssh.protocol import About


@dataclass(frozen=True)
class SshStatus:
    """The state of a device: what its machine says of itself, or what is wrong, in one sentence."""

    name: str
    device: SshSettings
    about: About | None = None
    fault: str = ""

    def cells(self) -> dict[str, object]:
        """Return a row of a table."""
        found = self.about
        there = {} if found is None else {"is": found.device, "python": found.python, "torch": found.torch, "tvm": found.tvm}
        empty = dict.fromkeys(("is", "python", "torch", "tvm", "free disk"), "")
        rest = {} if found is None else {"free disk": f"{found.free_mib / 1024:.1f} GiB"}
        return {"device": self.name, "ssh": self.device.host, **empty, **there, **rest}


def status_by_ssh(name: str, device: SshSettings) -> SshStatus:
    """Return the state of a device, after asking its machine; takes seconds."""
    try:
        return SshStatus(name, device, about(name, device))
    except DeviceError as error:
        return SshStatus(name, device, fault=str(error))
