"""This machine: its name, its caches, and its peak performance, which is measured once in each process."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.base.files import checksum
from syno.measure.timing import stopwatch_of

if TYPE_CHECKING:
    import torch

PROCESSORS, BOARD = Path("/proc/cpuinfo"), Path("/proc/device-tree/model")
MACHINE_ID = Path("/etc/machine-id")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
UNKNOWN_CACHE_BYTES = 64 * 2**20
PEAK_ATTEMPTS = 10  # the fastest attempt counts, since other processes may use the machine
SIDES = {"cpu": (256, 512), "cuda": (4096, 8192)}  # of the square matrices whose product is timed
PICTURES = {  # batch, channels, side: of the 3x3 convolutions that are timed
    "cpu": ((16, 64, 16), (4, 64, 56), (16, 256, 8)),
    "cuda": ((128, 256, 56), (256, 512, 14)),
}
ROWS = {"cpu": (128, 512, 2048), "cuda": (2048, 8192, 16384)}  # of the square matrices that a product with a vector reads
COPIED_BYTES = {"cpu": (2**16, 2**18, 2**22, 2**26), "cuda": (2**24, 2**26, 2**28)}
ALLOWANCE = 1.2  # a peak is itself a measurement, on a machine that others may have been using
# Largest ratio of counted to executed multiply-adds, apart from those that read padding: Winograd's algorithm for 3x3 windows
# needs 2.25 times fewer multiplications.
COUNTED = 2.25


@dataclass(frozen=True)
class Peak:
    """The peak performance of a device: highest measured arithmetic speed and bandwidth. A multiply-add is one FLOP.

    Attributes:
        flops_per_second: multiply-adds per second of the fastest matrix product or convolution.
        bytes_per_second: bandwidth of the fastest read or copy, in any cache.
        bandwidths: (working set in bytes, bytes per second) of reads and copies, since caches are faster than memory.
    """

    flops_per_second: float
    bytes_per_second: float
    bandwidths: tuple[tuple[int, float], ...] = field(default=(), compare=False)

    def bandwidth(self, moved_bytes: int) -> float:
        """Return the highest bandwidth, in bytes per second, of work whose working set is `moved_bytes`."""
        larger = [speed for size, speed in self.bandwidths if size >= moved_bytes]
        return max(larger) if larger else min((speed for _, speed in self.bandwidths), default=self.bytes_per_second)

    def limit_seconds(self, flops: int, moved_bytes: int) -> float:
        """Return the least seconds in which the device can do so many FLOPs and move so many bytes."""
        return max(flops / self.flops_per_second, moved_bytes / self.bandwidth(moved_bytes))

    def is_below(self, flops_per_second: float, bytes_per_second: float) -> bool:
        """Return whether one of the speeds is impossible because it exceeds the peak.

        It must exceed the peak by the factor `ALLOWANCE`, since measured peaks vary; for FLOPs also by `COUNTED`, since fast
        algorithms do fewer multiply-adds than are counted.
        """
        most_flops, most_bytes = ALLOWANCE * COUNTED * self.flops_per_second, ALLOWANCE * self.bytes_per_second
        return flops_per_second > most_flops or bytes_per_second > most_bytes

    def or_faster(self, other: Peak) -> Peak:
        """Return the peak with the larger value of each speed in this and the other peak."""
        bandwidths: dict[int, float] = {}
        for size, speed in (*self.bandwidths, *other.bandwidths):
            bandwidths[size] = max(speed, bandwidths.get(size, 0.0))
        return Peak(
            max(self.flops_per_second, other.flops_per_second),
            max(self.bytes_per_second, other.bytes_per_second),
            tuple(sorted(bandwidths.items())),
        )


def peak(device: str, threads: int, dtype: str = "float32", *, again: bool = False) -> Peak:
    """Return the peak speed of `device` with `threads` CPU threads under the current TF32 setting; it is measured once.

    Args:
        device: "cpu", "cuda" or "cuda:1".
        threads: number of CPU threads. The peak of one thread counts, too, since several may be slower if they must wait.
        dtype: the name of a floating-point dtype.
        again: whether to measure it again; the larger of the speeds is kept.
    """
    import torch

    key = (device, threads, dtype, torch.get_float32_matmul_precision())
    if key not in _peaks or again:
        before = torch.get_num_threads()
        try:
            for count in sorted({1, threads}) if torch.device(device).type == "cpu" else [threads]:
                torch.set_num_threads(count)
                found = _measured_peak(device, dtype, count)
                _peaks[key] = found.or_faster(_peaks.get(key, found))
        finally:
            torch.set_num_threads(before)
    return _peaks[key]


_peaks: dict[tuple[str, int, str, str], Peak] = {}  # of this process


def _measured_peak(device: str, dtype: str, threads: int) -> Peak:
    """Measure the peak by compiled loops if there is a C++ compiler; else by convolutions, matrix-vector products and copies.

    Matrix products are measured in any case, since some processors have matrix units that loops do not use. Several kinds of
    work are needed because none is the fastest everywhere: a library's matrix products may have half the speed of its
    convolutions.
    """
    import torch

    kind = "cuda" if torch.device(device).type == "cuda" else "cpu"
    options = {"device": device, "dtype": getattr(torch, dtype)}
    computed, moved = [0.0], dict[int, float]()
    compiled = _compiled_loops() if (kind, dtype) == ("cpu", "float32") else None
    with torch.no_grad():
        for side in SIDES[kind]:
            matrix = torch.rand(side, side, **options)
            computed.append(side**3 / _fastest_seconds(functools.partial(torch.mm, matrix, matrix), device))
        if compiled is not None:  # several cores are at most so many times as fast as one
            computed.append(threads * compiled.flops_per_second)
            moved = {size: threads * speed for size, speed in compiled.bandwidths}
        else:
            computed += _convolutions(kind, device, options)
            moved = _movements(kind, device, options)
    return Peak(max(computed), max(moved.values()), tuple(sorted(moved.items())))


def _compiled_loops() -> Peak | None:
    """Return the peak of one core; None without a C++ compiler."""
    from syno.measure.native.peaks import bytes_per_second, products_per_second

    products, bandwidths = products_per_second(), bytes_per_second()
    return None if products is None else Peak(products, max(speed for _, speed in bandwidths), bandwidths)


def _convolutions(kind: str, device: str, options: dict[str, Any]) -> Iterator[float]:
    """Yield the FLOPs per second of convolutions in both memory formats, for a kind of device ("cpu" or "cuda")."""
    import torch
    from torch.nn import functional

    for batch, channels, side in PICTURES[kind]:
        for layout in (torch.contiguous_format, torch.channels_last):
            x = torch.rand(batch, channels, side, side, **options).contiguous(memory_format=layout)
            weight = torch.rand(channels, channels, 3, 3, **options).contiguous(memory_format=layout)
            work = functools.partial(functional.conv2d, x, weight, padding=1)
            yield 9 * channels * x.numel() / _fastest_seconds(work, device)


def _movements(kind: str, device: str, options: dict[str, Any]) -> dict[int, float]:
    """Return the bytes per second of matrix-vector products and copies, by their working set in bytes."""
    import torch

    moved = dict[int, float]()
    for side in ROWS[kind]:
        matrix, vector = torch.rand(side, side, **options), torch.rand(side, **options)
        read = matrix.numel() * matrix.element_size()
        moved[read] = read / _fastest_seconds(functools.partial(torch.mv, matrix, vector), device)
    for size in COPIED_BYTES[kind]:
        source, target = (torch.ones(size // 4, device=device) for _ in range(2))
        copied = 2 * size  # read and written
        speed = copied / _fastest_seconds(functools.partial(target.copy_, source), device)
        moved[copied] = max(speed, moved.get(copied, 0.0))
    return moved


def _fastest_seconds(work: Callable[[], object], device: str) -> float:
    stopwatch = stopwatch_of(device)
    return min(stopwatch(work) for _ in range(PEAK_ATTEMPTS)) / 1e3


def cache_bytes(device: torch.device) -> int:
    """Return the size of the device's largest cache in bytes; 64 MiB if the system does not report it."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    return max((_bytes(file.read_text(encoding="ascii")) for file in CACHES.glob("index*/size")), default=UNKNOWN_CACHE_BYTES)


def _bytes(text: str) -> int:
    """Return the number of bytes of a size in Linux's notation, such as "32768K"."""
    number, unit = text.strip()[:-1], text.strip()[-1:]
    return int(number) * {"K": 2**10, "M": 2**20, "G": 2**30}[unit] if unit in "KMG" else int(text)


def device_name(device: str) -> str:
    """Return the name of a device of this machine, such as "NVIDIA H200"."""
    if device.startswith("cuda"):
        import torch

        return str(torch.cuda.get_device_name(device))
    return processor()


def processor() -> str:
    """Return the name of the processor; on Arm, which has none, the name of the board. Does not load PyTorch."""
    return _about_processor("model name") or _board() or platform.processor() or platform.machine()


def _board() -> str:
    """Return the name of the board, such as "NVIDIA Jetson Orin Nano Developer Kit"; "" if the system does not report it."""
    return BOARD.read_text(encoding="utf-8", errors="replace").strip("\0 \n") if BOARD.exists() else ""


def processor_flags() -> frozenset[str]:
    """Return the CPU flags in /proc/cpuinfo; the empty set on systems without it."""
    return frozenset(_about_processor("flags").split())


def _about_processor(key: str) -> str:
    """Return the value of a key at its first place in /proc/cpuinfo; "" if there is none."""
    if not PROCESSORS.exists():
        return ""
    lines = PROCESSORS.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


def machine_id() -> str:
    """Return an identifier of this machine: a hash of the processor's name, the number of cores, the memory size, and a name.

    The name is /etc/machine-id, or the host name if there is no such file.
    """
    given = MACHINE_ID.read_text(encoding="utf-8").strip() if MACHINE_ID.exists() else ""
    pages = os.sysconf("SC_PHYS_PAGES") if "SC_PHYS_PAGES" in os.sysconf_names else 0
    return checksum(f"{given or platform.node()} {processor()} {os.cpu_count()} {pages}".encode())
