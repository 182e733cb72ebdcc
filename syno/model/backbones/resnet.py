"""ResNet-18 and ResNet-34, with the parameter names of torchvision: its state dicts load."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from syno.model.backbones.table import BACKBONES, widened

FEATURES = (64, 128, 256, 512)  # of the four stages


class BasicBlock(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """Two 3x3 convolutions and a way around them. [N, before, H, H] -> [N, after, H/stride, H/stride].

    The first convolution has the stride. Where the shape changes, the way around is a 1x1 convolution of that stride.
    """

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = way_around(before, after, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


def way_around(before: int, after: int, stride: int) -> nn.Module | None:
    """A 1x1 convolution [N, before, H, H] -> [N, after, H/stride, H/stride]; None where the shape stays."""
    if stride == 1 and before == after:
        return None
    return nn.Sequential(nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after))


class ResNet(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """A 7x7 stem and four stages of blocks, for pictures of 224x224. [N, channels, H, H] -> [N, classes]; H >= 2.

    Positions are divided by 2 in the stem, by 2 in the pooling after it, and by 2 at the begin of each later stage.

    Args:
        blocks: how many each stage has.
        classes, channels: of the output and of the input.
        stem: features of the stem.
        features: of the stages.
        block: makes one of features before it, features after it, and its stride.
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
        """See the class."""
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


@BACKBONES.register("resnet18")
def resnet18(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """ResNet-18: stages of two blocks, of 64, 128, 256 and 512 features times `width`.

    Raises SpecError if `width` makes a number of features that is no whole number.

    Source: He 2016, deep residual learning for image recognition; torchvision `resnet18`.
    """
    return _resnet((2, 2, 2, 2), classes, channels, width, seed)


@BACKBONES.register("resnet34")
def resnet34(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """ResNet-34: stages of 3, 4, 6 and 3 blocks, of 64, 128, 256 and 512 features times `width`.

    Raises SpecError if `width` makes a number of features that is no whole number.

    Source: He 2016, deep residual learning for image recognition; torchvision `resnet34`.
    """
    return _resnet((3, 4, 6, 3), classes, channels, width, seed)


def _resnet(blocks: Sequence[int], classes: int, channels: int, width: float, seed: int) -> nn.Module:
    features = widened(FEATURES, width)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ResNet(blocks, classes, channels, features[0], features)
