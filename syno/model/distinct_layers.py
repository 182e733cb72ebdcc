"""The different layers of a network, each named after its sizes as the paper's Figure 9 and its artifact name them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from syno.model.extraction import replaceable
from syno.model.layers import Layer, Where


@dataclass(frozen=True)
class DistinctLayer:
    """The first of the layers that have the same sizes.

    Attributes:
        position: among all replaceable layers, from 1: layer L7 of the paper is at 7.
        layer: with its sizes.
    """

    position: int
    layer: Layer

    @property
    def kernel(self) -> int:
        """The side length of the convolution's window."""
        return int(self.layer.module.kernel_size[0])

    @property
    def name(self) -> str:
        """`conv_io64`: 64 channels before and after; `conv_i64_o128`; `residual_...`: the 1x1 convolution around a block."""
        before, after = self.layer.values["C_in"], self.layer.values["C_out"]
        channels = f"io{before}" if before == after else f"i{before}_o{after}"
        return f"{'residual' if self.kernel == 1 else 'conv'}_{channels}"


def distinct_layers(model: nn.Module, example: torch.Tensor, rule: Where = "paper") -> tuple[DistinctLayer, ...]:
    """One layer of each kind, in the order in which they run: ten of ResNet-34.

    Raises SpecError if the model has no layer to replace.

    Source: paper, Figure 9 (layers L1 to L31); the artifact's folders `resnet34layers`.
    """
    found: dict[tuple[object, ...], DistinctLayer] = {}
    for position, layer in enumerate(replaceable(model, example, rule), 1):
        sizes = (layer.module.kernel_size, layer.stride, *layer.values.values())
        found.setdefault(sizes, DistinctLayer(position, layer))
    return tuple(found.values())
