"""A small MobileNetV2: inverted residual blocks with a depthwise convolution between two 1x1 convolutions."""

import torch
from torch import nn

EXPANSION = 4
BLOCKS = ((16, 1), (24, 2), (24, 1), (48, 2), (48, 1))  # features and stride


def convolution(before: int, after: int, side: int, *, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Return a convolution and its normalization."""
    made = nn.Conv2d(before, after, side, stride=stride, padding=side // 2, groups=groups, bias=False)
    return [made, nn.BatchNorm2d(after)]


class InvertedResidual(nn.Module):
    """Expand with 1x1, mix positions with a depthwise 3x3, project with 1x1.

    [N, before, H, H] -> [N, after, H/stride, H/stride].
    """

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        inner = EXPANSION * before
        self.expand = nn.Sequential(*convolution(before, inner, 1), nn.ReLU6())
        self.depthwise = nn.Sequential(*convolution(inner, inner, 3, stride=stride, groups=inner), nn.ReLU6())
        self.project = nn.Sequential(*convolution(inner, after, 1))
        self.has_shortcut = stride == 1 and before == after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's features."""
        y = self.project(self.depthwise(self.expand(x)))
        return x + y if self.has_shortcut else y


def make(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """Return the network, [N, channels, H, H] -> [N, classes]; equal arguments make equal weights."""
    torch.manual_seed(seed)
    blocks, before = [], int(16 * width)
    stem = [*convolution(channels, before, 3), nn.ReLU6()]
    for features, stride in BLOCKS:
        blocks.append(InvertedResidual(before, int(features * width), stride))
        before = int(features * width)
    last = int(128 * width)
    top = [*convolution(before, last, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, classes)]
    return nn.Sequential(*stem, *blocks, *top)
