"""A network as source: it has both modes of the network, or says which it has not."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from quick_cases import quick_cases
from torch import nn
from torch.nn import functional

import syno
from syno.base.errors import LoweringError
from syno.export.comparison import Comparison, training_difference
from syno.export.network_source import network_source
from syno.model.backbones import BACKBONES

SHAPE = (2, 3, 8, 8)


class Base(nn.Module):  # type: ignore[misc]
    """A convolution, a normalization, and a head; subclasses change `forward`."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x)))

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.features(x).mean((2, 3)))


class FunctionalDropout(Base):
    def forward(self, x: torch.Tensor) -> Any:
        y = functional.dropout2d(self.features(x), 0.3, training=self.training)
        return self.head(functional.dropout(y.mean((2, 3)), 0.5, self.training))


class Branch(Base):
    def forward(self, x: torch.Tensor) -> Any:
        if self.training:
            x = x + 0.1 * torch.randn_like(x)
        return super().forward(x)


class StochasticDepth(Base):
    def forward(self, x: torch.Tensor) -> Any:
        y = self.features(x)
        if self.training:
            y = y * (torch.rand(x.shape[0], 1, 1, 1, device=x.device) < 0.5) / 0.5
        return self.head(y.mean((2, 3)))


class Auxiliary(Base):
    def __init__(self) -> None:
        super().__init__()
        self.auxiliary = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.features(x).mean((2, 3))
        return (self.head(y), {"auxiliary": self.auxiliary(y)}) if self.training else self.head(y)


class Frozen(Base):
    def __init__(self) -> None:
        super().__init__()
        self.conv.requires_grad_(False)
        self.head.bias.requires_grad_(False)


class OwnTrain(FunctionalDropout):
    """Its normalization keeps its statistics."""

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.norm.eval()
        return self


class FrozenNorm(nn.BatchNorm2d):  # type: ignore[misc]
    def train(self, mode: bool = True) -> Any:
        return super().train(False)


class OwnNorm(Base):
    def __init__(self) -> None:
        super().__init__()
        self.norm = FrozenNorm(4)


class AlwaysDrops(Base):
    """Draws in evaluation mode, too."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.dropout.train()
        return self

    def forward(self, x: torch.Tensor) -> Any:
        return self.dropout(super().forward(x))


class Buffers(Base):
    """Buffers in arithmetic: kept ones, one that is not saved, one that changes in training, and a tensor of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.rand(3, 1, 1))
        self.register_buffer("mask", torch.rand(4) < 0.7, persistent=False)
        self.register_buffer("calls", torch.zeros(()))
        self.scale = torch.rand(5)

    def forward(self, x: torch.Tensor) -> Any:
        if self.training:
            self.calls += 1
        y = self.features(x - self.mean[: self.mean.shape[0]]).mean((2, 3)).masked_fill(self.mask, float("-inf"))
        return self.head(torch.sigmoid(y)) * self.scale + torch.tensor([1.0, 2, 3, 4, 5])


class MovingMean(Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> Any:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean()
        return super().forward(x - self.mean)


class Keywords(nn.Module):  # type: ignore[misc]
    """Layers whose names are keywords, no identifiers, or methods of modules."""

    NAMES = ("in", "global", "0", "a-b", "training_", "forward_in_training", "é", "__own", "a_b", "None")

    def __init__(self) -> None:
        super().__init__()
        for name in self.NAMES:
            self._modules[name] = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> Any:
        for name in self.NAMES:
            x = self._modules[name](x)
        return x


class TiedHead(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 4)
        self.again = nn.Linear(4, 4)
        self.other = nn.Linear(4, 4)
        self.other.weight = self.again.weight

    def forward(self, x: torch.Tensor) -> Any:
        y = self.embedding(x.flatten(1).abs().long() % 11)
        return functional.linear(self.other(self.again(y)), self.embedding.weight)


class OptionalInput(Base):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, scale: float = 2.0) -> Any:
        y = super().forward(x) * scale
        return y if mask is None else y * mask


class Attention(Base):
    """Parts of a tensor with names, a mask, and a number that is another one in training."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = nn.Linear(4, 12)
        self.register_buffer("mask", torch.ones(99, 99).tril().bool())

    def forward(self, x: torch.Tensor) -> Any:
        query, key, value = self.projection(self.features(x).flatten(2).transpose(1, 2)).chunk(3, dim=-1)
        _, length, _ = query.shape
        given = {"attn_mask": self.mask[:length, :length], "dropout_p": 0.1 if self.training else 0.0}
        value = value / math.sqrt(query.size(-1))
        return self.head(functional.scaled_dot_product_attention(query, key, value, **given).mean(1))


class Parametrized(Base):
    def __init__(self) -> None:
        super().__init__()
        nn.utils.parametrizations.weight_norm(self.conv)


KEPT = (
    Base,
    FunctionalDropout,
    Branch,
    StochasticDepth,
    Auxiliary,
    Frozen,
    OwnTrain,
    OwnNorm,
    AlwaysDrops,
    Buffers,
    MovingMean,
    TiedHead,
    OptionalInput,
    Attention,
    Parametrized,
)


def made_of(network: nn.Module, example: torch.Tensor | None = None) -> nn.Module:
    """Return the network that its source makes, with its weights."""
    source = network_source(network, example)
    assert not source.only_inference
    scope: dict[str, Any] = {"__file__": "network.py"}
    exec(compile(source.text("A network."), "network.py", "exec"), scope)
    again = scope["Network"]()
    again.load_state_dict(source.state(network))
    return again.eval()  # type: ignore[no-any-return]


def check_both_modes(network: nn.Module, again: nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        torch.manual_seed(1)
        wanted = network.eval()(x)
        torch.manual_seed(1)
        assert torch.equal(again.eval()(x), wanted)
    assert training_difference(network, again, x) == ""


@pytest.mark.parametrize("make", KEPT, ids=lambda make: make.__name__)
def test_both_modes_of_the_source_compute_as_the_network(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    network = make().train()
    states = deepcopy(network.state_dict())
    again = made_of(network)
    assert network.training and all(torch.equal(states[name], tensor) for name, tensor in network.state_dict().items())
    check_both_modes(network, again, torch.randn(3, *SHAPE[1:]))
    check_both_modes(network, again, torch.randn(2, 3, 7, 9))
    trained = [sum(one.numel() for one in each.parameters() if one.requires_grad) for each in (network, again)]
    assert trained[0] == trained[1]


@dataclass
class Output:
    logits: torch.Tensor


class OwnOutput(Base):
    """Returns an object that torch knows nothing of."""

    def __init__(self, added: float) -> None:
        super().__init__()
        self.added = added

    def forward(self, x: torch.Tensor) -> Any:
        return Output(super().forward(x) + self.added)


def test_a_network_with_an_operator_takes_empty_batches_and_refuses_empty_pictures() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Conv2d(3, 8, 3, padding=1))
    again = made_of(syno.substitute(model, syno.OPERATORS["separable_conv2d"](), torch.zeros(SHAPE), keep_stem=False))
    assert again(torch.zeros(0, *SHAPE[1:])).shape == (0, 8, *SHAPE[2:])
    with pytest.raises(ValueError, match=r"has shape \[2, 3, 0, 0\]; it must be \[N, 3, H, W\] with H > 0 and W > 0"):
        again(torch.zeros(2, 3, 0, 0))


def test_outputs_of_own_classes_are_compared() -> None:
    torch.manual_seed(0)
    one, other = OwnOutput(0.0), OwnOutput(1.0)
    other.load_state_dict(one.state_dict())
    assert "outputs in training mode differ" in training_difference(one, other, torch.randn(3, *SHAPE[1:]))
    assert Comparison(one.eval(), torch.zeros(SHAPE), None).agreement(other.eval()).wrong


def test_flags_alone_need_one_forward_and_other_differences_two() -> None:
    assert "training = self.training" in (text := network_source(FunctionalDropout()).network)
    assert "forward_in_training" not in text and text.count("torch.nn.functional.dropout") == 2
    assert "if self.training:\n            return self.forward_in_training(x)" in network_source(Branch()).network


def test_layers_of_any_name_are_written() -> None:
    network = Keywords()
    again = made_of(network)
    x = torch.randn(2, 8)
    assert torch.equal(again(x), network(x)) and len(list(again.children())) == len(Keywords.NAMES)


class HalfHeight(Base):
    """Computes with lengths as numbers."""

    def forward(self, x: torch.Tensor) -> Any:
        y = self.features(x)
        return self.head(y[:, :, : int(y.shape[2] * 0.5)].reshape(x.size(0), 4, -1).mean(2))


def test_lengths_as_numbers_are_for_one_size_of_samples_and_any_batch() -> None:
    network = HalfHeight()
    with pytest.raises(LoweringError, match="depends on values"):
        network_source(network)
    again = made_of(network, torch.zeros(SHAPE))
    for batch in (1, 3):
        check_both_modes(network, again, torch.randn(batch, *SHAPE[1:]))
    with pytest.raises(ValueError, match=r"\[N, 3, 8, 8\].*\[1, 3, 9, 8\]"):
        again(torch.zeros(1, 3, 9, 8))


class LayerDrop(Base):
    """Leaves out a layer at random: which, a trace cannot hold."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x) * (0.0 if self.training and random.random() < 0.5 else 1.0)


class DropsByTensor(Base):
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x) * (0.0 if self.training and torch.rand(1) < 0.5 else 1.0)


class CountsCalls(Base):
    calls = 0

    def forward(self, x: torch.Tensor) -> Any:
        if self.training:
            self.calls += 1
        return super().forward(x) * (2 if self.calls > 100 else 1)


@pytest.mark.parametrize("make", [LayerDrop, DropsByTensor, CountsCalls])
def test_a_training_mode_that_cannot_be_written_is_an_error_of_train(make: Callable[[], nn.Module]) -> None:
    network = make().eval()
    source = network_source(network)
    scope: dict[str, Any] = {"__file__": "network.py"}
    exec(compile(source.text("A network."), "network.py", "exec"), scope)
    again = scope["Network"]()
    again.load_state_dict(source.state(network))
    x = torch.randn(SHAPE)
    assert source.only_inference and not again.training and torch.equal(again(x), network(x))
    with pytest.raises(RuntimeError, match="this network is for inference: "):
        again.train()
    assert again.eval() is again


class Hooked(Base):
    def __init__(self) -> None:
        super().__init__()
        self.conv.register_forward_hook(lambda module, inputs, output: 2 * output)


class Branches(nn.Module):  # type: ignore[misc]
    """A forward that depends on values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(("make", "said"), [(Hooked, "conv has hooks"), (Branches, "forward depends on values")])
def test_networks_that_cannot_be_source_are_errors_with_the_reason(make: Callable[[], nn.Module], said: str) -> None:
    with pytest.raises(LoweringError, match=said):
        network_source(make(), torch.zeros(SHAPE))


@pytest.mark.parametrize("name", quick_cases(["resnet18", "densenet121", "efficientnet_v2_s"], "resnet18".__eq__))
def test_a_backbone_as_source_computes_the_same(name: str) -> None:
    network = BACKBONES[name](classes=4, width=0.125 if name == "resnet18" else 0.25)
    again, x = made_of(network), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(again(x), network.eval()(x))
    assert len(list(again.parameters())) == len(list(network.parameters()))


def test_an_operator_alone_is_a_network() -> None:
    operator = syno.build(syno.OPERATORS["conv2d"](), {"C_in": 3, "C_out": 4}, seed=0)
    check_both_modes(operator, made_of(operator), torch.randn(SHAPE))
