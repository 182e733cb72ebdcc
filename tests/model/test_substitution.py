"""Replacing layers: which ones, that the copy computes what it should, what it costs, and what is refused."""

from __future__ import annotations

import doctest
from copy import deepcopy

import pytest
import torch
from torch import nn

import syno
from syno.base.errors import SpecError, UnknownNameError
from syno.ir.rewriting import with_variables
from syno.model import backbones, substitution
from syno.model.backbones import BACKBONES
from syno.model.counting import model_cost, parameters
from syno.model.extraction import replaceable, trace
from syno.model.layer import Layer
from syno.model.layer_rules import LAYER_RULES
from syno.model.spec import spec_for
from syno.model.substitution import substitute
from syno.space import OperatorSpec, Space
from syno.space.complete import cost
from syno.space.reach import reach

BATCH = 4
EXAMPLE = torch.randn(BATCH, 3, 16, 16, generator=torch.Generator().manual_seed(0))
CONVOLUTIONS = [f"blocks.{block}.conv{number}" for block in range(3) for number in (1, 2)]


def resnet8(**settings: float) -> nn.Module:
    return BACKBONES["resnet8"](classes=5, **{"width": 0.5, **settings})


def named(name: str, **defaults: int) -> syno.PGraph:
    """A known operator with the variables of a spec."""
    operator = syno.OPERATORS[name]()
    if "k" in operator.variables:
        operator = with_variables(operator, {"k": "k_1"})
    return operator.renamed(name, **defaults)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.shared = nn.Conv2d(4, 4, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shared(self.shared(self.stem(x)))


class TestBackbone:
    def test_shapes_and_equal_seeds(self) -> None:
        torch.manual_seed(3)
        expected = torch.rand(1)
        torch.manual_seed(3)
        first, again, other = resnet8(), resnet8(), resnet8(seed=1)
        assert torch.equal(torch.rand(1), expected)
        assert first(EXAMPLE).shape == (BATCH, 5)
        assert torch.equal(first.stem.weight, again.stem.weight) and not torch.equal(first.stem.weight, other.stem.weight)

    def test_impossible_widths_and_unknown_backbones_are_errors(self) -> None:
        with pytest.raises(SpecError, match=r"width is 0\.3.*1/16"):
            resnet8(width=0.3)
        with pytest.raises(UnknownNameError, match=r'"resnet9"; .*resnet8'):
            BACKBONES["resnet9"](classes=2)

    def test_the_examples_in_the_modules_run(self) -> None:
        assert doctest.testmod(backbones).failed == doctest.testmod(substitution).failed == 0


class TestReplaceable:
    def test_the_layers_of_resnet8_and_their_sizes(self) -> None:
        layers = replaceable(resnet8(), EXAMPLE)
        assert [layer.name for layer in layers] == CONVOLUTIONS
        sizes = [tuple(layer.values[name] for name in ("N", "C_in", "C_out", "H")) for layer in layers]
        assert sizes == [(4, 8, 8, 16), (4, 8, 8, 16), (4, 8, 16, 8), (4, 16, 16, 8), (4, 16, 32, 4), (4, 32, 32, 4)]

    def test_the_stem_is_replaced_on_request(self) -> None:
        assert replaceable(resnet8(), EXAMPLE, keep_stem=False)[0].name == "stem"

    def test_a_function_chooses_the_layers(self) -> None:
        rule = lambda layer: None if layer.module.kernel_size == (1, 1) else "not 1x1"  # noqa: E731
        layers = replaceable(resnet8(), EXAMPLE, rule)
        assert [layer.name for layer in layers] == ["blocks.1.shortcut.0", "blocks.2.shortcut.0"]

    def test_leaves_the_model_as_it_was(self) -> None:
        model = resnet8()
        model.norm.eval()
        before = deepcopy(model.state_dict())
        replaceable(model, EXAMPLE)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())  # running means, too
        assert model.training and not model.norm.training
        assert not any(module._forward_hooks for module in model.modules())

    @pytest.mark.parametrize(
        ("layer", "reason"),
        [
            (nn.Conv2d(4, 4, 1, bias=False), "its kernel is 1x1"),
            (nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False), "it has 2 groups"),
            (nn.Conv2d(4, 4, 3, padding=1, stride=(1, 2)), None),
            (nn.Conv2d(4, 4, (1, 2), padding=2, dilation=2), None),
            (nn.Conv2d(4, 4, 3, padding="same", bias=False), None),
        ],
    )
    def test_convolutions_of_every_shape_are_counted(self, layer: nn.Conv2d, reason: str | None) -> None:
        assert LAYER_RULES["spatial"](Layer("conv", layer, (1, 4, 8, 8), layer(torch.zeros(1, 4, 8, 8)).shape)) == reason

    def test_no_layer_to_replace_is_one_clear_error(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1))
        expected = (
            r"^Sequential has no layer to replace \(0: .*; 2: .* 1x1\); .*`layers: pointwise` .* 1 of its layers; .*paper 1$"
        )
        with pytest.raises(SpecError, match=expected):
            substitute(model, syno.OPERATORS["conv2d"](), EXAMPLE)
        with pytest.raises(SpecError, match=r"Linear has no layer to replace"):
            spec_for(nn.Linear(16, 4), EXAMPLE)

    def test_layers_that_run_twice_are_not_replaced(self) -> None:
        with pytest.raises(SpecError, match="shared: it runs 2 times"):
            replaceable(Twice(), EXAMPLE)


class TestSubstitute:
    def test_a_convolution_with_copied_weights_computes_the_same(self) -> None:
        model = resnet8()
        copied = substitute(model, syno.OPERATORS["conv2d"](), EXAMPLE)
        with torch.no_grad():
            for name in CONVOLUTIONS:
                assert copied.get_submodule(name).w1.shape == model.get_submodule(name).weight.shape
                copied.get_submodule(name).w1.copy_(model.get_submodule(name).weight)
            torch.testing.assert_close(copied(EXAMPLE), model(EXAMPLE))

    def test_the_original_is_not_changed_and_the_rest_is_copied(self) -> None:
        model = resnet8()
        before = deepcopy(model.state_dict())
        copied = substitute(model, syno.OPERATORS["conv1x1"](), EXAMPLE)
        with torch.no_grad():
            copied.stem.weight.zero_()
        assert [type(model.get_submodule(name)) for name in CONVOLUTIONS] == [nn.Conv2d] * 6
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert torch.equal(copied.head.weight, model.head.weight)

    def test_equal_seeds_give_equal_weights(self) -> None:
        first, again, other = (substitute(resnet8(), syno.OPERATORS["conv2d"](), EXAMPLE, seed=seed) for seed in (0, 0, 1))
        weights = [model.blocks[0].conv1.w1 for model in (first, again, other)]
        assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
        assert not torch.equal(first.blocks[0].conv1.w1, first.blocks[0].conv2.w1)

    def test_any_batch_and_gradients_everywhere(self) -> None:
        model = substitute(resnet8(), syno.OPERATORS["operator_1"]().renamed("operator_1", g=4), EXAMPLE)
        model(torch.cat([EXAMPLE, EXAMPLE[:3]])).square().sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())

    def test_mode_and_number_format_are_those_of_the_layer(self) -> None:
        model = resnet8().double().eval()
        replaced = substitute(model, syno.OPERATORS["conv2d"](), EXAMPLE.double()).blocks[0].conv1
        assert replaced.w1.dtype == torch.float64 and not replaced.training

    def test_a_bias_is_kept_and_added(self) -> None:
        layer = nn.Conv2d(3, 4, 3, padding=1).double()
        replaced = substitute(layer, syno.OPERATORS["conv2d"](), EXAMPLE.double(), keep_stem=False)
        with torch.no_grad():
            replaced[0].w1.copy_(layer.weight)
        assert torch.allclose(replaced(EXAMPLE.double()), layer(EXAMPLE.double()), rtol=1e-12)
        assert model_cost(replaced, EXAMPLE.double()).parameters == model_cost(layer, EXAMPLE.double()).parameters

    def test_a_model_of_one_layer_is_replaced(self) -> None:
        layer = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        replaced = substitute(layer, syno.OPERATORS["conv2d"](), EXAMPLE, keep_stem=False)
        assert replaced(EXAMPLE).shape == (BATCH, 4, 16, 16)

    @pytest.mark.parametrize(
        ("operator", "reason"),
        [
            (
                "depthwise_conv2d",
                r"it has the variable C, but a layer has values for N, C_in, C_out, H only; take an operator of these",
            ),
            ("operator_1", r"size g\^-1\*C_in is 1/4 for .*: it must be a whole number"),
            ("matmul", r"it has the variable (M|K), but a layer has values for"),
        ],
    )
    def test_an_operator_that_does_not_fit_is_an_error_that_names_the_layer(self, operator: str, reason: str) -> None:
        with pytest.raises(SpecError, match=rf"^{operator} does not fit layer blocks\.0\.conv1 \(N=4, .*H=16\): {reason}"):
            substitute(resnet8(), syno.OPERATORS[operator](), EXAMPLE)

    def test_shapes_must_be_those_of_the_layer(self) -> None:
        build = syno.Builder("N, C_in, C_out, H; s=2", name="pooling")
        n, o, y, x = build.output("N, C_out, s^-1*H, s^-1*H")
        c, i, j = build.reduce("C_in, s, s")
        (c,) = build.contract(outer=[o], inner=[c])
        pooling = build.finish([n, c, build.split(y, i), build.split(x, j)])
        expected = r"its output is \[N, C_out, s\^-1\*H, s\^-1\*H\] = \[4, 8, 8, 8\], where the layer has \[4, 8, 16, 16\]"
        with pytest.raises(SpecError, match=expected):
            substitute(resnet8(), pooling, EXAMPLE)


class TestCosts:
    def test_costs_of_a_small_network_agree_with_those_by_hand(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 5))
        price = model_cost(model, EXAMPLE)
        assert price.flops == BATCH * (3 * 9 * 4 * 256 + 1024 * 5)
        assert price.parameters == parameters(model) == 3 * 9 * 4 + 4 + 8 + 1024 * 5 + 5
        assert price.memory_bytes == 4 * (BATCH * 1024 + 1024 * 5 + BATCH * 5)

    def test_layers_that_are_not_replaced_are_the_rest(self) -> None:
        spec = spec_for(resnet8(), EXAMPLE)
        stem, shortcuts, head = 3 * 9 * 8 * 256, 8 * 16 * 64 + 16 * 32 * 16, 32 * 5
        assert spec.budget.rest_flops == BATCH * (stem + shortcuts + head)
        norms = 2 * (8 + 2 * 8 + 3 * 16 + 3 * 32)
        assert spec.budget.rest_parameters == 3 * 9 * 8 + 8 * 16 + 16 * 32 + 32 * 5 + 5 + norms

    def test_rows_of_the_spec_count_equal_layers(self) -> None:
        spec = spec_for(resnet8(), EXAMPLE)
        assert [(layer.values["C_in"], layer.values["C_out"], layer.count) for layer in spec.layers] == [
            (8, 8, 2), (8, 16, 1), (16, 16, 1), (16, 32, 1), (32, 32, 1),
        ]  # fmt: skip
        assert len(spec.valuations) == 6 and spec.name == "resnet8"

    @pytest.mark.parametrize("operator", ["conv2d", "grouped_conv2d", "separable_conv2d", "shift_conv1x1", "conv1x1"])
    def test_the_spec_and_the_substituted_model_agree(self, operator: str) -> None:
        graph = named(operator, g=4) if operator == "grouped_conv2d" else named(operator)
        assert cost(graph, spec_for(resnet8(), EXAMPLE)) == model_cost(substitute(resnet8(), graph, EXAMPLE), EXAMPLE)

    def test_a_convolution_costs_what_the_original_does(self) -> None:
        assert cost(named("conv2d"), spec_for(resnet8(), EXAMPLE)) == model_cost(resnet8(), EXAMPLE)

    def test_parameters_of_a_user_s_own_modules(self) -> None:
        class Scaled(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.scale, self.mix = nn.Parameter(torch.ones(3, 1, 1)), nn.Parameter(torch.eye(3))
                self.conv = nn.Conv2d(3, 3, 3, padding=1)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.einsum("nchw,dc->ndhw", self.conv(x) * self.scale, self.mix)

        positions = EXAMPLE[:, 0].numel()
        found = model_cost(nn.Sequential(nn.PReLU(3), Scaled(), Scaled()), EXAMPLE)
        assert found.flops == 2 * positions * (3 * 3 * 9 + 3 * 3)

    def test_a_shared_layer_costs_for_every_use(self) -> None:
        assert [call.name for call in trace(Twice(), EXAMPLE)] == ["stem", "shared", "shared"]
        assert model_cost(Twice(), EXAMPLE).flops == BATCH * 256 * 9 * (3 * 4 + 2 * 4 * 4)


class TestSpec:
    def test_the_convolution_that_is_replaced_is_in_its_space(self) -> None:
        assert reach(Space(spec_for(BACKBONES["resnet8"](classes=12), EXAMPLE)), named("conv2d"))

    def test_options_and_what_may_not_be_among_them(self) -> None:
        spec = spec_for(resnet8(), EXAMPLE, options={"name": "small", "depth": 4, "budget": {"most_flops": 9e9}})
        assert (spec.name, spec.depth, spec.budget.most_flops) == ("small", 4, 9e9)
        assert spec.budget.rest_flops > 0
        for options in ({"layers": []}, {"budget": {"rest_flops": 1}}):
            with pytest.raises(SpecError, match=r"options give \w+"):
                spec_for(resnet8(), EXAMPLE, options=options)

    def test_a_spec_is_read_back_from_its_text(self, tmp_path: pytest.TempPathFactory) -> None:
        spec = spec_for(resnet8(), EXAMPLE)
        file = tmp_path / "resnet8.yaml"  # type: ignore[operator]
        file.write_text(spec.dump(), encoding="utf-8")
        assert OperatorSpec.load(file) == spec


def test_a_network_with_an_operator_compiles() -> None:
    """Once torch.compile looked for a module that the generated class named, and found none."""
    model = BACKBONES["resnet8"](classes=3, width=0.25)
    example = torch.randn(2, 3, 16, 16)
    substituted = substitute(model, syno.OPERATORS["separable_conv2d"](), example, seed=0).eval()
    compiled = torch.compile(substituted, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(example), substituted(example))
