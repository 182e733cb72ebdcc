"""A small U-Net: an encoder, a decoder, and shortcuts between them. It classifies each pixel."""

import torch
from torch import nn


def convolution(before: int, after: int) -> nn.Sequential:
    """Return a 3x3 convolution with normalization. [N, before, H, W] -> [N, after, H, W]."""
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU())


class UNet(nn.Module):
    """[N, channels, H, W] -> [N, classes, H, W], with H and W multiples of 4."""

    def __init__(self, classes: int, channels: int, features: int) -> None:
        super().__init__()
        one, two, three = features, 2 * features, 4 * features
        self.stem = convolution(channels, one)
        self.encoder1, self.encoder2 = convolution(one, one), convolution(one, two)
        self.middle1, self.middle2 = convolution(two, three), convolution(three, three)
        self.up2, self.decoder2 = nn.ConvTranspose2d(three, two, 2, stride=2), convolution(2 * two, two)
        self.up1, self.decoder1 = nn.ConvTranspose2d(two, one, 2, stride=2), convolution(2 * one, one)
        self.pool, self.head = nn.MaxPool2d(2), nn.Conv2d(one, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits for each pixel."""
        first = self.encoder1(self.stem(x))
        second = self.encoder2(self.pool(first))
        x = self.middle2(self.middle1(self.pool(second)))
        x = self.decoder2(torch.cat([self.up2(x), second], 1))
        x = self.decoder1(torch.cat([self.up1(x), first], 1))
        return self.head(x)


def make(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """Return the network; equal arguments make equal weights."""
    torch.manual_seed(seed)
    return UNet(classes, channels, int(12 * width))
