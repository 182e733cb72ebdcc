"""Modules around an operator in a network: they add the bias of the layer that it replaces, or change the number of axes."""

from __future__ import annotations

import torch
from torch import nn


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


class AlongAxes(nn.Module):  # type: ignore[misc]
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
