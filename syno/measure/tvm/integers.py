"""A quantized PyTorch network as a module of TVM's Relax, whose convolutions and products are computed in integers.

Quantization (`syno.measure.network_subject`) leaves a graph in which each convolution reads numbers that were just converted
from 8-bit integers to float32. TVM would compute such a convolution in float32. Here it becomes a convolution of the integers
themselves, with sums of 32 bits, and one multiplication by the scales of activations and weights follows it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import torch
from torch import fx

from syno.measure.job import Job
from syno.measure.latency import Latency
from syno.measure.quantization import quantized_for
from syno.measure.tvm.compiler import compiled, measured_on
from syno.measure.tvm.network import from_pytorch
from syno.measure.tvm.targets import DeviceSettings
from syno.model.shared_memory import copy_of

CONVOLUTION, LINEAR = "integer_convolution", "integer_linear"
QUANTIZED, ATEN = torch.ops.quantized_decomposed, torch.ops.aten
Insert: TypeAlias = Callable[..., fx.Node]  # an operation and its arguments -> its node


def compiled_in_integers(job: Job) -> Callable[..., Any]:
    """Compile as `syno.measure.tvm.compiler.compiled`, after quantization to 8-bit integers."""
    return compiled(job, network_in_integers)


def measured_in_integers(job: Job, device: DeviceSettings, flops: int | None) -> Latency:
    """Measure as `syno.measure.tvm.compiler.measured_on`, after quantization to 8-bit integers."""
    return measured_on(job, device, flops, network_in_integers)


def network_in_integers(job: Job) -> Any:
    """Return the module of a compiler's job, quantized to 8-bit integers, as a `tvm.IRModule`."""
    return import_quantized(quantized_for(job), *job.example)


def import_quantized(quantized: fx.GraphModule, *examples: torch.Tensor) -> Any:
    """Return a quantized network as a `tvm.IRModule` whose function "main" takes tensors of the examples' shapes.

    Args:
        quantized: a network that `syno.measure.quantization.quantized` returned; it is not changed.
        examples: its inputs. Shapes are fixed to theirs, that of the batch too.

    Raises:
        LoweringError: PyTorch cannot export the network, or TVM has no counterpart of one of its operations.
        MissingPackageError: TVM is not installed.
    """
    own = {f"{CONVOLUTION}.default": _emit_convolution, f"{LINEAR}.default": _emit_linear}
    return from_pytorch(in_integers(quantized), examples, "the quantized network", own)


def in_integers(quantized: fx.GraphModule) -> fx.GraphModule:
    """Return a copy of a quantized network that multiplies integers in its convolutions and linear layers.

    Their calls become `syno::integer_convolution` and `syno::integer_linear`, of which PyTorch knows only the shapes of the
    results. Conversions to and from integers become ordinary operations.
    """
    _define()
    copy = copy_of(quantized)
    graph = copy.graph
    for node in reversed(list(graph.nodes)):  # convolutions before the conversions that they read
        if node.op == "call_module" and not node.users:  # a check of the shapes of inputs, which are fixed here
            graph.erase_node(node)
        with graph.inserting_before(node):
            new = _translated(node, copy, graph.call_function)
        if new is not None:
            node.replace_all_uses_with(new)
            graph.erase_node(node)
    graph.eliminate_dead_code()
    copy.recompile()
    return copy


def _translated(node: fx.Node, module: fx.GraphModule, insert: Insert) -> fx.Node | None:
    """Insert the operations for a node, and return the last; None if the node stays."""
    if node.target is QUANTIZED.quantize_per_tensor.default:
        x, scale, zero, least, most, dtype = node.args
        rounded = insert(ATEN.round.default, (insert(ATEN.div.Scalar, (x, scale)),))
        shifted = insert(ATEN.clamp.default, (insert(ATEN.add.Scalar, (rounded, zero)), least, most))
        return insert(ATEN._to_copy.default, (shifted,), {"dtype": dtype})
    if node.target is QUANTIZED.dequantize_per_tensor.default:
        x, scale, zero = node.args[:3]
        number = insert(ATEN._to_copy.default, (x,), {"dtype": torch.float32})
        return insert(ATEN.mul.Scalar, (insert(ATEN.sub.Scalar, (number, zero)), scale))
    if node.target not in (ATEN.conv2d.default, ATEN.linear.default):
        return None
    activation, weight, *rest = node.args
    if not (_is(activation, QUANTIZED.dequantize_per_tensor.default) and _is(weight, QUANTIZED.dequantize_per_channel.default)):
        return None
    x, scale, zero = activation.args[:3]
    integers, scales = weight.args[:2]
    bias, geometry = (rest[0] if rest else None), rest[1:]
    is_linear = node.target is ATEN.linear.default
    operation = getattr(torch.ops.syno, LINEAR if is_linear else CONVOLUTION)
    found = insert(operation, (x, integers, zero) if is_linear else (x, integers, zero, *_complete(geometry)))
    shape = (-1,) if is_linear else (-1, 1, 1)
    found = insert(ATEN.mul.Tensor, (found, insert(ATEN.mul.Scalar, (insert(ATEN.view.default, (scales, shape)), scale))))
    return found if bias is None else insert(ATEN.add.Tensor, (found, insert(ATEN.view.default, (bias, shape))))


def _is(node: Any, operation: Any) -> bool:
    return isinstance(node, fx.Node) and node.target is operation


def _complete(geometry: list[Any]) -> tuple[list[int], list[int], list[int], int]:
    """Return stride, padding, dilation and groups of a convolution, of which the last ones may be left out."""
    defaults: tuple[Any, ...] = ([1, 1], [0, 0], [1, 1], 1)
    stride, padding, dilation, groups = (*geometry, *defaults[len(geometry) :])
    return stride, padding, dilation, groups


@cache
def _define() -> None:
    """Define the operations on first use. They have shapes and no implementation: nothing ever runs them in PyTorch."""
    geometry = "int[] stride, int[] padding, int[] dilation, int groups"
    torch.library.define(f"syno::{CONVOLUTION}", f"(Tensor x, Tensor weight, int zero, {geometry}) -> Tensor")
    torch.library.define(f"syno::{LINEAR}", "(Tensor x, Tensor weight, int zero) -> Tensor")

    def convolution(x: torch.Tensor, weight: torch.Tensor, zero: int, *geometry: Any) -> torch.Tensor:
        stride, padding, dilation, groups = geometry
        return ATEN.convolution(x.float(), weight.float(), None, stride, padding, dilation, False, [0, 0], groups)

    torch.library.register_fake(f"syno::{CONVOLUTION}", convolution)
    torch.library.register_fake(f"syno::{LINEAR}", lambda x, weight, zero: x.float() @ weight.float().T)


def _emit_convolution(node: fx.Node, importer: Any) -> Any:
    """Emit a convolution of integers, and return its sums as float32. Padding is of zeros, as in the convolution of numbers."""
    from tvm import relax

    x, weight = _operands(node, importer)
    stride, padding, dilation, groups = node.args[3:]
    found = relax.op.nn.conv2d(
        x, weight, strides=list(stride), padding=list(padding), dilation=list(dilation), groups=groups, out_dtype="int32"
    )
    return importer.block_builder.emit(relax.op.astype(importer.block_builder.emit(found), "float32"))


def _emit_linear(node: fx.Node, importer: Any) -> Any:
    """Emit a product of integers, and return its sums as float32."""
    from tvm import relax

    x, weight = _operands(node, importer)
    found = relax.op.matmul(x, importer.block_builder.emit(relax.op.permute_dims(weight)), out_dtype="int32")
    return importer.block_builder.emit(relax.op.astype(importer.block_builder.emit(found), "float32"))


def _operands(node: fx.Node, importer: Any) -> tuple[Any, Any]:
    """Emit activations minus their zero point, and weights, both with 16 bits: the difference of two 8-bit numbers has 9."""
    from tvm import relax

    emit = importer.block_builder.emit
    x, weight = (emit(relax.op.astype(importer.env[node.args[place]], "int16")) for place in (0, 1))
    zero = node.args[2]
    return (x if zero == 0 else emit(relax.op.subtract(x, relax.const(zero, "int16")))), weight
