"""Peak arithmetic speed and bandwidth of one core, measured by compiled loops that do nothing else.

Each loop takes a fraction of a millisecond and is repeated many times, so that the fastest repeat is undisturbed even on a busy
machine.
"""

from __future__ import annotations

import ctypes
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from syno.base.errors import MissingPackageError
from syno.lower.native.target import Target, own_target
from syno.measure.native.build import BuildError, library

PRODUCTS_LAPS = 50_000  # a tenth of a millisecond: the call from Python takes two microseconds
SIZES = tuple(2**power for power in (14, 15, 17, 18, 20, 22, 24, 26))  # working sets in bytes
LEAST_BYTES = 2**24  # in one repeat, so that the overhead of a call is negligible
SECONDS, LEAST_REPEATS = 0.02, 5
SOURCE = Path(__file__).with_name("peaks.cpp")


def _chains(target: Target) -> int:
    """Return the number of independent chains of multiply-adds that hides the latency of one multiply-add."""
    return target.registers - 4


@functools.cache
def _library() -> Any:
    """Return the library of compiled loops; None if there is no compiler, or it fails."""
    target = own_target()
    try:
        with tempfile.TemporaryDirectory(prefix="syno-peaks-") as folder:
            sizes = (f"-DLANES={target.lanes}", f"-DCHAINS={_chains(target)}")
            loops = ctypes.CDLL(str(library(SOURCE.read_text(encoding="utf-8"), target, Path(folder), "peaks", sizes)))
    except (MissingPackageError, BuildError, OSError):
        return None
    for name, types in {
        "products": (ctypes.c_void_p, ctypes.c_long, *[ctypes.c_float] * 2),
        "reads": (*[ctypes.c_void_p] * 2, *[ctypes.c_long] * 2),
        "copies": (*[ctypes.c_void_p] * 2, *[ctypes.c_long] * 2),
    }.items():
        getattr(loops, name).argtypes, getattr(loops, name).restype = types, ctypes.c_float
    return loops


def products_per_second() -> float | None:
    """Return the float32 multiply-adds per second of one core; None if nothing can be compiled."""
    loops, target = _library(), own_target()
    if loops is None:
        return None
    starts = np.arange(_chains(target), dtype=np.float32)
    taken = _fastest_seconds(lambda: loops.products(starts.ctypes.data, PRODUCTS_LAPS, 0.5, 1.0))
    return PRODUCTS_LAPS * _chains(target) * target.lanes / taken


def bytes_per_second() -> tuple[tuple[int, float], ...]:
    """Return (working set in bytes, bytes per second) pairs of reads and copies by one core; () if nothing can be compiled."""
    loops, target = _library(), own_target()
    if loops is None:
        return ()
    memory = np.zeros(SIZES[-1] + 2**12, np.uint8)
    start = memory.ctypes.data + -memory.ctypes.data % 2**12
    found = []
    for size in SIZES:
        laps = -(-LEAST_BYTES // size)
        vectors = size // (4 * target.lanes)
        half = start + size // 2
        reading = _fastest_seconds(lambda: loops.reads(start, None, vectors, laps))  # noqa: B023  # called at once
        copying = _fastest_seconds(lambda: loops.copies(start, half, vectors // 2, laps))  # noqa: B023
        found.append((size, size * laps / min(reading, copying)))
    return tuple(found)


def _fastest_seconds(work: Callable[[], object]) -> float:
    work()
    fastest, repeats, end = float("inf"), 0, time.perf_counter() + SECONDS
    while repeats < LEAST_REPEATS or time.perf_counter() < end:
        began = time.perf_counter()
        work()
        fastest = min(fastest, time.perf_counter() - began)
        repeats += 1
    return fastest
