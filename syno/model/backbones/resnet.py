"""Residual networks: ResNet-18, ResNet-34 and the paper's ResNeXt-29, 2x64d.

Their parameters are named as in torchvision, so that its state dicts load.

The paper's ResNeXt-29 is not the network for pictures of 32x32 of that name (Xie 2017: three stages and a 3x3 stem, 9.1 million
parameters). The authors asked torchvision for stages of [3, 3, 3, 0] bottlenecks, and torchvision makes at least one block of
each: the last stage has one, and the head takes 2048 features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import nn

from syno.base.errors import SpecError
from syno.model.backbones.table import BACKBONES, seeded, widened
from syno.model.layer_rules import Convolutions, LayerRule

FEATURES = (64, 128, 256, 512)  # of the four stages of ResNet-18 and ResNet-34
RESNEXT_STEM, RESNEXT_FEATURES = 64, (256, 512, 1024, 2048)
RESNEXT_BLOCKS = (3, 3, 3, 1)
GROUPS = 2  # of ResNeXt's 3x3 convolutions
PAPER_CLASSES = 1000


class BasicBlock(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """Two 3x3 convolutions and a shortcut. [N, before, H, H] -> [N, after, H/stride, H/stride].

    The first convolution has the stride. Where the shape changes, the shortcut is a 1x1 convolution of that stride.
    """

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = shortcut(before, after, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of the convolutions and the shortcut, [N, after, H/stride, H/stride]."""
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):  # type: ignore[misc]
    """Convolutions 1x1, grouped 3x3 of `after`/2 features, 1x1, and a shortcut. Shapes and stride are those of BasicBlock.

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
        self.downsample = shortcut(before, after, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of the convolutions and the shortcut, [N, after, H/stride, H/stride]."""
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


def shortcut(before: int, after: int, stride: int) -> nn.Module | None:
    """Return a 1x1 convolution [N, before, H, H] -> [N, after, H/stride, H/stride]; None if the shape does not change."""
    if stride == 1 and before == after:
        return None
    return nn.Sequential(nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after))


class ResNet(nn.Module):  # type: ignore[misc]
    """A 7x7 stem and four stages of blocks, for pictures of 224x224. [N, channels, H, H] -> [N, classes]; H >= 2.

    Positions are divided by 2 in the stem, by 2 in the pooling after it, and by 2 at the beginning of each later stage.

    Args:
        blocks: number of blocks of each stage.
        classes, channels: number of classes of the output, and of channels of the input.
        stem: number of features of the stem.
        features: number of features of each stage.
        block: makes a block from the features before it, the features after it, and its stride.
    """

    def __init__(
        self,
        blocks: Sequence[int],
        classes: int,
        channels: int,
        stem: int,
        features: Sequence[int],
        block: Callable[[int, int, int], nn.Module] = BasicBlock,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, stem, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(stem)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        before = stem
        for number, (count, after) in enumerate(zip(blocks, features, strict=True), 1):
            stage = [block(before, after, 1 if number == 1 else 2)]
            stage += [block(after, after, 1) for _ in range(count - 1)]
            self.add_module(f"layer{number}", nn.Sequential(*stage))
            before = after
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(features[-1], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits [N, classes]."""
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


class ResNeXt(ResNet):
    """A ResNet of bottlenecks, in which the paper replaced all 3x3 convolutions, which are grouped."""

    layer_rules: ClassVar[Mapping[str, LayerRule]] = {
        "paper": Convolutions(kernels=(3,), strides=(1, 2), groups=None, least_size=4)
    }


@BACKBONES.register("resnet18")
def resnet18(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """Return ResNet-18: stages of two blocks, of 64, 128, 256 and 512 features times `width`.

    Raises SpecError if `width` makes a number of features that is no whole number.

    Source: He 2016, deep residual learning for image recognition; torchvision `resnet18`.
    """
    features = widened(FEATURES, width)
    return seeded(seed, ResNet, (2, 2, 2, 2), classes, channels, features[0], features)


@BACKBONES.register("resnet34")
def resnet34(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """Return ResNet-34: stages of 3, 4, 6 and 3 blocks, of 64, 128, 256 and 512 features times `width`.

    Raises SpecError if `width` makes a number of features that is no whole number.

    Source: He 2016, deep residual learning for image recognition; torchvision `resnet34`.
    """
    features = widened(FEATURES, width)
    return seeded(seed, ResNet, (3, 4, 6, 3), classes, channels, features[0], features)


@BACKBONES.register("resnext29_2x64d")
def resnext29_2x64d(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """Return the paper's ResNeXt-29 with a head for `classes` classes; 64 and 256 to 2048 features times `width`.

    Raises SpecError if `width` makes a number of features that is no whole number.

    Source: Xie 2017, aggregated residual transformations; torchvision `ResNet(Bottleneck, [3, 3, 3, 0], groups=2)`.
    """
    stem, *features = widened((RESNEXT_STEM, *RESNEXT_FEATURES), width)
    return seeded(seed, ResNeXt, RESNEXT_BLOCKS, classes, channels, stem, features, Bottleneck)


@BACKBONES.register("resnext29_2x64d_1000")
def resnext29_2x64d_1000(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """Return ResNeXt-29 as the paper trained it: with a head for 1000 classes, whatever the number of classes of the data.

    Its output is [N, 1000]. Raises SpecError if there are more than 1000 classes, or as `resnext29_2x64d`.
    """
    if classes > PAPER_CLASSES:
        raise SpecError(f"there are {classes} classes, and this network has {PAPER_CLASSES}; take resnext29_2x64d")
    return resnext29_2x64d(classes=PAPER_CLASSES, channels=channels, width=width, seed=seed)
