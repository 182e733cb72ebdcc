"""EfficientNet-V2-S, with the parameter names of torchvision: its state dicts load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from syno.model.backbones.table import BACKBONES, seeded, widened
from syno.model.layer_rules import Convolutions, LayerRule

STEM, HEAD = 24, 1280  # features of the first convolution and of the last
DROPOUT = 0.2  # before the classifier
DEPTH_DROPOUT = 0.2  # of the last block as a whole; less for earlier blocks, in proportion to their number


@dataclass(frozen=True)
class StageShape:
    """The shape of a stage of blocks. Fused blocks have a 3x3 convolution in place of a 1x1 and a depth-wise 3x3."""

    fused: bool
    expansion: int  # features inside a block to features before it
    stride: int  # of the first block
    features: int
    blocks: int


STAGES = (
    StageShape(True, 1, 1, 24, 2),
    StageShape(True, 4, 2, 48, 4),
    StageShape(True, 4, 2, 64, 4),
    StageShape(False, 4, 2, 128, 6),
    StageShape(False, 6, 1, 160, 9),
    StageShape(False, 6, 2, 256, 15),
)


class NormedConvolution(nn.Sequential):  # type: ignore[misc]  # mypy does not look into torch
    """A convolution, its normalization, and SiLU if `activated`. [N, before, H, H] -> [N, after, H/stride, H/stride]."""

    def __init__(
        self, before: int, after: int, kernel: int, stride: int = 1, groups: int = 1, *, activated: bool = True
    ) -> None:
        convolution = nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
        activation = [nn.SiLU(inplace=True)] if activated else []
        super().__init__(convolution, nn.BatchNorm2d(after, eps=1e-3), *activation)


class SqueezeExcitation(nn.Module):  # type: ignore[misc]
    """Scales each feature by a gate in (0, 1) computed from the means of all features. Shapes are [N, features, H, H]."""

    def __init__(self, features: int, squeezed: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(features, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, features, 1)
        self.activation = nn.SiLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scaled features, [N, features, H, H]."""
        return torch.sigmoid(self.fc2(self.activation(self.fc1(self.avgpool(x))))) * x


class StochasticDepth(nn.Module):  # type: ignore[misc]
    """Stochastic depth: in training, each sample becomes zero with a given probability, and is scaled up otherwise."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input, with random samples set to zero in training."""
        if not self.training or not self.probability:
            return x
        kept = 1 - self.probability
        return x * x.new_empty(len(x), 1, 1, 1).bernoulli_(kept).div_(kept)


class InvertedBottleneck(nn.Module):  # type: ignore[misc]
    """A (fused) inverted bottleneck, with a shortcut if its output has its input's shape.

    [N, before, H, H] -> [N, after, H/stride, H/stride].
    """

    def __init__(self, stage: StageShape, before: int, after: int, stride: int, dropped: float) -> None:
        super().__init__()
        inner = before * stage.expansion
        if stage.fused and stage.expansion == 1:
            layers: list[nn.Module] = [NormedConvolution(before, after, 3, stride)]
        elif stage.fused:
            layers = [NormedConvolution(before, inner, 3, stride), NormedConvolution(inner, after, 1, activated=False)]
        else:
            layers = [
                NormedConvolution(before, inner, 1),
                NormedConvolution(inner, inner, 3, stride, groups=inner),
                SqueezeExcitation(inner, max(1, before // 4)),
                NormedConvolution(inner, after, 1, activated=False),
            ]
        self.block = nn.Sequential(*layers)
        self.stochastic_depth = StochasticDepth(dropped)
        self.has_shortcut = stride == 1 and before == after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output of the layers, plus the input if there is a shortcut."""
        y = self.block(x)
        return self.stochastic_depth(y) + x if self.has_shortcut else y


class EfficientNet(nn.Module):  # type: ignore[misc]
    """A 3x3 stem of stride 2, the stages, and a 1x1 convolution. [N, channels, H, H] -> [N, classes].

    Positions are divided by 2 in the stem, and by the stride at the beginning of each stage.
    """

    layer_rules: ClassVar[Mapping[str, LayerRule]] = {"paper": Convolutions(kernels=(3,), strides=(1, 2), least_size=4)}

    def __init__(self, classes: int, channels: int, stem: int, stages: Sequence[int], head: int) -> None:
        super().__init__()
        parts: list[nn.Module] = [NormedConvolution(channels, stem, 3, stride=2)]
        before, done, total = stem, 0, sum(stage.blocks for stage in STAGES)
        for stage, after in zip(STAGES, stages, strict=True):
            blocks = []
            for number in range(stage.blocks):
                dropped = DEPTH_DROPOUT * done / total
                blocks.append(InvertedBottleneck(stage, before, after, 1 if number else stage.stride, dropped))
                before, done = after, done + 1
            parts.append(nn.Sequential(*blocks))
        self.features = nn.Sequential(*parts, NormedConvolution(before, head, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(DROPOUT, inplace=True), nn.Linear(head, classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        bound = classes**-0.5
        nn.init.uniform_(self.classifier[1].weight, -bound, bound)
        nn.init.zeros_(self.classifier[1].bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits [N, classes]."""
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


@BACKBONES.register("efficientnet_v2_s")
def efficientnet_v2_s(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """Return EfficientNet-V2-S, with `width` times its numbers of features.

    Raises SpecError if `width` makes a number of features that is no whole number.

    Source: Tan 2021, EfficientNetV2: smaller models and faster training; torchvision `efficientnet_v2_s`.
    """
    _, stem, *stages, head = widened((8, STEM, *(stage.features for stage in STAGES), HEAD), width)
    return seeded(seed, EfficientNet, classes, channels, stem, stages, head)
