"""Modules around an operator in a network: they add the bias of the layer that it replaces, or change axes and positions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from syno.model.computation import padded
from syno.model.geometry import LayerAxis, Padding, ends_of_ceil
from syno.model.layer import Layer
from syno.model.stand_in import InPlace, Sequential, in_place

POOLINGS = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}  # by the number of axes of positions


class Bias(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """A learnt number for each channel or feature. [N, C, ...] -> the same for pictures, [..., C] for features.

    Args:
        values: where training begins, [C].
        axes: the number of axes after that of the channels: 2 for pictures, 0 for features.
    """

    def __init__(self, values: torch.Tensor, axes: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(values.detach().clone())
        self.axes = axes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum."""
        return x + self.bias.view(-1, *(1,) * self.axes)

    def extra_repr(self) -> str:
        """Return the number of channels."""
        return f"{len(self.bias)}"


class Fitted(InPlace):
    """A module in place of a convolution whose padding, kernel or stride gives it other positions than the module has.

    Args:
        module: from [N, C_in, ...] to [N, C_out, ...], around which zeros are added and positions are left out.
        axes: the layer's axes after that of the channels.
        has_stride: whether the module takes lengths that are multiples of the stride only, so that zeros fill them up.
    """

    def __init__(self, module: nn.Module, axes: Sequence[LayerAxis], *, has_stride: bool = False) -> None:
        super().__init__()
        self.module, self.axes, self.has_stride = module, tuple(axes), has_stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what has as many positions as the layer's output has."""
        lengths = [x.shape[2 + place] for place in range(len(self.axes))]
        zeros: list[int] = []
        for axis, length in zip(reversed(self.axes), reversed(lengths), strict=True):
            ahead, behind = axis.zeros
            zeros += [ahead, behind + (-(ahead + length + behind)) % axis.stride if self.has_stride else behind]
        if self.has_stride or any(zeros):
            x = functional.pad(x, zeros)
        x = self.module(x)
        for place, (axis, length) in enumerate(zip(self.axes, lengths, strict=True), 2):
            if not axis.keeps:
                x = x.narrow(place, axis.skipped, axis.output(length))
        return x

    def extra_repr(self) -> str:
        """Return the zeros and the positions that are left out."""
        return f"zeros={[axis.zeros for axis in self.axes]}, skipped={[axis.skipped for axis in self.axes]}"


class Padded(nn.Module):  # type: ignore[misc]
    """Adds the positions of a convolution's padding that are no zeros, or a number that depends on the length.

    Args:
        layer: the convolution.
        padding: what it adds to [N, C, ...].
    """

    def __init__(self, layer: nn.Module, padding: Padding) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.dilation = layer.kernel_size, layer.stride, layer.dilation
        self.mode, self.ends = padding.mode, padding.ends

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the longer tensor."""
        lengths = [x.shape[2 + axis] for axis in range(len(self.kernel_size))]
        return padded(x, self.ends or ends_of_ceil(self, lengths), self.mode)

    def extra_repr(self) -> str:
        """Return the mode and the number of positions."""
        return f"{self.mode}{f', {list(self.ends)}' if self.ends else ''}"


class InFormat(nn.Module):  # type: ignore[misc]
    """Brings a tensor into a memory format, for networks that use `view` on it.

    Args:
        memory_format: torch.contiguous_format or torch.channels_last.
    """

    def __init__(self, memory_format: torch.memory_format) -> None:
        super().__init__()
        self.memory_format = memory_format

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tensor in the memory format: itself if it is in it."""
        return x.contiguous(memory_format=self.memory_format)

    def extra_repr(self) -> str:
        """Return the memory format."""
        return str(self.memory_format)


class AlongAxes(InPlace):
    """A module of [N, L, features] for tensors with another number of axes between N and the features, such as [N, features].

    Args:
        module: is applied to all positions of these axes.
        axes: their number, 0 or more.
    """

    def __init__(self, module: nn.Module, axes: int) -> None:
        super().__init__()
        self.module, self.axes = module, axes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, ..., features] -> [N, ..., other features]."""
        if self.axes == 0:
            return self.module(x.unsqueeze(1)).squeeze(1)
        return self.module(x.flatten(1, self.axes)).unflatten(1, x.shape[1 : 1 + self.axes])

    def extra_repr(self) -> str:
        """Return the number of axes."""
        return f"axes={self.axes}"


def in_place_of(module: nn.Module, layer: Layer, *, has_stride: bool = False) -> nn.Module:
    """Return the module in the layer's training mode, between what takes the place of the layer's stride, padding and bias.

    Args:
        module: of the operator, or of a baseline.
        layer: which it replaces.
        has_stride: whether it has the layer's stride itself.
    """
    if layer.is_projection and layer.axes != 1:
        module = AlongAxes(module, layer.axes)
    before: list[nn.Module] = []
    if layer.stride > 1 and not has_stride:
        scaled = layer.strides[0] if len(set(layer.strides)) == 1 else layer.strides
        pooling = POOLINGS[len(layer.strides)]
        before = [nn.Upsample(scale_factor=scaled) if layer.is_transposed else pooling(scaled, ceil_mode=True)]
    after = [] if layer.module.bias is None else [Bias(layer.module.bias, len(layer.lengths))]
    fills = has_stride and not layer.is_transposed and layer.positions != layer.shapes_with_stride[0][2:]
    if fills or not layer.keeps:
        inner = nn.Sequential(*before, module) if before else module
        before, module = [], Fitted(inner, layer.windows, has_stride=fills)
    if layer.padding is not None and layer.pads_before:
        before.insert(0, Padded(layer.module, layer.padding))
    if layer.memory_format is not None:
        after.append(InFormat(layer.memory_format))
    # An operator's variable, such as its stride, is a number where a layer has one for each axis.
    has_others = any(hasattr(module, name) for name in layer.read)
    whole = in_place(Sequential(*before, module, *after) if before or after or has_others else module)
    whole.stand_for(layer.module)
    return whole.train(layer.module.training)
