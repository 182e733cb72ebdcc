"""What follows a layer in a network and is fused into its kernel's epilogue.

Operations are fused if nothing else reads the layer's result: biases and normalizations with fixed statistics, then the sum
with a residual, then an activation.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from syno.ir.coordinates import Array
from syno.measure.native.layers import End, PlacedLayer, linear
from syno.measure.native.network_graph import aten, constant, is_float, shape_of

ACTIVATIONS = {  # by operation and its other arguments
    (aten.relu.default,): "relu",
    (aten.relu6.default,): "relu6",
    (aten.hardtanh.default, 0, 6): "relu6",
    (aten.leaky_relu.default,): "leaky_relu",
    (aten.leaky_relu.default, 0.01): "leaky_relu",
    (aten.hardsigmoid.default,): "hardsigmoid",
    (aten.hardswish.default,): "hardswish",
    (aten.sigmoid.default,): "sigmoid",
    (aten.silu.default,): "silu",
    (aten.tanh.default,): "tanh",
    (aten.gelu.default,): "gelu",
    (aten.gelu.default, "none"): "gelu",
    (aten.gelu.default, "tanh"): "gelu_tanh",
}


def _of_channels(value: torch.Tensor, shape: Sequence[int], channel: int) -> Array | None:
    """Return a constant tensor as one number per channel, if it broadcasts to `shape` along the axis `channel`; else None."""
    if value.dim() > len(shape):
        return None
    value = value.reshape(*(1,) * (len(shape) - value.dim()), *value.shape)
    if any(length != 1 for axis, length in enumerate(value.shape) if axis != channel):
        return None
    found: Array = (
        value.double().expand(*(shape[axis] if axis == channel else 1 for axis in range(len(shape)))).flatten().numpy()
    )
    return found


def with_ends(network: fx.GraphModule, layers: Sequence[PlacedLayer]) -> list[PlacedLayer]:
    """Return the layers with their fused epilogues, ordered by the last node of the epilogue.

    A node that follows two layers, such as their sum, is fused into the layer whose own node comes first.
    """
    taken = {layer.node for layer in layers}
    found = []
    for layer in layers:
        end = _end(network, layer, taken)
        taken.update(end.nodes)
        found.append(replace(layer, end=end))
    order = {node: number for number, node in enumerate(network.graph.nodes)}
    return sorted(found, key=lambda layer: order[layer.last])


def _end(network: fx.GraphModule, placed: PlacedLayer, taken: Set[Any]) -> End:
    """Return the longest epilogue of a layer: the following nodes that a kernel can compute and that are not in `taken`."""
    layer, node = placed.layer, placed.node
    shape = shape_of(node)
    channel = len(shape) - 1 if layer.graph is linear() else layer.channel
    end = End.of(layer, node)
    while len(end.nodes[-1].users) == 1:
        user = next(iter(end.nodes[-1].users))
        following = None if user in taken else _with(network, end, user, shape, channel)
        if following is None:
            break
        end = replace(following, nodes=(*end.nodes, user))
    return end


def _with(network: fx.GraphModule, end: End, user: fx.Node, shape: Sequence[int], channel: int) -> End | None:
    """Return the epilogue extended by the node `user`; None if a kernel cannot compute that node."""
    if user.op != "call_function" or end.activation != "identity":
        return None
    if any(user.target is target for target, *_ in ACTIVATIONS):
        activation = ACTIVATIONS.get((user.target, *user.args[1:], *user.kwargs.values()))
        return None if activation is None else replace(end, activation=activation)
    if end.residual is not None:
        return None
    if user.target is aten.batch_norm.default and channel == 1 and user.args[0] is end.nodes[-1]:
        _, weight, bias, mean, variance, training, _, epsilon, _ = user.args
        tensors = [None if one is None else constant(network, one) for one in (weight, bias, mean, variance)]
        if training or tensors[2] is None or tensors[3] is None:
            return None
        gain, offset, center, spread = (None if one is None else one.double().numpy() for one in tensors)
        scale = (spread + epsilon) ** -0.5 * (1 if gain is None else gain)
        return _scaled(end, scale, (0 if offset is None else offset) - center * scale)
    if user.target not in (aten.add.Tensor, aten.mul.Tensor) or user.kwargs.get("alpha", 1) != 1 or len(user.args) != 2:
        return None
    first, second = user.args
    other = second if first is end.nodes[-1] else first
    value = constant(network, other)
    if value is not None:
        numbers = _of_channels(value, shape, channel)
        if numbers is None:
            return None
        is_sum = user.target is aten.add.Tensor
        return _scaled(end, None, numbers) if is_sum else _scaled(end, numbers, None)
    if user.target is not aten.add.Tensor or not isinstance(other, fx.Node) or other is end.nodes[-1]:
        return None
    return replace(end, residual=other) if shape_of(other) == tuple(shape) and is_float(other) else None


def _scaled(end: End, scale: Array | None, shift: Array | None) -> End:
    """Return the epilogue extended by a multiplication with `scale` and an addition of `shift`."""
    scales, shifts = end.scale, end.shift
    if scale is not None:
        scales, shifts = scale if scales is None else scales * scale, None if shifts is None else shifts * scale
    if shift is not None:
        shifts = shift if shifts is None else shifts + shift
    return replace(end, scale=scales, shift=shifts)
