"""Settings of tuning with TVM, and of devices that TVM's RPC reaches. Reading them does not load TVM.

A remote device runs a server that reports to a tracker under a key. The tracker lends the server to a client that asks for the
key, for one session at a time; several servers of one key are measured on at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from syno.base.devices import DEVICE_PATTERN
from syno.base.errors import SpecError, SynoError, suggestion
from syno.base.validation import Settings
from syno.measure.tvm.targets import TARGETS

T = TypeVar("T")
HERE = ("cpu", "cuda", "cuda:1")  # examples of names of devices of this machine
LOCAL = "local"  # in place of a tracker's address


def _known(given: Any) -> Any:
    """Return the target. Raises ValueError, for pydantic, if it is a name that no preset has."""
    if isinstance(given, str):
        try:
            TARGETS[given]
        except SynoError as error:
            raise ValueError(str(error)) from None
    return given


Target: TypeAlias = Annotated[str | Mapping[str, Any], AfterValidator(_known)]


class TvmSettings(Settings):
    """The search of MetaSchedule for schedules. A task is one kernel at one shape; a network has some dozens of them."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    target: Target | None = None
    """a preset's name, or attributes such as {kind: llvm, mcpu: znver4}; if not given, the device"""
    trials_per_task: int = Field(default=64, ge=0)
    """schedules measured of each task, those of earlier runs among them; hundreds for a fair figure"""
    trials_per_iteration: int = Field(default=16, ge=1)
    """schedules that are chosen, built and measured in one go"""
    cost_model: Literal["xgb", "random"] = "xgb"
    """what guesses which schedules are worth measuring"""
    builders: int = Field(default=1, ge=1)
    """processes that build schedules"""
    build_seconds: float = Field(default=60, gt=0)
    """for building one schedule"""
    run_seconds: float = Field(default=30, gt=0)
    """for measuring one schedule"""
    least_ms: int = Field(default=50, ge=1)
    """least milliseconds that a schedule is timed for"""
    share: float = Field(default=0.75, gt=0, lt=1)
    """share of the time limit after which tuning makes room for compiling and measuring"""
    seed: int = Field(default=0, ge=0)
    """seed of the search; measurements make it differ all the same"""


class Address(NamedTuple):
    """The address of a tracker."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `host:port`. Raises SpecError for anything else."""
        host, _, port = text.rpartition(":")
        if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 2**16:
            raise SpecError(f'"{text}" is no address of a tracker; it looks like 192.168.1.2:9190, or is "{LOCAL}"')
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class DeviceSettings(Settings):
    """A device that TVM's RPC reaches. Frozen; unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    kind: Literal["cpu", "cuda"] = "cpu"
    """the part of the device that does the work"""
    target: Target
    """what code is generated for: a preset's name, or a mapping as TVM has it"""
    tracker: str
    """the tracker's address, host:port; local: a tracker and servers on this machine while they are needed"""
    key: Annotated[str, Field(pattern=r"^[\w.-]*$")] = ""
    """the key of its servers at the tracker; the device's name if not given"""
    servers: Annotated[int, Field(ge=1)] = 1
    """with `tracker: local`, the number of servers"""
    session_timeout_seconds: Annotated[float, Field(gt=0)] = 60
    """for measuring one candidate, or one network, upload and all"""
    wait_seconds: Annotated[float, Field(gt=0)] = 30
    """for a free server, or for a lost one to come back"""
    retries: Annotated[int, Field(ge=0)] = 1
    """how often a candidate that failed is measured again, unless it took too long"""
    most_failures: Annotated[int, Field(ge=1)] = 16
    """failures in a row after which the device counts as unfit"""

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
        """The tracker's address; None for a local one."""
        return None if self.tracker == LOCAL else Address.parse(self.tracker)


def is_here(name: str) -> bool:
    """Return whether a name is that of a device of this machine."""
    return re.fullmatch(DEVICE_PATTERN, name) is not None


def check_name(name: str) -> None:
    """Raise SpecError for a name that a remote device cannot have."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise SpecError(f'"{name}" cannot name a device; a name begins with a letter and has a-z, 0-9, _ and - in it')
    if re.fullmatch(r"cpu|cuda\d*|local", name):
        raise SpecError(f'"{name}" is this machine, or looks like it; give the remote device another name')


def find_device(name: str, remote: Mapping[str, T]) -> T | None:
    """Return the remote device of that name, or None for one of this machine. Raises SpecError, which lists the devices."""
    if is_here(name):
        return None
    if name not in remote:
        there = "cpu, cuda, or one of several GPUs such as cuda:1"
        others = f"; remote: {', '.join(remote)}" if remote else "; others are described under remote_devices"
        raise SpecError(f'"{name}" is no device; there are: {there}{others}.{suggestion(name, [*HERE, *remote])}')
    return remote[name]
