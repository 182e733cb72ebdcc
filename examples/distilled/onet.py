"""The network of MTCNN that finds landmarks of faces, made faster. First: pip install --no-deps facenet-pytorch==2.6.0"""

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import syno


class ONet(nn.Module):
    """ONet of facenet-pytorch, which itself needs torchvision. [N, 3, 48, 48] -> box, five landmarks, whether it is a face."""

    def __init__(self, weights):
        super().__init__()
        layers = []
        for inputs, outputs, taps, window in ((3, 32, 3, 3), (32, 64, 3, 3), (64, 64, 3, 2), (64, 128, 2, 1)):
            pool = nn.MaxPool2d(window, 2, ceil_mode=True) if window > 1 else nn.Identity()
            layers += [nn.Conv2d(inputs, outputs, taps), nn.PReLU(outputs), pool]
        self.features, self.dense = nn.Sequential(*layers), nn.Sequential(nn.Linear(1152, 256), nn.PReLU(256))
        self.face, self.box, self.landmarks = nn.Linear(256, 2), nn.Linear(256, 4), nn.Linear(256, 10)
        self.load_state_dict(dict(zip(self.state_dict(), weights.values(), strict=True)))  # the same order, other names

    def forward(self, pictures):
        """[N, 3, 48, 48] -> [N, 4], [N, 10], [N, 2]."""
        x = self.dense(self.features(pictures).permute(0, 3, 2, 1).flatten(1))
        return self.box(x), self.landmarks(x), self.face(x).softmax(1)


def faces(count, seed):
    """Return drawings: an ellipse with eyes and a mouth before clouds of colour. Colours are from -1 to 1."""
    random = torch.Generator().manual_seed(seed)

    def between(low, high, channels=1):
        return low + (high - low) * torch.rand(count, channels, 1, 1, generator=random)

    picture = functional.interpolate(torch.rand(count, 3, 6, 6, generator=random), 48, mode="bicubic")
    y, x = (torch.linspace(-1, 1, 48).view(shape) for shape in ((48, 1), (1, 48)))
    size, eye, skin = between(0.5, 1), between(0.25, 0.45), between(0.4, 1, 3)
    x, y = (x - between(-0.2, 0.2)) / size, (y - between(-0.2, 0.2)) / size
    mouth = (0, between(0.4, 0.6), between(0.2, 0.4), 0.07)
    for part, color in (((0, 0, 0.75, 1), 1), ((-eye, -0.25, 0.16, 0.09), 0.1), ((eye, -0.25, 0.16, 0.09), 0.1), (mouth, 0.4)):
        inside = torch.sigmoid(8 * (1 - ((x - part[0]) / part[2]) ** 2 - ((y - part[1]) / part[3]) ** 2)) * between(0.6, 1)
        picture = picture + inside * (color * skin - picture)
    return picture.clamp(0, 1) * 2 - 1


def loss(model, batch):
    """Return the sum of the three outputs' mean squared errors against the original's, as shares of its variance."""
    pictures, answers = batch
    return sum(functional.mse_loss(own, one) / one.var(0).mean() for own, one in zip(model(pictures), answers, strict=True))


folder = find_spec("facenet_pytorch").submodule_search_locations[0]
original = ONet(torch.load(Path(folder) / "data/onet.pt")).eval()
with torch.no_grad():
    train, test = ([(x, original(x)) for x in faces(count, seed=count).split(16)] for count in (4096, 512))


def error(model):
    """Return the mean distance of landmarks from where the original has them, in pixels."""
    apart = torch.cat([48 * (model(pictures)[1] - landmarks) for pictures, (_, landmarks, _) in test])
    return float(apart.unflatten(1, (2, 5)).norm(dim=1).mean())


result = syno.speed_up(
    original,
    train=train,
    test=test,
    loss=loss,
    score=error,
    metric=syno.Metric("error", "px", more_is_better=False),
    speedup=1.1,
    lose_at_most=2.5,
    trials=1,
    seeds=2,
    folder="results/onet",
    epochs=3,
    optimizer="adamw",
    learning_rate=1e-3,
)
print(result)
