"""The most that one core computes and moves, by compiled loops that do nothing else: no code is faster.

Each loop takes a fraction of a millisecond and is repeated many times, so that the fastest repeat is undisturbed where others
use the machine.
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
SIZES = tuple(
    2**power for power in (14, 15, 17, 18, 20, 22, 24, 26)
)  # bytes that are read, or read and written, again and again
LEAST_BYTES = 2**24  # in one repeat, for the same reason
SECONDS, LEAST_REPEATS = 0.02, 5
SOURCE = Path(__file__).with_name("peaks.cpp")


def _chains(target: Target) -> int:
    """Return the number of independent chains of products: more than hide the latency of one product."""
    return target.registers - 4


@functools.cache
def _library() -> Any:
    """The compiled loops; None where there is no compiler, or it refuses them."""
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
    """Return the multiply-adds of float32 that one core does in a second; None where nothing can be compiled."""
    loops, target = _library(), own_target()
    if loops is None:
        return None
    starts = np.arange(_chains(target), dtype=np.float32)
    taken = _fastest_seconds(lambda: loops.products(starts.ctypes.data, PRODUCTS_LAPS, 0.5, 1.0))
    return PRODUCTS_LAPS * _chains(target) * target.lanes / taken


def bytes_per_second() -> tuple[tuple[int, float], ...]:
    """Return how many bytes one core reads, or reads and writes, in a second, by how many it goes through again and again.

    Empty where nothing can be compiled.
    """
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
