"""A convolutional network with layers of many kinds: eleven layers with weights."""

import torch
from torch import nn


class OwnCNN(nn.Module):
    """[N, channels, H, H] -> [N, classes], with H a multiple of 4."""

    def __init__(self, classes: int, channels: int, features: int) -> None:
        super().__init__()
        one, two = features, 2 * features
        self.stem = nn.Conv2d(channels, one, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(one)
        self.down1 = nn.Conv2d(one, two, 3, stride=2, padding=1, bias=False)
        self.down1_norm = nn.BatchNorm2d(two)
        self.biased = nn.Conv2d(two, two, 3, padding=1, bias=True)
        self.depthwise = nn.Conv2d(two, two, 3, padding=1, groups=two, bias=False)
        self.depthwise_norm = nn.BatchNorm2d(two)
        self.pointwise = nn.Conv2d(two, two, 1, bias=False)
        self.pointwise_norm = nn.BatchNorm2d(two)
        self.down2 = nn.Conv2d(two, 2 * two, 3, stride=2, padding=1, bias=False)
        self.down2_norm = nn.BatchNorm2d(2 * two)
        self.plain = nn.ModuleList(nn.Conv2d(2 * two, 2 * two, 3, padding=1, bias=False) for _ in range(3))
        self.plain_norms = nn.ModuleList(nn.BatchNorm2d(2 * two) for _ in range(3))
        self.hidden = nn.Linear(2 * two, two)
        self.head = nn.Linear(two, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = torch.relu(self.stem_norm(self.stem(x)))
        x = torch.relu(self.down1_norm(self.down1(x)))
        x = torch.relu(self.biased(x))
        x = x + torch.relu(self.pointwise_norm(self.pointwise(self.depthwise_norm(self.depthwise(x)))))
        x = torch.relu(self.down2_norm(self.down2(x)))
        for convolution, norm in zip(self.plain, self.plain_norms, strict=True):
            x = x + torch.relu(norm(convolution(x)))
        x = torch.relu(self.hidden(x.mean((2, 3))))
        return self.head(x)


def make(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """Return the network; equal arguments make equal weights."""
    torch.manual_seed(seed)
    return OwnCNN(classes, channels, int(16 * width))
