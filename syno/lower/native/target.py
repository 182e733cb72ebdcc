"""Processors for which native kernels are generated."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Target:
    """The properties of a processor on which the generator and its cost model depend.

    Attributes:
        name: the name in stores and messages.
        lanes: number of floats in a vector.
        registers: number of vector registers.
        flags: options of GCC or clang for this kind of processor.
        first_cache, second_cache: sizes of a core's L1 and L2 cache, in bytes.
    """

    name: str
    lanes: int
    registers: int
    flags: tuple[str, ...]
    first_cache: int = 32 << 10
    second_cache: int = 512 << 10


TARGETS = {
    target.name: target
    for target in (
        # Without the last flag, GCC uses narrower vectors on processors whose clock slows down for 512 bits.
        Target("avx512", 16, 32, ("-mavx512f", "-mavx512vl", "-mavx512dq", "-mfma", "-mprefer-vector-width=512")),
        Target("avx2", 8, 16, ("-mavx2", "-mfma")),
        Target("neon", 4, 32, ("-march=armv8-a",)),
        Target("generic", 4, 16, ()),
    )
}
# CPU flags in /proc/cpuinfo that each target needs; the widest vectors first.
INSTRUCTIONS = {"avx512": {"avx512f", "avx512vl", "avx512dq", "fma"}, "avx2": {"avx2", "fma"}}


def own_target() -> Target:
    """Return the target of this machine's processor, by its architecture and CPU flags."""
    if platform.machine() in ("aarch64", "arm64"):
        return TARGETS["neon"]
    flags = _processor_flags()
    return next((TARGETS[name] for name, needed in INSTRUCTIONS.items() if needed <= flags), TARGETS["generic"])


def _processor_flags() -> set[str]:
    """Return the CPU flags in /proc/cpuinfo; the empty set on systems without it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())
