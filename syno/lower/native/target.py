"""Processors that kernels are made for."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Target:
    """What the generator and its cost model need to know of a processor.

    Attributes:
        name: in stores and messages.
        lanes: floats of a vector.
        registers: the number of vector registers.
        flags: of the compiler, GCC or clang, for this kind of processor.
        first_cache, second_cache: bytes of a core's caches.
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
        # In narrower vectors than it has, GCC would else compute on processors that slow down for wide ones.
        Target("avx512", 16, 32, ("-mavx512f", "-mavx512vl", "-mavx512dq", "-mfma", "-mprefer-vector-width=512")),
        Target("avx2", 8, 16, ("-mavx2", "-mfma")),
        Target("neon", 4, 32, ("-march=armv8-a",)),
        Target("generic", 4, 16, ()),
    )
}
# What Linux must list for a processor of this kind; the widest vectors first.
INSTRUCTIONS = {"avx512": {"avx512f", "avx512vl", "avx512dq", "fma"}, "avx2": {"avx2", "fma"}}


def own_target() -> Target:
    """Return the target of this machine."""
    if platform.machine() in ("aarch64", "arm64"):
        return TARGETS["neon"]
    flags = _processor_flags()
    return next((TARGETS[name] for name, needed in INSTRUCTIONS.items() if needed <= flags), TARGETS["generic"])


def _processor_flags() -> set[str]:
    """Return the names of the instruction sets that Linux lists for this processor; none on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())
