"""The translation of each ONNX operator into PyTorch. `TRANSLATIONS` has one function per operator: (reader, node) -> outputs.

Source: https://onnx.ai/onnx/operators, opsets 7 to 23.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from syno.model.onnx.graph import BatchMultiple, Constant, Node, Reader, Value, Variable

Translation = Callable[[Reader, Node], Value | tuple[Value, ...]]

TRANSLATIONS: dict[str, Translation] = {}

UNARY: dict[str, Callable[..., Any]] = {
    "Abs": torch.abs, "Acos": torch.acos, "Asin": torch.asin, "Atan": torch.atan, "Ceil": torch.ceil, "Cos": torch.cos,
    "Cosh": torch.cosh, "Erf": torch.erf, "Exp": torch.exp, "Floor": torch.floor, "HardSwish": functional.hardswish,
    "IsNaN": torch.isnan, "Log": torch.log, "Mish": functional.mish, "Neg": torch.neg, "Not": torch.logical_not,
    "Reciprocal": torch.reciprocal, "Relu": torch.relu, "Round": torch.round, "Sigmoid": torch.sigmoid, "Sign": torch.sign,
    "Sin": torch.sin, "Sinh": torch.sinh, "Softplus": functional.softplus, "Softsign": functional.softsign,
    "Sqrt": torch.sqrt, "Tan": torch.tan, "Tanh": torch.tanh,
}  # fmt: skip
BINARY: dict[str, Callable[..., Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Equal": torch.eq, "Greater": torch.gt,
    "GreaterOrEqual": torch.ge, "Less": torch.lt, "LessOrEqual": torch.le, "Pow": torch.pow,
}  # fmt: skip
LOGICAL = {"And": torch.logical_and, "Or": torch.logical_or, "Xor": torch.logical_xor}
POOLS = {1: (functional.max_pool1d, functional.avg_pool1d), 2: (functional.max_pool2d, functional.avg_pool2d),
         3: (functional.max_pool3d, functional.avg_pool3d)}  # fmt: skip
CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
FUNCTIONAL_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
BATCH_NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
INSTANCE_NORMS = {3: nn.InstanceNorm1d, 4: nn.InstanceNorm2d, 5: nn.InstanceNorm3d}
PADDINGS = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def translates(*names: str) -> Callable[[Translation], Translation]:
    """Register the decorated translation for these ONNX operators."""

    def register(function: Translation) -> Translation:
        TRANSLATIONS.update(dict.fromkeys(names, function))
        return function

    return register


def sizes_of(node: Node, value: Variable) -> tuple[np.ndarray, np.ndarray]:
    """Return the results of the node Shape or Size at the two batch sizes."""
    if node.proto.op_type == "Size":
        first, second = (np.asarray(sample.numel()) for sample in value.samples)
    else:
        part = slice(node.attribute("start"), node.attribute("end"))
        first, second = (np.asarray(sample.shape, dtype=np.int64)[part] for sample in value.samples)
    return first, second


def _unary(function: Callable[..., Any]) -> Translation:
    return lambda reader, node: reader.call(function, node.variable(0))


def _binary(function: Callable[..., Any]) -> Translation:
    return lambda reader, node: reader.call(function, *_operands(reader, node))


TRANSLATIONS.update({name: _unary(function) for name, function in UNARY.items()})
TRANSLATIONS.update({name: _binary(function) for name, function in BINARY.items()})


def _operands(reader: Reader, node: Node) -> tuple[Any, Any]:
    """Return a node's two operands; a number before a tensor becomes a tensor, for functions that take no number first."""
    first, second = reader.operand(node, 0), reader.operand(node, 1)
    if not isinstance(first, Variable) and node.operator in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
        value = node[0]
        assert isinstance(value, Constant)
        first = reader.tensor(node, Constant(tuple(array.reshape(1, -1)[:, :1] for array in value.arrays)))  # type: ignore[arg-type]
    return first, second


@translates("And", "Or", "Xor")
def _logical(reader: Reader, node: Node) -> Value:
    return reader.call(LOGICAL[node.operator], node.variable(0), node.variable(1))


@translates("Div")
def _div(reader: Reader, node: Node) -> Value:
    first, second = reader.operand(node, 0), reader.operand(node, 1)
    made = reader.call(operator.truediv, first, second)
    tensors = [one.samples[0] for one in (first, second) if isinstance(one, Variable)]
    if any(tensor.is_floating_point() for tensor in tensors):
        return made
    return reader.call(torch.div, first, second, rounding_mode="trunc")


@translates("Mod")
def _mod(reader: Reader, node: Node) -> Value:
    return reader.call(torch.fmod if node.attribute("fmod", 0) else torch.remainder, node.variable(0), reader.operand(node, 1))


@translates("Max", "Min", "Sum", "Mean")
def _of_several(reader: Reader, node: Node) -> Value:
    """Translate an operator of any number of tensors, such as Sum or Max, by applying it from the left."""
    function = {"Max": torch.maximum, "Min": torch.minimum}.get(node.operator, operator.add)
    order = sorted(range(len(node.inputs)), key=lambda at: isinstance(node[at], Constant))  # a tensor first
    result = reader.operand(node, order[0])
    for at in order[1:]:
        other = reader.operand(node, at)
        if node.operator in ("Max", "Min") and not isinstance(other, Variable):
            bound = {"min" if node.operator == "Max" else "max": other}
            result = reader.call(torch.clamp, result, **bound)
        else:
            result = reader.call(function, result, other)
    return reader.call(operator.truediv, result, len(order)) if node.operator == "Mean" else result


@translates("Identity", "Dropout")
def _identity(reader: Reader, node: Node) -> Value:
    return node[0]


@translates("Cast", "CastLike")
def _cast(reader: Reader, node: Node) -> Value:
    from onnx.helper import tensor_dtype_to_np_dtype

    if node.operator == "CastLike":
        like = node[1]
        dtype = (
            like.samples[0].dtype if isinstance(like, Variable) else torch.from_numpy(np.empty(0, like.arrays[0].dtype)).dtype
        )
    else:
        dtype = torch.from_numpy(np.empty(0, tensor_dtype_to_np_dtype(node.attribute("to")))).dtype
    return reader.method("to", node.variable(0), dtype)


@translates("LeakyRelu")
def _leaky_relu(reader: Reader, node: Node) -> Value:
    return reader.call(functional.leaky_relu, node.variable(0), node.attribute("alpha", 0.01))


@translates("Elu")
def _elu(reader: Reader, node: Node) -> Value:
    return reader.call(functional.elu, node.variable(0), node.attribute("alpha", 1.0))


@translates("Celu")
def _celu(reader: Reader, node: Node) -> Value:
    return reader.call(functional.celu, node.variable(0), node.attribute("alpha", 1.0))


@translates("Selu")
def _selu(reader: Reader, node: Node) -> Value:
    if {"alpha", "gamma"} & set(node.attributes):
        raise node.unsupported("with constants of its own")
    return reader.call(torch.selu, node.variable(0))


@translates("Gelu")
def _gelu(reader: Reader, node: Node) -> Value:
    return reader.call(functional.gelu, node.variable(0), approximate=node.attribute("approximate", "none"))


@translates("HardSigmoid")
def _hard_sigmoid(reader: Reader, node: Node) -> Value:
    alpha, beta, x = node.attribute("alpha", 0.2), node.attribute("beta", 0.5), node.variable(0)
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return reader.call(functional.hardsigmoid, x)
    return reader.call(torch.clamp, reader.call(operator.add, reader.call(operator.mul, x, alpha), beta), min=0.0, max=1.0)


@translates("ThresholdedRelu")
def _thresholded_relu(reader: Reader, node: Node) -> Value:
    return reader.call(functional.threshold, node.variable(0), node.attribute("alpha", 1.0), 0.0)


@translates("PRelu")
def _prelu(reader: Reader, node: Node) -> Value:
    x, slope = node.variable(0), node[1]
    if isinstance(slope, Constant) and slope.is_fixed and slope.arrays[0].size in (1, x.shape[1] if x.rank > 1 else 1):
        array = slope.arrays[0]
        is_per_channel = array.size == 1 or (array.ndim == x.rank - 1 and array.shape[0] == array.size) or x.rank == 2
        if is_per_channel:

            def make() -> nn.Module:
                layer = nn.PReLU(array.size)
                layer.weight = _parameter(array.reshape(-1))
                return layer

            return reader.layer(make, ("PRelu", slope.name or node.proto.output[0]), x)
    negative = reader.call(operator.mul, reader.call(torch.clamp, x, max=0), reader.operand(node, 1))
    return reader.call(operator.add, reader.call(torch.relu, x), negative)


@translates("Clip")
def _clip(reader: Reader, node: Node) -> Value:
    bounds = {}
    for at, name in enumerate(("min", "max"), 1):
        if name in node.attributes:
            bounds[name] = node.attributes[name]
        elif node.optional(at) is not None:
            bounds[name] = reader.operand(node, at)
    x = node.variable(0)
    if bounds == {"min": 0.0, "max": 6.0}:
        return reader.call(functional.relu6, x)
    return reader.call(torch.clamp, x, **bounds) if bounds else x


@translates("Where")
def _where(reader: Reader, node: Node) -> Value:
    if isinstance(node[0], Constant):
        return reader.call(torch.where, _as_tensor(reader, node, 0), reader.operand(node, 1), reader.operand(node, 2))
    return reader.call(torch.where, node[0], reader.operand(node, 1), reader.operand(node, 2))


def _as_tensor(reader: Reader, node: Node, at: int) -> Variable:
    """Return the input at index `at` as a tensor, also if it is a single number."""
    value = node[at]
    if isinstance(value, Variable):
        return value
    made = reader.tensor(node, value)
    if isinstance(made, Variable):
        return made
    made = reader.tensor(node, Constant(tuple(array.reshape(1, 1) for array in value.arrays)))  # type: ignore[arg-type]
    assert isinstance(made, Variable)
    return reader.method("reshape", made, list(value.arrays[0].shape))


@translates("Softmax", "LogSoftmax")
def _softmax(reader: Reader, node: Node) -> Value:
    function = torch.softmax if node.operator == "Softmax" else torch.log_softmax
    x = node.variable(0)
    axis = node.attribute("axis", -1 if node.opset >= 13 else 1)
    if node.opset >= 13 or axis % x.rank == x.rank - 1:
        return reader.call(function, x, axis)
    flat = reader.call(torch.flatten, x, axis)  # before opset 13, all axes from here on are one
    return reader.method("reshape", reader.call(function, flat, -1), reader.shape_of(node, x))


def _parameter(array: np.ndarray) -> nn.Parameter:
    return nn.Parameter(torch.tensor(np.ascontiguousarray(array)))


def _pads(
    node: Node, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """Return the padding of a window: the numbers at the beginnings of all axes, then those at the ends.

    Args:
        node: a convolution or pooling.
        sizes: the input's sizes along the axes of the window.
        kernel, strides, dilations: the window's sizes, strides and dilations along each axis.
    """
    mode, rank = node.attribute("auto_pad", "NOTSET"), len(kernel)
    if mode in ("NOTSET", ""):
        return [int(one) for one in node.attribute("pads", [0] * (2 * rank))]
    if mode == "VALID":
        return [0] * (2 * rank)
    before, after = [], []
    for size, length, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + dilation * (length - 1) + 1 - size)
        small, large = total // 2, total - total // 2
        before.append(small if mode == "SAME_UPPER" else large)
        after.append(large if mode == "SAME_UPPER" else small)
    return [*before, *after]


def _padded(reader: Reader, x: Variable, pads: Sequence[int], value: float = 0.0) -> Variable:
    """Return a tensor padded with `value` along its last axes; `pads` has the order of `_pads`."""
    if not any(pads):
        return x
    rank = len(pads) // 2
    return reader.call(functional.pad, x, _pairs_from_the_last(pads[:rank], pads[rank:]), value=value)


def _pairs_from_the_last(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """Return paddings in PyTorch's order: (before, after) of the last axis first."""
    return [one for pair in zip(reversed(before), reversed(after), strict=True) for one in pair]


def _window(node: Node, rank: int) -> tuple[list[int], list[int]]:
    """Return the strides and the dilations of a node's window, along each of `rank` axes."""
    return [int(one) for one in node.attribute("strides", [1] * rank)], [
        int(one) for one in node.attribute("dilations", [1] * rank)
    ]


@translates("Conv")
def _conv(reader: Reader, node: Node) -> Value:
    x, weight, bias = node.variable(0), node[1], node.optional(2)
    rank, groups = x.rank - 2, node.attribute("group", 1)
    if rank not in CONVOLUTIONS:
        raise node.unsupported(f"over {rank} axes")
    strides, dilations = _window(node, rank)
    if not isinstance(weight, Constant) or not (bias is None or isinstance(bias, Constant)):
        kernel = weight.shape[2:] if isinstance(weight, Variable) else weight.arrays[0].shape[2:]
        padded = _padded(reader, x, _pads(node, x.shape[2:], kernel, strides, dilations))
        terms = [reader.operand(node, at) for at in range(1, 2 if bias is None else 3)]
        return reader.call(FUNCTIONAL_CONVOLUTIONS[rank], padded, *terms, stride=strides, dilation=dilations, groups=groups)
    array = node.constant(1)
    pads = _pads(node, x.shape[2:], array.shape[2:], strides, dilations)
    is_symmetric = pads[:rank] == pads[rank:]
    if not is_symmetric:
        x = _padded(reader, x, pads)
    padding = tuple(pads[:rank]) if is_symmetric else (0,) * rank
    settings = (tuple(array.shape[2:]), tuple(strides), padding, tuple(dilations), groups, bias is not None)

    def make() -> nn.Module:
        layer = CONVOLUTIONS[rank](array.shape[1] * groups, array.shape[0], *settings)
        layer.weight = _parameter(array)
        if bias is not None:
            layer.bias = _parameter(node.constant(2))
        return layer

    return reader.layer(make, ("conv", _name(node, 1), settings, _name(node, 2)), x)


def _name(node: Node, at: int) -> str:
    """Return the name in the file of the weight at input `at`; a name derived from the node if the weight is computed."""
    value = node.optional(at)
    return "" if value is None else value.name if isinstance(value, Constant) and value.name else f"{node.proto.output[0]}_{at}"


@translates("ConvTranspose")
def _conv_transpose(reader: Reader, node: Node) -> Value:
    x, array, bias = node.variable(0), node.constant(1), node.optional(2)
    rank, groups = x.rank - 2, node.attribute("group", 1)
    if rank not in TRANSPOSED:
        raise node.unsupported(f"over {rank} axes")
    strides, dilations = _window(node, rank)
    extra = [int(one) for one in node.attribute("output_padding", [0] * rank)]
    kernel = array.shape[2:]
    # The sizes without any padding, of which ONNX's padding is cut off.
    full = [
        stride * (size - 1) + added + (length - 1) * dilation + 1
        for stride, size, added, length, dilation in zip(strides, x.shape[2:], extra, kernel, dilations, strict=True)
    ]
    mode, shape = node.attribute("auto_pad", "NOTSET"), node.attribute("output_shape")
    if shape is not None or mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = (
            list(shape)[-rank:]
            if shape is not None
            else [size * stride for size, stride in zip(x.shape[2:], strides, strict=True)]
        )
        total = [size - want for size, want in zip(full, wanted, strict=True)]
        small, large = [one // 2 for one in total], [one - one // 2 for one in total]
        pads = [*small, *large] if mode == "SAME_UPPER" else [*large, *small]
    else:
        pads = [int(one) for one in node.attribute("pads", [0] * (2 * rank))]
    is_plain = pads[:rank] == pads[rank:] and min(pads, default=0) >= 0
    padding = tuple(pads[:rank]) if is_plain else (0,) * rank
    settings = (tuple(kernel), tuple(strides), padding, tuple(extra), groups, bias is not None, tuple(dilations))

    def make() -> nn.Module:
        layer = TRANSPOSED[rank](array.shape[0], array.shape[1] * groups, *settings)
        layer.weight = _parameter(array)
        if bias is not None:
            layer.bias = _parameter(node.constant(2))
        return layer

    made = reader.layer(make, ("conv_transpose", _name(node, 1), settings, _name(node, 2)), x)
    return made if is_plain else _padded(reader, made, [-one for one in pads])


def _linear(reader: Reader, x: Variable, weight: np.ndarray, bias: np.ndarray | None, key: tuple[Any, ...]) -> Variable:
    """Return the output of a linear layer with this weight, [outputs, inputs], and bias; `key` as for `Reader.layer`."""

    def make() -> nn.Module:
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None)
        layer.weight = _parameter(weight)
        if bias is not None:
            layer.bias = _parameter(bias)
        return layer

    return reader.layer(make, key, x)


@translates("Gemm")
def _gemm(reader: Reader, node: Node) -> Value:
    x, alpha, beta = node.variable(0), node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    if node.attribute("transA", 0):
        x = reader.method("t", x)
    bias, weight = node.optional(2), node[1]
    fits = bias is None or (isinstance(bias, Constant) and bias.is_fixed and bias.arrays[0].size == _outputs(node))
    if isinstance(weight, Constant) and weight.is_fixed and fits:
        array = node.constant(1)
        array = alpha * (array if node.attribute("transB", 0) else array.T)
        term = None if bias is None else beta * node.constant(2).reshape(-1)
        return _linear(reader, x, array, term, ("linear", _name(node, 1), _name(node, 2), alpha, beta))
    other: Any = _as_tensor(reader, node, 1)
    if node.attribute("transB", 0):
        other = reader.method("t", other)
    result = reader.call(torch.matmul, x, other)
    result = result if alpha == 1 else reader.call(operator.mul, result, alpha)
    if bias is None:
        return result
    term = reader.operand(node, 2)
    return reader.call(operator.add, result, term if beta == 1 else reader.call(operator.mul, term, beta))


def _outputs(node: Node) -> int:
    weight = node[1]
    shape = weight.shape if isinstance(weight, Variable) else weight.arrays[0].shape
    return int(shape[0] if node.attribute("transB", 0) else shape[1])


@translates("MatMul")
def _matmul(reader: Reader, node: Node) -> Value:
    weight = node[1]
    if isinstance(weight, Constant) and weight.is_fixed and weight.arrays[0].ndim == 2 and isinstance(node[0], Variable):
        bias = node.bias
        return _linear(reader, node.variable(0), node.constant(1).T, bias, ("linear", _name(node, 1), node.proto.output[0]))
    return reader.call(torch.matmul, _as_tensor(reader, node, 0), _as_tensor(reader, node, 1))


@translates("BatchNormalization")
def _batch_norm(reader: Reader, node: Node) -> Value:
    x = node.variable(0)
    scale, shift, mean, variance = (node.constant(at) for at in range(1, 5))

    def make() -> nn.Module:
        # PyTorch's momentum is the share of the new statistics, and ONNX's that of the old ones.
        layer = BATCH_NORMS[x.rank](scale.size, node.attribute("epsilon", 1e-5), 1 - node.attribute("momentum", 0.9))
        layer.weight, layer.bias = _parameter(scale), _parameter(shift)
        layer.running_mean, layer.running_var = torch.tensor(mean), torch.tensor(variance)
        return layer

    if x.rank not in BATCH_NORMS:
        raise node.unsupported(f"over {x.rank} axes")
    return reader.layer(make, ("batch_norm", _name(node, 1), *(_name(node, at) for at in range(2, 5))), x)


@translates("InstanceNormalization")
def _instance_norm(reader: Reader, node: Node) -> Value:
    x, scale, shift = node.variable(0), node.constant(1), node.constant(2)

    def make() -> nn.Module:
        layer = INSTANCE_NORMS[x.rank](scale.size, node.attribute("epsilon", 1e-5), affine=True)
        layer.weight, layer.bias = _parameter(scale), _parameter(shift)
        return layer

    if x.rank not in INSTANCE_NORMS:
        raise node.unsupported(f"over {x.rank} axes")
    return reader.layer(make, ("instance_norm", _name(node, 1), _name(node, 2)), x)


@translates("LayerNormalization")
def _layer_norm(reader: Reader, node: Node) -> Value:
    x, scale = node.variable(0), node.constant(1)
    axis = node.attribute("axis", -1) % x.rank
    if len(node.proto.output) > 1 and any(node.proto.output[1:]):
        raise node.unsupported("with its mean as an output")

    def make() -> nn.Module:
        layer = nn.LayerNorm(x.shape[axis:], node.attribute("epsilon", 1e-5), bias=node.optional(2) is not None)
        layer.weight = _parameter(np.broadcast_to(scale, x.shape[axis:]))
        if node.optional(2) is not None:
            layer.bias = _parameter(np.broadcast_to(node.constant(2), x.shape[axis:]))
        return layer

    return reader.layer(make, ("layer_norm", _name(node, 1), _name(node, 2), axis), x)


@translates("GroupNormalization")
def _group_norm(reader: Reader, node: Node) -> Value:
    x, scale, shift, groups = node.variable(0), node.constant(1), node.constant(2), node.attribute("num_groups")
    channels = x.shape[1]
    if scale.size != channels:  # opset 18 has one number per group
        scale, shift = (np.repeat(one, channels // groups) for one in (scale, shift))

    def make() -> nn.Module:
        layer = nn.GroupNorm(groups, channels, node.attribute("epsilon", 1e-5))
        layer.weight, layer.bias = _parameter(scale), _parameter(shift)
        return layer

    return reader.layer(make, ("group_norm", _name(node, 1), _name(node, 2)), x)


@translates("LRN")
def _local_response_norm(reader: Reader, node: Node) -> Value:
    numbers = (node.attribute("alpha", 1e-4), node.attribute("beta", 0.75), node.attribute("bias", 1.0))
    return reader.call(functional.local_response_norm, node.variable(0), node.attribute("size"), *numbers)


@translates("MaxPool", "AveragePool")
def _pool(reader: Reader, node: Node) -> Value:
    x, kernel = node.variable(0), [int(one) for one in node.attribute("kernel_shape")]
    rank, is_max = len(kernel), node.operator == "MaxPool"
    if rank not in POOLS or (len(node.proto.output) > 1 and node.proto.output[1]):
        raise node.unsupported(f"over {rank} axes" if rank not in POOLS else "with indices as an output")
    strides, dilations = _window(node, rank)
    pads = _pads(node, x.shape[2:], kernel, strides, dilations)
    ceils = bool(node.attribute("ceil_mode", 0))
    is_plain = pads[:rank] == pads[rank:] and all(2 * pad <= size for pad, size in zip(pads, kernel, strict=False))
    if is_max:
        if not is_plain:
            x, pads = _padded(reader, x, pads, -torch.inf), [0] * (2 * rank)
        return reader.call(POOLS[rank][0], x, kernel, strides, pads[:rank], dilations, ceils)
    if any(one != 1 for one in dilations):
        raise node.unsupported("with dilation")
    counts = bool(node.attribute("count_include_pad", 0))
    if is_plain:
        return reader.call(POOLS[rank][1], x, kernel, strides, pads[:rank], ceils, counts)
    if counts and not ceils:
        return reader.call(POOLS[rank][1], _padded(reader, x, pads), kernel, strides)
    if ceils:
        raise node.unsupported("with uneven padding and ceil_mode")
    # The sum over each window, divided by the number of elements that are no padding.
    ones = torch.ones(1, 1, *x.shape[2:])
    counted = POOLS[rank][1](functional.pad(ones, _pairs_from_the_last(pads[:rank], pads[rank:])), kernel, strides)
    mean = reader.call(POOLS[rank][1], _padded(reader, x, pads), kernel, strides)
    array = counted.numpy()
    return reader.call(operator.truediv, mean, reader.tensor(node, Constant((array, array))))


@translates("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(reader: Reader, node: Node) -> Value:
    x = node.variable(0)
    function = torch.mean if node.operator == "GlobalAveragePool" else torch.amax
    return reader.call(function, x, list(range(2, x.rank)), keepdim=True)


@translates("Pad")
def _pad(reader: Reader, node: Node) -> Value:
    x, mode = node.variable(0), node.attribute("mode", "constant")
    amounts = node.listed("pads", 1)
    assert amounts is not None
    if node.optional(3) is not None:
        axes = [axis % x.rank for axis in node.listed("axes", 3) or []]
        sides = [dict(zip(axes, amounts[: len(axes)], strict=True)), dict(zip(axes, amounts[len(axes) :], strict=True))]
        amounts = [side.get(axis, 0) for side in sides for axis in range(x.rank)]
    value = node.attributes.get("value", 0.0) if node.optional(2) is None else node.constant(2).item()
    before, after = amounts[: x.rank], amounts[x.rank :]
    first = next((axis for axis in range(x.rank) if before[axis] or after[axis]), None)
    if first is None:
        return x
    pairs = _pairs_from_the_last(before[first:], after[first:])
    if mode == "constant":
        return reader.call(functional.pad, x, pairs, value=value)
    if mode not in PADDINGS or x.rank - first > 3 or first == 0:
        raise node.unsupported(f"with the mode {mode} over these axes")
    if x.rank == 2 or first > 1:  # PyTorch pads the last axes of tensors of at least one axis more
        wanted = max(1, x.rank - 2)
        pairs = _pairs_from_the_last(before[-wanted:], after[-wanted:])
    return reader.call(functional.pad, x, pairs, mode=PADDINGS[mode])


@translates("Resize", "Upsample")
def _resize(reader: Reader, node: Node) -> Value:
    x, mode = node.variable(0), node.attribute("mode", "nearest")
    rank = x.rank - 2
    position = node.attribute(
        "coordinate_transformation_mode", "half_pixel" if node.operator == "Resize" and node.opset > 10 else "asymmetric"
    )
    sizes, scales = _resized(node, x)
    if node.attribute("axes") is not None or node.attribute("antialias", 0) or sizes[:2] != list(x.shape[:2]):
        raise node.unsupported("along other axes than the last, or with antialias")
    target, factors = sizes[2:], scales[2:]
    if target == list(x.shape[2:]):
        return x
    if mode == "nearest":
        rounding = node.attribute("nearest_mode", "round_prefer_floor" if node.opset > 10 else "floor")
        indices = [_nearest(position, rounding, *one) for one in zip(x.shape[2:], target, factors, strict=True)]
        for axis, (index, size) in enumerate(zip(indices, x.shape[2:], strict=True), 2):
            whole = len(index) // size
            if index == list(range(size)):
                continue
            if len(index) == whole * size and index == [at // whole for at in range(len(index))]:
                x = reader.call(torch.repeat_interleave, x, whole, axis)
            else:
                array = np.asarray(index)
                x = reader.call(torch.index_select, x, axis, reader.tensor(node, Constant((array, array))))
        return x
    modes = {("linear", 1): "linear", ("linear", 2): "bilinear", ("linear", 3): "trilinear", ("cubic", 2): "bicubic"}
    exact = [size * factor for size, factor in zip(x.shape[2:], factors, strict=True)]
    is_exact = all(abs(one - size) < 1e-3 for one, size in zip(exact, target, strict=True))
    if (mode, rank) not in modes or position not in ("half_pixel", "pytorch_half_pixel", "align_corners") or not is_exact:
        raise node.unsupported(f"with the modes {mode} and {position} over {rank} axes")
    if mode == "cubic" and (node.attribute("cubic_coeff_a", -0.75) != -0.75 or node.attribute("exclude_outside", 0)):
        raise node.unsupported("with these settings of the mode cubic")
    return reader.call(
        functional.interpolate, x, size=target, mode=modes[mode, rank], align_corners=position == "align_corners"
    )


def _resized(node: Node, x: Variable) -> tuple[list[int], list[float]]:
    """Return the sizes of a Resize node's output, and the scaling factor along each axis."""
    at_scales = 1 if node.operator == "Upsample" or node.opset < 11 else 2
    sizes = node.optional(3) if at_scales == 2 else None
    if sizes is not None and isinstance(sizes, Constant) and sizes.arrays[0].size:
        wanted = [int(one) for one in sizes.arrays[0]]
        if node.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
            raise node.unsupported("which keeps the aspect ratio")
        return wanted, [new / old for new, old in zip(wanted, x.shape, strict=True)]
    factors = [float(one) for one in (node.attributes["scales"] if "scales" in node.attributes else node.constant(at_scales))]
    return [int(np.floor(size * factor + 1e-6)) for size, factor in zip(x.shape, factors, strict=True)], factors


def _nearest(position: str, rounding: str, size: int, target: int, factor: Any) -> list[int]:
    """Return, for each of the `target` output positions along an axis, the input position that it is taken from."""
    at: Any = np.arange(target, dtype=np.float32)  # single precision, since ONNX Runtime rounds 3 / 0.6 to 5
    factor = np.float32(factor)
    if position == "half_pixel" or (position == "pytorch_half_pixel" and target > 1):
        at = (at + 0.5) / factor - 0.5
    elif position == "align_corners":
        at = at * (size - 1) / (target - 1) if target > 1 else at * 0
    elif position == "half_pixel_symmetric":
        adjust = target / (factor * size)
        at = size / 2 * (1 - adjust) + (at + 0.5) / factor - 0.5
    else:
        at = at / factor if position == "asymmetric" else at * 0
    rounded = {
        "floor": np.floor(at),
        "ceil": np.ceil(at),
        "round_prefer_floor": np.ceil(at - 0.5),
        "round_prefer_ceil": np.floor(at + 0.5),
    }[rounding]
    return [int(one) for one in np.clip(rounded, 0, size - 1)]


@translates("Concat")
def _concat(reader: Reader, node: Node) -> Value:
    return reader.call(torch.cat, [_as_tensor(reader, node, at) for at in range(len(node.inputs))], node.attribute("axis"))


@translates("Split")
def _split(reader: Reader, node: Node) -> Value | tuple[Value, ...]:
    x, axis, count = node.variable(0), node.attribute("axis", 0), len(node.proto.output)
    lengths = node.listed("split", 1)
    if lengths is None:
        length = -(-x.shape[axis] // (node.attribute("num_outputs") or count))
        lengths = [min(length, x.shape[axis] - at * length) for at in range(count)]
    made = reader.call(torch.split, x, lengths, axis)
    return tuple(reader.part(made, at) for at in range(count))


@translates("Reshape")
def _reshape(reader: Reader, node: Node) -> Value:
    x = node.variable(0)
    sizes = reader.integers(node, 1)
    own = reader.shape_of(node, x)
    if not node.attribute("allowzero", 0):
        sizes = [own[at] if size == 0 else size for at, size in enumerate(sizes)]
    is_free = reader.batches[0] != reader.batches[1]
    if is_free and sizes and sizes[0] == reader.batch and own and own[0] == BatchMultiple(1):
        sizes[0] = BatchMultiple(1)  # the file was written for one batch size
    if -1 not in sizes and sum(isinstance(size, BatchMultiple) for size in sizes) == 1:
        sizes = [-1 if isinstance(size, BatchMultiple) else size for size in sizes]  # as people write it
    return reader.method("reshape", x, sizes)


@translates("Flatten")
def _flatten(reader: Reader, node: Node) -> Value:
    x = node.variable(0)
    axis = node.attribute("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    if axis == 1:
        return reader.call(torch.flatten, x, 1)
    size = int(np.prod(x.shape[axis:]))
    return reader.method("reshape", x, [1, -1] if axis == 0 else [-1, size])


@translates("Transpose")
def _transpose(reader: Reader, node: Node) -> Value:
    x = node.variable(0)
    order = [int(one) for one in node.attribute("perm", list(range(x.rank))[::-1])]
    return reader.method("permute", x, order)


@translates("Squeeze")
def _squeeze(reader: Reader, node: Node) -> Value:
    x, axes = node.variable(0), node.listed("axes", 1)
    if axes is None:
        first, second = (tuple(sample.shape) for sample in x.samples)
        axes = [at for at, (one, other) in enumerate(zip(first, second, strict=True)) if one == other == 1]
    for axis in sorted((axis % x.rank for axis in axes), reverse=True):
        x = reader.method("squeeze", x, axis)
    return x


@translates("Unsqueeze")
def _unsqueeze(reader: Reader, node: Node) -> Value:
    x, axes = node.variable(0), node.listed("axes", 1) or []
    for axis in sorted(axis % (x.rank + len(axes)) for axis in axes):
        x = reader.method("unsqueeze", x, axis)
    return x


@translates("Expand")
def _expand(reader: Reader, node: Node) -> Value:
    x, sizes = node.variable(0), reader.integers(node, 1)
    own = reader.shape_of(node, x)
    rank = max(len(own), len(sizes))
    own, sizes = [*[1] * (rank - len(own)), *own], [*[1] * (rank - len(sizes)), *sizes]
    return reader.method("expand", x, [mine if size == 1 else size for mine, size in zip(own, sizes, strict=True)])


@translates("Tile")
def _tile(reader: Reader, node: Node) -> Value:
    return reader.method("repeat", node.variable(0), reader.integers(node, 1))


@translates("Gather")
def _gather(reader: Reader, node: Node) -> Value:
    table, indices, axis = node[0], node[1], node.attribute("axis", 0)
    if (
        isinstance(table, Constant)
        and table.is_fixed
        and axis == 0
        and table.arrays[0].ndim == 2
        and table.arrays[0].dtype.kind == "f"
    ):
        array = table.arrays[0]

        def make() -> nn.Module:
            layer = nn.Embedding(*array.shape)
            layer.weight = _parameter(array)
            return layer

        return reader.layer(make, ("embedding", _name(node, 0)), node.variable(1))
    x = _as_tensor(reader, node, 0)
    axis = axis % x.rank
    if isinstance(indices, Constant):
        array = node.constant(1)
        if array.ndim == 0:
            return reader.call(torch.select, x, axis, int(array))
        size = x.shape[axis]
        positions = np.where(array < 0, array + size, array).reshape(-1)
        step = np.diff(positions)
        if len(positions) and (step == 1).all():
            part = reader.call(torch.narrow, x, axis, int(positions[0]), len(positions))
        else:
            part = reader.call(torch.index_select, x, axis, _index(reader, node, positions))
        return part if array.ndim == 1 else reader.call(torch.unflatten, part, axis, list(array.shape))
    return reader.call(operator.getitem, x, (*(slice(None),) * axis, node.variable(1)))


def _index(reader: Reader, node: Node, positions: np.ndarray) -> Variable:
    made = reader.tensor(node, Constant((positions[None], positions[None])))
    if not isinstance(made, Variable):
        raise node.unsupported("of one repeated position")
    return reader.method("flatten", made)


@translates("GatherElements")
def _gather_elements(reader: Reader, node: Node) -> Value:
    return reader.call(torch.gather, _as_tensor(reader, node, 0), node.attribute("axis", 0), _as_tensor(reader, node, 1))


@translates("ScatterElements")
def _scatter_elements(reader: Reader, node: Node) -> Value:
    if node.attribute("reduction", "none") != "none":
        raise node.unsupported("with a reduction")
    x, index, source = (_as_tensor(reader, node, at) for at in range(3))
    return reader.call(torch.scatter, x, node.attribute("axis", 0), index, source)


@translates("Slice")
def _slice(reader: Reader, node: Node) -> Value:
    x, starts, ends = node.variable(0), node.listed("starts", 1), node.listed("ends", 2)
    if starts is None or ends is None:
        raise node.unsupported("without its ends")
    axes = node.listed("axes", 3) or list(range(len(starts)))
    steps = (node.listed("steps", 4) if node.optional(4) is not None else None) or [1] * len(starts)
    parts, reverse = [slice(None)] * x.rank, []
    for axis, start, end, step in zip((axis % x.rank for axis in axes), starts, ends, steps, strict=True):
        is_batch = x.samples[0].shape[axis] != x.samples[1].shape[axis]
        if is_batch:
            if (start, step) != (0, 1) or end < 2**31 - 1:
                raise node.unsupported("of the batch")
            continue
        if step > 0:
            first, last, _ = slice(start, end, step).indices(x.shape[axis])
            parts[axis] = slice(first, max(first, last), step)
        else:  # PyTorch has no negative steps: the elements in ascending order, then reversed
            chosen = range(x.shape[axis])[slice(start, None if end < -x.shape[axis] else end, step)]
            parts[axis] = slice(chosen[-1], chosen[0] + 1, -step) if len(chosen) else slice(0, 0)
            reverse.append(axis)
    if any(part != slice(None) for part in parts):
        while parts[-1] == slice(None):
            parts.pop()
        x = reader.call(operator.getitem, x, tuple(parts))
    return reader.call(torch.flip, x, reverse) if reverse else x


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceMean": torch.mean, "ReduceSum": torch.sum, "ReduceMax": torch.amax, "ReduceMin": torch.amin,
    "ReduceLogSumExp": torch.logsumexp,
}  # fmt: skip


@translates(*REDUCTIONS, "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceProd")
def _reduce(reader: Reader, node: Node) -> Value:
    x, axes, keeps = node.variable(0), node.listed("axes", 1), bool(node.attribute("keepdims", 1))
    if axes is None and node.attribute("noop_with_empty_axes", 0):
        return x
    over = sorted(axis % x.rank for axis in axes) if axes else list(range(x.rank))
    if node.operator == "ReduceSumSquare":
        return reader.call(torch.sum, reader.call(operator.mul, x, x), over, keepdim=keeps)
    if node.operator == "ReduceProd":
        for axis in reversed(over):
            x = reader.call(torch.prod, x, axis, keepdim=keeps)
        return x
    if node.operator in ("ReduceL1", "ReduceL2"):
        return reader.call(torch.linalg.vector_norm, x, int(node.operator[-1]), over, keepdim=keeps)
    return reader.call(REDUCTIONS[node.operator], x, over, keepdim=keeps)


@translates("ArgMax", "ArgMin")
def _argmax(reader: Reader, node: Node) -> Value:
    if node.attribute("select_last_index", 0):
        raise node.unsupported("with select_last_index")
    function = torch.argmax if node.operator == "ArgMax" else torch.argmin
    return reader.call(function, node.variable(0), node.attribute("axis", 0), keepdim=bool(node.attribute("keepdims", 1)))


@translates("CumSum")
def _cumsum(reader: Reader, node: Node) -> Value:
    if node.attribute("exclusive", 0) or node.attribute("reverse", 0):
        raise node.unsupported("which is exclusive or reversed")
    return reader.call(torch.cumsum, node.variable(0), int(node.constant(1)))


@translates("Einsum")
def _einsum(reader: Reader, node: Node) -> Value:
    return reader.call(
        torch.einsum, node.attribute("equation"), *(_as_tensor(reader, node, at) for at in range(len(node.inputs)))
    )


@translates("DepthToSpace")
def _depth_to_space(reader: Reader, node: Node) -> Value:
    x, block = node.variable(0), node.attribute("blocksize")
    if node.attribute("mode", "DCR") == "CRD":
        return reader.call(functional.pixel_shuffle, x, block)
    _, channels, height, width = x.shape
    parts = reader.method("reshape", x, [-1, block, block, channels // block**2, height, width])
    return reader.method(
        "reshape",
        reader.method("permute", parts, [0, 3, 4, 1, 5, 2]),
        [-1, channels // block**2, height * block, width * block],
    )


@translates("SpaceToDepth")
def _space_to_depth(reader: Reader, node: Node) -> Value:
    x, block = node.variable(0), node.attribute("blocksize")
    _, channels, height, width = x.shape
    parts = reader.method("reshape", x, [-1, channels, height // block, block, width // block, block])
    return reader.method(
        "reshape",
        reader.method("permute", parts, [0, 3, 5, 1, 2, 4]),
        [-1, channels * block**2, height // block, width // block],
    )


GATES = {"LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2], "RNN": [0]}  # PyTorch's order of ONNX's gates: i o f c, z r h


@translates("LSTM", "GRU", "RNN")
def _recurrent(reader: Reader, node: Node) -> tuple[Value, ...]:
    """Translate a recurrent layer (RNN, LSTM, GRU) over [length, batch, features] with the usual activations."""
    kind, x = node.operator, node.variable(0)
    weight, recurrent = node.constant(1), node.constant(2)
    bias = None if node.optional(3) is None else node.constant(3)
    hidden, direction = node.attribute("hidden_size"), node.attribute("direction", "forward")
    usual = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}[kind]
    activations = [one.decode() for one in node.attribute("activations", [])]
    directions = 2 if direction == "bidirectional" else 1
    if (
        (activations and activations != usual * directions)
        or node.attribute("layout", 0)
        or node.attribute("clip") is not None
        or node.attribute("input_forget", 0)
        or (kind == "GRU" and not node.attribute("linear_before_reset", 0))
        or node.optional(7) is not None
        or node.optional(4) is not None
    ):
        raise node.unsupported("with these settings")
    order = np.concatenate([np.arange(gate * hidden, (gate + 1) * hidden) for gate in GATES[kind]])

    def make() -> nn.Module:
        layer = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}[kind](
            x.shape[-1], hidden, bias=bias is not None, bidirectional=directions == 2
        )
        for at, suffix in enumerate(("", "_reverse")[:directions]):
            setattr(layer, f"weight_ih_l0{suffix}", _parameter(weight[at][order]))
            setattr(layer, f"weight_hh_l0{suffix}", _parameter(recurrent[at][order]))
            if bias is not None:
                first, second = np.split(bias[at], 2)
                setattr(layer, f"bias_ih_l0{suffix}", _parameter(first[order]))
                setattr(layer, f"bias_hh_l0{suffix}", _parameter(second[order]))
        return layer

    if direction == "reverse":
        x = reader.call(torch.flip, x, [0])
    states = [_state(reader, node, at, x, directions, hidden) for at in ((5, 6) if kind == "LSTM" else (5,))]
    state: Any = tuple(states) if kind == "LSTM" else states[0]
    key = (kind.lower(), _name(node, 1), _name(node, 2), _name(node, 3), direction)
    made = reader.layer(make, key, x, *([] if any(one is None for one in states) else [state]))
    output, last = reader.part(made, 0), reader.part(made, 1)
    if direction == "reverse":
        output = reader.call(torch.flip, output, [0])
    split = reader.call(torch.unflatten, output, 2, [directions, hidden])
    whole = reader.method("permute", split, [0, 2, 1, 3])
    return (whole, reader.part(last, 0), reader.part(last, 1)) if kind == "LSTM" else (whole, last)


def _state(reader: Reader, node: Node, at: int, x: Variable, directions: int, hidden: int) -> Any:
    """Return the initial state of a recurrent layer, from the input `at`; None for zeros."""
    value = node.optional(at)
    if value is None or (isinstance(value, Constant) and not any(array.any() for array in value.arrays)):
        return None
    return _as_tensor(reader, node, at)
