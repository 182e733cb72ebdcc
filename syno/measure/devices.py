"""Remote devices of an experiment: devices reached by TVM's RPC, and machines with their own Syno, reached by ssh."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag

from syno.base.devices import DEVICE_PATTERN
from syno.base.validation import Settings
from syno.measure.tvm.targets import DeviceSettings, Target

HOST_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.:@%-]*"  # never read as an option, nor as a word of a shell


def _host(host: str) -> str:
    if not re.fullmatch(HOST_PATTERN, host):
        raise ValueError(f"{host!r} is no host; it looks like jetson, user@192.168.1.7, or a name in ~/.ssh/config")
    return host


def _program(program: str) -> str:
    if not program.strip() or program.startswith("-") or not program.isprintable():
        raise ValueError(f"{program!r} is no program; it looks like python3 or ~/syno/bin/python")
    return program


class SshSettings(Settings):
    """A machine that is reached by ssh and has Syno and the compilers installed. Frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    kind: Literal["ssh"]
    """marks a device that is reached by ssh"""
    host: Annotated[str, AfterValidator(_host)]
    """the machine, as the command ssh takes it: a name in ~/.ssh/config, or user@address"""
    python: Annotated[str, AfterValidator(_program)] = "python3"
    """the Python on that machine in which Syno is installed, such as ~/syno/bin/python"""
    device: Annotated[str, Field(pattern=DEVICE_PATTERN)] = "cpu"
    """the device of that machine: cpu, cuda or cuda:1"""
    compilers: tuple[str, ...] | None = None
    """the compilers that are measured on the device; if not given, all"""
    tvm: DeviceSettings | None = None
    """how TVM's RPC reaches the same device, to tune from this machine; if not given, TVM tunes on that machine"""
    target: Target | None = None
    """for TVM without RPC: the target of generated code; if not given, the device as TVM detects it on that machine"""
    ssh_config: Path | None = None
    """a file that ssh reads in place of ~/.ssh/config; it can name commands that ssh runs here"""
    wait_seconds: Annotated[float, Field(gt=0)] = 300
    """seconds to wait for a lost connection to come back"""

    @property
    def address(self) -> None:
        """None: no tracker of TVM lends this device."""
        return None


def _form(settings: Any) -> str:
    """Return the tag of the settings class that describes a device: "ssh" or "rpc"."""
    kind = settings.get("kind") if isinstance(settings, dict) else getattr(settings, "kind", None)
    return "ssh" if kind == "ssh" else "rpc"


RemoteDevice: TypeAlias = Annotated[
    Annotated[DeviceSettings, Tag("rpc")] | Annotated[SshSettings, Tag("ssh")], Discriminator(_form)
]


def place_of(name: str, device: RemoteDevice) -> str:
    """Return the name of the resource that a measurement uses exclusively: the host, or the key at the tracker."""
    return device.host if isinstance(device, SshSettings) else device.key or name
