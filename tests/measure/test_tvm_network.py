"""Networks in TVM compute what they compute in PyTorch, with one PrimFunc for each stage of an operator."""

from __future__ import annotations

import doctest
import re
from collections import Counter
from typing import Any

import pytest
import torch
from quick_cases import quick_cases
from small_values import small_values
from torch import nn

pytest.importorskip("tvm", reason="TVM is not installed")

from syno.base.errors import LoweringError, ShapeError
from syno.ir.library import OPERATORS
from syno.lower.choose import plan
from syno.lower.interpreter import interpret, shapes
from syno.measure.latency import relative_error
from syno.measure.operator_calls import OperatorCall
from syno.measure.tvm import network as network_module
from syno.measure.tvm.compilation import TvmModule, built, fused, scheduled
from syno.measure.tvm.network import import_network, prepared
from syno.measure.tvm.targets import host, target
from syno.model import build
from syno.model.backbones import BACKBONES
from syno.model.substitution import substitute


def network(operator: str = "separable_conv2d") -> tuple[nn.Module, torch.Tensor]:
    """A small network with the operator in its layers, whose normalizations are not the identity; and an input."""
    x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    made = substitute(BACKBONES["resnet8"](classes=4, width=0.25), OPERATORS[operator](), x).eval()
    generator = torch.Generator().manual_seed(2)
    for part in made.modules():
        if isinstance(part, nn.BatchNorm2d):
            for tensor in (part.running_mean, part.running_var, part.weight.data, part.bias.data):
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return made, x


def in_tvm(module: nn.Module, *examples: torch.Tensor) -> TvmModule:
    to = target(host(1))
    return TvmModule(built(scheduled(fused(import_network(module, *examples), to), to), to), "cpu")


def kernels(module: Any) -> list[str]:
    return [name.name_hint for name, function in module.functions.items() if type(function).__name__ == "PrimFunc"]


@pytest.mark.slow
def test_a_network_with_an_operator() -> None:
    """Its inputs may begin anywhere: TVM's code loads vectors from multiples of 64 bytes, and NumPy allocates those of 16."""
    module, x = network()
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    call = in_tvm(module, x)
    expected = call(x)
    with torch.no_grad():
        assert relative_error(expected, module(x)) < 1e-5
    assert all(torch.equal(tensor, state[name]) for name, tensor in module.state_dict().items())
    for elements in (1, 4):
        moved = torch.empty(x.numel() + elements)[elements:].view(x.shape).copy_(x)
        assert moved.data_ptr() % 64 and moved.is_contiguous()
        assert torch.equal(call(moved), expected)


def test_the_example_of_the_documentation() -> None:
    assert doctest.testmod(network_module).failed == 0


@pytest.mark.slow
def test_each_stage_is_a_kernel() -> None:
    module, x = network()
    imported = import_network(module, x)
    stages = Counter(re.sub(r"(stage_\d)\d*$", r"\1", name) for name in kernels(imported))
    # of six layers two have the same shapes, and share their kernels
    assert stages == {"separable_conv2d_stage_1": 5, "separable_conv2d_stage_2": 5}
    names = kernels(fused(imported, target(host(1))))
    assert not any("stage_1" in name and "stage_2" in name for name in names)  # fusing leaves reductions apart
    assert any("stage_2" in name and "relu" in name for name in names)  # and takes what follows along


@pytest.mark.slow
@pytest.mark.parametrize("name", quick_cases(OPERATORS, {"conv2d", "operator_1", "gpt2_projection"}.__contains__))
def test_an_operator_by_itself(name: str) -> None:
    graph = OPERATORS[name]()
    values = dict(small_values(graph))
    operator = build(graph, values, seed=0).eval()
    x = torch.rand(shapes(graph, graph.valuation(values))[0], generator=torch.Generator().manual_seed(0))
    expected = interpret(graph, values, x.numpy(), *(weight.detach().numpy() for weight in operator.parameters()))
    assert relative_error(in_tvm(operator, x)(x), torch.from_numpy(expected)) < 1e-5


def test_weights_are_composed_where_that_is_cheaper() -> None:
    graph = OPERATORS["low_rank_conv1x1"]()
    values = dict(small_values(graph))  # a rank above both numbers of features: one product of weights is the cheaper way
    assert plan(graph, values, inference=True).composition is not None
    operator = build(graph, values, seed=0)
    assert kernels(import_network(operator, torch.rand(7, 3, 6, 6))) == ["low_rank_conv1x1_stage_1"]


def test_a_module_that_stands_twice_is_replaced_twice() -> None:
    norm, convolution = nn.BatchNorm2d(4), build(OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6}, seed=0)
    module = nn.Sequential(convolution, norm, convolution, norm).eval()
    copy, operators = prepared(module)
    assert len(operators) == 1 and [isinstance(part, OperatorCall) for part in copy] == [True, False, True, False]
    x = torch.rand(1, 4, 6, 6)
    with torch.no_grad():
        assert relative_error(in_tvm(module, x)(x), module(x)) < 1e-5


def test_normalizations_that_learn_nothing() -> None:
    module, x = nn.Sequential(nn.BatchNorm1d(3, affine=False)).eval(), torch.rand(5, 3)
    assert relative_error(in_tvm(module, x)(x), module(x)) < 1e-6


def test_several_inputs_and_outputs() -> None:
    class Pair(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x + y, x @ y

    x, y = torch.rand(3, 3), torch.rand(3, 3)
    assert relative_error(in_tvm(Pair(), x, y)(x, y), [x + y, x @ y]) < 1e-6


def test_tensors_are_not_copied() -> None:
    class Same(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    x = torch.rand(64)
    call = in_tvm(Same(), x)
    first = call(x)
    x.zero_()
    assert torch.equal(call(x), torch.zeros(64)) and first.count_nonzero() > 0


@pytest.mark.slow
def test_channels_last_is_refused() -> None:
    module, x = network()
    with pytest.raises(ShapeError, match=r'dense in the order of their axes.*"contiguous"'):
        in_tvm(module, x)(x.contiguous(memory_format=torch.channels_last))


class Decomposition(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svdvals(x)


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (Decomposition(), r"the model Decomposition cannot be imported into TVM: it has no counterpart of .* aten\.\w*svd"),
        (Branch(), "the model Branch cannot be exported by PyTorch: .*data-dependent"),
    ],
    ids=["unknown", "branch"],
)
def test_what_is_not_supported_is_named(module: nn.Module, said: str) -> None:
    with pytest.raises(LoweringError, match=said):
        import_network(module, torch.rand(3, 3))
