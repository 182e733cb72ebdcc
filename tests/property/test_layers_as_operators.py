"""Convolutions of every kind, written as operators, compute what torch computes: outputs and gradients, in double precision."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from layer_operators import CONVOLUTIONS, TRANSPOSED, operator, weights_of
from torch import nn

import syno
from syno.export.network_formats import exports
from syno.export.network_source import network_source
from syno.ir.rewriting import for_wide_pictures
from syno.model.counting import model_cost
from syno.model.spec import spec_for
from syno.model.substitution import substitute
from syno.space.complete import cost

FEW, ALL = 8, 30  # cases of each kind and number of axes


def random_layer(random: Random, dimensions: int, *, is_transposed: bool) -> tuple[nn.Module, list[int]]:
    """Return a layer and the lengths of an input."""
    stride = random.randint(1, 3)
    groups = random.choice((1, 1, 2))
    kernel = [random.randint(1, 4) for _ in range(dimensions)]
    dilation = [random.randint(1, 2) for _ in range(dimensions)]
    padding: Any = [random.randint(0, 3) for _ in range(dimensions)]
    options: dict[str, Any] = {"stride": stride, "dilation": dilation[0], "groups": groups, "bias": random.random() < 0.5}
    dilation = [dilation[0]] * dimensions
    kind: Any = CONVOLUTIONS[dimensions]
    if is_transposed:
        kind = TRANSPOSED[dimensions]
        padding = [min(zeros, d * (k - 1)) for zeros, d, k in zip(padding, dilation, kernel, strict=True)]
        options["output_padding"] = random.randint(0, max(stride, dilation[0]) - 1)
    elif stride == 1 and random.random() < 0.3:
        padding = random.choice(("same", "valid"))
    lengths = [random.randint(d * (k - 1) + 1, d * (k - 1) + 5) for d, k in zip(dilation, kernel, strict=True)]
    return kind(4, 6, kernel, padding=padding, **options).double(), lengths


@pytest.mark.parametrize("is_transposed", [False, True], ids=["convolution", "transposed"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("seeds", [range(FEW), pytest.param(range(FEW, ALL), marks=pytest.mark.slow)], ids=["few", "more"])
def test_a_convolution_as_an_operator_computes_the_same(seeds: range, dimensions: int, is_transposed: bool) -> None:
    own = operator(dimensions, is_transposed=is_transposed)
    for seed in seeds:
        layer, lengths = random_layer(Random(seed), dimensions, is_transposed=is_transposed)
        x = torch.randn(2, 4, *lengths, generator=torch.Generator().manual_seed(seed), dtype=torch.float64, requires_grad=True)
        wide = {f"k_{axis}": 2 * layer.dilation[0] * sides + 1 for axis, sides in enumerate(layer.kernel_size)}
        changed = substitute(layer, own.renamed("own", **wide), x.detach(), where=lambda _: None, keep_stem=False)
        module = next(one for one in changed.modules() if hasattr(one, "graph"))
        with torch.no_grad():
            module.w1.copy_(weights_of(layer, module))
        expected, found = layer(x), changed(x)
        assert found.shape == expected.shape, (seed, layer)
        assert torch.allclose(found, expected, rtol=1e-10, atol=1e-12), (seed, layer)
        gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (found, expected)]
        assert torch.allclose(*gradients, rtol=1e-10, atol=1e-10), (seed, layer)
        larger = torch.randn(1, 4, *(length + layer.stride[0] * n for n, length in enumerate(lengths, 1)), dtype=torch.float64)
        assert torch.allclose(changed(larger), layer(larger), rtol=1e-10, atol=1e-12), (seed, layer)
        assert model_cost(changed, larger).flops > model_cost(changed, x.detach()).flops / 2


@pytest.mark.slow
def test_a_size_that_the_stride_does_not_divide() -> None:
    own = operator(2, is_transposed=False).renamed("own", k_0=3, k_1=3)
    module = syno.build(own, {"C_in": 4, "C_out": 6, "stride": 2})
    assert module(torch.zeros(1, 4, 6, 10)).shape == (1, 6, 3, 5)
    with pytest.raises(ValueError, match=r"has shape \[1, 4, 7, 10\]; it must be \[N, 4, 2\*H, 2\*W\]"):
        module(torch.zeros(1, 4, 7, 10))
    program = torch.export.export(
        module,
        (torch.zeros(2, 4, 6, 10),),
        dynamic_shapes=({0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC},),
    )
    assert program.module()(torch.zeros(3, 4, 8, 4)).shape == (3, 6, 4, 2)


def several() -> nn.Module:
    """Layers of many kinds, one after the other."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.AvgPool2d(3, 1, 1, count_include_pad=False),
        nn.Conv2d(8, 8, 2, stride=2, padding=1),
        nn.Conv2d(8, 8, (1, 5), stride=(1, 2), bias=False),
        nn.Conv2d(8, 8, 3, padding=4, dilation=2, groups=8),
        nn.ConvTranspose2d(8, 8, 3, stride=2, padding=1),
        nn.Conv2d(8, 8, 4, padding="same"),
        nn.Conv2d(8, 8, 1, stride=3),
    )


EVERY_KIND = "spatial, pointwise, grouped, transposed"


@pytest.mark.slow
def test_a_network_of_many_kinds_runs_and_is_exported_at_other_sizes() -> None:
    model, x = several().eval(), torch.randn(2, 3, 20, 28, generator=torch.Generator().manual_seed(0))
    changed = substitute(model, syno.OPERATORS["conv2d"](), x, where=EVERY_KIND).eval()
    assert sum(hasattr(module, "graph") for module in changed.modules()) == len(model) - 2
    program, batch = next(exports(changed, x))
    source = network_source(changed)
    scope: dict[str, Any] = {"__file__": "network.py"}
    exec(compile(source.text("A network."), "network.py", "exec"), scope)
    written = scope["Network"]().eval()
    written.load_state_dict(source.state(changed))
    assert batch is None
    for size in ((20, 28), (33, 21), (17, 40)):
        x = torch.randn(3, 3, *size, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            expected = changed(x)
            assert expected.shape == model(x).shape
            assert torch.equal(written(x), expected) and torch.allclose(program.module()(x), expected, atol=1e-5)


def test_a_space_counts_what_a_network_of_many_kinds_costs() -> None:
    model, x = several(), torch.zeros(1, 3, 20, 28)
    conv2d = for_wide_pictures(syno.OPERATORS["conv2d"]())
    spec = spec_for(model, x, where=EVERY_KIND, options={"variables": "N:0, C_in:2, C_out:4, H:0, W:0; k=3:2, s=2:2"})
    changed = model_cost(substitute(model, conv2d, x, where=EVERY_KIND), x)
    counted = cost(conv2d, spec)
    assert (counted.parameters, counted.flops) == (changed.parameters, changed.flops)
