"""A replacement is proven: layers are replaced where an operator in their place runs, learns and computes the same network."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from function_module import FunctionModule
from layer_operators import operator, weights_of
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import syno
from syno.base.errors import ReplacedWeightError, UserCodeError
from syno.model.extraction import sorted_out
from syno.model.substitution import substitute
from syno.train.settings import WorkloadSettings
from syno.train.trial_step import try_step
from syno.train.workload import Workload

C, X = 8, torch.randn(2, 8, 8, 8)
SEPARABLE = syno.OPERATORS["separable_conv2d"]()


def conv(**given: Any) -> nn.Conv2d:
    return nn.Conv2d(C, C, **({"kernel_size": 3, "padding": 1} | given))


@dataclass
class Parts:
    layer: nn.Module


def found_in(model: nn.Module, x: torch.Tensor = X) -> tuple[list[str], dict[str, str]]:
    found, refused = sorted_out(model, x, "spatial", keep_stem=False)
    return [layer.name for layer in found], refused


def changed(model: nn.Module, x: torch.Tensor = X) -> nn.Module:
    return substitute(model, SEPARABLE, x, keep_stem=False)


def test_a_layer_is_replaced_under_all_its_names() -> None:
    encoder = nn.Sequential(nn.ReLU(), conv(bias=False))
    model = FunctionModule(lambda self, x: self.conv(x), encoder=encoder, conv=encoder[1], layers=nn.ModuleList([encoder[1]]))
    network = changed(model)
    assert network.conv is network.encoder[1] is network.layers[0]
    assert type(network.conv).__name__ == "SeparableConv2d"
    network(X).sum().backward()
    assert all(one.grad is not None for one in network.conv.parameters())


def test_a_layer_is_replaced_in_lists_and_mappings_that_modules_have() -> None:
    model = FunctionModule(lambda self, x: self.hidden(self.parts["first"][0](x)), first=conv(), second=conv())
    model.parts = {"first": (model.first, "a name"), "all": [model.first, model.second]}
    vars(model)["hidden"] = model.second
    network = changed(model)
    assert network.hidden is network.second is network.parts["all"][1] and network.first is network.parts["first"][0]
    network(X).sum().backward()
    assert all(one.grad is not None for one in network.parameters())
    assert type(model.parts["all"][0]) is nn.Conv2d


def in_function(model: Any) -> None:
    layer = model.conv
    model.way = lambda x: layer(x)


def in_partial(model: Any) -> None:
    model.way = functools.partial(nn.Module.__call__, model.conv)


def in_dataclass(model: Any) -> None:
    model.parts, model.way = Parts(model.conv), None
    model.run = lambda self, x: self.parts.layer(x)


@pytest.mark.parametrize("keep", [in_function, in_partial, in_dataclass])
def test_a_layer_that_is_reached_without_its_name_stays(keep: Callable[[Any], None]) -> None:
    model = FunctionModule(lambda self, x: self.way(x), conv=conv())
    keep(model)
    found, refused = found_in(model)
    assert not found and "a list, a function or a bound method keeps the layer itself" in refused["conv"]


def test_layers_beside_a_refused_one_are_replaced() -> None:
    model = FunctionModule(lambda self, x: self.other(self.way(x)), conv=conv(), other=conv())
    in_function(model)
    found, refused = found_in(model)
    assert found == ["other"] and set(refused) == {"conv"}


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (lambda self, x: self.conv(x) / self.conv.weight.norm(), "forward uses its weight: "),
        (lambda self, x: self.conv(x) + functional.conv2d(x, self.conv.weight, padding=1), "forward uses its weight: "),
        (lambda self, x: x if self.training else self.conv(x), "it runs in evaluation mode only"),
        (lambda self, x: self.conv(x) + (self.conv(x) if self.training else 0), "it runs 2 times in training mode"),
        (lambda self, x: self.conv(x) + self.conv.forward(x), "it runs 2 times"),
        (lambda self, x: self.conv(input=x), "its input is given by keyword"),
        (lambda self, x: self.conv(x) if isinstance(self.conv, nn.Conv2d) else x, "it may ask for the layer's class"),
        (
            lambda self, x: self.conv(x) if self.conv.reset_parameters else x,
            ": an operator has no attribute 'reset_parameters'",
        ),
    ],
)
def test_a_layer_stays_with_its_reason(run: Callable[[Any, torch.Tensor], torch.Tensor], reason: str) -> None:
    found, refused = found_in(FunctionModule(run, conv=conv()))
    assert not found and reason in refused["conv"]


def without_gradients(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return layer(x)


@pytest.mark.parametrize(
    "run",
    [
        lambda self, x: (self.conv(x), self.other(x))[1],
        lambda self, x: self.other(self.conv(x).detach()),
        lambda self, x: self.other(without_gradients(self.conv, x)),
    ],
)
def test_a_layer_whose_operator_would_not_learn_stays(run: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
    found, refused = found_in(FunctionModule(run, conv=conv(), other=conv()))
    assert found == ["other"] and refused == {"conv": "no gradient reaches it, so an operator in its place would not learn"}


@pytest.mark.parametrize(
    "run",
    [
        lambda self, x: checkpoint(self.conv, x, use_reentrant=False),  # runs again on the way back
        lambda self, x: without_gradients(self.conv, x),  # a network that is only used
    ],
)
def test_a_layer_is_replaced_where_the_network_learns_as_before(run: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
    assert found_in(FunctionModule(run, conv=conv())) == (["conv"], {})


def test_a_frozen_layer_is_replaced() -> None:
    assert found_in(nn.Sequential(conv().requires_grad_(False), conv())) == (["0", "1"], {})


@pytest.mark.parametrize(
    "use",
    [
        lambda x, weight: functional.conv2d(x, weight, padding=1),
        lambda x, weight: torch.stack([weight, weight]).mean(),
    ],
)
def test_a_function_that_keeps_the_weight_is_seen(use: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    layer = conv()
    model = FunctionModule(lambda self, x: self.conv(x) + use(x, layer.weight), conv=layer)
    assert found_in(model) == ([], {"conv": "forward calls a function with its weight"})


def test_attributes_that_are_read_on_a_layer_exist() -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        weight = self.conv.weight
        y = self.conv(x.to(weight.dtype).to(weight.device).to(weight))
        assert (self.conv.stride, self.conv.kernel_size, self.conv.bias) == ((1, 1), (3, 3), None)
        assert weight.shape == (C, C, 3, 3) and weight.size(0) == len(weight) == C and weight.ndim == 4
        return y.view(len(x), self.conv.out_channels, *x.shape[2:])

    network = changed(FunctionModule(run, conv=conv(bias=False)))
    assert set(network.state_dict()) == {f"conv.{name}" for name in network.conv.state_dict()}
    assert network.conv.state_dict().keys() == syno.build(SEPARABLE, {"C_in": C, "C_out": C}).state_dict().keys()
    double = copy.deepcopy(network).double()
    assert double.conv.weight.dtype == torch.float64 == double(X).dtype
    again = pickle.loads(pickle.dumps(network.conv))
    assert again.out_channels == C and again.weight.dtype == torch.float32
    whole = torch.compile(network, backend="eager", fullgraph=False)
    torch.testing.assert_close(whole(X), network(X))
    for use in (lambda one: one + 1, lambda one: 2 * one, torch.sum, lambda one: one[0], lambda one: X @ one):
        with pytest.raises(ReplacedWeightError, match="an operator stands in place of this layer"):
            use(network.conv.weight)


def test_layers_of_attention_are_found_where_their_inputs_have_a_mask() -> None:
    """PyTorch has one function for the whole layer in evaluation mode, with tensors of several lengths."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(C, 2, 16, dropout=0.0, batch_first=True), 1)
    inputs = {"src": torch.randn(2, 5, C), "src_key_padding_mask": torch.arange(5) >= torch.tensor([[5], [3]])}
    found, _ = sorted_out(model, inputs, "*linear*")
    assert [layer.name for layer in found] == ["layers.0.linear1", "layers.0.linear2"]


def test_hooks_move_to_what_stands_in_a_layers_place() -> None:
    layer, shapes = conv(bias=False), []
    layer.register_forward_hook(lambda module, inputs, output: 2 * output)
    layer.register_forward_pre_hook(lambda module, args, kwargs: shapes.append(args[0].shape), with_kwargs=True)
    network = changed(nn.Sequential(nn.Identity(), layer))
    shapes.clear()
    doubled = network(X)
    assert shapes == [X.shape]
    network[1]._forward_hooks.clear()
    torch.testing.assert_close(doubled, 2 * network(X))


class Same(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        zeros = []
        for length, kernel, stride in zip(x.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True):
            missing = max((-(-length // stride) - 1) * stride + kernel - length, 0)
            zeros += [missing // 2, missing - missing // 2]
        return functional.conv2d(functional.pad(x, zeros), self.weight, self.bias, self.stride)


class Standardized(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(x, self.weight - self.weight.mean(), self.bias, padding=self.padding)


@pytest.mark.parametrize(
    "layer",
    [
        conv(padding_mode="circular"),
        conv(padding_mode="reflect", bias=False),
        conv(padding_mode="replicate", stride=2),
        Same(C, C, 3),
        Same(C, C, 3, stride=2),
        Same(C, C, 4, stride=2, bias=False),
    ],
)
def test_an_operator_pads_as_the_layer_does(layer: nn.Conv2d) -> None:
    model = nn.Sequential(nn.Identity(), layer).double()
    x = X.double()
    network = substitute(model, operator(2, is_transposed=False).renamed("own", k_0=11, k_1=11), x, keep_stem=False)
    module = next(one for one in network.modules() if hasattr(one, "graph"))
    with torch.no_grad():
        module.w1.copy_(weights_of(layer, module))
    torch.testing.assert_close(network(x), model(x))


def test_a_subclass_that_computes_something_else_stays() -> None:
    found, refused = found_in(nn.Sequential(Standardized(C, C, 3, padding=1), conv()))
    assert found == ["1"] and "its class Standardized computes something else than a convolution" in refused["0"]


LAST = torch.channels_last


@pytest.mark.parametrize(
    ("name", "layer", "run", "layout"),
    [
        ("separable_conv2d", conv(), lambda self, x: self.conv(x).view(len(x), -1), torch.contiguous_format),
        ("low_rank_conv2d", conv(), lambda self, x: self.conv(x).view(len(x), -1), torch.contiguous_format),
        ("dilated_conv2d", conv(), lambda self, x: self.conv(x).view(len(x), C, -1), torch.contiguous_format),
        ("conv2d", conv(padding=0, bias=False), lambda self, x: self.conv(x).view(len(x), C, -1), torch.contiguous_format),
        ("shift_conv1x1", conv(), lambda self, x: self.conv(x).permute(0, 2, 3, 1).view(len(x), -1), LAST),
    ],
)
def test_an_operator_keeps_the_memory_format_that_view_needs(
    name: str, layer: nn.Conv2d, run: Callable[[Any, torch.Tensor], torch.Tensor], layout: torch.memory_format
) -> None:
    x, model = X.contiguous(memory_format=layout), FunctionModule(run, conv=layer).to(memory_format=layout)
    network = substitute(model, syno.OPERATORS[name](), x, keep_stem=False)
    assert network(x).shape == model(x).shape and str(layout) in str(network)


def test_an_operator_may_return_another_memory_format_where_the_network_takes_it() -> None:
    assert "InFormat" not in str(changed(FunctionModule(lambda self, x: self.conv(x).flatten(1), conv=conv())))


def test_a_network_is_left_as_it_was() -> None:
    norm = nn.BatchNorm2d(C)
    model = FunctionModule(lambda self, x: norm(self.conv(x)), conv=conv(), norm=norm)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    changed(model)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state) and all(one.grad is None for one in model.parameters())


class Flat(nn.Module):
    """A network that uses `view` on what may be channels-last."""

    def __init__(self, channels: int, classes: int, size: int = 8) -> None:
        super().__init__()
        self.stem, self.conv = nn.Conv2d(channels, C, 3, padding=1), conv()
        self.head = nn.Linear(C * size * size, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.adaptive_avg_pool2d(self.conv(self.stem(x).relu()), 8)
        return self.head(y.view(len(y), -1))


def flat(*, channels: int, classes: int, **_: Any) -> nn.Module:
    return Flat(channels, classes)


def test_the_first_step_names_the_setting_of_the_memory_format() -> None:
    given = {"model": f"{__name__}:flat", "data_settings": {"preset": "micro"}}
    with pytest.raises(UserCodeError, match=r"set training: \{channels_last: false\}"):
        try_step(Workload.of(WorkloadSettings(**given)), keeps_weights=False)
    assert try_step(Workload.of(WorkloadSettings(**given, training={"channels_last": False})), keeps_weights=False) > 0
