"""Networks whose convolutions are replaced, by name.

>>> model = BACKBONES["resnet8"](classes=12)
>>> sum(parameter.numel() for parameter in model.parameters())
78172
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn

from syno.errors import SpecError
from syno.registry import Registry


class Backbone(Protocol):
    """Makes a network. Equal arguments give equal weights; the global random state is left as it was."""

    def __call__(self, *, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
        """The network [N, channels, H, H] -> [N, classes]; `width` multiplies the number of features."""
        ...


BACKBONES: Registry[Backbone] = Registry("backbone")


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
    widths = tuple(width * features for features in (16, 32, 64))
    if any(features < 1 or features != int(features) for features in widths):
        raise SpecError(f"width is {width:g}, which makes {widths[0]:g} features of 16; give a multiple of 1/16")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ResNet8(classes, channels, (int(widths[0]), int(widths[1]), int(widths[2])))
