"""Efficient layers of the literature for any kernel and number of axes; `standard` has those for square pictures."""

from __future__ import annotations

from collections.abc import Sequence

from syno.ir.builder import Builder
from syno.ir.dim import Dim
from syno.ir.graph import PGraph
from syno.ir.rewriting import HEIGHT, NAMES_OF_AXES

# Variables of a layer's positions, by the axes of its kernel: pictures are square, and a linear layer has the kernel ().
LENGTHS = {**NAMES_OF_AXES, 0: ("seq_len",), 2: (HEIGHT, HEIGHT)}


def separable(kernel: Sequence[int]) -> PGraph:
    """Return a convolution of each channel with this kernel, then a 1x1 convolution: [N, C_in, ...] -> [N, C_out, ...].

    >>> import syno
    >>> print(syno.expression(separable([25])).partition("  where")[0])
    y[i0, i1, i2] = sum(r0, r1) x[i0, r0, i2 + r1 - k//2] * w1[i1, r0] * w2[r0, r1]

    Source: Howard 2017, MobileNets.
    """
    build = _builder("separable", kernel)
    n, o, positions = _axes(build, kernel)
    (c,) = build.contract(outer=[o], inner=build.reduce("C_in"))
    c, *window = build.contract(inner=[c, *_window(build, kernel)])
    return build.finish([n, c, *_reading(build, kernel, positions, window)])


def grouped(kernel: Sequence[int], groups: int) -> PGraph:
    """Return a layer with `groups` groups of channels; () is the kernel of a linear layer.

    [N, C_in, ...] -> [N, C_out, ...]; [N, seq_len, H_in] -> [N, seq_len, H_out].

    Source: Xie 2017, ResNeXt.
    """
    build, (before, after) = _builder("grouped", kernel, g=groups), _channels(kernel)
    n, channel, positions = _axes(build, kernel)
    group, o = build.merge(channel, f"g^-1*{after}")
    group, c, *window = build.contract([group, o, *build.reduce(f"g^-1*{before}"), *_window(build, kernel)], outer=[o])
    return _finished(build, kernel, n, build.split(group, c), _reading(build, kernel, positions, window))


def low_rank(kernel: Sequence[int], rank: int) -> PGraph:
    """Return a convolution to `rank` channels, then a 1x1 convolution to all; () is the kernel of a linear layer.

    [N, C_in, ...] -> [N, C_out, ...]; [N, seq_len, H_in] -> [N, seq_len, H_out].

    Source: Zhang 2015, accelerating very deep convolutional networks.
    """
    build, (before, _) = _builder("low_rank", kernel, r=rank), _channels(kernel)
    n, channel, positions = _axes(build, kernel)
    (q,) = build.contract(outer=[channel], inner=build.reduce("r"))
    c, *window = build.contract(outer=[q], inner=[*build.reduce(before), *_window(build, kernel)])
    return _finished(build, kernel, n, c, _reading(build, kernel, positions, window))


def dropped(kernel: Sequence[int]) -> PGraph:
    """Return the identity, in place of a layer that is left out: [N, C_in, ...] -> [N, C_in, ...].

    In place of a linear layer, whose kernel is (), it is [N, seq_len, H_in] -> [N, seq_len, H_in].
    """
    build, (before, _) = _builder("dropped", kernel), _channels(kernel)
    return build.finish(build.output(_shape(before, kernel)))


def _builder(name: str, kernel: Sequence[int], **values: int) -> Builder:
    """Return a builder for a layer: its primaries, with the sizes of its windows and `values` as defaults of variables."""
    primaries = dict.fromkeys(("N", *_channels(kernel), *LENGTHS[len(kernel)]))
    given = {**dict(zip(_names(kernel), filter(_is_window, kernel), strict=True)), **values}
    return Builder(f"{', '.join(primaries)}; {', '.join(f'{key}={value}' for key, value in given.items())}", name)


def _channels(kernel: Sequence[int]) -> tuple[str, str]:
    return ("C_in", "C_out") if kernel else ("H_in", "H_out")


def _is_window(size: int) -> bool:
    return size > 1


def _names(kernel: Sequence[int]) -> list[str]:
    """Return a variable for each axis along which the kernel has several positions; one variable for all if sizes are equal."""
    sizes = list(filter(_is_window, kernel))
    return ["k"] * len(sizes) if len(set(sizes)) == 1 else [f"k_{number}" for number in range(1, len(sizes) + 1)]


def _window(build: Builder, kernel: Sequence[int]) -> tuple[Dim, ...]:
    return build.reduce(", ".join(_names(kernel))) if _names(kernel) else ()


def _shape(channels: str, kernel: Sequence[int]) -> str:
    return ", ".join(("N", channels, *LENGTHS[len(kernel)]) if kernel else ("N", *LENGTHS[0], channels))


def _axes(build: Builder, kernel: Sequence[int]) -> tuple[Dim, Dim, list[Dim]]:
    """Return the axes of the output: batch, channels or features, and the list of positions."""
    n, *others = build.output(_shape(_channels(kernel)[1], kernel))
    return (n, others[0], others[1:]) if kernel else (n, others[-1], others[:-1])


def _reading(build: Builder, kernel: Sequence[int], positions: Sequence[Dim], window: Sequence[Dim]) -> list[Dim]:
    """Return the spatial axes of the input, with an Unfold along each axis on which the kernel has several positions."""
    if not kernel:
        return list(positions)
    inside = iter(window)
    return [build.unfold(at, next(inside)) if size > 1 else at for at, size in zip(positions, kernel, strict=True)]


def _finished(build: Builder, kernel: Sequence[int], n: Dim, channel: Dim, positions: Sequence[Dim]) -> PGraph:
    return build.finish([n, channel, *positions] if kernel else [n, *positions, channel])
