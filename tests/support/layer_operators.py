"""Convolutions of every kind as operators: one operator for each number of axes, and the weights that make it the layer.

The operator of a layer has one window per axis, which is wide enough for the layer's taps; its weights are the layer's taps at
their places, and zeros elsewhere. A stride is the operator's own.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import nn

import syno
from syno.ir.graph import PGraph

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NAMES = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}


def operator(dimensions: int, *, is_transposed: bool) -> PGraph:
    """Return an operator with a weight [C_out, C_in, window, ..., place in the stride, ...]."""
    names = NAMES[dimensions]
    windows = [f"k_{axis}" for axis in range(dimensions)]
    build = syno.Builder(f"N, C_in, C_out, {', '.join(names)}; stride, {', '.join(windows)}", name="own")
    after = [f"stride*{name}" if is_transposed else name for name in names]
    n, o, *positions = build.output(f"N, C_out, {', '.join(after)}")
    c, *taps = build.reduce(f"C_in, {', '.join(windows)}")
    if is_transposed:
        positions, places = zip(*(build.merge(position, "stride") for position in positions), strict=True)
    else:
        places = build.reduce(", ".join(["stride"] * dimensions))
    weight = build.weight()
    o, c, *rest = [build.share(dim, weight) for dim in (o, c, *taps, *places)]
    taps, places = rest[:dimensions], rest[dimensions:]
    for dim in (o, *places) if is_transposed else (o,):
        build.expand(dim)  # the input has no such axis
    if not is_transposed:
        positions = [build.split(position, place) for position, place in zip(positions, places, strict=True)]
    read = [build.unfold(position, tap) for position, tap in zip(positions, taps, strict=True)]
    return build.finish([n, c, *read])


def weights_of(layer: Any, module: Any) -> torch.Tensor:
    """Return the operator's weights: the layer's taps at their places in the windows."""
    made = torch.zeros_like(module.w1)
    is_transposed = isinstance(layer, tuple(TRANSPOSED.values()))
    inner, outer = layer.in_channels // layer.groups, layer.out_channels // layer.groups
    dimensions = len(layer.kernel_size)
    middles = [length // 2 for length in made.shape[2 : 2 + dimensions]]
    for taps in product(*map(range, layer.kernel_size)):
        for places in product(*map(range, made.shape[2 + dimensions :])) if made.dim() > 2 + dimensions else [()]:
            if is_transposed:  # the output's position at this place in the stride reads the input's at this distance
                reach = [d * (k - 1) + 1 for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
                starts = [-((s - r) // 2) for s, r in zip(layer.stride, reach, strict=True)]
                far = [b + h - d * r for b, h, d, r in zip(places, starts, layer.dilation, taps, strict=True)]
                if any(one % s for one, s in zip(far, layer.stride, strict=True)):
                    continue
                at = [one // s for one, s in zip(far, layer.stride, strict=True)]
            elif any(places):
                continue
            else:
                at = [d * (r - k // 2) for d, r, k in zip(layer.dilation, taps, layer.kernel_size, strict=True)]
            place = (*(middle + one for middle, one in zip(middles, at, strict=True)), *places)
            for group in range(layer.groups):
                rows, columns = slice(group * outer, (group + 1) * outer), slice(group * inner, (group + 1) * inner)
                own = layer.weight[(slice(None), slice(None), *taps)]
                own = own[columns].T if is_transposed else own[rows]
                made[(rows, columns, *place)] = own
    return made
