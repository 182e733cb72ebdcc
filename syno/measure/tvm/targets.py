"""Targets of generated code: named presets, the device at hand, or attributes of the user's own.

TVM builds for a target without having the device: only running needs it.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from syno.base.devices import usable_cores
from syno.base.errors import SpecError
from syno.base.registry import Registry
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
    """Return the widest level of instructions that a processor with these flags has."""
    levels = list(X86_LEVELS)
    return next(level for number, level in enumerate(levels) if all(X86_LEVELS[name] <= flags for name in levels[number:]))


def target(given: str | Mapping[str, Any]) -> Any:
    """Return a `tvm.target.Target`.

    Args:
        given: a name in `TARGETS`, or attributes as TVM's own targets have them, such as
            `{"kind": "llvm", "mcpu": "znver4", "num-cores": 16}`.

    Raises:
        UnknownNameError: there is no such name.
        SpecError: TVM does not know some attributes; it names them.
        MissingPackageError: TVM is not installed.
    """
    attributes = dict(TARGETS[given]() if isinstance(given, str) else given)
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
    """Raise SpecError for an unknown `mcpu`: TVM accepts any, and then generates code for no processor in particular."""
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
    """Return the target for so many cores of this machine's processor."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        processor = x86_level(processor_flags())
    else:  # LLVM recognizes these processors without tables
        tvm()
        from tvm.target import codegen

        processor = str(codegen.llvm_get_system_cpu())
    return {"kind": "llvm", "mcpu": processor, "num-cores": threads}


def cuda(architecture: str, on: Attributes) -> Attributes:
    """Return the target for a GPU of an architecture such as "sm_80", in a machine with such a processor."""
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
