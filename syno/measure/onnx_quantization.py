"""Quantization of ONNX models to 8-bit integers after training, for OpenVINO (NNCF) and for ONNX Runtime.

Layers are named as in the PyTorch module, such as "blocks.0.conv1". Layers that cost too much score stay in floating point.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import torch

from syno.base.errors import LoweringError
from syno.measure.onnx_model import OnnxModel
from syno.measure.quantization import sums_in_32_bits
from syno.measure.runtimes import Call, in_onnx_runtime, in_openvino, openvino

Inputs: TypeAlias = Sequence[tuple[torch.Tensor, ...]]


def for_openvino(model: OnnxModel, inputs: Inputs, float_layers: Sequence[str] = ()) -> Any:
    """Return an ONNX model quantized by NNCF, as an `openvino.Model`.

    Args:
        model: the model.
        inputs: calibration inputs, for the ranges of activations.
        float_layers: layers that stay in floats.
    """
    nncf, parameters = openvino("nncf"), openvino("nncf.quantization.advanced_parameters")
    nncf.set_log_level(logging.ERROR)
    # Without VNNI, pairs of products are summed in 16 bits, which overflow: weights of 7 bits lose a third to a tenth as much,
    # and take no longer.
    fix = parameters.OverflowFix.DISABLE if sums_in_32_bits() else parameters.OverflowFix.ENABLE
    nodes = "|".join(map(re.escape, model.nodes_of(float_layers)))
    with _quietly():
        return nncf.quantize(
            openvino().Core().read_model(model.content),
            nncf.Dataset(inputs, model.arrays),
            subset_size=len(inputs),
            ignored_scope=nncf.IgnoredScope(patterns=[f"({nodes})(/.*)?"]) if nodes else None,
            advanced_parameters=parameters.AdvancedQuantizationParameters(overflow_fix=fix),
        )


def for_onnx_runtime(model: OnnxModel, inputs: Inputs, float_layers: Sequence[str] = ()) -> bytes:
    """Return an ONNX model quantized by ONNX Runtime, as a file. For the arguments see `for_openvino`.

    Activations are unsigned, whose kernels are up to three times as fast as those for signed ones.
    """
    import onnx
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # mypy does not look into onnxruntime
        def __init__(self) -> None:
            self._left = map(model.arrays, inputs)

        def get_next(self) -> dict[str, Any] | None:
            return next(self._left, None)

    with TemporaryDirectory(prefix="syno-onnx-") as folder, _quietly():
        prepared, made = Path(folder) / "prepared.onnx", Path(folder) / "quantized.onnx"
        # As its `quant_pre_process` does, whose inference of symbolic shapes fails for maxima; these shapes are fixed.
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(prepared)
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        onnxruntime.InferenceSession(model.content, options, providers=["CPUExecutionProvider"])
        nodes = model.nodes_of(float_layers)
        kept = [node.name for node in onnx.load(prepared).graph.node if node.name.partition("/")[0] in nodes]  # fused, too
        quantize_static(
            prepared,
            made,
            Reader(),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=not sums_in_32_bits(),
            nodes_to_exclude=kept,
        )
        return made.read_bytes()


def in_integers(compiler: str, model: OnnxModel, inputs: Inputs, threads: int, float_layers: Sequence[str] = ()) -> Call:
    """Return an ONNX model in 8-bit integers as a function of tensors, compiled by "openvino-int8" or "onnxruntime-int8".

    For the arguments see `for_openvino` and `in_openvino`. Raises LoweringError if there is no layer that can be quantized.
    """
    if not model.layers:
        raise LoweringError("the network has no convolution or product that can be quantized; take a compiler without int8")
    floats = model.content
    is_mixed = set(model.layers) - set(float_layers)  # otherwise nothing is left to quantize, such as what is between layers
    if compiler == "openvino-int8":
        return in_openvino(model, for_openvino(model, inputs, float_layers) if is_mixed else floats, threads)
    return in_onnx_runtime(model, for_onnx_runtime(model, inputs, float_layers) if is_mixed else floats, threads)


def with_accuracy_control(score: Callable[[tuple[str, ...]], float], layers: Sequence[str], least: float) -> tuple[str, ...]:
    """Return the layers of a quantized network that go back to floating point, so that its score is high enough.

    Layers that gain the most score go first, one after another. NNCF's own control does so for OpenVINO, but does not name the
    layers, which ONNX Runtime and measurements with another batch need.

    Args:
        score: function that returns the score of the network with these layers in floating point; higher is better.
        layers: all layers.
        least: the score that is high enough. If the network cannot reach it, all layers go back to floating point.
    """
    if score(()) >= least:
        return ()
    by_gain = sorted(layers, key=lambda layer: score((layer,)), reverse=True)
    counts = range(1, len(by_gain) + 1)
    return next((floats for count in counts if score(floats := tuple(by_gain[:count])) >= least), tuple(by_gain))


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence progress bars, and advice that ONNX Runtime gives through the root of all logs."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stdout(StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
