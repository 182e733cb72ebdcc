"""A replaceable layer of a network, with its sizes, and the sizes of an operator in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

import torch
from torch import nn

from syno.ir.rewriting import HEIGHT, NAMES_OF_AXES, WIDTH
from syno.model.geometry import TRANSPOSED, LayerAxis, Padding, axes_of, ends_of_ceil

STRIDE = "stride"  # variable of strided operators; for the others a pooling does the layer's stride


@dataclass(frozen=True)
class Layer:
    """A convolution, transposed convolution or linear layer that can be replaced.

    Attributes:
        name: the layer's name in the network, as `get_submodule` takes it.
        module: the layer.
        own_input, own_output: shapes of its input and output in the network.
        padding: the padding of a convolution if it differs from its attribute `padding`.
        aliases: the layer's other names in the network.
        memory_format: the memory format that the layer's output must have for the network to run (`view` needs one); None: any.
        read: the names of its attributes that the network reads, such as `stride`.
    """

    name: str
    module: nn.Module
    own_input: tuple[int, ...]
    own_output: tuple[int, ...]
    padding: Padding | None = None
    aliases: tuple[str, ...] = ()
    memory_format: torch.memory_format | None = None
    read: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the layer in the network."""
        return (self.name, *self.aliases)

    @property
    def windows(self) -> tuple[LayerAxis, ...]:
        """The spatial axes of a convolution, with kernel, stride, dilation and padding; () for a linear layer."""
        return axes_of(self.module, self.padding)

    @property
    def pads_before(self) -> bool:
        """Whether padding is a separate step before the operator: not of zeros, or of a number that depends on the length."""
        return self.padding is not None and not self.padding.is_of_zeros

    @property
    def positions(self) -> tuple[int, ...]:
        """The lengths of the layer's input along the spatial axes, including the padding if `pads_before`."""
        lengths = self.own_input[2:]
        if self.padding is None or not self.pads_before:
            return lengths
        ends = self.padding.ends or ends_of_ceil(self.module, lengths)
        return tuple(ahead + length + behind for length, (ahead, behind) in zip(lengths, ends, strict=True))

    @property
    def expected_output(self) -> tuple[int, ...]:
        """The shape of the layer's output as computed from its attributes."""
        if self.is_projection:
            return (*self.own_input[:-1], int(self.module.out_features))
        lengths = (axis.output(length) for axis, length in zip(self.windows, self.positions, strict=True))
        return (self.own_input[0], int(self.module.out_channels), *lengths)

    @property
    def values(self) -> Mapping[str, int]:
        """The values of the variables of an operator in place of the layer.

        For a convolution N, C_in, C_out and H: the operator maps [N, C_in, H, H] to [N, C_out, H, H]. If the picture is not
        square, also W: [N, C_in, H, W] to [N, C_out, H, W]. In one dimension L in place of H; in three dimensions D, H and W.
        The lengths are those at the operator: after the pooling for a stride, or after the upsampling for a transposed
        convolution.

        For a linear layer N, seq_len, H_in and H_out: the operator maps [N, seq_len, H_in] to [N, seq_len, H_out], which is [N,
        seq_len, t*H_in] for a projection to queries, keys and values. All axes between N and the features are flattened into
        seq_len.
        """
        before, after = self.own_input, self.own_output
        if self.is_projection:
            values = {"N": before[0], "seq_len": prod(before[1:-1]), "H_in": before[-1], "H_out": after[-1]}
        else:
            lengths = [axis.positions(length) for axis, length in zip(self.windows, self.positions, strict=True)]
            names = NAMES_OF_AXES[len(lengths)]
            values = {"N": before[0], "C_in": before[1], "C_out": after[1], **dict(zip(names, lengths, strict=True))}
            if names == (HEIGHT, WIDTH) and lengths[0] == lengths[1]:
                del values[WIDTH]
        return MappingProxyType(values)

    @property
    def is_projection(self) -> bool:
        """Whether the layer is linear."""
        return isinstance(self.module, nn.Linear)

    @property
    def is_transposed(self) -> bool:
        """Whether the layer is a transposed convolution."""
        return isinstance(self.module, TRANSPOSED)

    @property
    def channels(self) -> tuple[int, int]:
        """The numbers of channels or features of the layer's input and output."""
        module = self.module
        ends = (module.in_features, module.out_features) if self.is_projection else (module.in_channels, module.out_channels)
        return int(ends[0]), int(ends[1])

    @property
    def is_square(self) -> bool:
        """Whether the operator in place of the layer gets square pictures: as many positions along both axes."""
        return len(self.windows) == 2 and WIDTH not in self.values

    @property
    def axes(self) -> int:
        """The number of axes between N and the features of a linear layer."""
        return len(self.own_input) - 2

    @property
    def strides(self) -> tuple[int, ...]:
        """The stride along each spatial axis; () for a linear layer."""
        return tuple(axis.stride for axis in self.windows)

    @property
    def stride(self) -> int:
        """The largest stride along any axis; 1 for a linear layer."""
        return max(self.strides, default=1)

    @property
    def keeps(self) -> bool:
        """Whether the layer's output positions equal the operator's along all axes, so that nothing is padded or cropped."""
        return all(axis.keeps for axis in self.windows)

    @property
    def lengths(self) -> tuple[str, ...]:
        """The names of the variables of the spatial axes: (H, H) for square pictures; () for a linear layer."""
        return (HEIGHT, HEIGHT) if self.is_square else NAMES_OF_AXES.get(len(self.windows), ())

    @property
    def input(self) -> tuple[int, ...]:
        """The input shape of an operator in place of the layer."""
        names = ("N", "seq_len", "H_in") if self.is_projection else ("N", "C_in", *self.lengths)
        return tuple(self.values[name] for name in names)

    @property
    def output(self) -> tuple[int, ...]:
        """The output shape of an operator in place of the layer."""
        if self.is_projection:
            return (*self.input[:-1], int(self.module.out_features))
        return (self.values["N"], self.values["C_out"], *self.input[2:])

    @property
    def values_with_stride(self) -> Mapping[str, int]:
        """The values of the variables of a strided operator in place of the layer, including `stride`.

        Of the lengths of its input and its output, H (or L, W, D) is the shorter one.
        """
        few = {name: self.values[name] // stride for name, stride in zip(self.lengths, self.strides, strict=True)}
        return MappingProxyType({**self.values, **(few if self.is_transposed else {}), STRIDE: self.stride})

    @property
    def shapes_with_stride(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The input and output shapes of a strided operator in place of the layer."""
        values, ends = self.values_with_stride, (self.input[:2], self.output[:2])
        few = tuple(values[name] for name in self.lengths)
        many = tuple(length * stride for length, stride in zip(few, self.strides, strict=True))
        before, after = (few, many) if self.is_transposed else (many, few)
        return (*ends[0], *before), (*ends[1], *after)
