"""Operators in models that are none of ours: which layers are meant, and what is wrong with those that are not there."""

from __future__ import annotations

import doctest
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import syno
from syno.base.errors import SpecError, UnknownNameError
from syno.measure.network_subject import NetworkSubject
from syno.model import substitution
from syno.model.geometry import Convolutions, Layer
from syno.model.substitution import Bias
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


@pytest.mark.parametrize("example", [(PICTURES, PICTURES), [PICTURES], {"x": PICTURES}, torch.tensor(1.0)])
def test_a_model_takes_several_inputs(example: Any) -> None:
    for call in (
        lambda: syno.substitute(Mine(), SEPARABLE, example),
        lambda: syno.spec_for(Mine(), example),
        lambda: syno.model_cost(Mine(), example),
        lambda: syno.layer_latency(Mine(), SEPARABLE, example),
    ):
        with pytest.raises(SpecError, match=r"the example is a .*; give one tensor"):
            call()


def test_settings_of_ones_own_network_reach_every_process() -> None:
    plain = NetworkSubject(model="mine:make", classes=2, image_shape=(3, 8, 8))
    assert "model_settings" not in plain.model_dump() and "model_settings" not in WorkloadSettings().model_dump()
    settings = WorkloadSettings(model="own_functions:network_of_more_settings", model_settings={"blocks": 2}, data="shapes")
    record = SimpleNamespace(image_shape=(3, 8, 8), classes=4)
    made = subject_of(settings, record, None, "eager")
    assert made.model_validate_json(made.model_dump_json()).backbone()[-1].out_features == 4
