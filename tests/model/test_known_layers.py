"""Known efficient layers: each reads what the layer in whose place it is reads, and costs less."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own name for it
from torch import Tensor, nn

from syno.base.errors import MisfitError, ParseError, UnknownNameError
from syno.model.counting import model_cost
from syno.model.module import OperatorModule
from syno.model.networks import read_replacement, replacement_named
from syno.model.replacements import KnownLayer, Mixture
from syno.model.substitution import substitute

CONVOLVE = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}


def same(x: Tensor, weight: Tensor, kernel: tuple[int, ...], groups: int) -> Tensor:
    """A convolution of torch whose window of even size k reaches k//2 positions back."""
    ends = [end for size in reversed(kernel) for end in (size // 2, size - 1 - size // 2)]
    return CONVOLVE[x.dim()](F.pad(x, ends), weight, groups=groups)


def pointwise(x: Tensor, weight: Tensor) -> Tensor:
    return torch.einsum("nc...,oc->no...", x, weight)


def references(name: str, x: Tensor, weights: list[Tensor], kernel: tuple[int, ...]) -> Tensor:
    if name == "separable":
        return pointwise(same(x, weights[1].reshape(-1, 1, *kernel), kernel, groups=x.shape[1]), weights[0])
    if name.startswith("grouped"):
        groups, outputs, inputs = weights[0].shape[:3]
        return same(x, weights[0].reshape(groups * outputs, inputs, *kernel), kernel, groups=groups)
    return pointwise(same(x, weights[1].reshape(len(weights[1]), -1, *kernel), kernel, groups=1), weights[0])


@pytest.mark.parametrize("name", ["separable", "grouped_2", "low_rank_4"])
@pytest.mark.parametrize("kernel", [(25,), (5, 5), (8, 1), (3, 5), (3, 3, 2)], ids=lambda kernel: "x".join(map(str, kernel)))
def test_it_reads_what_the_layer_reads(name: str, kernel: tuple[int, ...]) -> None:
    layer = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[len(kernel)](8, 12, kernel, padding="same", bias=False)
    x = torch.randn(2, 8, *(7 + place for place in range(len(kernel))), generator=torch.Generator().manual_seed(0))
    network = nn.Sequential(layer, nn.ReLU())
    changed = substitute(network, KnownLayer(*split(name)), x, where=["0"])
    module = next(one for one in changed.modules() if isinstance(one, OperatorModule))
    found = module(x)  # its windows lie as the language's do; the layer's, if they are even, reach one position farther ahead
    assert torch.allclose(found, references(name, x, list(module.parameters()), kernel), atol=1e-5)
    assert changed(x).shape == network(x).shape
    assert model_cost(changed, x).flops < model_cost(network, x).flops


def split(name: str) -> tuple[str, int]:
    kind, _, number = name.rpartition("_") if name[-1].isdigit() else (name, "", "1")
    return kind, int(number)


def test_each_layer_has_its_own_kernel_and_those_that_would_not_be_cheaper_stay() -> None:
    network = nn.Sequential(
        *(nn.Conv2d(6, 8, 7, padding=3), nn.Conv2d(8, 9, 3, padding=1), nn.Conv2d(9, 8, 3, padding=1)), nn.Conv2d(8, 8, 1)
    )
    x, where = torch.zeros(1, 6, 9, 9), ["0", "1", "2", "3"]
    separable = substitute(network, KnownLayer("separable"), x, where=where)
    assert [tuple(weight.shape) for weight in separable[0].parameters()][:2] == [(8, 6), (6, 7, 7)]
    assert [tuple(weight.shape) for weight in separable[1].parameters()][:2] == [(9, 8), (8, 3, 3)]
    assert isinstance(separable[3], nn.Conv2d)
    depthwise = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 8, 3, padding=1, groups=2))
    changed = substitute(depthwise, KnownLayer("grouped", 4), torch.zeros(1, 8, 9, 9), where=["0", "1"])
    assert isinstance(changed[0], nn.Conv2d) and next(changed[1].parameters()).shape[0] == 4
    dropped = substitute(network, KnownLayer("dropped"), x, where=where)  # the last alone has as many outputs as inputs
    y = torch.randn(2, 8, 9, 9)
    assert isinstance(dropped[0], nn.Conv2d) and torch.equal(dropped[3](y), y + network[3].bias.view(-1, 1, 1))
    grouped = substitute(
        network, KnownLayer("grouped", 4), x, where=where
    )  # 4 divides 6 not, and 2 does; nothing divides 9 and 8
    assert [next(iter(one.parameters())).shape[0] for one in (grouped[0], grouped[3])] == [2, 4]
    assert isinstance(grouped[1], nn.Conv2d) and isinstance(grouped[2], nn.Conv2d)


def test_linear_layers() -> None:
    network, x = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)), torch.randn(2, 5, 32)
    low_rank = substitute(network, KnownLayer("low_rank", 4), x, where="linear")
    first, second = list(low_rank[0].parameters())[:2]
    assert torch.allclose(low_rank[0](x), x @ second.T @ first.T + network[0].bias, atol=1e-5)
    grouped = substitute(network, KnownLayer("grouped", 4), x, where="linear")
    (weight,) = [one for one in grouped[2].parameters() if one.dim() > 1]
    halves = torch.einsum("nlgc,goc->nlgo", torch.ones(2, 5, 4, 16), weight).flatten(2)
    assert torch.allclose(grouped[2](torch.ones(2, 5, 64)), halves + network[2].bias, atol=1e-5)
    with pytest.raises(MisfitError, match=r"dropped .* fits none"):
        substitute(network, KnownLayer("dropped"), x, where="linear")
    with pytest.raises(MisfitError, match="separable is no cheaper than each of the 2 layers"):
        substitute(network, KnownLayer("separable"), x, where="linear")


def test_names_and_texts() -> None:
    for name in ("separable", "dropped", "grouped_4", "low_rank_2", "narrower_0.5"):
        known = replacement_named(name)
        assert known is not None and known.name == name and read_replacement(str(known)) == known
        mixture = Mixture("mixture_1", ((known, ("a", "b")),))
        assert read_replacement(str(mixture)) == mixture
    assert replacement_named("separable_conv2d") is None and replacement_named("conv1x1") is None
    for wrong in ("separable_2", "grouped", "low_rank_1", "narrower_1.5"):
        with pytest.raises(UnknownNameError, match="is no known layer: give separable, dropped, grouped_NUMBER"):
            replacement_named(wrong)
    with pytest.raises(ParseError, match="is no known layer"):
        read_replacement("known layer pillows\n")
