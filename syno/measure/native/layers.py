"""Layers of an exported network that kernels can compute.

Layers are operators, and convolutions, linear layers, average and maximum poolings that can be written as operators. What
follows them is found in `ends`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.nn import functional

from syno.ir.builder import Builder
from syno.ir.coordinates import Array
from syno.ir.graph import PGraph
from syno.ir.rewriting import NAMES_OF_AXES
from syno.lower.interpreter import shapes
from syno.lower.native.program import Epilogue
from syno.measure.inductor import frozen
from syno.measure.native.kernels import Request
from syno.measure.native.network_graph import arguments_of, aten, constant, is_float, shape_of
from syno.measure.operator_calls import operator_call, valuation_for
from syno.model.module import OperatorModule
from syno.model.prepared_weights import prepare_for_inference


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer that a kernel can compute.

    Attributes:
        name: the layer's name in the network.
        graph: the layer as an operator.
        values: values of the operator's variables.
        weights: weights of the operator.
        bias: bias of each channel; None if the layer has none.
        channel: the channel axis of the output.
        code: a description of PyTorch's code for it, as part of a cache key.
        other: function that returns PyTorch's code for the layer as a function without arguments, to time it.
        other_contiguous: as `other`, for contiguous data, if `other` is for channels-last data; else None.
        compiled: as `other`, compiled by Inductor; None if that cannot be faster.
        is_library: whether PyTorch's code is one library call.
        mean_of: the number of summands of a mean, since operators only sum; else 1.
        takes_maximum: whether a result is the maximum of its summands, all at least zero, instead of their sum.
        steps: strides of the output, as in `Request.steps`.
    """

    name: str
    graph: PGraph
    values: dict[str, int]
    weights: tuple[Array, ...]
    bias: Array | None
    channel: int
    code: str
    other: Callable[[], Callable[[], object]]
    other_contiguous: Callable[[], Callable[[], object]] | None = None
    compiled: Callable[[], Callable[[], object]] | None = None
    is_library: bool = False
    mean_of: int = 1
    takes_maximum: bool = False
    steps: tuple[int, ...] = ()

    @property
    def is_alone(self) -> bool:
        """Whether a kernel may be faster although neither input nor output is in the format "lanes".

        False for means over all positions, which Inductor fuses with their neighbours; it computes means of windows
        unvectorized.
        """
        return self.mean_of == 1 or len(self.shapes[1]) == 4

    @property
    def in_contiguous(self) -> Layer:
        """The same layer with PyTorch's code for contiguous data."""
        if self.other_contiguous is None:
            return self
        return replace(self, code=f"{self.code} of contiguous data", other=self.other_contiguous, other_contiguous=None)

    @cached_property
    def request(self) -> Request:
        """The request for the layer's kernel without an epilogue, for contiguous tensors and one thread."""
        values = tuple(sorted(self.values.items()))
        return Request(str(self.graph), values, steps=self.steps, takes_maximum=self.takes_maximum)

    @property
    def is_pooling(self) -> bool:
        """Whether the layer is a pooling: an average or a maximum over positions of one channel."""
        return self.mean_of > 1 or self.takes_maximum

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of the input and of the output of the operator."""
        return self.request.shapes


@dataclass
class End:
    """The epilogue of a layer in a graph: activation(result * scale + shift + residual).

    Attributes:
        scale, shift: factor and summand of each channel, in double precision.
        residual: the node of the tensor that is added; None if there is none.
        activation: a name in `syno.lower.native.activations.EXACT`.
        nodes: the nodes that the kernel computes, from the layer's to the last of the epilogue.
    """

    scale: Array | None
    shift: Array | None
    residual: Any
    activation: str
    nodes: tuple[Any, ...]

    @classmethod
    def of(cls, layer: Layer, *nodes: fx.Node) -> End:
        """Return the epilogue of a layer alone: its bias, and the division of a mean."""
        channels = layer.shapes[1][layer.channel]
        scale = None if layer.mean_of == 1 else np.full(channels, 1 / layer.mean_of)
        return cls(scale, layer.bias, None, "identity", nodes)

    def epilogue(self, channel: int) -> Epilogue:
        """Return the epilogue for a kernel whose output has this channel axis."""
        has_channels = self.scale is not None or self.shift is not None
        return Epilogue(
            channel=channel if has_channels else None,
            scale=self.scale is not None,
            shift=self.shift is not None,
            residual=self.residual is not None,
            activation=self.activation,
        )


@dataclass(frozen=True, eq=False)
class PlacedLayer:
    """A layer in a graph.

    Attributes:
        layer: the layer.
        node: the layer's node in the graph.
        operator: the operator's module if the layer is an operator; else None.
        end: the layer's epilogue.
    """

    layer: Layer
    node: Any
    operator: OperatorModule | None
    end: End

    @property
    def input(self) -> Any:
        """The node of the layer's input in the graph."""
        return self.node.args[0]

    @property
    def last(self) -> Any:
        """The last node of the epilogue, whose value the kernel returns."""
        return self.end.nodes[-1]


def layers_of(network: fx.GraphModule, operators: Sequence[OperatorModule], names: Mapping[Any, str]) -> list[PlacedLayer]:
    """Return the layers of a network that kernels could compute, without their epilogues."""
    found = []
    for node in network.graph.nodes:
        operator = operators[node.args[1]] if node.target is operator_call().default else None
        layer = None
        if operator is not None:
            layer = of_operator(operator, names[operator], shape_of(node.args[0]))
        elif node.op == "call_function" and node.target in KINDS:
            layer = KINDS[node.target](network, node)
        if layer is not None:
            found.append(PlacedLayer(layer, node, operator, End.of(layer, node)))
    return found


def of_operator(operator: OperatorModule, name: str, shape: Sequence[int]) -> Layer:
    """Return an operator as a layer, for an input of this shape."""
    prepared: Any = prepare_for_inference(operator)
    layout = torch.channels_last if operator.is_channels_last and len(shape) == 4 else torch.contiguous_format
    example = torch.randn(tuple(shape)).contiguous(memory_format=layout)
    weights = tuple(weight.detach().float().numpy() for weight in operator.parameters())
    values = dict(valuation_for(operator, shape))
    return Layer(
        name,
        operator.graph,
        values,
        weights,
        None,
        min(1, len(operator.graph.output) - 1),
        operator.source,
        lambda: partial(prepared, example),
        compiled=lambda: _compiled(prepared, example),
    )


def _compiled(module: nn.Module, example: torch.Tensor) -> Callable[[], object]:
    return partial(frozen(module, (example,)), example)


def _weights(network: fx.GraphModule, arguments: Mapping[str, Any]) -> tuple[torch.Tensor, Array | None] | None:
    """Return the weight and the bias of a layer; None if they are no constants, or the layer's input is not float32."""
    weight, bias = (constant(network, arguments[name]) for name in ("weight", "bias"))
    if weight is None or (bias is None) != (arguments["bias"] is None) or not is_float(arguments["input"]):
        return None
    return weight, None if bias is None else bias.double().numpy()


def _of_convolution(network: fx.GraphModule, node: fx.Node) -> Layer | None:
    """Return a convolution as a layer if a kernel can compute it: it must be padded by half of its window; else None."""
    arguments = arguments_of(node)
    weights = _weights(network, arguments)
    if weights is None:
        return None
    weight, bias = weights
    shape, kernel, groups = shape_of(arguments["input"]), tuple(weight.shape[2:]), arguments["groups"]
    axes = len(kernel)
    if len(shape) != 2 + axes:  # a sample by itself
        return None
    stride, padding, dilation = (_each(arguments[name], axes) for name in ("stride", "padding", "dilation"))
    if set(dilation) != {1} or any(length % 2 == 0 for length in kernel) or padding != tuple(length // 2 for length in kernel):
        return None
    batch, _, *lengths = shape
    values = {"N": batch, "G": groups, "C": weight.shape[1], "O": len(weight) // groups}
    values |= dict(zip(NAMES_OF_AXES[axes], lengths, strict=True)) | dict(zip(TAPS[:axes], kernel, strict=True))
    graph = convolution(set(kernel) == {1}, axes)
    values = {name: values[name] for name in graph.variables}
    _, (expected,), _ = shapes(graph, graph.valuation(values))
    return Layer(
        arguments["weight"].target.removesuffix(".weight"),
        graph,
        values,
        (weight.numpy().reshape(expected),),
        bias,
        1,
        "convolution",
        partial(_convolution_of_pytorch, shape, weight, groups, stride, torch.channels_last),
        partial(_convolution_of_pytorch, shape, weight, groups, stride, torch.contiguous_format),
        is_library=True,
        steps=(1, 1, *stride) if max(stride) > 1 else (),
    )


TAPS = ("k_0", "k_1")  # variables of the window sizes along one or two axes


@cache
def convolution(is_pointwise: bool, axes: int = 2) -> PGraph:
    """Return a convolution as an operator from [N, G*C, H, W] to [N, G*O, H, W], or with one axis L; G are groups.

    The elements of its weight are those of PyTorch's weight, in the same order.
    """
    sides, taps = ", ".join(NAMES_OF_AXES[axes]), () if is_pointwise else TAPS[:axes]
    build = Builder(f"N, G, C, O, {sides}{'; ' if taps else ''}{', '.join(f'{tap}=3' for tap in taps)}", name="convolution")
    n, channel, *read = build.output(f"N, G*O, {sides}")
    group, o = build.merge(channel, "O")
    group, c, *window = build.contract([group, o, *build.reduce(", ".join(("C", *taps)))], outer=[o])
    if window:
        read = [build.unfold(side, tap) for side, tap in zip(read, window, strict=True)]
    return build.finish([n, build.split(group, c), *read])


def _convolution_of_pytorch(
    shape: tuple[int, ...], weight: torch.Tensor, groups: int, stride: tuple[int, ...], data: torch.memory_format
) -> Callable[[], object]:
    """Return a call of a convolution as Inductor makes it; the weight of a two-dimensional one is reordered for oneDNN."""
    if len(stride) == 1:
        return partial(functional.conv1d, torch.randn(shape), weight, None, stride, weight.shape[2] // 2, 1, groups)
    x = torch.randn(shape).contiguous(memory_format=data)
    padding = [length // 2 for length in weight.shape[2:]]
    if not torch.backends.mkldnn.is_available():
        return partial(functional.conv2d, x, weight, None, stride, padding, 1, groups)
    layout = torch.ops.mkldnn._reorder_convolution_weight(weight, padding, stride, [1, 1], groups, list(shape))
    call = torch.ops.mkldnn._convolution_pointwise.default
    return partial(call, x, layout, None, padding, stride, [1, 1], groups, "none", [], "")


def _of_linear(network: fx.GraphModule, node: fx.Node) -> Layer | None:
    """Return a linear layer as a layer with all positions flattened into the batch, if a kernel can compute it; else None."""
    arguments = arguments_of(node)
    weights = _weights(network, arguments)
    if weights is None or min(weights[0].shape) < 2:
        return None
    weight, bias = weights
    outputs, inputs = weight.shape
    values = {"N": math.prod(shape_of(arguments["input"])[:-1]), "I": inputs, "O": outputs}
    return Layer(
        arguments["weight"].target.removesuffix(".weight"),
        linear(),
        values,
        (weight.numpy(),),
        bias,
        1,
        "linear",
        lambda: partial(functional.linear, torch.randn(values["N"], inputs), weight),
        is_library=True,
    )


@cache
def linear() -> PGraph:
    """Return a linear layer as an operator from [N, I] to [N, O]. Its weight is PyTorch's."""
    build = Builder("N, I, O", name="linear")
    n, o = build.output("N, O")
    (i,) = build.contract(outer=[o], inner=build.reduce("I"))
    return build.finish([n, i])


def _of_average(_: fx.GraphModule, node: fx.Node) -> Layer | None:
    """Return an average over disjoint windows, or over whole pictures, as a layer if a kernel can compute it; else None."""
    arguments = arguments_of(node)
    x = arguments["self"]
    if len(shape_of(x)) != 4 or not is_float(x) or not is_float(node):
        return None
    (batch, channels, *sides), out = shape_of(x), shape_of(node)
    kernel = tuple(sides)
    if node.target is aten.avg_pool2d.default:  # `ceil_mode` has no effect if windows fill the sides
        kernel = _each(arguments["kernel_size"], 2)
        is_regular = _each(arguments["stride"] or kernel, 2) == kernel and not any(_each(arguments["padding"], 2))
        if not is_regular or arguments["divisor_override"] is not None or any(map(operator.mod, sides, kernel)):
            return None
    elif node.target is aten.mean.dim:
        if sorted(axis % 4 for axis in arguments["dim"] or ()) != [2, 3] or node.kwargs:
            return None
    elif out[2:] != (1, 1):
        return None
    is_whole = kernel == tuple(sides)
    values = {"N": batch, "C": channels}
    values |= {"H": sides[0], "W": sides[1]} if is_whole else {"H": out[2], "W": out[3], "k_0": kernel[0], "k_1": kernel[1]}
    return _pooling(node, _sums(is_whole), values, mean_of=math.prod(kernel))


def _pooling(node: fx.Node, graph: PGraph, values: dict[str, int], **options: Any) -> Layer:
    """Return an average or maximum pooling as a layer without weights; `options` are further fields of the layer."""
    target: Any = node.target
    shape = shape_of(node.args[0])

    def other() -> Callable[[], object]:
        return partial(target, torch.randn(shape).relu(), *node.args[1:])

    return Layer(str(node.name), graph, values, (), None, 1, str(target), other, **options)


@cache
def _sums(is_whole: bool) -> PGraph:
    """Return the operator that sums over disjoint windows, or over all positions. It has no weights."""
    build = Builder("N, C, H, W" if is_whole else "N, C, H, W; k_0=2, k_1=2", name="sums")
    n, c, *positions = build.output("N, C" if is_whole else "N, C, H, W")
    if is_whole:
        return build.finish([n, c, *build.reduce("H, W")])
    return build.finish([n, c, *map(build.split, positions, build.reduce("k_0, k_1"))])


def _of_maximum(_: fx.GraphModule, node: fx.Node) -> Layer | None:
    """Return a maximum over windows as a layer if a kernel can compute it; else None.

    Its input must not be negative, as behind a ReLU, so that zeros beyond the borders do not change the maximum.
    """
    arguments = arguments_of(node)
    x = arguments["self"]
    if x.op != "call_function" or x.target not in NEVER_NEGATIVE or len(shape_of(x)) != 4 or not is_float(x):
        return None
    window, padding, dilation = (_each(arguments[name], 2) for name in ("kernel_size", "padding", "dilation"))
    stride = _each(arguments["stride"] or window, 2)
    (batch, channels, *sides), out = shape_of(x), list(shape_of(node)[2:])
    values = {"N": batch, "C": channels, "k_0": window[0], "k_1": window[1]}
    if set(dilation) != {1}:
        return None
    if stride == window and not any(padding) and not any(map(operator.mod, sides, window)):
        graph, steps = _sums(False), _each(1, 2)
        values |= {"H": out[0], "W": out[1]}
    elif all(length % 2 for length in window) and padding == tuple(length // 2 for length in window):
        graph, steps = _overlapping_sums(), stride
        values |= {"H": sides[0], "W": sides[1]}
        if out != [-(-length // step) for length, step in zip(sides, steps, strict=True)]:  # possible with `ceil_mode`
            return None
    else:
        return None
    return _pooling(node, graph, values, takes_maximum=True, steps=(1, 1, *steps) if max(steps) > 1 else ())


NEVER_NEGATIVE = {aten.relu.default, aten.relu6.default, aten.sigmoid.default, aten.hardsigmoid.default}


@cache
def _overlapping_sums() -> PGraph:
    """Return the operator that sums over the window around each position.

    Both axes of the window are one reduction: two sums in a row would be computed at all positions, also those between strides.
    """
    build = Builder("N, C, H, W; k_0=3, k_1=3", name="overlapping_sums")
    n, c, *positions = build.output("N, C, H, W")
    (window,) = build.reduce("k_0*k_1")
    return build.finish([n, c, *map(build.unfold, positions, build.merge(window, "k_1"))])


def _each(value: Any, axes: int) -> tuple[int, ...]:
    """Return a value for each axis; a single value is repeated."""
    values = value if isinstance(value, list | tuple) else [value]
    return tuple(values) * (axes // len(values))


KINDS: dict[Any, Callable[[fx.GraphModule, fx.Node], Layer | None]] = {
    aten.conv1d.default: _of_convolution,
    aten.conv2d.default: _of_convolution,
    aten.linear.default: _of_linear,
    aten.avg_pool2d.default: _of_average,
    aten.adaptive_avg_pool2d.default: _of_average,
    aten.mean.dim: _of_average,
    aten.max_pool2d.default: _of_maximum,
}
