"""TVM targets of generated code: named presets, this machine's device, or the user's own attributes.

Building for a target does not need the device; only running does.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from syno.base.devices import DEVICE_PATTERN, usable_cores
from syno.base.errors import SpecError, SynoError, suggestion
from syno.base.registry import Registry
from syno.base.validation import Settings
from syno.lower.tvm.installed import tvm
from syno.measure.machine import processor_flags

Attributes: TypeAlias = "dict[str, Any]"

TARGETS: Registry[Callable[[], Attributes]] = Registry("target")

# Limits of every CUDA device of compute capability 7 and later; MetaSchedule rejects kernels that exceed them.
CUDA_LIMITS: Mapping[str, int] = {
    "max_threads_per_block": 1024,
    "max_num_threads": 1024,
    "thread_warp_size": 32,
    "max_shared_memory_per_block": 48 * 1024,
    "registers_per_block": 64 * 1024,
}

# The levels of the x86-64 ABI, widest first, with Linux's names of the instructions that the level below lacks.
X86_LEVELS: Mapping[str, frozenset[str]] = {
    "x86-64-v4": frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
    "x86-64-v3": frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"]),
    "x86-64-v2": frozenset(["cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"]),
    "x86-64": frozenset(),
}


def x86_level(flags: frozenset[str]) -> str:
    """Return the highest x86-64 level that a processor with these CPU flags supports."""
    levels = list(X86_LEVELS)
    return next(level for number, level in enumerate(levels) if all(X86_LEVELS[name] <= flags for name in levels[number:]))


def target(description: str | Mapping[str, Any]) -> Any:
    """Return a `tvm.target.Target`.

    Args:
        description: a name in `TARGETS`, or attributes as TVM's own targets have them, such as
            `{"kind": "llvm", "mcpu": "znver4", "num-cores": 16}`.

    Raises:
        UnknownNameError: there is no such name.
        SpecError: TVM does not know some attributes; it names them.
        MissingPackageError: TVM is not installed.
    """
    attributes = dict(TARGETS[description]() if isinstance(description, str) else description)
    module = tvm()
    try:
        made = module.target.Target(attributes)
    except (ValueError, TypeError) as error:
        said = str(error).split("Target creation from config dict failed")[0].strip()
        raise SpecError(f"the target is {attributes}, which TVM does not take: {said}") from None
    for part in (made, made.host):
        if part is not None and part.kind.name == "llvm":
            _check_processor(part, attributes)
    return made


def _check_processor(made: Any, attributes: Attributes) -> None:
    """Raise SpecError for an unknown `mcpu`: TVM would accept it, and generate code for a generic processor."""
    from tvm.target import codegen

    name, triple = made.attrs.get("mcpu"), made.attrs.get("mtriple") or codegen.llvm_get_system_triple()
    if name is None:
        raise SpecError(
            f'the target is {attributes}, without the attribute "mcpu" for {triple}: what TVM finds out itself may be another '
            f"processor; name yours, or take one of: {', '.join(TARGETS)}"
        )
    if not codegen.llvm_is_valid_cpu(str(name), str(triple)):
        raise SpecError(f'the target is {attributes}; LLVM knows no processor "{name}" for {triple}')


def of_device(device: str, threads: int) -> Attributes:
    """Return the target for measuring on this machine's "cpu" or "cuda".

    Raises SpecError if there is no such device.
    """
    if not device.startswith("cuda"):
        return host(threads)
    import torch

    if not torch.cuda.is_available():
        raise SpecError(f'the device is "{device}", and PyTorch finds no GPU here; name a target to build for one')
    major, minor = torch.cuda.get_device_capability(device)
    return cuda(f"sm_{major}{minor}", host(threads))


def host(threads: int) -> Attributes:
    """Return the target for `threads` cores of this machine's processor."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        processor = x86_level(processor_flags())
    else:  # LLVM recognizes these processors without tables
        tvm()
        from tvm.target import codegen

        processor = str(codegen.llvm_get_system_cpu())
    return {"kind": "llvm", "mcpu": processor, "num-cores": threads}


def cuda(architecture: str, on: Attributes) -> Attributes:
    """Return the target for a GPU of an architecture such as "sm_80"; `on` is the target of its host's processor."""
    return {"kind": "cuda", "arch": architecture, **CUDA_LIMITS, "host": on}


X86_SERVER: Attributes = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v3"}
# Six Arm Cortex-A78AE cores; the GPU beside them is an Ampere of compute capability 8.7.
JETSON: Attributes = {
    "kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a78", "mattr": ["+neon"], "num-cores": 6,
}  # fmt: skip
TARGETS.register("host")(lambda: host(usable_cores()))
TARGETS.register("jetson-orin-nano-cpu")(lambda: JETSON)
TARGETS.register("jetson-orin-nano-gpu")(lambda: cuda("sm_87", JETSON))
TARGETS.register("a100")(lambda: cuda("sm_80", X86_SERVER))
TARGETS.register("h100")(lambda: cuda("sm_90", X86_SERVER))  # the H200, too


# Settings of tuning with TVM, and of devices that TVM's RPC reaches. Reading them does not load TVM.
#
# A remote device runs a server that reports to a tracker under a key. The tracker lends the server to a client that asks for
# the key, for one session at a time; several servers of one key are measured on at once.


T = TypeVar("T")
HERE = ("cpu", "cuda", "cuda:1")  # examples of names of devices of this machine
LOCAL = "local"  # in place of a tracker's address


def _known(description: Any) -> Any:
    """Return the description of a target. Raises ValueError, for pydantic, if it is a name that no preset has."""
    if isinstance(description, str):
        try:
            TARGETS[description]
        except SynoError as error:
            raise ValueError(str(error)) from None
    return description


Target: TypeAlias = Annotated[str | Mapping[str, Any], AfterValidator(_known)]


class TvmSettings(Settings):
    """The search of MetaSchedule for schedules. A task is one kernel at one shape; a network has some dozens of them."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    target: Target | None = None
    """a preset's name, or attributes such as {kind: llvm, mcpu: znver4}; if not given, the target of the device"""
    trials_per_task: int = Field(default=64, ge=0)
    """number of schedules to measure for each task, including those of earlier runs; hundreds for a fair comparison"""
    trials_per_iteration: int = Field(default=16, ge=1)
    """number of schedules that are chosen, built and measured in one iteration"""
    cost_model: Literal["xgb", "random"] = "xgb"
    """the model that predicts which schedules are worth measuring"""
    builders: int = Field(default=1, ge=1)
    """number of processes that build schedules"""
    build_seconds: float = Field(default=60, gt=0)
    """time limit for building one schedule, in seconds"""
    run_seconds: float = Field(default=30, gt=0)
    """time limit for measuring one schedule, in seconds"""
    least_ms: int = Field(default=50, ge=1)
    """least milliseconds for which a schedule is timed"""
    share: float = Field(default=0.75, gt=0, lt=1)
    """share of the time limit for tuning; the rest is for compiling and measuring"""
    seed: int = Field(default=0, ge=0)
    """seed of the search; results differ between runs all the same, since measurements do"""


class Address(NamedTuple):
    """The address of a tracker: host and port."""

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
    """the kind of processor on the device that computes"""
    target: Target
    """target of generated code: a preset's name, or a mapping of TVM's attributes"""
    tracker: str
    """the tracker's address, host:port; local: a tracker and servers on this machine while they are needed"""
    key: Annotated[str, Field(pattern=r"^[\w.-]*$")] = ""
    """the key of the device's servers at the tracker; the device's name if not given"""
    servers: Annotated[int, Field(ge=1)] = 1
    """with `tracker: local`, the number of servers"""
    session_timeout_seconds: Annotated[float, Field(gt=0)] = 60
    """time limit for measuring one candidate or one network, including its upload, in seconds"""
    wait_seconds: Annotated[float, Field(gt=0)] = 30
    """seconds to wait for a free server, or for a lost one to come back"""
    retries: Annotated[int, Field(ge=0)] = 1
    """number of times that a failed candidate is measured again, unless it took too long"""
    most_failures: Annotated[int, Field(ge=1)] = 16
    """number of consecutive failures after which the device counts as lost"""

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
    """Return whether a name is the name of a device of this machine, such as "cuda:1"."""
    return re.fullmatch(DEVICE_PATTERN, name) is not None


def check_name(name: str) -> None:
    """Raise SpecError for a name that cannot be the name of a remote device."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise SpecError(f'"{name}" cannot name a device; a name begins with a letter and has a-z, 0-9, _ and - in it')
    if re.fullmatch(r"cpu|cuda\d*|local", name):
        raise SpecError(f'"{name}" is this machine, or looks like it; give the remote device another name')


def find_device(name: str, remote: Mapping[str, T]) -> T | None:
    """Return the remote device of this name; None for a device of this machine. Raises SpecError, which lists the devices."""
    if is_here(name):
        return None
    if name not in remote:
        there = "cpu, cuda, or one of several GPUs such as cuda:1"
        others = f"; remote: {', '.join(remote)}" if remote else "; others are described under remote_devices"
        raise SpecError(f'"{name}" is no device; there are: {there}{others}.{suggestion(name, [*HERE, *remote])}')
    return remote[name]
