"""Small residual networks for small pictures, which train in seconds: ResNet-6 and ResNet-8."""

from __future__ import annotations

import torch
from torch import nn

from syno.model.backbones.resnet import shortcut
from syno.model.backbones.table import BACKBONES, seeded, widened


class PooledBlock(nn.Module):  # type: ignore[misc]
    """Two 3x3 convolutions and a shortcut. [N, before, H, H] -> [N, after, H/2, H/2] if `halve`, else [N, after, H, H].

    Pooling before both halves the positions, so that every 3x3 convolution has stride 1 and can be replaced.
    """

    def __init__(self, before: int, after: int, *, halve: bool) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(2) if halve else nn.Identity()
        self.conv1 = nn.Conv2d(before, after, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.shortcut = shortcut(before, after, 1) or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of the convolutions and the shortcut, [N, after, H/2, H/2] if `halve`, else [N, after, H, H]."""
        x = self.pool(x)
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class SmallResNet(nn.Module):  # type: ignore[misc]
    """A small residual network: a convolution, residual blocks and a linear head. [N, channels, H, H] -> [N, classes].

    Args:
        stem: the first convolution; batch normalization and a ReLU follow it.
        blocks: the blocks in their order; the first has as many input channels as the stem has output channels.
        head: the classifier of the last block's features, averaged over positions.
    """

    def __init__(self, stem: nn.Conv2d, blocks: list[PooledBlock], head: nn.Linear) -> None:
        super().__init__()
        self.stem = stem
        self.norm = nn.BatchNorm2d(stem.out_channels)
        self.blocks = nn.Sequential(*blocks)
        self.head = head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits [N, classes]."""
        x = torch.relu(self.norm(self.stem(x)))
        return self.head(self.blocks(x).mean((2, 3)))


class ResNet6(SmallResNet):
    """A 5x5 stem of stride 2, and two blocks, the second on half of the positions."""

    def __init__(self, classes: int, channels: int, features: int) -> None:
        stem = nn.Conv2d(channels, features, 5, stride=2, padding=2, bias=False)
        blocks = [PooledBlock(features, features, halve=halve) for halve in (False, True)]
        super().__init__(stem, blocks, nn.Linear(features, classes))


class ResNet8(SmallResNet):
    """A 3x3 stem and three blocks."""

    def __init__(self, classes: int, channels: int, first: int, second: int, third: int) -> None:
        stem = nn.Conv2d(channels, first, 3, padding=1, bias=False)
        blocks = [
            PooledBlock(first, first, halve=False),
            PooledBlock(first, second, halve=True),
            PooledBlock(second, third, halve=True),
        ]
        super().__init__(stem, blocks, nn.Linear(third, classes))


@BACKBONES.register("resnet6")
def resnet6(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """Return a ResNet of 6 layers, of which four 3x3 convolutions have nearly all of the work; 64 features times `width`.

    At 64 features the time goes into arithmetic rather than calls of kernels, so that a cheaper operator can be a faster one.

    Raises SpecError if `width` makes a number of features that is no whole number.

    Source: He 2016, deep residual learning for image recognition, with two blocks of equal width.
    """
    return seeded(seed, ResNet6, classes, channels, *widened((64,), width))


@BACKBONES.register("resnet8")
def resnet8(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """Return a ResNet of 8 layers; blocks of 16, 32 and 64 features times `width`.

    Raises SpecError if `width` makes a number of features that is no whole number.

    Source: He 2016, deep residual learning for image recognition (CIFAR networks), with one block per width.
    """
    return seeded(seed, ResNet8, classes, channels, *widened((16, 32, 64), width))
