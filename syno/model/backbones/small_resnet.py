"""A small residual network for small pictures."""

from __future__ import annotations

import torch
from torch import nn

from syno.model.backbones.table import BACKBONES, widened


class Block(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """Two 3x3 convolutions and a way around them. [N, before, H, H] -> [N, after, H/2, H/2] if `halve`, else [.., H, H].

    Positions are halved by pooling, ahead of both ways, so that every 3x3 convolution has stride 1 and can be replaced.
    """

    def __init__(self, before: int, after: int, *, halve: bool) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(2) if halve else nn.Identity()
        self.conv1 = nn.Conv2d(before, after, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        if before == after:
            self.shortcut: nn.Module = nn.Identity()
        else:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        x = self.pool(x)
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet8(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """A 3x3 stem and three blocks of 16, 32 and 64 features, for small pictures. [N, channels, H, H] -> [N, classes]."""

    def __init__(self, classes: int, channels: int, widths: tuple[int, int, int]) -> None:
        super().__init__()
        first, second, third = widths
        self.stem = nn.Conv2d(channels, first, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(first)
        self.blocks = nn.Sequential(
            Block(first, first, halve=False), Block(first, second, halve=True), Block(second, third, halve=True)
        )
        self.head = nn.Linear(third, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        x = torch.relu(self.norm(self.stem(x)))
        return self.head(self.blocks(x).mean((2, 3)))


@BACKBONES.register("resnet8")
def resnet8(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """A ResNet of 8 layers; 16, 32 and 64 features times `width`.

    Raises SpecError if `width` makes a number of features that is no whole number.

    Source: He 2016, deep residual learning for image recognition (CIFAR networks), with one block per width.
    """
    first, second, third = widened((16, 32, 64), width)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ResNet8(classes, channels, (first, second, third))
