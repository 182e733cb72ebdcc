"""Pictures that are not square: operators of squares get a width of their own, and spaces have both sizes."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from small_values import random_tensors
from torch import nn
from typer.testing import CliRunner

import syno
from syno.base.errors import GraphError, MisfitError
from syno.cli.app import app
from syno.export.network_formats import exports
from syno.ir.graph import PGraph
from syno.ir.rewriting import with_own_size
from syno.model.backbones import BACKBONES
from syno.model.counting import model_cost
from syno.model.extraction import replaceable
from syno.model.spec import spec_for
from syno.model.substitution import substitute
from syno.space import Space
from syno.space.complete import cost
from syno.space.identity.valuations import own_valuations
from syno.space.sample import Sampler

WIDE = torch.randn(2, 3, 20, 28, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TURNS = """
operator turns
variables C_in, C_out, H, N
output i0:N, i1:C_out, i2:H, i3:H
r0:C_in = Reduce()
d0:C_out = Share(i1, w1[0])
d1:C_in = Share(r0, w1[1])
Expand(d0)
input i0:N, d1:C_in, i3:H, i2:H
weight w1[C_out, C_in]
"""
# A sum over a whole axis: its reduction has to get the variable of the axis that it reads.
MEANS = """
operator means
variables C_in, C_out, H, N
output i0:N, i1:C_out, i2:H, i3:H
r0:C_in = Reduce()
r1:H = Reduce()
d0:C_out = Share(i1, w1[0])
d1:C_in = Share(r0, w1[1])
d2:H = Share(r1, w1[2])
Expand(d0)
Expand(i3)
input i0:N, d1:C_in, i2:H, d2:H
weight w1[C_out, C_in, H]
"""
OF_PICTURES = [name for name, make in syno.OPERATORS.items() if {"N", "C_in", "C_out", "H"} <= set(make().variables)]


def fits(operator: PGraph) -> bool:
    """Whether it goes from [N, C_in, H, H] to [N, C_out, H, H]."""
    return [[str(dim.size) for dim in dims[-2:]] for dims in (operator.input, operator.output)] == [["H", "H"]] * 2


@pytest.mark.parametrize(
    "operator", [*(syno.OPERATORS[name]() for name in OF_PICTURES), syno.parse(MEANS)], ids=lambda one: one.name
)
def test_with_as_much_width_as_height_it_is_the_same_operator(operator: PGraph) -> None:
    if not fits(operator):
        pytest.skip("its output has another size than its input")
    wide = with_own_size(operator, 3, "W")
    assert [str(dim.size) for dim in (*wide.input[2:], *wide.output[2:])] == ["H", "W", "H", "W"]
    values = own_valuations(operator)[0]
    tensors = random_tensors(operator, values)
    expected = syno.interpret(operator, values, *tensors)
    both = wide.valuation({**values, "W": values["H"]})
    assert np.allclose(syno.interpret(wide, both, *tensors), expected, rtol=1e-12)


def test_an_operator_that_exchanges_axes_needs_squares() -> None:
    with pytest.raises(GraphError, match="turns needs axes of equal size: it exchanges them"):
        with_own_size(syno.parse(TURNS), 3, "W")
    model = nn.Conv2d(3, 4, 3, padding=1, bias=False).double()
    with pytest.raises(MisfitError, match=r"turns does not fit .*W=28.*square pictures"):
        substitute(model, syno.parse(TURNS), WIDE, keep_stem=False)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_as_an_operator_is_the_convolution(stride: int) -> None:
    layer = nn.Conv2d(3, 4, 3, padding=1).double()
    pooled = nn.Conv2d(3, 4, 3, stride=stride, padding=1).double()
    pooled.load_state_dict(layer.state_dict())
    replaced = substitute(pooled, syno.OPERATORS["conv2d"](), WIDE, keep_stem=False)
    with torch.no_grad():
        next(module for module in replaced.modules() if hasattr(module, "graph")).w1.copy_(layer.weight)
    x = WIDE.clone().requires_grad_()
    expected = layer(nn.functional.avg_pool2d(x, stride) if stride > 1 else x)
    (wanted,) = torch.autograd.grad(expected.square().sum(), x)
    (found,) = torch.autograd.grad(replaced(x).square().sum(), x)
    assert torch.allclose(replaced(x), expected, rtol=1e-10) and torch.allclose(found, wanted, rtol=1e-10)


def test_an_operator_of_squares_in_a_network_on_wide_pictures() -> None:
    model = BACKBONES["resnet8"](classes=5, width=0.5)
    square = substitute(model, syno.OPERATORS["separable_conv2d"](), torch.zeros(1, 3, 16, 16))
    wide = substitute(model, syno.OPERATORS["separable_conv2d"](), WIDE[:1].float())
    wide.load_state_dict(square.state_dict())  # weights have no size of the picture
    assert torch.allclose(wide.eval()(WIDE.float()), square.eval()(WIDE.float()), atol=1e-6)


SIZES = {"C": 4, "C_in": 4, "C_out": 8, "H": 4, "N": 2, "g": 2, "s": 2, "k": 3, "k_1": 3, "t": 3, "u": 2}


@pytest.mark.parametrize("name", OF_PICTURES)
@pytest.mark.parametrize("mode", ["fused", "literal"])
def test_a_module_takes_pictures_of_sizes_that_it_was_not_made_for(name: str, mode: str) -> None:
    operator = syno.OPERATORS[name]()
    if fits(operator):
        operator = with_own_size(operator, 3, "W")
    given = {**operator.variables.defaults, **SIZES}
    values = {one: given.get(one, 4) for one in operator.variables}
    module = syno.build(operator, values, mode=mode, seed=0, dtype=torch.float64)
    other = {**values, "H": 8, "W": 12} if "H" in operator.runtime_variables else values
    other = operator.valuation({one: other[one] for one in operator.variables})
    x, *_ = random_tensors(operator, other)
    weights = [weight.detach().numpy() for weight in module.parameters()]
    assert np.allclose(module(torch.from_numpy(x)).detach().numpy(), syno.interpret(operator, other, x, *weights))


@pytest.mark.slow
def test_an_operator_found_on_squares_is_exported_and_timed_on_wide_pictures(tmp_path: Path) -> None:
    model, squares = BACKBONES["resnet8"](classes=5, width=0.5), torch.zeros(1, 3, 16, 16)
    spec = spec_for(model, squares, options={"reads": "auto"})
    sampler = Sampler(Space(spec), Random(0))
    drawn = (found for found in iter(sampler.draw, sampler) if found is not None)
    operator = next(found for found in drawn if found.runtime_variables >= {"H"} and is_for_wide(found)).renamed("found")
    network = substitute(model, operator, squares).eval()
    program, batch = next(exports(network, WIDE[:, :, :16, :16].float().contiguous()))
    assert batch is None and torch.allclose(program.module()(WIDE.float()), network(WIDE.float()), atol=1e-5)
    text, sizes = tmp_path / "found.txt", "C_in=8,C_out=8,H=20,W=28"
    text.write_text(str(operator), encoding="utf-8")
    for command in (
        ["get", str(text), "--to", "export", "--set", sizes, "--output", str(tmp_path / "found.pt2")],
        ["tune", "operator", str(text), "--set", sizes, "--output", str(tmp_path / "time.json")],
    ):
        assert CliRunner().invoke(app, command).exit_code == 0
    loaded = torch.export.load(tmp_path / "found.pt2").module()
    assert loaded(torch.zeros(3, 8, 20, 28)).shape == (3, 8, 20, 28)
    record = json.loads((tmp_path / "time.json").read_text(encoding="utf-8"))
    assert record["latency_ms"] > 0 and record["subject"]["sizes"]["W"] == 28


def is_for_wide(operator: PGraph) -> bool:
    """Whether it fits pictures that are not square."""
    try:
        return bool(with_own_size(operator, 3, "W"))
    except GraphError:
        return False


def test_a_space_for_wide_pictures_counts_what_the_network_costs() -> None:
    model = BACKBONES["resnet8"](classes=5, width=0.5)
    example = WIDE[:1].float()
    assert [dict(layer.values) for layer in replaceable(model, example)][-1] == {
        "N": 1,
        "C_in": 32,
        "C_out": 32,
        "H": 5,
        "W": 7,
    }
    spec = spec_for(model, example, options={"reads": "auto", "depth": 8})
    assert spec.reads is not None and spec.reads.positions == {"H": 3, "W": 3}
    sampler = Sampler(Space(spec), Random(0))
    operator = next(found for found in iter(sampler.draw, sampler) if found is not None)
    network = substitute(model, operator, example)
    counted = cost(operator, spec)
    assert counted.parameters == model_cost(network, example).parameters and network(example).shape == (1, 5)
