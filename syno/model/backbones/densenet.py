"""DenseNet-121, with the parameter names of torchvision: its state dicts load."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional

from syno.model.backbones.table import BACKBONES, seeded, widened
from syno.model.layer_rules import Convolutions, LayerRule

BLOCKS = (6, 12, 24, 16)  # layers of each block
GROWTH, STEM = 32, 64  # features that a layer adds, and features of the stem


class DenseLayer(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """A 1x1 convolution to 4*growth features and a 3x3 convolution to `growth`. [N, before, H, H] -> [N, growth, H, H]."""

    def __init__(self, before: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(before)
        self.conv1 = nn.Conv2d(before, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the new features, [N, growth, H, H]."""
        x = self.conv1(torch.relu(self.norm1(x)))
        return self.conv2(torch.relu(self.norm2(x)))


class DenseBlock(nn.Sequential):  # type: ignore[misc]
    """Layers, each of which reads the block's input and the outputs of all layers before it.

    [N, before, H, H] -> [N, before + layers*growth, H, H].
    """

    def __init__(self, layers: int, before: int, growth: int) -> None:
        super().__init__(
            OrderedDict((f"denselayer{number + 1}", DenseLayer(before + number * growth, growth)) for number in range(layers))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return all features [N, before + layers*growth, H, H], the block's input first."""
        features = [x]
        for layer in self:
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)


class Transition(nn.Sequential):  # type: ignore[misc]
    """A 1x1 convolution that halves the features, and a pooling. [N, before, H, H] -> [N, before/2, H/2, H/2]."""

    def __init__(self, before: int) -> None:
        super().__init__(
            OrderedDict(
                norm=nn.BatchNorm2d(before),
                relu=nn.ReLU(inplace=True),
                conv=nn.Conv2d(before, before // 2, 1, bias=False),
                pool=nn.AvgPool2d(2),
            )
        )


class DenseNet(nn.Module):  # type: ignore[misc]
    """A 7x7 stem and blocks with transitions between them. [N, channels, H, H] -> [N, classes]; H >= 29.

    Positions are divided by 2 in the stem, by 2 in the pooling after it, and by 2 in each transition.
    """

    layer_rules: ClassVar[Mapping[str, LayerRule]] = {
        "paper": Convolutions(kernels=(3,), strides=(1, 2), groups=None, least_size=4)
    }

    def __init__(self, classes: int, channels: int, growth: int, stem: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            OrderedDict(
                conv0=nn.Conv2d(channels, stem, 7, stride=2, padding=3, bias=False),
                norm0=nn.BatchNorm2d(stem),
                relu0=nn.ReLU(inplace=True),
                pool0=nn.MaxPool2d(3, stride=2, padding=1),
            )
        )
        features = stem
        for number, layers in enumerate(BLOCKS, 1):
            self.features.add_module(f"denseblock{number}", DenseBlock(layers, features, growth))
            features += layers * growth
            if number < len(BLOCKS):
                self.features.add_module(f"transition{number}", Transition(features))
                features //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(features))
        self.classifier = nn.Linear(features, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits [N, classes]."""
        x = torch.relu(self.features(x))
        # A function, not a module: the published FLOPs were counted by module, and so lack this pooling.
        return self.classifier(functional.adaptive_avg_pool2d(x, 1).flatten(1))


@BACKBONES.register("densenet121")
def densenet121(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """Return DenseNet-121: blocks of 6, 12, 24 and 16 layers that add 32 features each, times `width`.

    Raises SpecError if `width` makes a number of features that is no whole number.

    Source: Huang 2017, densely connected convolutional networks; torchvision `densenet121`.
    """
    growth, stem = widened((GROWTH, STEM), width)
    return seeded(seed, DenseNet, classes, channels, growth, stem)
