"""Fit the constants of the cost model by which generated PyTorch code is chosen.

    python benchmarks/eager_costs.py

Convolutions, products and copies of many sizes are timed on one thread. For each kind of statement, three constants are fitted:
microseconds of a call, of a million multiply-adds, and of a million elements read or written; no constant is negative, and the
squared relative errors are least. The constants go to standard output as the table in `costs.py`, with their errors.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from statistics import median

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor
from torch.nn import functional

from syno.lower.pytorch.costs import FEW_CHANNELS
from syno.measure.machine import processor

PLACES = ((64, 56), (128, 28), (256, 14), (512, 7), (64, 8), (128, 4), (256, 2), (512, 1), (32, 32), (96, 16))
ROUNDS, SECONDS = 7, 0.004
Case = tuple[str, float, float, Callable[[], object]]  # kind, multiply-adds and elements in millions, the statement


def main() -> int:
    """Measure, fit and print."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    machine = f"{processor()}, one thread, torch {torch.__version__}"
    print(f"# Fitted on {datetime.now(UTC):%Y-%m-%d} by benchmarks/eager_costs.py: {machine}.")
    rows: dict[str, list[tuple[float, float, float]]] = {}
    print("Measuring takes some minutes", file=sys.stderr)
    with torch.no_grad():
        for kind, multiplications, elements, call in cases():
            rows.setdefault(kind, []).append((multiplications, elements, microseconds(call)))
    for kind, found in rows.items():
        table = np.array(found)
        terms = np.column_stack([np.ones(len(table)), table[:, 0], table[:, 1]])
        constants, _ = nnls(terms / table[:, 2:], np.ones(len(table)))
        errors = np.abs(terms @ constants / table[:, 2] - 1)
        numbers = ", ".join(f"{one:.3g}" for one in constants)
        print(f'    "{kind}": Rate({numbers}),  # {len(table)} sizes; median error {100 * median(errors):.0f} %')
    return 0


def cases() -> Iterator[Case]:
    """Statements such as generated code has, each at the sizes of some layers."""
    for batch in (1, 8):
        for channels, size in PLACES:
            x = torch.randn(batch, channels, size, size)
            yield from copies(x)
            for outputs in (channels, 3 * channels // 2):
                for taps in ((1, 1), (1, 3), (3, 1), (3, 3)):
                    for groups in (1, 2, channels // 16, channels // 4, channels // 2, channels):
                        if groups and outputs % groups == 0 and channels % groups == 0:
                            yield from convolutions(x, outputs, taps, groups)
                for groups in (1, channels // 16, channels // 4):
                    if outputs % groups == 0:
                        yield product(x, outputs, groups)


def copies(x: Tensor) -> Iterator[Case]:
    """Statements that copy without a multiplication."""
    read_and_written = 2 * x.numel() / 1e6
    n, c, h, w = x.shape
    if h > 1:  # else both formats are the same
        yield "copy", 0, read_and_written, lambda: x.contiguous(memory_format=torch.channels_last)
    yield "copy", 0, read_and_written, lambda: x.reshape(n, 4, c // 4, h, w).permute(0, 2, 1, 3, 4).reshape(n, c, h, w)
    yield "copy", 0, read_and_written, lambda: x.roll(1, 3)
    weight = torch.randn(c, 3, 8)  # small tensors are mostly weights, whose axes are short
    yield "copy", 0, 2 * weight.numel() / 1e6, lambda: weight.permute(0, 2, 1).reshape(c * 8, 3)
    yield "copy", 0, 4 * weight.numel() / 1e6, lambda: torch.diag_embed(weight.permute(0, 2, 1))

    def shear() -> Tensor:
        parts = functional.pad(x.reshape(n, 2, c // 2, h, w), [1, 1])
        return torch.stack([parts.select(1, j).narrow(3, j, w) for j in range(2)], 1)

    yield "slices", 0, 2 * read_and_written, shear


def convolutions(x: Tensor, outputs: int, taps: tuple[int, int], groups: int) -> Iterator[Case]:
    """A convolution in both memory formats."""
    n, channels, h, w = x.shape
    weight = torch.randn(outputs, channels // groups, *taps)
    multiplications = n * h * w * weight.numel() / 1e6
    elements = (x.numel() + n * outputs * h * w + weight.numel()) / 1e6
    kind = "grouped convolution" if groups > 1 and channels // groups < FEW_CHANNELS else "convolution"
    padding = (taps[0] // 2, taps[1] // 2)
    yield kind, multiplications, elements, lambda: functional.conv2d(x, weight, padding=padding, groups=groups)
    last, kernel = (tensor.contiguous(memory_format=torch.channels_last) for tensor in (x, weight))
    label = f"{kind}, channels last"
    yield label, multiplications, elements, lambda: functional.conv2d(last, kernel, padding=padding, groups=groups)


def product(x: Tensor, outputs: int, groups: int) -> Case:
    """A product by einsum, over the channels of each group."""
    n, channels, h, w = x.shape
    weight = torch.randn(groups, channels // groups, outputs // groups)
    elements = (x.numel() + n * outputs * h * w + weight.numel()) / 1e6
    data = x.reshape(n, groups, channels // groups, h, w)
    return "product", n * h * w * weight.numel() / 1e6, elements, lambda: torch.einsum("abcde,bcf->abfde", data, weight)


def microseconds(call: Callable[[], object]) -> float:
    """CPU time of one call: the least of some rounds, since other work can only slow it down."""
    call()
    began = time.process_time()
    call()
    repeats = max(1, int(SECONDS / max(time.process_time() - began, 1e-6)))
    rounds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(repeats):
            call()
        rounds.append((time.process_time() - began) / repeats)
    return 1e6 * min(rounds)


if __name__ == "__main__":
    sys.exit(main())
