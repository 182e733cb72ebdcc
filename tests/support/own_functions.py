"""Networks and data sets as a user writes them: right ones, and one with each mistake. The path is `own_functions:NAME`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from syno.data import DataSet

CLASSES = 4


def network(*, classes: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    """[N, channels, H, H] -> [N, classes]; the second convolution can be replaced."""
    torch.manual_seed(seed)
    return nn.Sequential(
        *(nn.Conv2d(channels, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes)),
    )


def biased_network(**arguments: Any) -> nn.Module:
    made = network(**arguments)
    made[2] = nn.Conv2d(8, 8, 3, padding=1, bias=True)
    return made


def any_layer(layer: object) -> None:
    """A rule for layers: all are replaced."""


def network_of_more_settings(*, classes: int, blocks: int, channels: int = 3, width: float = 1.0, seed: int = 0) -> nn.Module:
    return network(classes=classes, channels=channels, width=width, seed=seed)


def no_network(**arguments: Any) -> int:
    return 3


def network_of_wrong_channels(*, channels: int = 3, **arguments: Any) -> nn.Module:
    return network(channels=channels + 1, **arguments)


def network_that_raises(**arguments: Any) -> nn.Module:
    raise IndexError("no such layer")


def network_of_few_outputs(*, classes: int, **arguments: Any) -> nn.Module:
    return network(classes=classes - 1, **arguments)


def network_of_two_outputs(**arguments: Any) -> nn.Module:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = network(**arguments)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.body(x), x

    return Two()


def network_that_fails_in_training(**arguments: Any) -> nn.Module:
    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = network(**arguments)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                raise KeyError("drop path")
            return self.body(x)

    return Picky()


def network_that_fails_later(**arguments: Any) -> nn.Module:
    """It runs twelve times, more than `syno data` and `first_batch` do, and fails then."""

    class Tired(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.left = network(**arguments), 12

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.left -= self.training
            return self.body(x)[(self.left < 0 and "tired") or slice(None)]

    return Tired()


def network_whose_gradient_fails(**arguments: Any) -> nn.Module:
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
            raise ArithmeticError("no gradient")

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = network(**arguments)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Bad.apply(self.body(x))

    return Module()


def trained_network(*, classes: int, seed: int) -> nn.Module:
    """A network whose weights are the same for every seed, as those of a file are, but for the head's."""
    made = network(classes=classes, seed=5)
    torch.manual_seed(seed)
    made[-1].reset_parameters()
    return made


class _Named:
    def __init__(self, logits: torch.Tensor, features: torch.Tensor) -> None:
        self.logits, self.features = logits, features


@dataclass
class Answer:
    """An output that PyTorch does not know as a container."""

    logits: torch.Tensor
    more: dict[str, Any]


class Several(nn.Module):
    """A network of pictures, places in them, and a mask, which are arguments, named or in a mapping."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.places = nn.Embedding(5, 8)

    def forward(self, x: Any, places: Any = None, *, keep: Any = None, scale: float = 1.0) -> Answer:
        places = x["places"] if places is None else places
        y = self.stem(x["x"] if isinstance(x, dict) else x) + self.places(places).mean(1)[..., None, None]
        y = self.norm(self.body(y if keep is None else y.masked_fill(~keep, 0.0))) * scale
        return Answer(y.mean((2, 3)), {"features": (y, None), "places": places})


def network_of_several_inputs(*, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return Several()


def network_of_named_outputs(**arguments: Any) -> nn.Module:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = network(**arguments)

        def forward(self, x: torch.Tensor) -> _Named:
            return _Named(self.body(x), x)

    return Named()


def pointwise_network(*, classes: int) -> nn.Module:
    """The layers of MobileNet: depthwise and pointwise convolutions."""
    blocks = [(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 8, 1), nn.ReLU()) for _ in range(9)]
    rest = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes)
    return nn.Sequential(nn.Conv2d(3, 8, 3), *(layer for block in blocks for layer in block), *rest)


def imbalanced_pictures(*, share: float = 0.95) -> DataSet:
    data = pictures()
    labels = (torch.arange(96) % 32 >= 32 * share).long()
    return DataSet("imbalanced", data.train_images, labels[:64], data.test_images, labels[64:], CLASSES)


def values_of_pictures() -> DataSet:
    data = pictures()
    values = torch.linspace(0, 1, 96)[:, None]
    return DataSet("values", data.train_images, values[:64], data.test_images, values[64:], CLASSES)


def pictures(*, offset: int = 0, dtype: str = "float32", broken: bool = False) -> DataSet:
    """64 pictures of 8x8 to train on, 32 to test on."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(96, 3, 8, 8, generator=generator).to(getattr(torch, dtype))
    labels = torch.arange(96) % CLASSES + offset
    if broken:
        images[5, 0, 0, 0] = float("nan")
    return DataSet("pictures", images[:64], labels[:64], images[64:], labels[64:], CLASSES)


class Streamed:
    """Pictures with the attributes of `PictureData`, which are checked as they come."""

    def __init__(self, **settings: Any) -> None:
        self.held = pictures()
        self.name, self.classes, self.hash, self.image_shape = "streamed", CLASSES, "0", (3, 8, 8)
        self.train_count, self.test_count, self.settings = 64, 32, settings

    def train_batches(self, batch: int, **how: Any) -> Any:
        return _Changed(self.held.train_batches(batch, **how), **self.settings)

    def test_batches(self, batch: int, **how: Any) -> Any:
        return list(self.held.test_batches(batch, **how))


class _Changed:
    def __init__(self, batches: Any, offset: int = 0, dtype: str = "float32") -> None:
        self.batches, self.offset, self.dtype = batches, offset, dtype

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, number: int, first: int = 0) -> Any:
        for images, labels in self.batches.epoch(number, first):
            yield images.to(getattr(torch, self.dtype)), labels + self.offset


def streamed(**settings: Any) -> Streamed:
    return Streamed(**settings)


def pair_of_tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(4, 3, 8, 8), torch.zeros(4)


def data_that_raises() -> DataSet:
    return DataSet(**torch.load("/absent/pictures.pt"))
