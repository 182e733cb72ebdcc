"""Convolutions of every kind, written as operators, compute what torch computes: outputs and gradients, in double precision.

The operator of a layer has one window per axis, which is wide enough for the layer's taps; its weights are the layer's taps at
their places, and zeros elsewhere. A stride is the operator's own.
"""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest
import torch
from torch import nn

import syno
from syno.ir.graph import PGraph
from syno.ir.own_size import for_wide_pictures
from syno.model.counting import model_cost
from syno.model.spec import spec_for
from syno.model.substitution import substitute
from syno.report.take_home.network_formats import exported
from syno.report.take_home.network_source import network_source
from syno.space.complete import cost

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NAMES = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}
CASES = 30  # of each kind and number of axes


def operator(dimensions: int, *, is_transposed: bool) -> PGraph:
    """Return an operator with a weight [C_out, C_in, window, ..., place in the stride, ...]."""
    names = NAMES[dimensions]
    windows = [f"k_{axis}" for axis in range(dimensions)]
    build = syno.Builder(f"N, C_in, C_out, {', '.join(names)}; stride, {', '.join(windows)}", name="own")
    after = [f"stride*{name}" if is_transposed else name for name in names]
    n, o, *positions = build.output(f"N, C_out, {', '.join(after)}")
    c, *taps = build.reduce(f"C_in, {', '.join(windows)}")
    if is_transposed:
        positions, places = zip(*(build.merge(position, "stride") for position in positions), strict=True)
    else:
        places = build.reduce(", ".join(["stride"] * dimensions))
    weight = build.weight()
    o, c, *rest = [build.share(dim, weight) for dim in (o, c, *taps, *places)]
    taps, places = rest[:dimensions], rest[dimensions:]
    for dim in (o, *places) if is_transposed else (o,):
        build.expand(dim)  # the input has no such axis
    if not is_transposed:
        positions = [build.split(position, place) for position, place in zip(positions, places, strict=True)]
    read = [build.unfold(position, tap) for position, tap in zip(positions, taps, strict=True)]
    return build.finish([n, c, *read])


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


def weights_of(layer: Any, module: Any) -> torch.Tensor:
    """Return the operator's weights: the layer's taps at their places in the windows."""
    made = torch.zeros_like(module.w1)
    is_transposed = isinstance(layer, tuple(TRANSPOSED.values()))
    inner, outer = layer.in_channels // layer.groups, layer.out_channels // layer.groups
    dimensions = len(layer.kernel_size)
    middles = [length // 2 for length in made.shape[2 : 2 + dimensions]]
    for taps in product(*map(range, layer.kernel_size)):
        for places in product(*map(range, made.shape[2 + dimensions :])) if made.dim() > 2 + dimensions else [()]:
            if is_transposed:  # the output's position at this place in the stride reads the input's at this distance
                reach = [d * (k - 1) + 1 for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
                starts = [-((s - r) // 2) for s, r in zip(layer.stride, reach, strict=True)]
                far = [b + h - d * r for b, h, d, r in zip(places, starts, layer.dilation, taps, strict=True)]
                if any(one % s for one, s in zip(far, layer.stride, strict=True)):
                    continue
                at = [one // s for one, s in zip(far, layer.stride, strict=True)]
            elif any(places):
                continue
            else:
                at = [d * (r - k // 2) for d, r, k in zip(layer.dilation, taps, layer.kernel_size, strict=True)]
            place = (*(middle + one for middle, one in zip(middles, at, strict=True)), *places)
            for group in range(layer.groups):
                rows, columns = slice(group * outer, (group + 1) * outer), slice(group * inner, (group + 1) * inner)
                own = layer.weight[(slice(None), slice(None), *taps)]
                own = own[columns].T if is_transposed else own[rows]
                made[(rows, columns, *place)] = own
    return made


@pytest.mark.parametrize("is_transposed", [False, True], ids=["convolution", "transposed"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_a_convolution_as_an_operator_computes_the_same(dimensions: int, is_transposed: bool) -> None:
    own = operator(dimensions, is_transposed=is_transposed)
    for seed in range(CASES):
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


def test_a_network_of_many_kinds_runs_and_is_exported_at_other_sizes() -> None:
    model, x = several().eval(), torch.randn(2, 3, 20, 28, generator=torch.Generator().manual_seed(0))
    changed = substitute(model, syno.OPERATORS["conv2d"](), x, where=EVERY_KIND).eval()
    assert sum(hasattr(module, "graph") for module in changed.modules()) == len(model) - 2
    program, batch = exported(changed, x)
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
