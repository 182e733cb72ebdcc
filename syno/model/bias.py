"""The bias of a replaced layer, which is added to what the operator returns: operators are linear and have none."""

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
