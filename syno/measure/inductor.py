"""TorchInductor for inference: weights are constants, and may be 8-bit integers.

Compiled code cannot be trained: it has weights of its own, which do not change with the module's.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import nn
from torch._inductor import config

from syno.base.errors import LoweringError, SpecError

Inputs: TypeAlias = tuple[torch.Tensor, ...]

# The vector instructions that the processor lists are assumed to work. Otherwise Inductor would, in each process, compile a
# program for each set of them, and run it in a new Python with PyTorch: 8 of the 23 seconds that compiling ResNet-8 takes.
FLAGS = {"cpp.vec_isa_ok": True}
CALIBRATIONS = 8  # inputs from which the ranges of activations are found
INTEGER_MACHINES = ("x86_64", "AMD64")
SOURCES = {
    torch.ops.aten.conv2d.default: nn.Conv2d,
    torch.ops.aten.linear.default: nn.Linear,
    torch.ops.aten.relu.default: nn.ReLU,
}


def frozen(module: nn.Module, example: Inputs, **options: Any) -> Callable[..., Any]:
    """Compile a module with `torch.compile` and constant weights, for the shapes of `example`.

    Constants are folded into each other, and laid out as the kernels read them; the module keeps its own weights.

    Args:
        module: in evaluation mode.
        example: an input.
        options: arguments of `torch.compile`.
    """
    compiled: Callable[..., Any] = torch.compile(module, dynamic=False, **options)
    with torch.no_grad(), config.patch(freezing=True, **FLAGS):  # read when the first call compiles
        compiled(*example)
    return compiled


def quantized(module: nn.Module, inputs: Sequence[Inputs]) -> nn.Module:
    """Return the module with its convolutions and linear layers in 8-bit integers; the rest stays in float32.

    Activations are quantized by tensor, weights by output channel. The result is fast when it is compiled with `frozen`. An
    operator's weights are brought into the form of its convolutions first, so that these have weights to quantize.

    Args:
        module: in evaluation mode, on the CPU; it is not changed.
        inputs: from which the ranges of activations are found.

    Raises:
        SpecError: the machine's processor is not an x86 one, for which alone Inductor has such kernels.
        LoweringError: the module has no layer to quantize.
    """
    if platform.machine() not in INTEGER_MACHINES:
        raise SpecError(
            f"the compiler inductor-int8 has kernels for x86 only, and this is {platform.machine()}; take inductor, or "
            "measure on an x86 machine"
        )
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    with torch.no_grad():
        graph = _constant_weights(module, inputs[0])
        quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
        prepared = prepare_pt2e(graph, quantizer)
        for calibration in inputs:
            prepared(*calibration)
        converted: nn.Module = convert_pt2e(prepared)
    if not any("quantize" in str(node.target) for node in converted.graph.nodes):
        raise LoweringError(
            f"{type(module).__name__} has no convolution or linear layer that can be quantized; take the compiler inductor"
        )
    quantized_module: nn.Module = move_exported_model_to_eval(converted)
    return quantized_module


def _constant_weights(module: nn.Module, example: Inputs) -> torch.fx.GraphModule:
    """Return the module as a graph, in which everything that depends on weights alone is computed."""
    from torch._inductor.constant_folding import constant_fold

    graph = torch.export.export(module, example).module()
    constant_fold(graph)
    for node in graph.graph.nodes:
        if node.target in SOURCES:  # the quantizer looks for modules; here are functions, too
            node.meta["source_fn_stack"] = [(node.name, SOURCES[node.target])]
    return graph
