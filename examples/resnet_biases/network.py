"""A small ResNet whose convolutions have biases, and strides of 2 in place of poolings."""

import torch
from torch import nn


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut. [N, before, H, H] -> [N, after, H/stride, H/stride]."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1)
        self.norm1, self.norm2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.shortcut = nn.Identity() if stride == 1 and before == after else nn.Conv2d(before, after, 1, stride=stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's features."""
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.shortcut(x) + self.norm2(self.conv2(y)))


def make(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """Return the network, [N, channels, H, H] -> [N, classes]; equal arguments make equal weights."""
    torch.manual_seed(seed)
    one, two, three = (int(features * width) for features in (16, 32, 64))
    return nn.Sequential(
        *(nn.Conv2d(channels, one, 3, padding=1), nn.BatchNorm2d(one), nn.ReLU()),
        *(Block(one, one, 1), Block(one, two, 2), Block(two, three, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(three, classes)),
    )
