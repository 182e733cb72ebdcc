"""GPT-2 and its small relative: what is counted in them, their projections with operators, and that they do not look ahead."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from sequence_operators import dense, window
from torch import nn
from torch.nn import functional

import syno
from syno.base.errors import ShapeError, SpecError, UnknownNameError
from syno.model.backbones import SEQUENCE_BACKBONES
from syno.model.counting import model_cost, parameters, published_flops, published_parameters
from syno.model.extraction import replaceable
from syno.model.layer_rules import Projections
from syno.model.spec import spec_for
from syno.model.substitution import substitute
from syno.space import Space
from syno.space.complete import cost
from syno.space.reach import reach

LENGTH = 16
TOKENS = torch.randint(256, (3, LENGTH), generator=torch.Generator().manual_seed(0))


@cache
def gpt2() -> nn.Module:
    """Shapes and nothing else. Not to be changed."""
    with torch.device("meta"):
        return SEQUENCE_BACKBONES["gpt2"](vocabulary=50257, context=2048).eval()


def tiny(**settings: float) -> nn.Module:
    return SEQUENCE_BACKBONES["gpt_tiny"](**{"vocabulary": 256, "context": LENGTH, **settings}).eval()


def later_tokens_matter(model: nn.Module) -> bool:
    """Whether the logits of a position change with the tokens after it."""
    with torch.no_grad():
        before = model(TOKENS)
        for position in range(LENGTH - 1):
            changed = TOKENS.clone()
            changed[:, position + 1 :] = (changed[:, position + 1 :] + 7) % 256
            if not torch.equal(model(changed)[:, : position + 1], before[:, : position + 1]):
                return True
    return False


class TestModels:
    def test_counts_of_the_paper(self) -> None:
        """Without embeddings of tokens and positions, and without biases of the projections."""
        embeddings = 50257 * 768 + 2048 * 768
        assert published_parameters(gpt2()) == 123_625_728
        assert parameters(gpt2()) == 123_625_728 + embeddings == 163_795_968

    def test_flops_by_hand(self) -> None:
        tokens = torch.zeros(2, 2048, dtype=torch.long, device="meta")
        linear = 2048 * (12 * 768 * 768 * (3 + 1 + 4 + 4) + 768 * 50257)
        assert model_cost(gpt2(), tokens).flops == 2 * linear
        assert published_flops(gpt2(), tokens) == linear + 25 * 4 * 2048 * 768  # 25 layer normalizations

    def test_names_are_those_of_nanogpt(self) -> None:
        state = {name: tuple(value.shape) for name, value in gpt2().state_dict().items()}
        block = {
            **{"ln_1.weight": (768,), "ln_1.bias": (768,), "attn.c_attn.weight": (2304, 768)},
            **{"attn.c_proj.weight": (768, 768), "attn.c_proj.bias": (768,), "ln_2.weight": (768,), "ln_2.bias": (768,)},
            **{"mlp.c_fc.weight": (3072, 768), "mlp.c_fc.bias": (3072,)},
            **{"mlp.c_proj.weight": (768, 3072), "mlp.c_proj.bias": (768,)},
        }
        expected = {"transformer.wte.weight": (50257, 768), "transformer.wpe.weight": (2048, 768)}
        expected |= {f"transformer.h.{number}.{name}": shape for number in range(12) for name, shape in block.items()}
        expected |= {"transformer.ln_f.weight": (768,), "transformer.ln_f.bias": (768,), "lm_head.weight": (50257, 768)}
        assert list(state.items()) == list(expected.items())

    def test_output_is_that_of_attention_written_out(self) -> None:
        model = tiny()
        state = model.state_dict()

        def linear(name: str, x: torch.Tensor) -> torch.Tensor:
            return functional.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))

        def norm(name: str, x: torch.Tensor) -> torch.Tensor:
            return functional.layer_norm(x, (96,), state[f"{name}.weight"], state[f"{name}.bias"])

        x = state["transformer.wte.weight"][TOKENS] + state["transformer.wpe.weight"][:LENGTH]
        for block in ("transformer.h.0", "transformer.h.1"):
            q, k, v = linear(f"{block}.attn.c_attn", norm(f"{block}.ln_1", x)).split(96, -1)
            q, k, v = (part.view(3, LENGTH, 4, 24).transpose(1, 2) for part in (q, k, v))
            scores = (q @ k.transpose(2, 3) / math.sqrt(24)).masked_fill(torch.ones(LENGTH, LENGTH).triu(1).bool(), -math.inf)
            x = x + linear(f"{block}.attn.c_proj", (scores.softmax(-1) @ v).transpose(1, 2).reshape(3, LENGTH, 96))
            inner = functional.gelu(linear(f"{block}.mlp.c_fc", norm(f"{block}.ln_2", x)), approximate="tanh")
            x = x + linear(f"{block}.mlp.c_proj", inner)
        torch.testing.assert_close(model(TOKENS), linear("lm_head", norm("transformer.ln_f", x)))

    def test_seeds_widths_and_initialization(self) -> None:
        torch.manual_seed(3)
        expected = torch.rand(1)
        torch.manual_seed(3)
        first, again, other = (tiny(seed=seed) for seed in (0, 0, 1))
        assert torch.equal(torch.rand(1), expected)
        assert torch.equal(first(TOKENS), again(TOKENS)) and not torch.equal(first(TOKENS), other(TOKENS))
        assert first.transformer.h[0].mlp.c_fc.weight.std().item() == pytest.approx(0.02, rel=0.05)
        assert first.transformer.h[0].mlp.c_proj.weight.std().item() == pytest.approx(0.01, rel=0.05)  # / sqrt(2 * 2 blocks)
        assert tiny(width=1 / 2)(TOKENS).shape == (3, LENGTH, 256)
        with pytest.raises(SpecError, match=r"width is 0\.3.*1/24"):
            tiny(width=0.3)

    def test_any_length_up_to_the_context(self) -> None:
        assert tiny()(TOKENS[:, :5]).shape == (3, 5, 256)
        with pytest.raises(ShapeError, match="17 positions; .*16"):
            tiny()(torch.zeros(1, 17, dtype=torch.long))

    def test_an_unknown_backbone_of_sequences_is_an_error(self) -> None:
        with pytest.raises(UnknownNameError, match='"gpt3"; .*gpt2, gpt_tiny'):
            SEQUENCE_BACKBONES["gpt3"](vocabulary=2, context=2)


class TestLayers:
    def test_the_paper_replaces_12_in_gpt2(self) -> None:
        layers = replaceable(gpt2(), torch.zeros(1, 2048, dtype=torch.long, device="meta"), "paper")
        assert [layer.name for layer in layers] == [f"transformer.h.{number}.attn.c_attn" for number in range(12)]
        assert all(dict(layer.values) == {"N": 1, "seq_len": 2048, "H_in": 768, "H_out": 2304} for layer in layers)
        assert {(layer.input, layer.output) for layer in layers} == {((1, 2048, 768), (1, 2048, 2304))}

    def test_rules_and_names_choose_other_layers(self) -> None:
        assert len(replaceable(tiny(), TOKENS, "projections")) == 2
        assert len(replaceable(tiny(), TOKENS, ["transformer.h.1.mlp.c_fc"])) == 1
        with pytest.raises(SpecError, match=r"GPT has no layer to replace \(it runs no convolution\)"):
            replaceable(tiny(), TOKENS, "spatial")
        assert [layer.name[-8:] for layer in replaceable(tiny(), TOKENS, Projections(ratio=4))] == ["mlp.c_fc"] * 2
        with pytest.raises(SpecError, match=r"c_attn and 1 more: it makes 288 features of 96, not 5 "):
            replaceable(tiny(), TOKENS, Projections(ratio=5))
        with pytest.raises(SpecError, match=r"c_attn and 1 more: its seq_len is 16, below 20;"):
            replaceable(tiny(), TOKENS, Projections(least_size=20))
        assert len(replaceable(nn.Linear(4, 12), torch.zeros(2, 4), "projections")) == 1


class TestSubstitute:
    @pytest.mark.slow
    def test_the_published_operator_in_gpt2(self) -> None:
        """Figures of the artifact's folder 05675_10993262425417760381."""
        tokens = torch.zeros(1, 2048, dtype=torch.long, device="meta")
        substituted = substitute(gpt2(), syno.OPERATORS["gpt2_projection"](), tokens, where="paper")
        assert published_parameters(substituted) == 107_700_480
        assert published_flops(substituted, tokens) == 231_488_421_888

    def test_a_dense_operator_with_copied_weights_computes_the_same(self) -> None:
        model = tiny()
        copied = substitute(model, dense(), TOKENS, where="paper")
        with torch.no_grad():
            for block, original in zip(copied.transformer.h, model.transformer.h, strict=True):
                assert isinstance(original.attn.c_attn, nn.Linear)
                block.attn.c_attn.w1.copy_(original.attn.c_attn.weight)
            torch.testing.assert_close(copied(TOKENS), model(TOKENS))

    def test_any_batch_and_any_length_where_positions_do_not_mix(self) -> None:
        substituted = substitute(tiny(), syno.OPERATORS["gpt2_projection"](), TOKENS, where="paper")
        assert substituted(TOKENS[:1, :5]).shape == (1, 5, 256)
        substituted(TOKENS).sum().backward()
        assert all(parameter.grad is not None for parameter in substituted.parameters())

    def test_shapes_must_be_those_of_the_layer(self) -> None:
        expected = r"its output is \[N, seq_len, t\*H_in\] = \[3, 16, 192\], where the layer has \[3, 16, 288\]"
        with pytest.raises(SpecError, match=expected):
            substitute(tiny(), dense().renamed("dense", t=2), TOKENS, where="paper")
        with pytest.raises(SpecError, match=r"variable \w+, .*N, seq_len, H_in, H_out"):
            substitute(tiny(), syno.OPERATORS["conv2d"](), TOKENS, where="paper")


class TestCausality:
    @pytest.mark.parametrize(
        "operator", [dense(), window(2), syno.OPERATORS["gpt2_projection"]()], ids=lambda graph: graph.name
    )
    def test_accepted_operators_do_not_look_ahead(self, operator: syno.PGraph) -> None:
        assert not later_tokens_matter(substitute(tiny(), operator, TOKENS, where="paper").eval())

    def test_operators_that_look_ahead_are_refused(self) -> None:
        expected = (
            r"^window_3 .* layer transformer\.h\.0\.attn\.c_attn .*position 0 along axis 1 .*position 1, .* i1 \+ r\d - k_1//2"
        )
        with pytest.raises(SpecError, match=expected):
            substitute(tiny(), window(3), TOKENS, where="paper")
        assert later_tokens_matter(substitute(tiny(), window(3), TOKENS, where="paper", causal=False).eval())

    def test_other_models_may_look_ahead_unless_they_say_otherwise(self) -> None:
        layer, x = nn.Linear(4, 12, bias=False), torch.zeros(2, 8, 4)
        assert substitute(layer, window(3), x, where="projections")(x).shape == (2, 8, 12)
        with pytest.raises(SpecError, match=r"window_3 does not fit layer Linear .*reads ahead"):
            substitute(layer, window(3), x, where="projections", causal=True)

    def test_pictures_have_no_later_positions(self) -> None:
        layer, x = nn.Conv2d(4, 4, 3, padding=1, bias=False), torch.zeros(2, 4, 8, 8)
        with pytest.raises(SpecError, match="picture.*causal=False"):
            substitute(layer, syno.OPERATORS["conv2d"](), x, keep_stem=False, causal=True)


class TestSpec:
    def test_the_spec_of_the_tiny_model(self) -> None:
        model = tiny()
        spec = spec_for(model, TOKENS, where="paper")
        assert [(dict(row.values), row.count) for row in spec.layers] == [({"N": 3, "seq_len": 16, "H_in": 96}, 2)]
        projections = 2 * 96 * 288
        assert spec.budget.rest_parameters == parameters(model) - projections
        assert spec.budget.rest_flops == 3 * LENGTH * (2 * 96 * 96 * (1 + 4 + 4) + 96 * 256)
        for operator in (dense(), syno.OPERATORS["gpt2_projection"]()):
            counted = model_cost(substitute(model, operator, TOKENS, where="paper"), TOKENS)
            assert (cost(operator, spec).flops, cost(operator, spec).parameters) == (counted.flops, counted.parameters)

    @pytest.mark.parametrize("operator", [dense(), window(2)], ids=lambda graph: graph.name)
    def test_operators_that_are_in_its_space(self, operator: syno.PGraph) -> None:
        assert reach(Space(spec_for(tiny(), TOKENS, where="paper")), operator)

    def test_one_spec_is_for_one_kind_of_layer(self) -> None:
        class Both(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv = nn.Conv2d(4, 4, 3, padding=1, bias=False)
                self.linear = nn.Linear(8, 24, bias=False)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.linear(self.conv(x)[:, 0])

        with pytest.raises(SpecError, match="Both: conv is a Conv2d and linear a Linear"):
            spec_for(Both(), torch.zeros(1, 4, 8, 8), where=["conv", "linear"])
