"""Convolutions in one and three dimensions: replaced by operators, with spaces and requirements of their own."""

from __future__ import annotations

from random import Random

import pytest
import torch
from torch import nn

import syno
from syno.ir.graph import PGraph
from syno.model.counting import model_cost
from syno.model.extraction import replaceable
from syno.model.requirement import requirement
from syno.model.spec import spec_for
from syno.model.substitution import substitute
from syno.space import Space
from syno.space.complete import cost
from syno.space.sample import Sampler

NAMES = {1: ("L",), 3: ("D", "H", "W")}
CONVOLUTIONS = {1: nn.Conv1d, 3: nn.Conv3d}
LENGTHS = {1: (24,), 3: (4, 6, 8)}


def convolution(dimensions: int) -> PGraph:
    """A convolution with windows of 3, as an operator."""
    names = NAMES[dimensions]
    build = syno.Builder(f"N, C_in, C_out, {', '.join(names)}; k=3", name=f"conv{dimensions}d")
    n, o, *positions = build.output(f"N, C_out, {', '.join(names)}")
    c, *windows = build.reduce(f"C_in{', k' * dimensions}")
    c, *windows = build.contract(outer=[o], inner=[c, *windows])
    read = [build.unfold(position, window) for position, window in zip(positions, windows, strict=True)]
    return build.finish([n, c, *read])


class Network(nn.Module):  # type: ignore[misc]
    """A stem, a convolution, one with a stride, one of single positions, and a head."""

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        kind = CONVOLUTIONS[dimensions]
        self.stem, self.first = kind(2, 16, 3, padding=1), kind(16, 16, 3, padding=1)
        self.second, self.mix = kind(16, 32, 3, stride=2, padding=1, bias=False), kind(32, 32, 1)
        self.head = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(torch.relu(self.stem(x))))
        return self.head(self.mix(torch.relu(self.second(x))).flatten(2).mean(2))


def example(dimensions: int) -> torch.Tensor:
    return torch.randn(2, 2, *LENGTHS[dimensions], generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("dimensions", [1, 3])
def test_a_convolution_as_an_operator_is_the_convolution(dimensions: int) -> None:
    model, x = Network(dimensions).double(), example(dimensions)
    changed = substitute(model, convolution(dimensions), x, where="first")
    with torch.no_grad():
        changed.first[0].w1.copy_(model.first.weight)
    assert torch.allclose(changed(x), model(x), rtol=1e-10)
    whole = substitute(model, convolution(dimensions), x, where="spatial, pointwise")
    assert [name for name, module in whole.named_modules() if hasattr(module, "graph")] == ["first.0", "second.1", "mix.0"]
    whole(x[:1]).sum().backward()  # any batch
    assert model_cost(substitute(model, convolution(dimensions), x, where="first"), x).flops == model_cost(model, x).flops


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [1, 3])
def test_a_space_and_its_requirement(dimensions: int) -> None:
    model, x = Network(dimensions), example(dimensions).float()
    names = NAMES[dimensions]
    layers = replaceable(model, x)
    halved = {name: length // 2 for name, length in zip(names, LENGTHS[dimensions], strict=True)}
    assert layers[1].values == {"N": 2, "C_in": 16, "C_out": 32, **halved}
    asked = requirement(model, x, layers, 0.9).reads
    assert asked is not None and asked.positions == dict.fromkeys(sorted(names), 2 if dimensions == 3 else 3)
    spec = spec_for(model, x, options={"reads": "auto" if dimensions == 1 else "none", "depth": 6})  # cubes take long to find
    sampler = Sampler(Space(spec), Random(0))
    operator = next(found for found in iter(sampler.draw, sampler) if found is not None)
    network = substitute(model, operator, x)
    network(x).sum().backward()
    assert cost(operator, spec).parameters == model_cost(network, x).parameters


def test_an_operator_in_place_of_single_positions_need_not_read_neighbours() -> None:
    model, x = Network(1), example(1).float()
    asked = requirement(model, x, replaceable(model, x, "pointwise"), 0.5).reads
    assert asked is not None and not asked.positions and asked.channels == "all"
