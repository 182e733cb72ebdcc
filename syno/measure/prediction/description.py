"""Kernels as rows of numbers, and an estimate of their time.

Both describe a kernel by what it does, not by the operator or the network in which it occurs. So a model learns from all
kernels of all operators that were measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syno.measure.prediction.kernels import Kernel, Kind

Numbers = NDArray[np.float64]

# A nominal CPU core. Only ratios matter, and only until measurements tell more: models learn factors of these estimates.
CALL_MS, FLOPS_PER_MS, BYTES_PER_MS = 0.003, 4e7, 8e6
FLOAT_BYTES = 4
READER_SHARE = 0.3  # of the time of a reader that depends on how the tensor lies; the rest every operator's output costs

DENSE = (Kind.CONVOLUTION, Kind.PRODUCT)
MOST_RUN, MOST_GAP = 5.0, 12.0  # logarithms; beyond a cache line and a page it makes no difference

# The columns: how far apart two kernels are that differ by 1 in it. Sizes are logarithms to base 2.
COLUMNS: Mapping[str, tuple[float, Callable[[Kernel], float]]] = {
    **{kind.value: (4.0, lambda kernel, kind=kind: kernel.kind is kind) for kind in Kind},  # type: ignore[misc]
    "grouped": (3.0, lambda kernel: kernel.kind in DENSE and kernel.groups > 1),
    "depthwise": (3.0, lambda kernel: kernel.kind is Kind.CONVOLUTION and kernel.groups > 1 and kernel.channels == 1),
    "of weights": (4.0, lambda kernel: kernel.of_weights),
    "groups": (1.0, lambda kernel: math.log2(kernel.groups)),
    "channels per group": (2.0, lambda kernel: math.log2(kernel.channels)),
    "outputs per group": (2.0, lambda kernel: math.log2(max(kernel.outputs, 1))),
    "taps": (2.0, lambda kernel: math.log2(kernel.taps)),
    "positions": (0.5, lambda kernel: math.log2(max(kernel.positions, 1))),
    "run": (1.0, lambda kernel: min(math.log2(kernel.run), MOST_RUN)),
    "gap": (0.5, lambda kernel: min(math.log2(max(kernel.gap, 0.5)), MOST_GAP)),
    "spread": (0.5, lambda kernel: min(math.log2(max(kernel.spread, 0.5)), MOST_GAP)),
    "row read": (2.0, lambda kernel: min(math.log2(kernel.row_read), MOST_RUN)),
    "row written": (2.0, lambda kernel: min(math.log2(kernel.row_written), MOST_RUN)),
    "read": (0.5, lambda kernel: math.log2(max(kernel.read, 1))),
    "written": (0.5, lambda kernel: math.log2(max(kernel.written, 1))),
}


@dataclass(frozen=True)
class Description:
    """The kernels of an operator in a network.

    Attributes:
        rows: shape [kernels, columns]; distances between rows say how unlike kernels are.
        weights: shape [kernels]: the estimated milliseconds of each kernel in all layers together.
        kinds: shape [kernels].

    """

    rows: Numbers
    weights: Numbers
    kinds: tuple[Kind, ...]


def describe(layers: Sequence[tuple[int, Sequence[Kernel]]]) -> Description:
    """Return the description of an operator from its kernels in each distinct layer, with the number of such layers."""
    counts: dict[Kernel, int] = {}
    for count, kernels in layers:
        for kernel in kernels:
            counts[kernel] = counts.get(kernel, 0) + count
    rows = np.array([row(kernel) for kernel in counts]).reshape(len(counts), len(COLUMNS))
    weights = np.array([count * estimated_ms(kernel) for kernel, count in counts.items()])
    return Description(rows, weights, tuple(kernel.kind for kernel in counts))


def row(kernel: Kernel) -> list[float]:
    """Return the numbers of a kernel, one for each of `COLUMNS`."""
    return [scale * float(number(kernel)) for scale, number in COLUMNS.values()]


def estimated_ms(kernel: Kernel) -> float:
    """Return the time of a kernel on a nominal core: its arithmetic, its traffic, and the call."""
    moved = (kernel.read + kernel.written) * FLOAT_BYTES / BYTES_PER_MS
    if kernel.kind is Kind.READER:
        return READER_SHARE * moved
    return CALL_MS + moved + (kernel.flops / FLOPS_PER_MS if kernel.kind in DENSE else 0.0)
