"""A convolutional network in one dimension, for sound."""

import torch
from torch import nn

TAPS = 17  # networks for long signals have large kernels: Ribeiro 2020 has 17 taps for electrocardiograms


def convolution(before: int, after: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution with normalization, which makes sounds shorter by its stride."""
    made = nn.Conv1d(before, after, TAPS, stride, padding=TAPS // 2, bias=False)
    return nn.Sequential(made, nn.BatchNorm1d(after), nn.ReLU())


def make(*, classes: int, channels: int = 1, width: float = 1.0, seed: int = 0) -> nn.Module:
    """Return the network, [N, channels, L] -> [N, classes]; equal arguments make equal weights."""
    torch.manual_seed(seed)
    one, two, three = (int(features * width) for features in (16, 32, 64))
    return nn.Sequential(
        convolution(channels, one, stride=8),  # looks at 4 milliseconds at 4 kHz
        *(convolution(one, two, stride=2), convolution(two, two)),
        *(convolution(two, three, stride=2), convolution(three, three)),
        convolution(three, three, stride=2),
        *(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(three, classes)),
    )
