"""Narrower networks: which channels go, what stays as it is, and what cannot be narrower."""

import pytest
import torch
from torch import nn

from syno.base.errors import MisfitError, ParseError, UnknownNameError
from syno.ir.library import OPERATORS
from syno.model.backbones import BACKBONES, SEQUENCE_BACKBONES
from syno.model.inputs import call
from syno.model.networks import read_replacement, replacement_named
from syno.model.outputs import tensors_in
from syno.model.pruning import narrowable, narrowed
from syno.model.replacements import KnownLayer, Mixture, NarrowerLayer, NarrowerNetwork
from syno.model.substitution import substitute

PICTURES = torch.zeros(2, 3, 32, 32)


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("name", ["resnet8", "resnet18", "resnext29_2x64d"])
def test_backbones_become_narrower(name):
    network = BACKBONES[name](classes=10, channels=3, width=1.0 if name == "resnet8" else 0.25, seed=0)
    found = narrowed(network, PICTURES, 0.5)
    assert found(PICTURES).shape == network(PICTURES).shape
    assert parameters(found) < 0.6 * parameters(network)


def test_the_shapes_do_not_depend_on_the_weights():
    shapes = [
        [
            tuple(one.shape)
            for one in narrowed(BACKBONES["resnet8"](classes=10, channels=3, width=1.0, seed=seed), PICTURES, 0.6).parameters()
        ]
        for seed in (0, 1)
    ]
    assert shapes[0] == shapes[1]
    assert all(shape[0] % 4 == 0 for shape in shapes[0] if len(shape) == 4)


def test_channels_without_weights_go_first_and_the_output_stays_the_same():
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16, 5)
    ).eval()
    kept = torch.randperm(32)[:16]
    for layer in (network[0], network[3]):  # half the channels compute nothing, and nobody reads them
        gone = torch.ones(32, dtype=torch.bool).index_fill(0, kept, False)
        layer.weight.data[gone], layer.bias.data[gone] = 0.0, 0.0
    network[1].weight.data[gone], network[1].bias.data[gone] = 0.0, 0.0
    network[3].weight.data[:, gone] = 0.0
    network[6].weight.data.view(5, 32, 16)[:, gone] = 0.0
    before = {name: value.clone() for name, value in network.state_dict().items()}
    found, x = narrowed(network, torch.zeros(1, 3, 8, 8), 0.5), torch.randn(4, 3, 8, 8)
    assert found[0].out_channels == found[3].out_channels == 16
    torch.testing.assert_close(found(x), network(x))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not found.training and all(parameter.requires_grad for parameter in found.parameters())


def residual() -> nn.Module:
    torch.manual_seed(0)
    network = BACKBONES["resnet8"](classes=10, channels=3, width=1.0, seed=0).eval()
    for norm in (one for one in network.modules() if isinstance(one, nn.BatchNorm2d)):
        (
            norm.running_mean.normal_(),
            norm.running_var.uniform_(0.5, 2),
            norm.weight.data.uniform_(0.5, 2),
            norm.bias.data.normal_(),
        )
    return network


def test_a_layer_that_is_narrower_alone_is_as_if_cut_by_hand():
    network, x = residual(), torch.randn(4, 3, 32, 32)
    kept = torch.randperm(16)[:8].sort().values
    gone = torch.ones(16, dtype=torch.bool).index_fill(0, kept, False)
    first, norm, second = (getattr(network.blocks[0], name) for name in ("conv1", "norm1", "conv2"))
    for weight in (first.weight, norm.weight, norm.bias):
        weight.data[gone] = 0.0
    second.weight.data[:, gone] = 0.0
    found = narrowed(network, x, 0.5, ["blocks.0.conv1"])
    cut = {"conv1.weight": first.weight[kept], "norm1.weight": norm.weight[kept], "norm1.bias": norm.bias[kept]}
    cut |= {"norm1.running_mean": norm.running_mean[kept], "norm1.running_var": norm.running_var[kept]}
    by_hand = {**network.state_dict(), **{f"blocks.0.{name}": one for name, one in cut.items()}}
    by_hand["blocks.0.conv2.weight"] = second.weight[:, kept]
    assert all(torch.equal(value, by_hand[name]) for name, value in found.state_dict().items())
    torch.testing.assert_close(found(x), network(x))


def test_layers_that_can_be_narrower_alone():
    network, firsts = residual(), tuple(f"blocks.{number}.conv1" for number in range(3))
    layers = [name for name, one in network.named_modules() if isinstance(one, nn.Conv2d | nn.Linear)]
    assert narrowable(network, PICTURES, 0.5, layers) == firsts
    for name, reason in {
        "blocks.0.conv2": "those of other layers",
        "head": "the output's",
        "blocks.9": "no such layer",
    }.items():
        with pytest.raises(MisfitError, match=f"{name} cannot keep 0.5 of its channels: .*{reason}"):
            narrowed(network, PICTURES, 0.5, [name])
    depthwise = nn.Sequential(nn.Conv2d(3, 32, 1), nn.Conv2d(32, 32, 3, groups=32), nn.Conv2d(32, 64, 1), nn.Conv2d(64, 5, 1))
    assert narrowable(depthwise, PICTURES, 0.5, "0123") == ("2",)
    assert narrowable(depthwise, PICTURES, 0.99, "0123") == ()  # 63.4 is 64 in multiples of 8


def test_narrower_layers_beside_operators():
    half, conv = NarrowerLayer(0.5), OPERATORS["separable_conv2d"]()
    parts = (
        (conv, ("blocks.0.conv2", "blocks.2.conv1")),
        (half, ("blocks.0.conv1",)),
        (NarrowerLayer(0.25), ("blocks.1.conv1",)),
    )
    mixture = Mixture("m", parts)
    assert read_replacement(str(mixture)) == mixture and mixture.id != Mixture("m", parts[:2]).id
    changed = substitute(residual(), mixture, PICTURES)
    sizes = [tuple(one.weight.shape[:2]) for one in (changed.blocks[0].conv1, changed.blocks[1].conv1, changed.blocks[1].conv2)]
    assert sizes == [(8, 16), (8, 16), (32, 8)] and changed(PICTURES).shape == (2, 10)
    assert changed.blocks[0].conv2(torch.zeros(1, 8, 32, 32)).shape == (1, 16, 32, 32)
    everywhere = substitute(residual(), half, PICTURES, where=["blocks.*"])
    assert [one.conv1.out_channels for one in everywhere.blocks] == [8, 16, 32]
    with pytest.raises(MisfitError, match=r"dropped .* the layer blocks\.0\.conv2"):  # 8 channels are not 16
        substitute(
            residual(), Mixture("m", (parts[1], (KnownLayer("dropped"), ("blocks.0.conv2", "blocks.2.conv2")))), PICTURES
        )
    with pytest.raises(MisfitError, match=r"narrower_0\.5 fits none of the 1 layers"):
        substitute(residual(), half, PICTURES, where=["blocks.0.conv2"])


class TwoInputs(nn.Module):
    """Sums two inputs, which ties channels together, and returns two outputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.both = nn.Linear(6, 32), nn.Linear(4, 32), nn.Linear(32, 16)
        self.mean, self.scale = nn.Linear(16, 1), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = torch.relu(self.both(torch.relu(self.left(x) + self.right(y))))
        return {"mean": self.mean(hidden), "scale": self.scale(hidden)}


@pytest.mark.parametrize("example", [(torch.zeros(3, 6), torch.zeros(3, 4)), {"y": torch.zeros(3, 4), "x": torch.zeros(3, 6)}])
def test_several_inputs_and_outputs_keep_their_shapes(example):
    found = narrowed(TwoInputs(), example, 0.5)
    assert (found.left.out_features, found.right.out_features, found.both.out_features) == (16, 16, 8)
    assert [tuple(one.shape) for one in tensors_in(call(found, example))] == [(3, 1), (3, 2)]


def test_frozen_parameters_stay_frozen():
    network = nn.Sequential(nn.Linear(4, 32), nn.Linear(32, 3))
    network[0].weight.requires_grad_(False)
    found = narrowed(network, torch.zeros(2, 4), 0.5)
    assert [parameter.requires_grad for parameter in found.parameters()] == [False, True, True, True]


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (nn.Sequential(nn.ReLU()), "no convolution and no linear layer"),
        (nn.Sequential(nn.Linear(8, 8)), "no convolution and no linear layer"),  # whose channels are the output's
        (nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)), "in no layer"),
    ],
)
def test_a_network_that_cannot_be_narrower_says_why(network, reason):
    with pytest.raises(MisfitError, match=reason):
        narrowed(network, torch.zeros(2, 8), 0.5)


def test_a_text_network_is_narrower_or_says_why():
    network, tokens = (
        SEQUENCE_BACKBONES["gpt2"](vocabulary=64, context=16, width=0.25, seed=0),
        torch.zeros(2, 16, dtype=torch.int64),
    )
    try:
        found = narrowed(network, tokens, 0.5)
    except MisfitError as error:
        assert "Torch-Pruning" in str(error) or "shape" in str(error)
    else:
        assert found(tokens).shape == network(tokens).shape


def test_names_and_texts_of_narrower_networks():
    pruned = replacement_named("pruned_0.5")
    assert pruned == NarrowerNetwork("pruned", 0.5) == read_replacement(str(pruned))
    assert (str(pruned), pruned.name, pruned.structure.name) == ("network pruned 0.5\n", "pruned_0.5", "narrow_0.5")
    assert replacement_named("conv2d") is replacement_named("pruned_half") is None
    with pytest.raises(UnknownNameError, match=r"above 0 and below 1"):
        replacement_named("narrow_1.5")
    with pytest.raises(ParseError, match="no narrower network"):
        read_replacement("network thin 0.5")


def test_substitute_takes_a_narrower_network():
    network = BACKBONES["resnet8"](classes=10, channels=3, width=1.0, seed=0)
    assert parameters(substitute(network, NarrowerNetwork("narrow", 0.5), PICTURES)) == parameters(
        narrowed(network, PICTURES, 0.5)
    )
