"""An operator's kernels in a network as one row of numbers by name, for models that take rows, and for tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from syno.ir.graph import PGraph
from syno.measure.prediction.description import DENSE
from syno.measure.prediction.kernels import Kernel, Kind, kernels

MILLION = 1e6
FEW = 8  # elements side by side, below which a copy cannot move whole vectors


def features(operator: PGraph, layers: Sequence[Mapping[str, int]]) -> Mapping[str, float]:
    """Return sums over the kernels that an operator runs in all layers, without those on weights alone.

    In millions: FLOPs of convolutions (plain, with a window of 1, grouped, depthwise) and products of matrices; elements that
    convolutions, products, copies and element-wise kernels move. Copies that change the order of axes count again as scattered.
    Also the numbers of kernels of each kind.

    Args:
        operator: the operator.
        layers: the sizes of each layer, with the batch.

    Raises:
        ValuationError, SizeError, LoweringError: the operator does not fit a layer.
    """
    found = dict.fromkeys(NAMES, 0.0)
    for layer in layers:
        values = {name: value for name, value in layer.items() if name in operator.variables}
        for kernel in kernels(operator, values):
            if not kernel.of_weights:
                for name, number in _parts(kernel):
                    found[name] += number
    return found


def _parts(kernel: Kernel) -> list[tuple[str, float]]:
    moved = (kernel.read + kernel.written) / MILLION
    parts = [(f"{kernel.kind}s", 1.0), (f"moved by {kernel.kind}s", moved)]
    if kernel.kind in DENSE:
        parts.append((_flops(kernel), kernel.flops / MILLION))
    elif kernel.run < FEW:
        parts.append((f"scattered by {kernel.kind}s", moved))
    return parts


def _flops(kernel: Kernel) -> str:
    if kernel.kind is Kind.PRODUCT:
        return "FLOPs of products"
    if kernel.groups > 1:
        return "FLOPs of depthwise convolutions" if kernel.channels == 1 else "FLOPs of grouped convolutions"
    return "FLOPs of convolutions" if kernel.taps > 1 else "FLOPs of 1x1 convolutions"


NAMES = (
    *("FLOPs of convolutions", "FLOPs of 1x1 convolutions", "FLOPs of grouped convolutions", "FLOPs of depthwise convolutions"),
    "FLOPs of products",
    *(f"{kind}s" for kind in Kind),
    *(f"moved by {kind}s" for kind in Kind),
    *(f"scattered by {kind}s" for kind in Kind if kind not in DENSE),
)
