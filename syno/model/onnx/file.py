"""Reading of an ONNX file: its graph becomes a `torch.fx.GraphModule` with PyTorch's layers, which trains and takes operators.

    model = syno.read_onnx("net.onnx")
    logits = model(pictures)

ONNX graphs compute sizes with tensors (Shape, Gather, Concat, Reshape). Such code could neither be exported nor compiled, so
the reader runs the graph twice without data, at two batch sizes: an integer that is equal in both is a constant, and an integer
that grows in proportion to the batch becomes a multiple of the size of the first input. Nodes that compute with constants only
are evaluated by ONNX's reference implementation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import fx, nn

from syno.base.errors import DataError, MissingPackageError, SpecError, SynoError
from syno.base.release import pip_install
from syno.model.inputs import first_inputs
from syno.model.onnx.graph import Constant, Node, Reader, UnsupportedNodeError, Value, Variable
from syno.model.onnx.operators import TRANSLATIONS, sizes_of

if TYPE_CHECKING:
    import onnx

TOLERANCE = 1e-4  # of the largest output: float32 sums in another order differ by up to 2e-5 in deep networks
BATCHES = (2, 3)  # of the two runs without data: no size of a layer is proportionate to them by chance
RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")


@dataclass(frozen=True)
class _Input:
    """An input of an ONNX graph.

    Attributes:
        name: the input's name.
        dtype: the type of its elements.
        sizes: the size of each axis: a number, or the name of a free axis.
    """

    name: str
    dtype: torch.dtype
    sizes: tuple[int | str, ...]

    def with_sizes(self, sizes: Mapping[str, int]) -> _Input:
        """Return the input with numbers in place of the names of free axes."""
        return replace(self, sizes=tuple(sizes.get(one, one) if isinstance(one, str) else one for one in self.sizes))


def read_onnx(file: str | Path, example_inputs: Any = None, sizes: Mapping[str, int] | None = None) -> fx.GraphModule:
    """Return the network in an ONNX file, with its weights, in evaluation mode.

    Convolutions, linear layers, normalizations, embeddings and recurrent layers are PyTorch's layers, so that the network can
    be trained and its layers replaced. Its outputs are compared with those of ONNX Runtime. It takes its inputs by position, in
    the file's order, and returns a tensor, or a tuple of several. The first axis of the first input is the batch: its size is
    free if the graph computes the same for each sample, also where the file has a fixed one.

    Args:
        file: the file. Weights may lie in files beside it.
        example_inputs: tensors that the network is called with: a tensor, a tuple or a dict in the order of the inputs.
            Needed only where sizes besides the batch are free; the network is for these sizes.
        sizes: the sizes of free axes by their names in the file, as in {"height": 224}, in place of example inputs.

    Raises:
        MissingPackageError: onnx or onnxruntime is not installed.
        DataError: the file cannot be read, or its network computes something else than ONNX Runtime.
        SpecError: a size is missing, or the network has an operator that is not known to Syno; the message names it.

    >>> import syno
    >>> syno.read_onnx("missing.onnx")
    Traceback (most recent call last):
    ...
    syno.base.errors.DataError: missing.onnx cannot be read as ONNX: No such file or directory
    """
    path = Path(file)
    for package in ("onnx", "onnxruntime"):
        if find_spec(package) is None:
            raise MissingPackageError(f"ONNX files take {package}, which is not installed: {pip_install('onnx')}")
    model = _load(path)
    inputs = _inputs(path, model)
    inputs = tuple(one.with_sizes(sizes or {}) for one in inputs)
    examples = None if example_inputs is None else first_inputs(example_inputs)
    if examples is not None and len(examples) != len(inputs):
        names = ", ".join(one.name for one in inputs)
        raise SpecError(f"{path} takes {len(inputs)} inputs ({names}), and example_inputs has {len(examples)} tensors")
    attempts = [_free(path, inputs, examples), _fixed(path, inputs, examples)]
    for attempt in attempts:
        try:
            network = _translated(path, model, inputs, attempt)
            _compare(path, model, network, inputs, attempt, examples)
            return network
        except SynoError:  # a graph that mixes samples, or is written for its batch size, may still be read for this size
            if attempt is attempts[-1]:
                raise
    raise AssertionError("the last attempt returns or raises")


def network(*, file: str, sizes: Mapping[str, int] | None = None) -> nn.Module:
    """Return the network in an ONNX file: the function behind `workload: {onnx: FILE}`."""
    return read_onnx(file, sizes=sizes)


@dataclass(frozen=True)
class _Attempt:
    """The sizes of inputs for which a file is read: an attempt, since not every graph takes a free batch size.

    Attributes:
        shapes: the shape of each input at the two batch sizes.
        batches: the two batch sizes; equal if the batch is not free.
        batch: the batch size that the file is written for; None if it is free in the file.
    """

    shapes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    batches: tuple[int, int]
    batch: int | None


def _load(path: Path) -> onnx.ModelProto:
    import onnx
    import onnx.inliner

    try:
        model = onnx.load(str(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read as ONNX: {error.strerror or error}") from error
    except Exception as error:  # of protobuf
        raise DataError(f"{path} cannot be read as ONNX: {' '.join(str(error).split())[:200]}") from error
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def _inputs(path: Path, model: onnx.ModelProto) -> tuple[_Input, ...]:
    from onnx.helper import tensor_dtype_to_np_dtype

    weights = {one.name for one in model.graph.initializer}
    found = []
    for one in model.graph.input:
        if one.name in weights:
            continue
        kind = one.type.tensor_type
        if not kind.HasField("shape") or not kind.elem_type:
            raise SpecError(f"{path} has the input {one.name}, which is no tensor with a shape; such networks cannot be read")
        dtype = torch.from_numpy(np.empty(0, tensor_dtype_to_np_dtype(kind.elem_type))).dtype
        sizes = tuple(
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{one.name}_{axis}"
            for axis, dim in enumerate(kind.shape.dim)
        )
        found.append(_Input(one.name, dtype, sizes))
    if not found:
        raise SpecError(f"{path} has no inputs")
    return tuple(found)


def _free(path: Path, inputs: Sequence[_Input], examples: Sequence[torch.Tensor] | None) -> _Attempt:
    """Return the input sizes for a module that takes any batch size."""
    batch = inputs[0].sizes[0] if inputs[0].sizes else 1
    shapes = []
    for at, one in enumerate(inputs):
        pair = []
        for size in BATCHES:
            pair.append(
                tuple(
                    size
                    if length == batch and (axis == 0 or isinstance(batch, str))
                    else _size(path, inputs, examples, at, axis)
                    for axis, length in enumerate(one.sizes)
                )
            )
        shapes.append((pair[0], pair[1]))
    return _Attempt(tuple(shapes), BATCHES, batch if isinstance(batch, int) else None)


def _fixed(path: Path, inputs: Sequence[_Input], examples: Sequence[torch.Tensor] | None) -> _Attempt:
    """Return the input sizes for a module with one batch size: the file's, or the examples'; 1 if it is free in both."""
    batch = inputs[0].sizes[0] if inputs[0].sizes else 1
    size = batch if isinstance(batch, int) else 1 if examples is None else len(examples[0])
    shapes = []
    for at, one in enumerate(inputs):
        shape = tuple(
            size if length == batch and isinstance(batch, str) else _size(path, inputs, examples, at, axis)
            for axis, length in enumerate(one.sizes)
        )
        shapes.append((shape, shape))
    return _Attempt(tuple(shapes), (size, size), size)


def _size(path: Path, inputs: Sequence[_Input], examples: Sequence[torch.Tensor] | None, at: int, axis: int) -> int:
    """Return the size of an axis other than the batch: the file's size, or the examples' where it is free in the file."""
    one = inputs[at]
    length = one.sizes[axis]
    if isinstance(length, int):
        return length
    if examples is None:
        raise SpecError(
            f'the axis {axis} ("{length}") of the input {one.name} of {path} is free; give its size, as in '
            f'sizes={{"{length}": 224}} (workload: model_settings), or example_inputs'
        )
    if examples[at].dim() != len(one.sizes):
        raise SpecError(f"the input {one.name} of {path} has {len(one.sizes)} axes, and its example {examples[at].dim()}")
    return int(examples[at].shape[axis])


def _translated(path: Path, model: onnx.ModelProto, inputs: Sequence[_Input], attempt: _Attempt) -> fx.GraphModule:
    """Return the PyTorch module of an ONNX graph. Raises UnsupportedNodeError with the file and the node."""
    from onnx.numpy_helper import to_array

    reader, opset = (
        Reader(attempt.batches, attempt.batch),
        max(one.version for one in model.opset_import if one.domain in ("", "ai.onnx")),
    )
    biases = _biases(model)
    values: dict[str, Value | None] = {"": None}
    for one in model.graph.initializer:
        array = to_array(one)
        values[one.name] = Constant((array, array), one.name)
    for one, shapes in zip(inputs, attempt.shapes, strict=True):
        values[one.name] = reader.placeholder(one.name, shapes, one.dtype)
    for one, shapes in zip(inputs, attempt.shapes, strict=True):
        reader.check_sizes(values[one.name], one.name, is_free=shapes[0] != shapes[1])
    for proto in model.graph.node:
        if (linear := next((name for name in proto.input if name in biases), "")) and proto.op_type == "Add":
            values[proto.output[0]] = values[linear]
            continue
        node = Node(proto, [values[name] for name in proto.input], opset, biases.get(proto.output[0]))
        try:
            outputs: Any = _evaluated(model, node) or TRANSLATIONS[node.operator](reader, node)
        except KeyError as error:
            if node.operator in TRANSLATIONS:
                raise
            raise _named(path, node.unsupported()) from error
        except UnsupportedNodeError as error:
            raise _named(path, error) from error
        except Exception as error:  # of PyTorch, for shapes that do not fit
            raise _named(path, node.unsupported(f"here: {' '.join(str(error).split())[:200]}")) from error
        if not isinstance(outputs, tuple):
            outputs = (outputs,)
        values.update(zip((name for name in proto.output), outputs, strict=False))
    results = [values[one.name] for one in model.graph.output]
    if constant := [
        one.name for one, value in zip(model.graph.output, results, strict=True) if not isinstance(value, Variable)
    ]:
        raise SpecError(f"the output {constant[0]} of {path} is a constant; such networks cannot be read")
    return reader.module(results[0] if len(results) == 1 else tuple(results))


def _biases(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return the biases of MatMul nodes whose output only an Add of a constant vector reads, by the output's name."""
    from onnx.numpy_helper import to_array

    weights = {one.name: one for one in model.graph.initializer}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    outputs, found = {one.name for one in model.graph.output}, {}
    for node in model.graph.node:
        if node.op_type != "MatMul" or node.input[1] not in weights or node.input[0] in weights or node.output[0] in outputs:
            continue
        after = readers.get(node.output[0], [])
        if len(after) != 1 or after[0].op_type != "Add":
            continue
        other = next((name for name in after[0].input if name != node.output[0]), "")
        sizes = weights[node.input[1]].dims
        if other in weights and len(sizes) == 2 and list(weights[other].dims) == [sizes[1]]:
            found[node.output[0]] = to_array(weights[other])
    return found


def _named(path: Path, error: UnsupportedNodeError) -> UnsupportedNodeError:
    return UnsupportedNodeError(f"{path} cannot be read: {error}")


def _evaluated(model: onnx.ModelProto, node: Node) -> tuple[Constant, ...] | None:
    """Return the outputs of a node that computes with constants only; None for other nodes."""
    from onnx.reference import ReferenceEvaluator

    proto = node.proto
    if proto.op_type in RANDOM:
        raise node.unsupported("which is random")
    if proto.op_type in ("Shape", "Size") and isinstance(node.inputs[0], Variable):
        return (Constant(sizes_of(node, node.inputs[0])),)
    if any(isinstance(value, Variable) for value in node.inputs):
        return None
    constants = {name: value for name, value in zip(proto.input, node.inputs, strict=True) if isinstance(value, Constant)}
    evaluator = ReferenceEvaluator(_model_of(model, proto, constants))
    runs = [evaluator.run(None, {name: one.arrays[run] for name, one in constants.items()}) for run in (0, 1)]
    return tuple(Constant((np.asarray(first), np.asarray(second))) for first, second in zip(*runs, strict=True))


def _model_of(model: onnx.ModelProto, proto: onnx.NodeProto, constants: Mapping[str, Constant]) -> onnx.ModelProto:
    """Return an ONNX model that consists of one node, for evaluating it."""
    from onnx import helper

    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(one.arrays[0].dtype), None)
        for name, one in constants.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in proto.output]
    graph = helper.make_graph([proto], "node", inputs, outputs)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def _compare(
    path: Path,
    model: onnx.ModelProto,
    network: nn.Module,
    inputs: Sequence[_Input],
    attempt: _Attempt,
    examples: Sequence[torch.Tensor] | None,
) -> None:
    """Raise DataError if the module's outputs differ from those of ONNX Runtime, on the examples or on random numbers."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of ONNX Runtime's own kinds
        raise DataError(f"{path} is no network for ONNX Runtime: {' '.join(str(error).split())[:200]}") from error
    names = [one.name for one in model.graph.output]
    calls = _test_inputs(inputs, attempt, examples)
    expected = [session.run(names, {one.name: part.numpy() for one, part in zip(inputs, call, strict=True)}) for call in calls]
    together = [
        torch.cat(parts) if shapes[0] != shapes[1] and len(calls) > 1 else parts[0]
        for parts, shapes in zip(zip(*calls, strict=True), attempt.shapes, strict=True)
    ]
    with torch.no_grad():
        output = network(*together)
    for name, own, theirs in zip(
        names, output if isinstance(output, tuple) else (output,), zip(*expected, strict=True), strict=True
    ):
        other = np.concatenate(theirs) if len(calls) > 1 else theirs[0]
        if tuple(own.shape) != other.shape:
            raise DataError(
                f"{path} was read wrongly: its output {name} is {list(own.shape)}, in ONNX Runtime {list(other.shape)}"
            )
        difference = np.abs(own.double().numpy() - other.astype(np.float64)).max(initial=0.0)
        allowed = TOLERANCE * max(1.0, np.abs(other.astype(np.float64)).max(initial=0.0))
        if not difference <= allowed:
            raise DataError(f"{path} was read wrongly: its output {name} differs by {difference:.2g} from ONNX Runtime's")


def _test_inputs(
    inputs: Sequence[_Input], attempt: _Attempt, examples: Sequence[torch.Tensor] | None
) -> list[list[torch.Tensor]]:
    """Return the inputs for the comparison with ONNX Runtime: of one call, or two where only the file fixes the batch size."""
    is_free = attempt.batches[0] != attempt.batches[1]
    generator = torch.Generator().manual_seed(0)
    calls: list[list[torch.Tensor]] = []
    for _ in range(2 if is_free and attempt.batch is not None else 1):
        tensors = []
        for at, (one, shapes) in enumerate(zip(inputs, attempt.shapes, strict=True)):
            shape = list(shapes[0])
            if is_free and attempt.batch is not None:
                shape = [attempt.batch if first != second else first for first, second in zip(*shapes, strict=True)]
            if calls and shapes[0] == shapes[1]:  # it has no axis of the batch, so that all calls share it
                tensors.append(calls[0][at])
            elif examples is not None and list(examples[at].shape) == shape:
                tensors.append(examples[at].detach().cpu().to(one.dtype))
            elif one.dtype.is_floating_point:
                tensors.append(torch.randn(shape, generator=generator).to(one.dtype))
            else:  # tokens, of a vocabulary that is not known
                tensors.append(torch.randint(0, 2, shape, generator=generator).to(one.dtype))
        calls.append(tensors)
    return calls
