"""PyTorch modules as ONNX models, for runtimes that read them, and for files.

>>> model = onnx_model(torch.export.export(torch.nn.ReLU(), (torch.zeros(2, 3),)))
>>> model.inputs, model.outputs
(('x',), ('y',))
"""

from __future__ import annotations

import logging
import warnings
from ast import literal_eval
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from syno.base.errors import LoweringError, UnknownNameError, first_line

if TYPE_CHECKING:
    from onnx import ModelProto

PACKAGES = ("onnx", "onnxscript")  # needed by PyTorch's exporter
PRODUCTS = ("Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul")
SCOPES = "pkg.torch.onnx.name_scopes"  # where PyTorch notes the modules around a node, the outermost first


@dataclass(frozen=True)
class OnnxModel:
    """A module as an ONNX model.

    Attributes:
        proto: the model.
        inputs: names of its inputs, one for each tensor that the module takes; "x" if there is one.
        leaves: the leaves of the module's output: (name, None) for a tensor, such as "y", "logits" or "features_0", and
            ("", value) for a constant.
        structure: the pytree structure of these leaves.
    """

    proto: ModelProto
    inputs: tuple[str, ...]
    leaves: tuple[tuple[str, Any], ...]
    structure: pytree.TreeSpec

    @property
    def content(self) -> bytes:
        """The model as the bytes of an ONNX file."""
        content: bytes = self.proto.SerializeToString()
        return content

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the model's outputs."""
        return tuple(name for name, _ in self.leaves if name)

    def arrays(self, tensors: Iterable[torch.Tensor]) -> dict[str, Any]:
        """Return tensors as inputs for runtimes: arrays that share their memory, by the names of the model's inputs."""
        return {name: x.contiguous().numpy() for name, x in zip(self.inputs, tensors, strict=True)}

    @cached_property
    def layers(self) -> dict[str, list[str]]:
        """For each layer of the module, such as "blocks.0.conv1": the names of its nodes that multiply."""
        weights, found = {weight.name for weight in self.proto.graph.initializer}, dict[str, list[str]]()
        for node in self.proto.graph.node:
            if node.op_type in PRODUCTS:
                # A normalization that was folded into a convolution has given it its own place, but not its weight's.
                weight = next((name for name in node.input if name in weights and name.endswith(".weight")), "")
                scopes = next((pair.value for pair in node.metadata_props if pair.key == SCOPES), "['', '', '']")
                layer = weight.removesuffix(".weight") or literal_eval(scopes)[-2] or node.name
                found.setdefault(layer, []).append(node.name)
        return found

    def nodes_of(self, layers: Iterable[str]) -> list[str]:
        """Return the names of the nodes of these layers. UnknownNameError if there is no such layer."""
        for layer in layers:
            if layer not in self.layers:
                raise UnknownNameError(f'the network has no layer "{layer}" in ONNX; there are: {", ".join(self.layers)}')
        return [node for layer in layers for node in self.layers[layer]]

    @cached_property
    def _returns_tensor(self) -> bool:
        """Whether the module returns a single tensor: building a nested output takes 5 us in each call, which this avoids."""
        return len(self.outputs) == len(self.leaves) == 1 and bool(self.structure.is_leaf())

    def output_of(self, tensors: Iterable[torch.Tensor]) -> Any:
        """Return the module's output from the model's output tensors, in the module's nested structure."""
        left = iter(tensors)
        if self._returns_tensor:
            return next(left)
        return pytree.tree_unflatten([next(left) if name else value for name, value in self.leaves], self.structure)


def onnx_model(
    program: torch.export.ExportedProgram,
    subject: str = "the network",
    dynamic_shapes: tuple[Mapping[int, Any], ...] | None = None,
    *,
    is_single: bool = True,
) -> OnnxModel:
    """Return an exported program as an ONNX model.

    Args:
        program: the program.
        subject: the program's name in error messages.
        dynamic_shapes: names of axes of any length, by input; None: lengths are those of the program.
        is_single: whether a single input is "x"; otherwise inputs have their names in the network.

    Raises LoweringError if PyTorch cannot write it, such as for an operation that ONNX does not have.
    """
    inputs = [
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)
    ]
    inputs = ["x"] if is_single and len(inputs) == 1 else inputs
    leaves = _outputs_of(program, inputs)
    shapes = {} if dynamic_shapes is None else {"dynamic_shapes": dynamic_shapes}
    with without_warnings():
        try:
            made = torch.onnx.export(
                program,
                input_names=inputs,
                output_names=[name for name, _ in leaves if name],
                dynamo=True,
                verbose=False,
                external_data=False,
                **shapes,
            )
        except torch.onnx.OnnxExporterError as error:
            raise LoweringError(f"{subject} cannot be written as ONNX: {first_line(error.__cause__ or error)}") from error
    return OnnxModel(made.model_proto, tuple(inputs), tuple(leaves), program.call_spec.out_spec)


def of_module(module: nn.Module, example: tuple[torch.Tensor, ...]) -> OnnxModel:
    """Return a module in evaluation mode as an ONNX model for inputs of the example's shapes.

    Raises LoweringError if PyTorch cannot export it.
    """
    with torch.no_grad(), without_warnings():
        try:
            program = torch.export.export(module, example)
        except Exception as error:  # there are very many kinds
            raise LoweringError(f"{type(module).__name__} cannot be exported by PyTorch: {first_line(error)}") from error
        return onnx_model(program, type(module).__name__)


def _outputs_of(program: torch.export.ExportedProgram, taken: Sequence[str]) -> list[tuple[str, Any]]:
    """Return (name, value) for each part of a program's output, such as `logits` or `features_0`; "" for non-tensors.

    Args:
        program: the program.
        taken: names of its inputs, which outputs may not have.
    """
    specs = [spec.arg for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    places, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(specs, program.call_spec.out_spec))
    found: list[tuple[str, Any]] = []
    for path, arg in places:
        if not isinstance(arg, TensorArgument):
            found.append(("", arg.value))
            continue
        words = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", "")))) for key in path]
        name = "_".join(words if words and words[0].isidentifier() else ["y", *words])
        while name in taken or (name, None) in found:
            name += "_"
        found.append((name, None))
    return found


@contextmanager
def without_warnings() -> Iterator[None]:
    """Silence PyTorch's warnings about its own internals and packages that are not used here, and the graphs that it prints."""
    logs = [logging.getLogger(name) for name in ("torch.onnx", "torch.fx")]
    levels = [log.level for log in logs]
    with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        for log in logs:
            log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for log, level in zip(logs, levels, strict=True):
                log.setLevel(level)
