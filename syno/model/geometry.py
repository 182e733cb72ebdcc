"""Where the windows of a convolution lie, and how an operator that keeps the size of its input takes their place.

Along an axis, an operator has one output position for each position of its input, and reads around it. A convolution with
another padding has more or fewer, one with a stride skips some, and a transposed one adds some between. So zeros are added to
the layer's input, and the first and last positions of the operator's output are left out, such that a convolution that is
written as an operator reads what the layer reads at every position.
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
        kernel, stride, dilation: of the layer.
        padding: zeros ahead and behind.
    """

    kernel: int
    stride: int
    dilation: int
    padding: tuple[int, int]

    @property
    def _first(self) -> int:
        """The input's position that is the middle of the first window; of two, the second."""
        return self.dilation * (self.kernel // 2) - self.padding[0]

    @property
    def _rest(self) -> int:
        """The positions that a window reaches behind its middle, less the zeros behind."""
        return self.dilation * (self.kernel - 1 - self.kernel // 2) - self.padding[1]

    @property
    def skipped(self) -> int:
        """Positions of the operator that come before the layer's first one."""
        return -(-max(self._first, 0) // self.stride)

    @property
    def zeros(self) -> tuple[int, int]:
        """Zeros that are added to the input, ahead and behind."""
        return self.stride * self.skipped - self._first, max(-self._rest, 0)

    @property
    def keeps(self) -> bool:
        """Whether there is an operator's position for each of the layer's, and no other."""
        return self.zeros == (0, 0) and self.skipped == 0 and self._rest <= 0

    def positions(self, length: int) -> int:
        """Return the operator's positions along the axis for an input of this length."""
        ahead, behind = self.zeros
        return -(-(ahead + length + behind) // self.stride)

    def output(self, length: int) -> int:
        """Return the layer's positions along the axis for an input of this length."""
        return (length - 1 - self._first - self._rest) // self.stride + 1


@dataclass(frozen=True)
class TransposedAxis:
    """A transposed convolution along one axis: each position of the input becomes `stride` positions of the output.

    Attributes:
        kernel, stride, dilation, padding: of the layer.
        output_padding: positions that are added behind.
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
        """Positions of the output ahead of and behind those that the input's positions become; negative if there are fewer."""
        ahead = -((self.stride - self._reach) // 2) - self.padding
        return ahead, self._reach + self.output_padding - self.stride - 2 * self.padding - ahead

    @property
    def zeros(self) -> tuple[int, int]:
        """Zeros that are added to the input, ahead and behind."""
        ahead, behind = (-(-max(margin, 0) // self.stride) for margin in self._margins)
        return ahead, behind

    @property
    def skipped(self) -> int:
        """Positions of the operator's output that come before the layer's first one."""
        return self.stride * self.zeros[0] - self._margins[0]

    @property
    def keeps(self) -> bool:
        """Whether there is an operator's position for each of the layer's, and no other."""
        return self._margins == (0, 0)

    def positions(self, length: int) -> int:
        """Return the positions of the operator's output for an input of this length."""
        return self.stride * (sum(self.zeros) + length)

    def output(self, length: int) -> int:
        """Return the layer's positions along the axis for an input of this length."""
        return self.stride * length + sum(self._margins)


LayerAxis: TypeAlias = ConvolutionAxis | TransposedAxis
Ends: TypeAlias = tuple[tuple[int, int], ...]  # positions ahead of and behind those along each axis


@dataclass(frozen=True)
class Padding:
    """The padding that a convolution adds around its input.

    Attributes:
        mode: "zeros", "circular", "reflect" or "replicate", as PyTorch names them; or "ceil": as many zeros as make
            ceil(length / stride) positions of an input of any length, as TensorFlow's "SAME" does.
        ends: how many positions are added; for "ceil" what they are depends on the length, and this is ().
    """

    mode: str
    ends: Ends = ()

    @property
    def is_of_zeros(self) -> bool:
        """Whether it is of zeros, as many for each length, which `axes_of` knows. Another padding comes before the axes."""
        return self.mode == "zeros"


def ends_of(layer: nn.Module) -> Ends:
    """Return the positions that a convolution adds, as its attribute `padding` has them.

    "same" adds as many as the window reaches, of an odd number one more behind.
    """
    reaches = [dilation * (kernel - 1) for kernel, dilation in zip(layer.kernel_size, layer.dilation, strict=True)]
    if layer.padding == "same":
        return tuple((reach // 2, reach - reach // 2) for reach in reaches)
    return tuple((zeros, zeros) for zeros in ([0] * len(reaches) if isinstance(layer.padding, str) else layer.padding))


def ends_of_ceil(layer: nn.Module, lengths: Sequence[int]) -> Ends:
    """Return the zeros that make ceil(length / stride) positions along each axis, of an odd number one more behind."""
    ends = []
    for length, kernel, stride, dilation in zip(lengths, layer.kernel_size, layer.stride, layer.dilation, strict=True):
        missing = dilation * (kernel - 1) + 1 - stride + (-length) % stride
        missing = missing * (missing > 0)  # not max(), which torch.fx cannot trace
        ends.append((missing // 2, missing - missing // 2))
    return tuple(ends)


def axes_of(layer: nn.Module, padding: Padding | None = None) -> tuple[LayerAxis, ...]:
    """Return a convolution's axes after that of the channels; () for another layer.

    Args:
        layer: any layer.
        padding: of a convolution, if it is another one than its attribute `padding` says.
    """
    if isinstance(layer, TRANSPOSED):
        fields = zip(layer.kernel_size, layer.stride, layer.dilation, layer.padding, layer.output_padding, strict=True)
        return tuple(TransposedAxis(*one) for one in fields)
    if not isinstance(layer, CONVOLUTIONS):
        return ()
    ends = ends_of(layer) if padding is None else padding.ends if padding.is_of_zeros else ((0, 0),) * len(layer.kernel_size)
    sizes = zip(layer.kernel_size, layer.stride, layer.dilation, ends, strict=True)
    return tuple(ConvolutionAxis(kernel, stride, dilation, zeros) for kernel, stride, dilation, zeros in sizes)
