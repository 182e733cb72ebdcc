"""DenseNet-121, EfficientNet-V2-S, ResNeXt-29: torchvision's parameters and outputs, the paper's counts and layers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import torchvision_state
from quick_cases import quick_cases
from torch import nn
from torch.nn import functional

import syno
from syno.base.errors import SpecError
from syno.measure.network_subject import NetworkSubject
from syno.model.backbones import BACKBONES
from syno.model.backbones.efficientnet import StochasticDepth
from syno.model.counting import model_cost, parameters, published_flops
from syno.model.extraction import replaceable
from syno.model.layer import Layer
from syno.model.substitution import substitute
from syno.space import preset

State = dict[str, torch.Tensor]
NAMES = ("densenet121", "efficientnet_v2_s", "resnext29_2x64d")
PICTURE = torch.zeros(1, 3, 224, 224, device="meta")
SMALL = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def is_resnext(case: tuple[Any, ...]) -> bool:
    """Whether a case is of the network with the fewest layers, which takes a fifth of the time of the others."""
    return str(case[0]).startswith("resnext")


@cache
def shaped(name: str, classes: int = 1000) -> nn.Module:
    """A network with shapes and nothing else. Not to be changed."""
    with torch.device("meta"):
        return BACKBONES[name](classes=classes).eval()


def narrow(name: str) -> nn.Module:
    """A network of an eighth of the features, with numbers everywhere that no two layers share."""
    model = BACKBONES[name](classes=7, width=1 / 8).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for key, value in model.state_dict().items():
            if value.is_floating_point() and value.dim() == 1:  # of normalization, mostly
                value.copy_(torch.rand(value.shape, generator=generator) + (0.5 if key.endswith(("var", "weight")) else -0.5))
    return model


class TestParameters:
    @pytest.mark.parametrize("name", NAMES)
    def test_parameter_names_are_those_of_torchvision(self, name: str) -> None:
        state = {key: tuple(value.shape) for key, value in shaped(name).state_dict().items()}
        assert list(state.items()) == list(getattr(torchvision_state, name)(1000).items())

    @pytest.mark.parametrize(
        ("name", "classes", "count"),
        [
            ("densenet121", 1000, 7_978_856),
            ("densenet121", 100, 7_056_356),
            ("efficientnet_v2_s", 1000, 21_458_488),
            ("efficientnet_v2_s", 100, 20_305_588),
            ("resnext29_2x64d", 1000, 21_150_504),
            ("resnext29_2x64d", 100, 19_306_404),
            ("resnext29_2x64d_1000", 100, 21_150_504),
        ],
    )
    def test_parameters_are_counted(self, name: str, classes: int, count: int) -> None:
        assert parameters(shaped(name, classes)) == count

    def test_the_paper_s_resnext_has_1000_classes_at_least(self) -> None:
        with pytest.raises(SpecError, match="1001 classes, .*1000; .*resnext29_2x64d"):
            BACKBONES["resnext29_2x64d_1000"](classes=1001)

    @pytest.mark.parametrize("name", NAMES)
    def test_seeds_and_widths(self, name: str) -> None:
        torch.manual_seed(3)
        expected = torch.rand(1)
        torch.manual_seed(3)
        first, again, other = (BACKBONES[name](classes=7, channels=1, width=1 / 8, seed=seed) for seed in (0, 0, 1))
        assert torch.equal(torch.rand(1), expected)
        assert all(torch.equal(one, two) for one, two in zip(first.parameters(), again.parameters(), strict=True))
        assert not torch.equal(next(first.parameters()), next(other.parameters()))
        assert first(SMALL[:, :1]).shape == (2, 7)
        with pytest.raises(SpecError, match=r"width is 0\.3, which makes"):
            BACKBONES[name](classes=2, width=0.3)

    @pytest.mark.parametrize(
        ("name", "layer", "fan"),
        [
            ("densenet121", "features.conv0", "in"),
            ("densenet121", "features.denseblock4.denselayer16.conv1", "in"),
            ("efficientnet_v2_s", "features.6.14.block.0.0", "out"),
            ("resnext29_2x64d", "layer4.0.conv3", "out"),
        ],
    )
    def test_initialization_of_convolutions(self, name: str, layer: str, fan: str) -> None:
        weight = BACKBONES[name](classes=3).get_submodule(layer).weight
        after, before, *kernel = weight.shape
        number = math.prod(kernel) * (before if fan == "in" else after)
        assert weight.std().item() == pytest.approx(math.sqrt(2 / number), rel=0.05)

    def test_initialization_of_the_heads(self) -> None:
        head = BACKBONES["efficientnet_v2_s"](classes=100).classifier[1]
        assert 0.095 < head.weight.max() <= 0.1 and -0.1 <= head.weight.min() < -0.095
        assert not head.bias.any() and not BACKBONES["densenet121"](classes=3).classifier.bias.any()


# ---- what torchvision's networks compute, from the numbers in their state dicts alone -----------------------------------


def norm(state: State, name: str, x: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    mean, variance, weight, bias = (state[f"{name}.{key}"] for key in ("running_mean", "running_var", "weight", "bias"))
    return functional.batch_norm(x, mean, variance, weight, bias, eps=eps)


def densenet(state: State, x: torch.Tensor) -> torch.Tensor:
    x = functional.conv2d(x, state["features.conv0.weight"], stride=2, padding=3)
    x = functional.max_pool2d(torch.relu(norm(state, "features.norm0", x)), 3, 2, 1)
    for block, layers in enumerate((6, 12, 24, 16), 1):
        for layer in range(1, layers + 1):
            name = f"features.denseblock{block}.denselayer{layer}"
            y = functional.conv2d(torch.relu(norm(state, f"{name}.norm1", x)), state[f"{name}.conv1.weight"])
            y = functional.conv2d(torch.relu(norm(state, f"{name}.norm2", y)), state[f"{name}.conv2.weight"], padding=1)
            x = torch.cat([x, y], 1)
        if block < 4:
            name = f"features.transition{block}"
            x = functional.conv2d(torch.relu(norm(state, f"{name}.norm", x)), state[f"{name}.conv.weight"])
            x = functional.avg_pool2d(x, 2, 2)
    x = functional.adaptive_avg_pool2d(torch.relu(norm(state, "features.norm5", x)), (1, 1))
    return functional.linear(torch.flatten(x, 1), state["classifier.weight"], state["classifier.bias"])


def resnext(state: State, x: torch.Tensor) -> torch.Tensor:
    x = functional.conv2d(x, state["conv1.weight"], stride=2, padding=3)
    x = functional.max_pool2d(torch.relu(norm(state, "bn1", x)), 3, 2, 1)
    for stage, count in enumerate((3, 3, 3, 1), 1):
        for block in range(count):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and not block else 1
            y = torch.relu(norm(state, f"{name}.bn1", functional.conv2d(x, state[f"{name}.conv1.weight"])))
            y = functional.conv2d(y, state[f"{name}.conv2.weight"], stride=stride, padding=1, groups=2)
            y = functional.conv2d(torch.relu(norm(state, f"{name}.bn2", y)), state[f"{name}.conv3.weight"])
            if not block:
                around = functional.conv2d(x, state[f"{name}.downsample.0.weight"], stride=stride)
                x = norm(state, f"{name}.downsample.1", around)
            x = torch.relu(norm(state, f"{name}.bn3", y) + x)
    return functional.linear(functional.adaptive_avg_pool2d(x, 1).flatten(1), state["fc.weight"], state["fc.bias"])


def efficientnet(state: State, x: torch.Tensor) -> torch.Tensor:
    def convolution(name: str, x: torch.Tensor, stride: int = 1) -> torch.Tensor:
        weight = state[f"{name}.0.weight"]
        groups = x.shape[1] // weight.shape[1]
        y = functional.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2, groups=groups)
        return norm(state, f"{name}.1", y, eps=1e-3)

    x = functional.silu(convolution("features.0", x, 2))
    stages = ((1, 2, 1), (2, 4, 2), (3, 4, 2), (4, 6, 2), (5, 9, 1), (6, 15, 2))
    for stage, blocks, first in stages:
        for number in range(blocks):
            name, stride = f"features.{stage}.{number}.block", 1 if number else first
            y = functional.silu(convolution(f"{name}.0", x, stride if stage <= 3 else 1))
            if stage in (2, 3):
                y = convolution(f"{name}.1", y)
            elif stage > 3:
                y = functional.silu(convolution(f"{name}.1", y, stride))
                scale = functional.adaptive_avg_pool2d(y, 1)
                scale = functional.conv2d(scale, state[f"{name}.2.fc1.weight"], state[f"{name}.2.fc1.bias"])
                scale = functional.conv2d(functional.silu(scale), state[f"{name}.2.fc2.weight"], state[f"{name}.2.fc2.bias"])
                y = convolution(f"{name}.3", torch.sigmoid(scale) * y)
            x = y + x if y.shape == x.shape else y
    x = functional.adaptive_avg_pool2d(functional.silu(convolution("features.7", x)), 1).flatten(1)
    return functional.linear(x, state["classifier.1.weight"], state["classifier.1.bias"])


class TestOutputs:
    @pytest.mark.parametrize(
        ("name", "forward"), [("densenet121", densenet), ("efficientnet_v2_s", efficientnet), ("resnext29_2x64d", resnext)]
    )
    def test_are_those_of_torchvision_bit_for_bit(self, name: str, forward: Callable[..., torch.Tensor]) -> None:
        model = narrow(name)
        with torch.no_grad():
            computed, expected = model(SMALL), forward(model.state_dict(), SMALL)
        assert computed.isfinite().all() and computed.std() > 0
        assert torch.equal(computed, expected)

    def test_in_training_whole_samples_are_dropped(self) -> None:
        torch.manual_seed(0)
        x = torch.ones(1000, 2, 3, 3)
        dropping = StochasticDepth(0.2)
        y = dropping(x)
        assert set(y.unique().tolist()) == {0.0, 1.25}
        assert torch.equal(y.amin((1, 2, 3)), y.amax((1, 2, 3))) and 150 < (y[:, 0, 0, 0] == 0).sum() < 250
        assert torch.equal(dropping.eval()(x), x)

    def test_later_blocks_are_dropped_more_often(self) -> None:
        found = [module.probability for module in shaped("efficientnet_v2_s").modules() if isinstance(module, StochasticDepth)]
        assert found == pytest.approx([0.2 * number / 40 for number in range(40)])


class TestFlops:
    @pytest.mark.parametrize(
        ("name", "classes", "published", "plain"),
        quick_cases(
            [
                ("densenet121", 100, 2_896_085_504, 2_833_240_064),
                ("efficientnet_v2_s", 1000, 2_901_935_168, 2_849_895_872),
                ("efficientnet_v2_s", 100, 2_900_783_168, 2_848_743_872),
                ("resnext29_2x64d_1000", 100, 5_126_324_224, 5_078_253_568),
            ],
            is_resnext,
        ),
    )
    def test_flops_as_the_paper_counts_and_plain_ones(self, name: str, classes: int, published: int, plain: int) -> None:
        assert published_flops(shaped(name, classes), PICTURE) == published
        assert model_cost(shaped(name, classes), PICTURE).flops == plain


@cache
def paper_layers(name: str) -> tuple[Layer, ...]:
    return replaceable(shaped(name), PICTURE, "paper")


class TestPaperLayers:
    @pytest.mark.parametrize(
        ("name", "sizes"),
        quick_cases(
            [
                ("densenet121", {(128, 32, 56, 1): 6, (128, 32, 28, 1): 12, (128, 32, 14, 1): 24, (128, 32, 7, 1): 16}),
                (
                    "efficientnet_v2_s",
                    {(24, 24, 112, 1): 2, (24, 96, 56, 2): 1, (48, 192, 56, 1): 3, (48, 192, 28, 2): 1, (64, 256, 28, 1): 3},
                ),
                (
                    "resnext29_2x64d",
                    {
                        **{(128, 128, 56, 1): 3, (256, 256, 28, 2): 1, (256, 256, 28, 1): 2},
                        **{(512, 512, 14, 2): 1, (512, 512, 14, 1): 2, (1024, 1024, 7, 2): 1},
                    },
                ),
            ],
            is_resnext,
        ),
    )
    def test_layers_that_the_paper_replaces(self, name: str, sizes: dict[tuple[int, ...], int]) -> None:
        assert Counter((*list(layer.values.values())[1:], layer.stride) for layer in paper_layers(name)) == sizes

    @pytest.mark.slow
    def test_the_rule_for_all_networks_means_something_else(self) -> None:
        assert len(replaceable(shaped("densenet121"), PICTURE, "spatial")) == 58
        with pytest.raises(SpecError, match=r"layer1\.0\.conv2 and 9 more: it has 2 groups"):
            replaceable(shaped("resnext29_2x64d"), PICTURE, "spatial")

    @pytest.mark.parametrize(
        ("chosen", "name", "classes"),
        quick_cases(
            [
                ("resnet18", "resnet18", 100),
                ("densenet121", "densenet121", 100),
                ("efficientnet_v2_s", "efficientnet_v2_s", 100),
                ("resnext29_2x64d", "resnext29_2x64d_1000", 100),
            ],
            is_resnext,
        ),
    )
    def test_the_paper_s_specs_are_of_these_networks(self, chosen: str, name: str, classes: int) -> None:
        spec, model = preset(chosen), shaped(name, classes)
        layers = replaceable(model, PICTURE.expand(128, -1, -1, -1), "paper")
        found = Counter(tuple(sorted(layer.values.items())) for layer in layers)
        assert found == {tuple(sorted(row.values.items())): row.count for row in spec.layers}
        original = sum(layer.module.weight.numel() for layer in layers)
        assert spec.budget.rest_parameters == parameters(model) - original

    @pytest.mark.parametrize("name", quick_cases(NAMES, "resnext29_2x64d".__eq__))
    def test_networks_with_operators_run(self, name: str) -> None:
        model = BACKBONES[name](classes=3, width=1 / 2)
        example = torch.zeros(2, 3, 64, 64)
        operator = syno.OPERATORS["operator_1"]().renamed("operator_1", g=2)
        substituted = substitute(model, operator, example, where="paper")
        substituted(example + 1).sum().backward()
        assert all(parameter.grad is not None for parameter in substituted.parameters())

    def test_one_grouped_layer_is_measured_by_itself(self) -> None:
        given = {"model": "resnext29_2x64d", "classes": 3, "width": 1 / 8, "image_shape": (3, 64, 64), "layers": "paper"}
        operator = syno.OPERATORS["operator_1"]().renamed("operator_1", g=2)
        material = NetworkSubject(**given, layer="layer2.0.conv2", operator=str(operator)).make("cpu", 2)
        (x,) = material.make_inputs()
        assert x.shape == (2, 32, 16, 16)
        assert material.module(x).shape == (2, 32, 8, 8)
