"""Alignment of windows: how an operator that keeps its input's size replaces a convolution with any padding and stride.

An operator has one output position for each input position, around which it reads. A convolution with another padding has more
or fewer output positions, a strided one skips some, and a transposed one adds some between. So the operator's input is padded
with zeros and its output is cropped, such that each output position reads the same input positions as in the layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torch import nn

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@dataclass(frozen=True)
class ConvolutionAxis:
    """A convolution along one axis. Positions are counted from 0.

    Attributes:
        kernel, stride, dilation: kernel size, stride and dilation of the layer.
        padding: numbers of zeros ahead and behind.
    """

    kernel: int
    stride: int
    dilation: int
    padding: tuple[int, int]

    @property
    def _first(self) -> int:
        """Input position at the middle of the layer's first window; for an even window, the second of the middle positions."""
        return self.dilation * (self.kernel // 2) - self.padding[0]

    @property
    def _rest(self) -> int:
        """Number of input positions that a window reads behind its middle, minus the number of zeros behind the input."""
        return self.dilation * (self.kernel - 1 - self.kernel // 2) - self.padding[1]

    @property
    def skipped(self) -> int:
        """Number of output positions of the operator before the first of the layer; they are cropped."""
        return -(-max(self._first, 0) // self.stride)

    @property
    def zeros(self) -> tuple[int, int]:
        """Numbers of zeros added to the operator's input, ahead and behind."""
        return self.stride * self.skipped - self._first, max(-self._rest, 0)

    @property
    def keeps(self) -> bool:
        """Whether the operator's output positions equal the layer's, so that nothing is padded or cropped."""
        return self.zeros == (0, 0) and self.skipped == 0 and self._rest <= 0

    def positions(self, length: int) -> int:
        """Return the operator's number of output positions, before cropping, for an input of this length."""
        ahead, behind = self.zeros
        return -(-(ahead + length + behind) // self.stride)

    def output(self, length: int) -> int:
        """Return the layer's number of output positions for an input of this length."""
        return (length - 1 - self._first - self._rest) // self.stride + 1


@dataclass(frozen=True)
class TransposedAxis:
    """A transposed convolution along one axis: each position of the input becomes `stride` positions of the output.

    Attributes:
        kernel, stride, dilation, padding: kernel size, stride, dilation and padding of the layer.
        output_padding: number of output positions added behind.
    """

    kernel: int
    stride: int
    dilation: int
    padding: int
    output_padding: int

    @property
    def _reach(self) -> int:
        return self.dilation * (self.kernel - 1) + 1

    @property
    def _margins(self) -> tuple[int, int]:
        """Numbers of the layer's output positions ahead of and behind the operator's `stride` * length positions; may be
        negative.
        """
        ahead = -((self.stride - self._reach) // 2) - self.padding
        return ahead, self._reach + self.output_padding - self.stride - 2 * self.padding - ahead

    @property
    def zeros(self) -> tuple[int, int]:
        """Numbers of zeros added to the operator's input, ahead and behind."""
        ahead, behind = (-(-max(margin, 0) // self.stride) for margin in self._margins)
        return ahead, behind

    @property
    def skipped(self) -> int:
        """Number of output positions of the operator before the first of the layer; they are cropped."""
        return self.stride * self.zeros[0] - self._margins[0]

    @property
    def keeps(self) -> bool:
        """Whether the operator's output positions equal the layer's, so that nothing is padded or cropped."""
        return self._margins == (0, 0)

    def positions(self, length: int) -> int:
        """Return the operator's number of output positions, before cropping, for an input of this length."""
        return self.stride * (sum(self.zeros) + length)

    def output(self, length: int) -> int:
        """Return the layer's number of output positions for an input of this length."""
        return self.stride * length + sum(self._margins)


LayerAxis: TypeAlias = ConvolutionAxis | TransposedAxis
Ends: TypeAlias = tuple[tuple[int, int], ...]  # for each axis, numbers of positions added ahead and behind


@dataclass(frozen=True)
class Padding:
    """The padding that a convolution adds around its input.

    Attributes:
        mode: "zeros", "circular", "reflect" or "replicate", as PyTorch names them; or "ceil": zeros such that the output has
            ceil(length / stride) positions, as with TensorFlow's "SAME".
        ends: numbers of positions added; () for "ceil", where they depend on the input's length.
    """

    mode: str
    ends: Ends = ()

    @property
    def is_of_zeros(self) -> bool:
        """Whether the padding is a fixed number of zeros, which `axes_of` includes.

        Other paddings are a separate step before the layer.
        """
        return self.mode == "zeros"


def ends_of(layer: nn.Module) -> Ends:
    """Return the numbers of positions that a convolution pads at both ends of each axis, by its attribute `padding`.

    "same" pads the window's size minus 1 in total; if that is odd, the larger half is behind.
    """
    reaches = [dilation * (kernel - 1) for kernel, dilation in zip(layer.kernel_size, layer.dilation, strict=True)]
    if layer.padding == "same":
        return tuple((reach // 2, reach - reach // 2) for reach in reaches)
    return tuple((zeros, zeros) for zeros in ([0] * len(reaches) if isinstance(layer.padding, str) else layer.padding))


def ends_of_ceil(layer: nn.Module, lengths: Sequence[int]) -> Ends:
    """Return the numbers of zeros at both ends of each axis such that the output has ceil(length / stride) positions.

    If the total number is odd, the larger half is behind.
    """
    ends = []
    for length, kernel, stride, dilation in zip(lengths, layer.kernel_size, layer.stride, layer.dilation, strict=True):
        missing = dilation * (kernel - 1) + 1 - stride + (-length) % stride
        missing = missing * (missing > 0)  # not max(), which torch.fx cannot trace
        ends.append((missing // 2, missing - missing // 2))
    return tuple(ends)


def axes_of(layer: nn.Module, padding: Padding | None = None) -> tuple[LayerAxis, ...]:
    """Return the spatial axes of a convolution; () for any other layer.

    Args:
        layer: any layer.
        padding: the padding of a convolution if it differs from its attribute `padding`.
    """
    if isinstance(layer, TRANSPOSED):
        fields = zip(layer.kernel_size, layer.stride, layer.dilation, layer.padding, layer.output_padding, strict=True)
        return tuple(TransposedAxis(*axis) for axis in fields)
    if not isinstance(layer, CONVOLUTIONS):
        return ()
    ends = ends_of(layer) if padding is None else padding.ends if padding.is_of_zeros else ((0, 0),) * len(layer.kernel_size)
    sizes = zip(layer.kernel_size, layer.stride, layer.dilation, ends, strict=True)
    return tuple(ConvolutionAxis(kernel, stride, dilation, zeros) for kernel, stride, dilation, zeros in sizes)
