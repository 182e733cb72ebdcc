"""ResNet-18 and ResNet-34: torchvision's parameters, the paper's counts, and the layers that the paper replaces in them."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from torch import nn
from torchvision_state import batch_norm

import syno
from syno.base.errors import SpecError, UnknownNameError
from syno.model.backbones import BACKBONES
from syno.model.counting import model_cost, parameters, published_flops
from syno.model.extraction import distinct_layers, replaceable
from syno.model.spec import spec_for
from syno.model.substitution import substitute
from syno.space.complete import cost

PICTURE = torch.zeros(1, 3, 224, 224)
SHAPES = PICTURE.to("meta")
SMALL = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}
PAPER = {"paper-3x3": 16, "paper": 19}


@cache
def resnet(name: str = "resnet18", classes: int = 1000) -> nn.Module:
    """Not to be changed."""
    return BACKBONES[name](classes=classes).eval()


@cache
def shaped(name: str, classes: int = 1000) -> nn.Module:
    """A network with shapes and nothing else. Not to be changed."""
    with torch.device("meta"):
        return BACKBONES[name](classes=classes).eval()


def torchvision_state(name: str, classes: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes, in the order of torchvision's state dict."""
    state: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, 7, 7), **batch_norm("bn1", 64)}
    before = 64
    for stage, count in enumerate(BLOCKS[name]):
        features = 64 * 2**stage
        for block in range(count):
            prefix = f"layer{stage + 1}.{block}"
            state |= {f"{prefix}.conv1.weight": (features, before, 3, 3), **batch_norm(f"{prefix}.bn1", features)}
            state |= {f"{prefix}.conv2.weight": (features, features, 3, 3), **batch_norm(f"{prefix}.bn2", features)}
            if before != features:
                state[f"{prefix}.downsample.0.weight"] = (features, before, 1, 1)
                state |= batch_norm(f"{prefix}.downsample.1", features)
            before = features
    return {**state, "fc.weight": (classes, 512), "fc.bias": (classes,)}


class TestBackbones:
    @pytest.mark.parametrize("name", BLOCKS)
    def test_parameters_are_those_of_torchvision(self, name: str) -> None:
        state = {key: tuple(value.shape) for key, value in resnet(name).state_dict().items()}
        assert list(state.items()) == list(torchvision_state(name, 1000).items())

    @pytest.mark.parametrize(
        ("name", "classes", "count"),
        [("resnet18", 1000, 11_689_512), ("resnet18", 100, 11_227_812), ("resnet34", 1000, 21_797_672)],
    )
    def test_parameters_are_counted(self, name: str, classes: int, count: int) -> None:
        assert parameters(resnet(name, classes)) == count

    def test_flops_are_those_that_the_paper_counts(self) -> None:
        assert published_flops(resnet(), PICTURE) == 1_824_033_792
        assert model_cost(resnet(), PICTURE).flops == 1_824_033_792 - 9_934_848 - 25_600  # normalization, pooling

    def test_initialization(self) -> None:
        model = resnet()
        for name in ("conv1", "layer1.0.conv1", "layer4.0.downsample.0"):
            weight = model.get_submodule(name).weight
            fan_out = weight.shape[0] * weight[0, 0].numel()
            assert weight.std().item() == pytest.approx(math.sqrt(2 / fan_out), rel=0.05)
        assert all((value == 1).all() for key, value in model.named_parameters() if ".bn" in key and key.endswith("weight"))

    def test_seeds_shapes_and_small_pictures(self) -> None:
        torch.manual_seed(3)
        expected = torch.rand(1)
        torch.manual_seed(3)
        first, again, other = (BACKBONES["resnet18"](classes=7, channels=1, width=1 / 8, seed=seed) for seed in (0, 0, 1))
        assert torch.equal(torch.rand(1), expected)
        assert torch.equal(first.conv1.weight, again.conv1.weight) and not torch.equal(first.conv1.weight, other.conv1.weight)
        assert first(SMALL[:, :1]).shape == (2, 7)
        assert first.layer4[1].conv2.weight.shape == (64, 64, 3, 3)

    def test_a_width_that_gives_no_whole_features_is_an_error(self) -> None:
        with pytest.raises(SpecError, match=r"width is 0\.3.*1/64"):
            BACKBONES["resnet34"](classes=2, width=0.3)


class TestPaperLayers:
    @pytest.mark.slow
    @pytest.mark.parametrize(("rule", "count"), PAPER.items())
    def test_layers_of_resnet18_by_rule(self, rule: str, count: int) -> None:
        layers = replaceable(resnet(), PICTURE, rule)
        assert len(layers) == count
        assert {layer.name: layer.stride for layer in layers if layer.stride > 1} == {
            **{f"layer{stage}.0.conv1": 2 for stage in (2, 3, 4)},
            **({f"layer{stage}.0.downsample.0": 2 for stage in (2, 3, 4)} if rule == "paper" else {}),
        }
        halved = next(layer for layer in layers if layer.name == "layer2.0.conv1")
        assert dict(halved.values) == {"N": 1, "C_in": 64, "C_out": 128, "H": 28}

    def test_layers_of_resnet34_by_rule(self) -> None:
        assert len(replaceable(shaped("resnet34"), SHAPES, "paper")) == 35

    @pytest.mark.parametrize(
        ("name", "classes", "rule", "operator", "flops", "count", "batch"),
        [
            ("resnet18", 100, "paper-3x3", "operator_1", 1_082_422_527, 6_566_436, 128),
            pytest.param("resnet18", 1000, "paper", "operator_1", 1_238_061_071, 8_412_456, 1024, marks=pytest.mark.slow),
            pytest.param("resnet34", 1000, "paper", "operator_1", 2_178_815_879, 13_522_856, 1024, marks=pytest.mark.slow),
            pytest.param("resnet34", 1000, "paper", "operator_2", 830_076_623, 4_945_832, 1024, marks=pytest.mark.slow),
        ],
    )
    def test_costs_with_operators_are_those_published(
        self, name: str, classes: int, rule: str, operator: str, flops: int, count: int, batch: int
    ) -> None:
        """FLOPs of the artifact's folders 07889_15252107013978896537 and those made from it and from Operator 2."""
        substituted = substitute(shaped(name, classes), syno.OPERATORS[operator](), SHAPES, where=rule)
        assert parameters(substituted) == count
        assert published_flops(substituted, SHAPES.expand(batch, -1, -1, -1)) == flops

    def test_an_operator_comes_after_a_pooling(self) -> None:
        layer = nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False)
        x = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0))
        substituted = substitute(layer, syno.OPERATORS["conv2d"](), x, where="paper", keep_stem=False)
        with torch.no_grad():
            substituted[1].w1.copy_(layer.weight)
            pooled = nn.functional.avg_pool2d(x, 2)
            torch.testing.assert_close(substituted(x), nn.functional.conv2d(pooled, layer.weight, padding=1))
        assert substituted(x).shape == layer(x).shape == (2, 8, 4, 4)

    def test_layers_that_are_too_small_stay(self) -> None:
        names = [layer.name for layer in replaceable(resnet(), SMALL, "paper")]
        assert {name.partition(".")[0] for name in names} == {"layer1", "layer2"}  # beyond, pictures are 2x2 and 1x1
        few = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        with pytest.raises(SpecError, match="its C_in is 3, below 4"):
            replaceable(few, SMALL, "paper", keep_stem=False)

    @pytest.mark.slow
    def test_windows_reach_over_pictures_of_one_position(self) -> None:
        substituted = substitute(resnet(), syno.OPERATORS["operator_1"](), SMALL, where="spatial").eval()
        assert dict(replaceable(resnet(), SMALL)[-1].values)["H"] == 1
        with torch.no_grad():
            literal = substitute(resnet(), syno.OPERATORS["operator_1"](), SMALL, mode="literal").eval()
            torch.testing.assert_close(substituted(SMALL), literal(SMALL), rtol=1e-3, atol=1e-4)

    def test_the_spec_counts_strided_layers_as_the_network_does(self) -> None:
        model = BACKBONES["resnet18"](classes=5, width=1 / 4)
        graph = syno.OPERATORS["operator_1"]().renamed("operator_1", g=4)
        example = torch.zeros(2, 3, 128, 128)
        spec = spec_for(model, example, where="paper")
        assert sum(layer.count for layer in spec.layers) == 19
        counted, network = cost(graph, spec), model_cost(substitute(model, graph, example, where="paper"), example)
        assert (counted.flops, counted.parameters) == (network.flops, network.parameters)

    def test_an_unknown_rule_is_an_error_that_lists_the_rules(self) -> None:
        with pytest.raises(
            UnknownNameError,
            match='"papers" .*spatial, pointwise, grouped, transposed, paper-3x3',
        ):
            replaceable(resnet(), SMALL, "papers")


def test_the_ten_layers_of_the_paper() -> None:
    found = distinct_layers(shaped("resnet34"), SHAPES)
    rows = [
        (one.position, one.name, one.layer.name, *list(one.layer.values.values())[1:], one.kernel, one.layer.stride)
        for one in found
    ]
    assert rows == [
        (1, "conv_io64", "layer1.0.conv1", 64, 64, 56, 3, 1),
        (7, "conv_i64_o128", "layer2.0.conv1", 64, 128, 28, 3, 2),
        (8, "conv_io128", "layer2.0.conv2", 128, 128, 28, 3, 1),
        (9, "residual_i64_o128", "layer2.0.downsample.0", 64, 128, 28, 1, 2),
        (16, "conv_i128_o256", "layer3.0.conv1", 128, 256, 14, 3, 2),
        (17, "conv_io256", "layer3.0.conv2", 256, 256, 14, 3, 1),
        (18, "residual_i128_o256", "layer3.0.downsample.0", 128, 256, 14, 1, 2),
        (29, "conv_i256_o512", "layer4.0.conv1", 256, 512, 7, 3, 2),
        (30, "conv_io512", "layer4.0.conv2", 512, 512, 7, 3, 1),
        (31, "residual_i256_o512", "layer4.0.downsample.0", 256, 512, 7, 1, 2),
    ]
