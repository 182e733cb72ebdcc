"""The inference runtimes OpenVINO and ONNX Runtime on CPUs: an ONNX model as a function of tensors.

>>> model = of_module(torch.nn.ReLU(), (torch.zeros(1, 3),))
>>> in_onnx_runtime(model, model.content, threads=1)(torch.tensor([[-1.0, 0.0, 2.0]]))
tensor([[0., 0., 2.]])
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import torch

from syno.base.errors import LoweringError
from syno.measure.onnx_model import OnnxModel, of_module

__all__ = ["in_onnx_runtime", "in_openvino", "of_module", "openvino"]

Call: TypeAlias = Callable[..., Any]  # takes and returns tensors
TELEMETRY = "openvino_telemetry"


def openvino(name: str = "openvino") -> ModuleType:
    """Import a module of OpenVINO or NNCF with telemetry disabled, and return it. All imports of them go through this function.

    Both send usage data with the package `openvino_telemetry` unless the user has opted out, for which there is no environment
    variable. They work without this package, so that its import is blocked.
    """
    loaded: Any = sys.modules.setdefault(TELEMETRY, None)  # type: ignore[arg-type]  # None: it cannot be imported
    if loaded is not None:  # the user's own code has imported OpenVINO before
        loaded.main.TelemetrySender.send = lambda *_: None
    return import_module(name)


def in_openvino(model: OnnxModel, network: Any, threads: int, **hints: str) -> Call:
    """Return a network in OpenVINO's CPU plugin as a function, for low latency.

    Args:
        model: the ONNX model, for the names of inputs and the structure of the output.
        network: the network as bytes of an ONNX file, or as an `openvino.Model`.
        threads: number of CPU threads.
        hints: further properties of the compiled network.

    The function shares the memory of its inputs without copies, and returns tensors that its next call overwrites.
    """
    runtime = openvino()
    core = runtime.Core()
    # `openvino.convert_model` of PyTorch's exported program is not used: it converts synthesized operators to many small nodes,
    # with which a network takes three times as long at batch 1. For other networks, both are equally fast.
    network = core.read_model(network) if isinstance(network, bytes) else network
    properties = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_CPU_PINNING": False,  # with one thread, each call would pin its own and free it again, which takes 3 us
        **hints,
    }
    compiled = core.compile_model(network, "CPU", properties)
    request = compiled.create_infer_request()
    set_input, infer, tensor = request.set_input_tensor, request.infer, runtime.Tensor
    outputs: list[torch.Tensor] = []  # set once: to look them up in each call takes 5 us, and their places may change
    for place, port in enumerate(compiled.outputs):
        if not port.partial_shape.is_static:
            raise LoweringError(f"the shape of output {port.any_name} depends on values; OpenVINO takes fixed shapes here")
        array = np.empty(tuple(port.shape), port.element_type.to_dtype())
        request.set_output_tensor(place, tensor(array, shared_memory=True))
        outputs.append(torch.from_numpy(array))
    output = model.output_of(outputs)

    def call(*inputs: torch.Tensor) -> Any:
        arrays = [x.contiguous().numpy() for x in inputs]  # OpenVINO does not keep them
        for place, array in enumerate(arrays):
            set_input(place, tensor(array, shared_memory=True))
        infer()
        return output

    return call


def in_onnx_runtime(model: OnnxModel, content: bytes, threads: int) -> Call:
    """Return a network in ONNX Runtime's CPU provider as a function, with all optimizations of its graph.

    Args:
        model: the ONNX model, for the names of inputs and the structure of the output.
        content: the bytes of the ONNX file.
        threads: number of CPU threads.

    The function shares the memory of its inputs without copies, and returns new tensors.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3  # errors: warnings are about nodes that it folds
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    # `io_binding` is not used: binding inputs and outputs takes 20 us more per call than it saves.
    run, outputs = session.run, list(model.outputs)

    def call(*inputs: torch.Tensor) -> Any:
        return model.output_of(map(torch.from_numpy, run(outputs, model.arrays(inputs))))

    return call
