"""Where something is compiled for and measured: this machine, or a device that TVM's RPC reaches.

A remote device runs a server that reports to a tracker under a key. The tracker lends the server to whoever asks for the key,
for one session at a time; several servers of one key are measured on at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from syno.base.errors import SpecError, SynoError, suggestion
from syno.measure.tvm.targets import TARGETS

HERE = ("cpu", "cuda", "cuda:1")  # what names of devices of this machine look like
LOCAL = "local"  # in place of a tracker's address

Positive: TypeAlias = Annotated[float, Field(gt=0)]


class Address(NamedTuple):
    """Of a tracker."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `host:port`. SpecError for anything else."""
        host, _, port = text.rpartition(":")
        if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 2**16:
            raise SpecError(f'"{text}" is no address of a tracker; it looks like 192.168.1.2:9190, or is "{LOCAL}"')
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class DeviceSettings(BaseModel):
    """A device that TVM's RPC reaches. Frozen; unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["cpu", "cuda"] = "cpu"  # what of the device does the work
    target: str | Mapping[str, Any]  # what code is made for: a preset's name, or a mapping as TVM has it
    tracker: str  # its address, host:port; local: a tracker and servers on this machine while they are needed
    key: Annotated[str, Field(pattern=r"^[\w.-]*$")] = ""  # of its servers at the tracker; the device's name if not given
    servers: Annotated[int, Field(ge=1)] = 1  # with `tracker: local`, how many there are
    session_timeout_seconds: Positive = 60  # for measuring one candidate, or one network, upload and all
    wait_seconds: Positive = 30  # for a free server, or for one that is gone to come back
    retries: Annotated[int, Field(ge=0)] = 1  # how often a candidate that failed is measured again, except for its time
    most_failures: Annotated[int, Field(ge=1)] = 16  # in a row, after which the device counts as unfit

    @field_validator("target")
    @classmethod
    def _known(cls, given: str | Mapping[str, Any]) -> str | Mapping[str, Any]:
        if isinstance(given, str):
            try:
                TARGETS[given]
            except SynoError as error:
                raise ValueError(str(error)) from None
        return given

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.tracker != LOCAL:
            try:
                Address.parse(self.tracker)
            except SpecError as error:
                raise ValueError(str(error)) from None
            if self.servers != 1:
                raise ValueError(
                    f'servers is {self.servers}, and the tracker is "{self.tracker}", which knows itself how many there are; '
                    f"give servers only with tracker: {LOCAL}"
                )
        return self

    @property
    def address(self) -> Address | None:
        """Of the tracker; None for one of our own."""
        return None if self.tracker == LOCAL else Address.parse(self.tracker)


def is_here(name: str) -> bool:
    """Whether a name stands for a device of this machine."""
    return re.fullmatch(r"cpu|cuda(:\d+)?", name) is not None


def check_name(name: str) -> None:
    """SpecError for a name that a remote device cannot have."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise SpecError(f'"{name}" cannot name a device; a name begins with a letter and has a-z, 0-9, _ and - in it')
    if re.fullmatch(r"cpu|cuda\d*|local", name):
        raise SpecError(f'"{name}" stands for this machine, or looks as if it did; give the remote device another name')


def find_device(name: str, remote: Mapping[str, DeviceSettings]) -> DeviceSettings | None:
    """The remote device of that name, or None for one of this machine. SpecError lists what there is."""
    if is_here(name):
        return None
    if name not in remote:
        there = "cpu, cuda, or one of several GPUs such as cuda:1"
        others = f"; remote: {', '.join(remote)}" if remote else "; others are described under remote_devices"
        raise SpecError(f'"{name}" is no device; there are: {there}{others}.{suggestion(name, [*HERE, *remote])}')
    return remote[name]


def reaches(compiler: str, device: DeviceSettings | None) -> bool:
    """Whether what that compiler makes can be measured there: only TVM reaches other machines."""
    return device is None or compiler == "tvm" or compiler.startswith("tvm-")


def unreached(devices: Iterable[str], compilers: Iterable[str], remote: Mapping[str, DeviceSettings]) -> list[str]:
    """The devices that none of the compilers reaches."""
    return [name for name in devices if not any(reaches(compiler, remote.get(name)) for compiler in compilers)]
