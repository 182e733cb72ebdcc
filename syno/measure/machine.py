"""The machine that measures: its name, its caches, and its peak performance, measured once in each process."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.files import checksum
from syno.measure.timing import stopwatch_of

if TYPE_CHECKING:
    import torch

PROCESSORS, BOARD = Path("/proc/cpuinfo"), Path("/proc/device-tree/model")
MACHINE_ID = Path("/etc/machine-id")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
UNKNOWN_CACHE_BYTES = 64 * 2**20
PEAK_ATTEMPTS = 5
SIDES = {"cpu": 1024, "cuda": 8192}  # of the matrices whose product is timed
ALLOWANCE = 1.2  # a peak is itself a measurement, on a machine that others may have been using
COPIED_BYTES = 256 * 2**20  # a larger copy would not fit where memory is limited


@dataclass(frozen=True)
class Peak:
    """The speed of the fastest matrix product and of the fastest copy. Multiply-adds count as one FLOP."""

    flops_per_second: float
    bytes_per_second: float

    def is_below(self, flops_per_second: float, bytes_per_second: float) -> bool:
        """Return whether either speed is above the peak, by more than peaks vary."""
        return flops_per_second > ALLOWANCE * self.flops_per_second or bytes_per_second > ALLOWANCE * self.bytes_per_second


def peak(device: str, threads: int) -> Peak:
    """Return the peak of `device` in float32 with so many CPU threads, under the current rounding; it is measured once."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return _peak(device, threads, torch.get_float32_matmul_precision())
    finally:
        torch.set_num_threads(before)


@functools.cache
def _peak(device: str, threads: int, precision: str) -> Peak:
    import torch

    side = SIDES.get(torch.device(device).type, SIDES["cpu"])
    matrix = torch.rand(side, side, device=device)
    count = COPIED_BYTES // 4
    source, target = torch.ones(count, device=device), torch.zeros(count, device=device)
    product_ms = _fastest_ms(lambda: matrix @ matrix, device)
    copy_ms = _fastest_ms(lambda: target.copy_(source), device)
    return Peak(1e3 * side**3 / product_ms, 1e3 * 8 * count / copy_ms)  # a copy reads 4 bytes and writes 4


def _fastest_ms(work: Callable[[], object], device: str) -> float:
    stopwatch = stopwatch_of(device)
    return min(stopwatch(work) for _ in range(PEAK_ATTEMPTS))


def cache_bytes(device: torch.device) -> int:
    """Return the size of the device's largest cache; 64 MiB where the system does not tell."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    return max((_bytes(file.read_text(encoding="ascii")) for file in CACHES.glob("index*/size")), default=UNKNOWN_CACHE_BYTES)


def _bytes(text: str) -> int:
    """Return the number in a size as Linux writes it, such as "32768K"."""
    number, unit = text.strip()[:-1], text.strip()[-1:]
    return int(number) * {"K": 2**10, "M": 2**20, "G": 2**30}[unit] if unit in "KMG" else int(text)


def device_name(device: str) -> str:
    """Return the name of a device of this machine, such as "NVIDIA H200"."""
    if device.startswith("cuda"):
        import torch

        return str(torch.cuda.get_device_name(device))
    return processor()


def processor() -> str:
    """Return the name of the machine's processor, or of the board that it is on, as for Arm. PyTorch is not loaded for it."""
    return _about_processor("model name") or _board() or platform.processor() or platform.machine()


def _board() -> str:
    """Return the name of the board, such as "NVIDIA Jetson Orin Nano Developer Kit"; empty where the system does not tell."""
    return BOARD.read_text(encoding="utf-8", errors="replace").strip("\0 \n") if BOARD.exists() else ""


def processor_flags() -> frozenset[str]:
    """Return the instruction sets that Linux lists for the processor; none on other systems."""
    return frozenset(_about_processor("flags").split())


def _about_processor(key: str) -> str:
    """Return the first value of a key in /proc/cpuinfo; empty if there is none."""
    if not PROCESSORS.exists():
        return ""
    lines = PROCESSORS.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


def machine_id() -> str:
    """Return an identifier of this machine: a hash of its processor, their number, its memory, and its name.

    Its name is the identifier that the system was given when it was installed; where it has none, that of the host.
    """
    given = MACHINE_ID.read_text(encoding="utf-8").strip() if MACHINE_ID.exists() else ""
    pages = os.sysconf("SC_PHYS_PAGES") if "SC_PHYS_PAGES" in os.sysconf_names else 0
    return checksum(f"{given or platform.node()} {processor()} {os.cpu_count()} {pages}".encode())
