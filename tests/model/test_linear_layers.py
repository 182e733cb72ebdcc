"""Linear layers with any number of axes before the features, replaced by operators."""

from __future__ import annotations

from random import Random

import pytest
import torch
from sequence_operators import LINEAR
from torch import nn

import syno
from syno.export.network_source import network_source
from syno.model.counting import model_cost
from syno.model.extraction import replaceable, sorted_out
from syno.model.layer_modules import AlongAxes
from syno.model.layer_table import layer_rows
from syno.model.spec import spec_for
from syno.model.substitution import substitute
from syno.space import Space
from syno.space.complete import cost
from syno.space.sample import Sampler


class Mixer(nn.Module):  # type: ignore[misc]
    """Linear layers on two, three and four axes, and a small head."""

    def __init__(self) -> None:
        super().__init__()
        self.pixels, self.positions = nn.Linear(16, 32), nn.Linear(32, 32, bias=False)
        self.flat, self.head = nn.Linear(32, 16), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.pixels(x.permute(0, 2, 3, 1)))
        x = torch.relu(self.positions(x.flatten(1, 2)))
        return self.head(self.flat(x.mean(1)))


EXAMPLE = torch.randn(2, 16, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_a_linear_layer_as_an_operator_is_the_layer() -> None:
    model = Mixer().double()
    changed = substitute(model, LINEAR, EXAMPLE, where="linear")
    with torch.no_grad():
        for name in ("pixels", "positions", "flat"):
            module = next(one for one in changed.get_submodule(name).modules() if hasattr(one, "graph"))
            module.w1.copy_(model.get_submodule(name).weight)
    assert isinstance(changed.flat[0], AlongAxes) and changed.head is not model.head
    assert torch.allclose(changed(EXAMPLE), model(EXAMPLE), rtol=1e-12)
    assert torch.allclose(changed(EXAMPLE[:1]), model(EXAMPLE[:1]), rtol=1e-12)  # any batch
    (found,), (wanted,) = (torch.autograd.grad(one(EXAMPLE).sum(), [one.head.weight]) for one in (changed, model))
    assert torch.allclose(found, wanted, rtol=1e-10)
    costs = [model_cost(one, EXAMPLE) for one in (changed, model)]
    assert (costs[0].flops, costs[0].parameters) == (costs[1].flops, costs[1].parameters)
    source = network_source(changed)
    scope: dict[str, object] = {"__file__": "network.py"}
    exec(compile(source.text("A network."), "network.py", "exec"), scope)
    again = scope["Network"]().double()  # type: ignore[operator]
    again.load_state_dict(source.state(changed))
    with torch.no_grad():
        assert torch.equal(again.eval()(EXAMPLE), changed.eval()(EXAMPLE))


def test_which_layers_and_why_others_stay() -> None:
    found, refused = sorted_out(Mixer().double(), EXAMPLE, "linear")
    assert [layer.name for layer in found] == ["pixels", "positions", "flat"]
    assert [dict(layer.values)["seq_len"] for layer in found] == [24, 24, 1]
    assert refused == {"head": "its H_out is 5, below 16"}
    rows = {row.name: row for row in layer_rows(Mixer().double(), EXAMPLE, "linear")}
    assert rows["pixels"].reason == "" and rows["pixels"].flops == 24 * 16 * 32 and rows["head"].kind == "linear"
    assert [layer.name for layer in replaceable(Mixer().double(), EXAMPLE, "p*, flat")] == ["pixels", "positions", "flat"]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_space_for_linear_layers(seed: int) -> None:
    model, example = Mixer(), EXAMPLE.float()
    spec = spec_for(model, example, where="linear")
    sampler = Sampler(Space(spec), Random(seed))
    operator = next(found for found in iter(sampler.draw, sampler) if found is not None)
    network = substitute(model, operator, example, where="linear")
    network(example).sum().backward()
    counted, whole = cost(operator, spec), model_cost(network, example)
    assert (counted.parameters, counted.flops) == (whole.parameters, whole.flops)


def test_several_rules_make_one() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3, padding=1), nn.Linear(6, 16))
    found, refused = sorted_out(model, EXAMPLE[:, :3].float(), "spatial, linear")
    assert [layer.name for layer in found] == ["2"]
    assert refused == {"0": "it is the first convolution", "1": "its kernel is 1x1", "3": "its H_in is 6, below 16"}
    both = sorted_out(model, EXAMPLE[:, :3].float(), "spatial, pointwise")[0]
    assert [layer.name for layer in both] == ["1", "2"]


def test_a_network_with_operators_is_searched_for_its_other_kind_of_layers() -> None:
    model = nn.Sequential(nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Flatten(2), nn.Linear(24, 32))
    example = EXAMPLE.float()
    first = substitute(model, syno.OPERATORS["separable_conv2d"](), example)
    spec = spec_for(first, example, where="linear")
    assert [dict(layer.values)["seq_len"] for layer in replaceable(first, example, "linear")] == [8]
    whole = model_cost(substitute(first, LINEAR, example, where="linear"), example)
    assert cost(LINEAR, spec).flops == whole.flops == model_cost(first, example).flops < model_cost(model, example).flops
