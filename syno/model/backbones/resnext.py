"""The paper's ResNeXt-29, 2x64d, with the parameter names of torchvision's `ResNet`.

It is not the network for pictures of 32x32 that goes by this name elsewhere (Xie 2017: three stages and a 3x3 stem, 9.1 million
parameters). The authors asked torchvision for stages of [3, 3, 3, 0] bottlenecks, and torchvision makes at least one block of
each: the last stage has one, and the head takes 2048 features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import nn

from syno.base.errors import SpecError
from syno.model.backbones.resnet import ResNet, way_around
from syno.model.backbones.table import BACKBONES, widened
from syno.model.layers import Convolutions, LayerRule

BLOCKS = (3, 3, 3, 1)
STEM, FEATURES = 64, (256, 512, 1024, 2048)  # of the four stages
GROUPS = 2
PAPER_CLASSES = 1000


class Bottleneck(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """1x1, grouped 3x3 of `after`/2 features, and 1x1, and a way around. [N, before, H, H] -> [N, after, H/stride, H/stride].

    The 3x3 convolution has the stride.
    """

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        inner = GROUPS * after // 4
        self.conv1 = nn.Conv2d(before, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride=stride, padding=1, groups=GROUPS, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, after, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(after)
        self.downsample = way_around(before, after, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNeXt(ResNet):
    """See `ResNet`; every 3x3 convolution, grouped as it is, is one that the paper replaced."""

    layer_rules: ClassVar[Mapping[str, LayerRule]] = {
        "paper": Convolutions(kernels=(3,), strides=(1, 2), groups=None, least_size=4)
    }

    def __init__(self, classes: int, channels: int, stem: int, features: Sequence[int]) -> None:
        super().__init__(BLOCKS, classes, channels, stem, features, Bottleneck)


@BACKBONES.register("resnext29_2x64d")
def resnext29_2x64d(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """The paper's ResNeXt-29, with a head for the classes that there are; 64 and 256 to 2048 features times `width`.

    Raises SpecError if `width` makes a number of features that is no whole number.

    Source: Xie 2017, aggregated residual transformations; torchvision `ResNet(Bottleneck, [3, 3, 3, 0], groups=2)`.
    """
    stem, *features = widened((STEM, *FEATURES), width)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ResNeXt(classes, channels, stem, features)


@BACKBONES.register("resnext29_2x64d_1000")
def resnext29_2x64d_1000(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """As the paper trained it: with a head for 1000 classes whatever their number, of which those above it have no pictures.

    Its output is [N, 1000]. Raises SpecError if there are more than 1000 classes, or as `resnext29_2x64d`.
    """
    if classes > PAPER_CLASSES:
        raise SpecError(f"there are {classes} classes, and this network has {PAPER_CLASSES}; take resnext29_2x64d")
    return resnext29_2x64d(classes=PAPER_CLASSES, channels=channels, width=width, seed=seed)
