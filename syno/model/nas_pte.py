"""The three sequences of program transformations of NAS-PTE, as PyTorch modules that replace a convolution.

They concatenate convolutions with different groups or of different rows. A pGraph, which has one index map for all of its
output, cannot express this. `syno.ir.library.published` has pGraphs that come near.

Each maps [N, C_in, H, H] to [N, C_out, H, H] with windows of 3x3 and zeros beyond the borders. A 1x1 convolution is replaced by
windows of 3x3, too, as in the published comparison.

Source: Turner 2021, Neural Architecture Search as Program Transformation Exploration, section 7.3.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from syno.base.errors import SizeError

KERNEL = 3
GROUPS = (2, 4)  # of the two parts of sequence 1
UNROLLED, REST_GROUPS = 16, 2  # of sequence 2
PARTS = 2  # of the rows in sequence 3


class Sequence1(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """Split, group, interchange, group: two grouped convolutions, of 2 and of 4 groups, each for half of the output channels.

    Together they have 3/8 of a convolution's multiply-adds and weights.

    Raises SizeError if the channels do not divide into these groups.
    """

    def __init__(self, values: Mapping[str, int]) -> None:
        super().__init__()
        before, half = values["C_in"], values["C_out"] // len(GROUPS)
        wanted = max(GROUPS)
        if before % wanted or half * len(GROUPS) != values["C_out"] or half % wanted:
            raise SizeError(
                f"C_in={before} and half of C_out={values['C_out']} must divide into {wanted} groups; take channels that do"
            )
        self.parts = nn.ModuleList(_convolution(before, half, groups) for groups in GROUPS)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output [N, C_out, H, H] for an input [N, C_in, H, H]."""
        return torch.cat([part(x) for part in self.parts], dim=1)


class Sequence2(nn.Module):  # type: ignore[misc]
    """Unroll, group, interchange: a convolution to 16 channels, and a convolution of 2 groups to the other output channels.

    The grouped convolution does not read the first 16 input channels. Together they have 16*C_in + (C_out - 16)*(C_in - 16)/2
    of the C_in*C_out multiply-adds and weights of a convolution.

    Raises SizeError if there are no other channels, or they do not divide into 2 groups.
    """

    def __init__(self, values: Mapping[str, int]) -> None:
        super().__init__()
        before, after = values["C_in"] - UNROLLED, values["C_out"] - UNROLLED
        if min(before, after) < REST_GROUPS or before % REST_GROUPS or after % REST_GROUPS:
            raise SizeError(
                f"C_in={values['C_in']} and C_out={values['C_out']} less {UNROLLED} unrolled channels must be positive and "
                f"divide into {REST_GROUPS} groups; take channels that do"
            )
        self.unrolled = _convolution(values["C_in"], UNROLLED)
        self.rest = _convolution(before, after, REST_GROUPS)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output [N, C_out, H, H] for an input [N, C_in, H, H]."""
        return torch.cat([self.unrolled(x), self.rest(x[:, UNROLLED:])], dim=1)


class Sequence3(nn.Module):  # type: ignore[misc]
    """Split, interchange, group, interchange, fuse: the upper and the lower half of the rows, convolved with different weights.

    Each half is padded with zeros. If the number of rows is odd, the lower half has one more. It has as many multiply-adds as a
    convolution, and twice the weights.

    Raises SizeError if there are fewer rows than parts.
    """

    def __init__(self, values: Mapping[str, int]) -> None:
        super().__init__()
        if values["H"] < PARTS:
            raise SizeError(f"H={values['H']} is less than the {PARTS} parts of its rows; take larger pictures")
        self.parts = nn.ModuleList(_convolution(values["C_in"], values["C_out"]) for _ in range(PARTS))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output [N, C_out, H, H] for an input [N, C_in, H, H]."""
        rows = x.shape[2] // PARTS
        lengths = [*[rows] * (PARTS - 1), x.shape[2] - rows * (PARTS - 1)]
        return torch.cat([part(each) for part, each in zip(self.parts, x.split(lengths, dim=2), strict=True)], dim=2)


def _convolution(before: int, after: int, groups: int = 1) -> nn.Conv2d:
    """Return a 3x3 convolution that keeps the picture's size, with new weights that keep the variance of its input."""
    made = nn.Conv2d(before, after, KERNEL, padding=KERNEL // 2, groups=groups, bias=False)
    nn.init.kaiming_normal_(made.weight, nonlinearity="linear")
    return made
