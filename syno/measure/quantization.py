"""Quantization to 8-bit integers after training, with PyTorch's PT2E, for compilers with integer kernels and for scores."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.fx
from torch import nn

from syno.base.errors import LoweringError
from syno.measure.job import Job

FOLDED = "_frozen_param"  # prefix of PyTorch's names of folded constants
CALIBRATIONS = 8  # number of inputs for the calibration of activation ranges
SAMPLES = 300  # least number of samples in them, for NNCF (its default) and ONNX Runtime
SOURCES = {
    torch.ops.aten.conv2d.default: nn.Conv2d,
    torch.ops.aten.linear.default: nn.Linear,
    torch.ops.aten.relu.default: nn.ReLU,
}


def quantized_for(job: Job) -> torch.fx.GraphModule:
    """Return the module of a compiler's job in 8-bit integers, calibrated on the job's inputs."""
    return quantized(job.module, calibration_inputs(job))


def calibration_inputs(job: Job, samples: int = 0) -> list[tuple[torch.Tensor, ...]]:
    """Return a compiler job's inputs for the calibration of activation ranges.

    There are `CALIBRATIONS` of them, or more so that they have at least `samples` samples in total.
    """
    count = max(CALIBRATIONS, -(-samples // job.settings.batch))
    return [job.example, *(job.make_inputs() for _ in range(count - 1))]


def quantized(module: nn.Module, inputs: Sequence[tuple[torch.Tensor, ...]]) -> torch.fx.GraphModule:
    """Return the module with its convolutions and linear layers in 8-bit integers; the rest stays in float32.

    Activations are quantized per tensor, weights per output channel. Without VNNI instructions, x86 processors sum pairs of
    products in 16 bits, which 8-bit activations overflow, so that activations get 7 bits. The result has the values of compiled
    code, but is slow, since conversions are separate operations. An operator's prepared weights are computed first, so that its
    convolutions have constant weights to quantize.

    Args:
        module: the module, in evaluation mode; it is not changed.
        inputs: calibration inputs. The result takes inputs of the first one's shape.

    Raises LoweringError if the module has no layer to quantize.
    """
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    with torch.no_grad():
        graph = _constant_weights(module, inputs[0])
        config = x86.get_default_x86_inductor_quantization_config(reduce_range=not sums_in_32_bits())
        quantizer = x86.X86InductorQuantizer().set_global(config)
        prepared = prepare_pt2e(graph, quantizer)
        for calibration in inputs:
            prepared(*calibration)
        converted = convert_pt2e(prepared)
    if not any("quantize" in str(node.target) for node in converted.graph.nodes):
        raise LoweringError(
            f"{type(module).__name__} has no convolution or linear layer that can be quantized; take a compiler without int8"
        )
    quantized_module: torch.fx.GraphModule = move_exported_model_to_eval(converted)
    return quantized_module


def sums_in_32_bits() -> bool:
    """Return whether this processor sums products of 8-bit integers in 32 bits, without overflow (VNNI)."""
    found = torch.cpu.get_capabilities()
    return any(found.get(name, False) for name in ("avx512_vnni", "avx_vnni"))


def _constant_weights(module: nn.Module, example: tuple[torch.Tensor, ...]) -> torch.fx.GraphModule:
    """Return the module as a graph, in which computations on weights alone are folded into constants."""
    from torch._inductor.constant_folding import constant_fold

    graph = torch.export.export(module, example).module()
    constant_fold(graph)
    for name, weight in list(graph.named_buffers(recurse=False)):
        if name.startswith(FOLDED):  # with normalizations in them, weights become parameters: buffers would be in their way
            delattr(graph, name)
            graph.register_parameter(name, nn.Parameter(weight, requires_grad=False))
    for node in graph.graph.nodes:
        if node.target in SOURCES:  # the quantizer looks for modules; here are functions, too
            node.meta["source_fn_stack"] = [(node.name, SOURCES[node.target])]
    return graph
