"""An MLP-Mixer: linear layers mix the patches of a picture, and then the features of each patch."""

import torch
from torch import nn

PATCH = 4  # pixels of a patch's side
PATCHES = 16  # of a picture of 16x16
DEPTH = 3


class MixerBlock(nn.Module):
    """Mix patches, then features. [N, PATCHES, features] -> the same."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(features), nn.LayerNorm(features)
        self.patches = nn.Sequential(nn.Linear(PATCHES, 2 * PATCHES), nn.GELU(), nn.Linear(2 * PATCHES, PATCHES))
        self.features = nn.Sequential(nn.Linear(features, 2 * features), nn.GELU(), nn.Linear(2 * features, features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mixed features."""
        x = x + self.patches(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.features(self.norm2(x))


class Mixer(nn.Module):
    """[N, channels, 16, 16] -> [N, classes]."""

    def __init__(self, classes: int, channels: int, features: int) -> None:
        super().__init__()
        self.embedding = nn.Linear(channels * PATCH * PATCH, features)
        self.blocks = nn.Sequential(*(MixerBlock(features) for _ in range(DEPTH)))
        self.norm, self.head = nn.LayerNorm(features), nn.Linear(features, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = x.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH)  # [N, channels, 4, 4, PATCH, PATCH]
        x = self.embedding(x.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2))
        return self.head(self.norm(self.blocks(x)).mean(1))


def make(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """Return the network; equal arguments make equal weights."""
    torch.manual_seed(seed)
    return Mixer(classes, channels, int(64 * width))
