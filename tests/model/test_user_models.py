"""Operators in models that are none of ours: which layers are meant, and what is wrong with those that are not there."""

from __future__ import annotations

import doctest
from collections import UserDict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from own_functions import Answer, Several
from torch import nn

import syno
from syno.base.errors import SpecError, UnknownNameError, UserCodeError
from syno.measure.layer_shares import layer_shares
from syno.measure.network_subject import NetworkSubject
from syno.model import substitution
from syno.model.inputs import call
from syno.model.layer import Layer
from syno.model.layer_modules import Bias
from syno.model.layer_rules import Convolutions
from syno.model.layer_table import layer_rows
from syno.stages.measure import subject_of
from syno.train.settings import WorkloadSettings

PICTURES = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
SEPARABLE = syno.OPERATORS["separable_conv2d"]()


class Mine(nn.Module):
    """Convolutions of several kinds, and a part that does not run."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.body = nn.ModuleDict({"first": nn.Conv2d(8, 8, 3, padding=1, bias=False), "second": nn.Conv2d(8, 12, 1)})
        self.norm = nn.BatchNorm2d(12)
        self.head = nn.Linear(12, 5)
        self.unused = nn.Conv2d(12, 12, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.body["second"](self.body["first"](self.stem(x))))
        return self.head(x.mean((2, 3)))


def replaced(model: nn.Module) -> list[str]:
    """Names of the modules that are operators."""
    return [name for name, module in model.named_modules() if hasattr(module, "graph")]


def test_layers_are_chosen_by_name() -> None:
    model = Mine()
    changed = syno.substitute(model, SEPARABLE, PICTURES, where=["stem", "body.second"])
    # The stem's stride is a pooling ahead of the operator, and the biases come after it.
    assert replaced(changed) == ["stem.1", "body.second.0"]
    assert isinstance(changed.stem[0], nn.AvgPool2d) and not replaced(model)
    assert torch.equal(changed.stem[2].bias, model.stem.bias) and isinstance(changed.body["second"][1], Bias)
    assert changed(PICTURES).shape == model(PICTURES).shape == (2, 5)


def test_layers_are_chosen_by_the_name_of_a_rule() -> None:
    assert replaced(syno.substitute(Mine(), SEPARABLE, PICTURES)) == ["body.first"]
    assert replaced(syno.substitute(Mine(), SEPARABLE, PICTURES, where="paper")) == ["body.first", "body.second.0"]
    assert replaced(syno.substitute(Mine(), SEPARABLE, PICTURES, where="stem, body.f*")) == ["stem.1", "body.first"]
    both = syno.substitute(Mine(), SEPARABLE, PICTURES, where="spatial, stem, body.second")
    assert replaced(both) == ["stem.1", "body.first", "body.second.0"]
    with pytest.raises(SpecError, match=r'Mine has no layer "stme".*Did you mean "stem"'):
        syno.substitute(Mine(), SEPARABLE, PICTURES, where="spatial, stme")
    with pytest.raises(SpecError, match=r'"head.\*" .*: stem, body.first'):
        syno.substitute(Mine(), SEPARABLE, PICTURES, where="stem, head.*")
    with pytest.raises(SpecError, match=r'"body" is a ModuleDict of 2 layers; .*body\.\*'):
        syno.substitute(Mine(), SEPARABLE, PICTURES, where="body")
    with pytest.raises(SpecError, match=r'"blocks\.\*\.conv" .*: stem, '):
        syno.substitute(Mine(), SEPARABLE, PICTURES, where="blocks.*.conv")
    with pytest.raises(UnknownNameError, match='"spatal" .*"spatial"'):
        syno.substitute(Mine(), SEPARABLE, PICTURES, where="spatal")


def test_layers_are_chosen_by_a_function() -> None:
    def pointwise(layer: Layer) -> str | None:
        return None if layer.module.kernel_size == (1, 1) else "not 1x1"

    assert replaced(syno.substitute(Mine(), SEPARABLE, PICTURES, where=pointwise)) == ["body.second.0"]
    with pytest.raises(SpecError, match=r"stem: .*body\.first: .*3x3; body\.second:"):
        syno.substitute(Mine(), SEPARABLE, PICTURES, where=Convolutions(kernels=(5,)))


def test_a_model_s_own_rules_go_first() -> None:
    class Ours(Mine):
        layer_rules = {"paper": Convolutions(kernels=(1, 3), least_size=9)}  # noqa: RUF012

    with pytest.raises(SpecError, match=r"body\.first and 1 more: .*8, below 9"):
        syno.substitute(Ours(), SEPARABLE, PICTURES, where="paper")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("body.frist", r'Mine has no layer "body\.frist"\. Did you mean "body\.first"\?'),
        ("norm", 'layer "norm" is a BatchNorm2d, not a convolution or linear layer; name layers that run'),
        ("unused", 'layer "unused" is a Conv2d, which is not called .*; name layers that run'),
        ("head", r"separable_conv2d does not fit layer head \(N=2, seq_len=1, H_in=12, H_out=5\): it has the variable C_in"),
    ],
)
def test_names_without_a_layer_are_errors(name: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        syno.substitute(Mine(), SEPARABLE, PICTURES, where=["body.first", name])


def test_seed_and_mode_are_handed_on() -> None:
    first, again, literal = (
        syno.substitute(Mine(), SEPARABLE, PICTURES, seed=seed, mode=mode).body["first"]
        for seed, mode in ((1, "fused"), (1, "fused"), (2, "literal"))
    )
    assert torch.equal(first.w1, again.w1) and not torch.equal(first.w1, literal.w1)
    assert (first.mode, literal.mode) == ("fused", "literal")


def test_the_example_in_the_module_runs() -> None:
    assert doctest.testmod(substitution).failed == 0


PLACES, KEEP = torch.tensor([[0, 4, 1], [2, 2, 0]]), torch.ones(2, 1, 16, 16, dtype=torch.bool)


@pytest.mark.parametrize(
    "inputs",
    [
        (PICTURES, PLACES),
        {"x": PICTURES, "places": PLACES, "keep": KEEP, "scale": 0.5},
        UserDict({"x": PICTURES, "places": PLACES}),  # as tokenizers return
        ({"x": PICTURES, "places": PLACES},),
        {"x": {"places": PLACES, "x": PICTURES}, "scale": torch.tensor(2.0)},
    ],
)
def test_a_network_of_several_inputs(inputs: Any) -> None:
    model = Several().eval()
    network = syno.substitute(model, SEPARABLE, inputs)
    assert replaced(network) == ["body.0"]
    before, after = call(model, inputs), call(network, inputs)
    assert type(after) is Answer and after.logits.shape == before.logits.shape
    after.logits.sum().backward()
    assert all(one.grad is not None for one in network.body.parameters())
    assert [dict(layer.values) for layer in syno.spec_for(model, inputs).layers] == [{"N": 2, "C_in": 8, "C_out": 8, "H": 16}]
    flops = 2 * 16**2 * 9 * (3 * 8 + 8 * 8)
    assert syno.model_cost(model, inputs).flops == flops
    assert sum(row.flops for row in layer_rows(model, inputs, "spatial")) == flops / 2
    assert set(layer_shares(model, inputs)) == {"", "stem", "body", "norm", "places"}
    table = syno.layer_latency(model, SEPARABLE, inputs, least_ms=1, least_repeats=6)
    assert table[["layer", "batch"]].to_numpy().tolist() == [["body", 2]] * 2


@pytest.mark.parametrize("example", ["a text", {"x": 1}, (), torch.tensor(1.0), torch.zeros(0, 3)])
def test_an_example_has_a_batch(example: Any) -> None:
    for use in (syno.spec_for, syno.model_cost, lambda *given: syno.substitute(given[0], SEPARABLE, given[1])):
        with pytest.raises(SpecError, match=r"the example is a .*, without a batch; give a tensor"):
            use(Mine(), example)


def test_wrong_inputs_of_several_are_named_by_their_shapes() -> None:
    with pytest.raises(UserCodeError, match=r"Several, run on inputs of shapes \[2, 3, 16, 16\], \[2\], failed: "):
        syno.spec_for(Several(), (PICTURES, torch.zeros(2)))


def test_settings_of_ones_own_network_reach_every_process() -> None:
    plain = NetworkSubject(model="mine:make", classes=2, image_shape=(3, 8, 8))
    assert "model_settings" not in plain.model_dump() and "model_settings" not in WorkloadSettings().model_dump()
    settings = WorkloadSettings(model="own_functions:network_of_more_settings", model_settings={"blocks": 2}, data="shapes")
    record = SimpleNamespace(inputs=None, inputs_to_measure=None, image_shape=(3, 8, 8), classes=4)
    made = subject_of(settings, record, None, "eager")
    assert made.model_validate_json(made.model_dump_json()).backbone()[-1].out_features == 4
