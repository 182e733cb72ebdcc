"""Reading of an ONNX file: its graph becomes a `torch.fx.GraphModule` with PyTorch's layers, which trains and takes operators.

    model = syno.read_onnx("net.onnx")
    logits = model(pictures)

ONNX graphs compute sizes with tensors (Shape, Gather, Concat, Reshape). Such code could neither be exported nor compiled, so
the reader runs the graph twice without data, at two batch sizes: an integer that is equal in both is a constant, and an integer
that grows in proportion to the batch becomes a multiple of the size of the first input. Nodes that compute with constants only
are evaluated by ONNX's reference implementation.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import fx, nn

from syno.base.errors import DataError, MissingPackageError, SpecError, SynoError
from syno.base.release import pip_install
from syno.model.inputs import first_inputs

if TYPE_CHECKING:
    import onnx

TOLERANCE = 1e-4  # of the largest output: float32 sums in another order differ by up to 2e-5 in deep networks
BATCHES = (2, 3)  # of the two runs without data: no size of a layer is proportionate to them by chance but multiples of both
TESTED_BATCH = 2
RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
NAME = re.compile(r"\W+")

Pair: TypeAlias = tuple[Any, Any]  # a value in the runs with the first and with the second batch size


@dataclass(frozen=True)
class Constant:
    """A value that does not depend on data.

    Attributes:
        arrays: the value at each of the two batch sizes.
        name: the name in the file, if it is one of the file's weights; otherwise "".
    """

    arrays: tuple[np.ndarray, np.ndarray]
    name: str = ""

    @property
    def is_fixed(self) -> bool:
        """Whether the value is the same at both batch sizes."""
        return bool(np.array_equal(*self.arrays))


@dataclass(frozen=True)
class Variable:
    """A value that depends on data: a node of the module's graph.

    Attributes:
        node: the node.
        samples: tensors without data (of PyTorch's device "meta") with the value's shape and type, at each batch size.
    """

    node: fx.Node
    samples: tuple[torch.Tensor, torch.Tensor]

    @property
    def rank(self) -> int:
        """The number of axes."""
        return int(self.samples[0].dim())

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape at the first batch size."""
        return tuple(self.samples[0].shape)


@dataclass(frozen=True)
class BatchMultiple:
    """An integer that is proportionate to the batch size."""

    factor: int


Value: TypeAlias = Constant | Variable


class UnsupportedNodeError(SpecError):
    """A node that has no translation. The message names its operator."""


class Node:
    """A node of an ONNX graph, with its inputs as values.

    Args:
        proto: the node.
        inputs: its inputs; None for an optional input that is left out.
        opset: the version of ONNX's operators.
        bias: for MatMul: the bias that the only node after it adds.
    """

    def __init__(
        self, proto: onnx.NodeProto, inputs: Sequence[Value | None], opset: int, bias: np.ndarray | None = None
    ) -> None:
        from onnx.helper import get_attribute_value

        self.proto, self.inputs, self.opset, self.bias = proto, inputs, opset, bias
        self.operator = f"{proto.domain}.{proto.op_type}" if proto.domain not in ("", "ai.onnx") else proto.op_type
        self.attributes = {one.name: get_attribute_value(one) for one in proto.attribute}

    def __getitem__(self, at: int) -> Value:
        """Return an input that must be there."""
        value = self.optional(at)
        if value is None:
            raise self.unsupported(f"without its input {at}")
        return value

    def optional(self, at: int) -> Value | None:
        """Return an input; None if it is left out."""
        return self.inputs[at] if at < len(self.inputs) else None

    def variable(self, at: int) -> Variable:
        """Return an input that depends on data."""
        value = self[at]
        if not isinstance(value, Variable):
            raise self.unsupported(f"whose input {at} is a constant")
        return value

    def constant(self, at: int) -> np.ndarray:
        """Return an input that depends neither on data nor on the batch size."""
        value = self[at]
        if not isinstance(value, Constant) or not value.is_fixed:
            raise self.unsupported(f"whose input {at} is computed from data or from the batch size")
        return value.arrays[0]

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute: a number, a list of numbers, or a text."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def listed(self, name: str, at: int) -> list[int] | None:
        """Return integers that are an attribute in old versions of ONNX and an input in new ones; None if they are left out."""
        if name in self.attributes:
            value = self.attributes[name]
            return [int(one) for one in (value if isinstance(value, Sequence) else [value])]
        return None if self.optional(at) is None else [int(one) for one in np.atleast_1d(self.constant(at))]

    def unsupported(self, detail: str = "") -> UnsupportedNodeError:
        """Return the error that names the node and what about it has no translation."""
        name = f' (node "{self.proto.name}")' if self.proto.name else ""
        return UnsupportedNodeError(f"the operator {self.operator}{f' {detail}' if detail else ''} is not known to Syno{name}")


class Reader:
    """The module that is made of an ONNX graph, node by node. Translations of operators call its methods.

    Args:
        batches: the batch sizes of the two runs without data; equal sizes make a module for this batch size only.
        batch: the batch size that the file is written for; None if it is free.
    """

    def __init__(self, batches: tuple[int, int], batch: int | None) -> None:
        self.batches, self.batch = batches, batch
        self.graph = fx.Graph()
        self.modules: dict[str, nn.Module] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self.layer_names: dict[Any, str] = {}
        self.batch_node: fx.Node | None = None

    def placeholder(self, name: str, shapes: tuple[Sequence[int], Sequence[int]], dtype: torch.dtype) -> Variable:
        """Return an input of the module."""
        first, second = (torch.empty(tuple(shape), dtype=dtype, device="meta") for shape in shapes)
        return Variable(self.graph.placeholder(_identifier(name)), (first, second))

    def check_sizes(self, value: Value | None, name: str, is_free: bool) -> None:
        """Let the module raise AssertionError for an input of other sizes, for which its constants may be wrong."""
        assert isinstance(value, Variable)
        sizes = value.shape[1:] if is_free else value.shape
        if not value.rank or (is_free and not sizes):
            return
        shape = self.graph.call_function(getattr, (value.node, "shape"))
        part = self.graph.call_function(operator.getitem, (shape, slice(1, None))) if is_free else shape
        is_equal = self.graph.call_function(operator.eq, (part, sizes))
        text = ", ".join(["N"] * is_free + [str(size) for size in sizes])
        self.graph.call_function(torch._assert, (is_equal, f"the input {name} must be of the shape [{text}]"))

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Variable:
        """Return the result of a function of tensors.

        Args:
            function: a function of PyTorch or Python.
            args, kwargs: its arguments: values, Python's numbers, `BatchMultiple`, and lists and tuples of them.
        """
        samples = tuple(function(*self._at(args, run), **self._at(kwargs, run)) for run in (0, 1))
        made = self.graph.call_function(function, self._nodes(args), self._nodes(kwargs))
        return Variable(made, (samples[0], samples[1]))

    def method(self, name: str, value: Value, *args: Any) -> Variable:
        """Return the result of a method of tensors, such as `reshape`."""
        samples = tuple(getattr(self._at(value, run), name)(*self._at(args, run)) for run in (0, 1))
        made = self.graph.call_method(name, (self._nodes(value), *self._nodes(args)))
        return Variable(made, (samples[0], samples[1]))

    def layer(self, make: Callable[[], nn.Module], key: tuple[Any, ...], value: Variable, *others: Value) -> Variable:
        """Return the output of a layer. Layers of equal keys are one layer, called several times.

        Args:
            make: makes the layer, with its weights.
            key: the operator, the weight's name (or a unique name without one) and the settings.
            value, others: the inputs of the layer.
        """
        name = self.layer_names.get(key)
        if name is None:
            name = self.layer_names[key] = self._layer_name(str(key[1]) or str(key[0]))
            self.modules[name] = make().eval()
        layer = self.modules[name]
        weights = {one: tensor.to("meta") for one, tensor in [*layer.named_parameters(), *layer.named_buffers()]}
        inputs = (value, *others)
        samples = tuple(torch.func.functional_call(layer, weights, self._at(inputs, run)) for run in (0, 1))
        return Variable(self.graph.call_module(name, self._nodes(inputs)), (samples[0], samples[1]))

    def part(self, value: Variable, at: int) -> Variable:
        """Return an element of a tuple that a function returned."""
        return self.call(operator.getitem, value, at)

    def integers(self, node: Node, at: int) -> list[int | BatchMultiple]:
        """Return integers of an input, which may depend on the batch size."""
        value = node[at]
        if not isinstance(value, Constant):
            raise node.unsupported(f"whose input {at} is computed from data")
        return [self._integer(node, *pair) for pair in zip(*(array.reshape(-1) for array in value.arrays), strict=True)]

    def _integer(self, node: Node, first: Any, second: Any) -> int | BatchMultiple:
        if first == second:
            return int(first)
        if first * self.batches[1] == second * self.batches[0]:
            return BatchMultiple(int(first) // self.batches[0])
        raise node.unsupported("with a size that is not proportionate to the batch size")

    def shape_of(self, node: Node, value: Variable) -> list[int | BatchMultiple]:
        """Return the shape of a value, whose sizes may be multiples of the batch size."""
        return [self._integer(node, *pair) for pair in zip(*(sample.shape for sample in value.samples), strict=True)]

    def operand(self, node: Node, at: int) -> Any:
        """Return an input as an operand of a function of tensors: constants become numbers or weights of the module."""
        value = node[at]
        return value if isinstance(value, Variable) else self.tensor(node, value)

    def tensor(self, node: Node, value: Constant) -> Any:
        """Return a constant as a number or as a tensor of the module, trainable if the file has it as a weight of floats."""
        if not value.is_fixed:
            raise node.unsupported("with a tensor whose values depend on the batch size")
        array = value.arrays[0]
        if array.ndim == 0 or (array.size == 1 and array.ndim == 1):
            return array.item()
        name = next((one for one, kept in self.tensors.items() if value.name and one == _identifier(value.name)), "")
        if not name:
            name = _identifier(value.name) if value.name else f"constant_{len(self.tensors)}"
            tensor = torch.tensor(array)
            is_weight = bool(value.name) and tensor.is_floating_point()
            self.tensors[name] = nn.Parameter(tensor) if is_weight else tensor
        made = self.graph.get_attr(name)
        meta = self.tensors[name].detach().to("meta")
        return Variable(made, (meta, meta))

    def module(self, output: Any) -> fx.GraphModule:
        """Return the module whose outputs are these values."""
        self.graph.output(self._nodes(output))
        root = nn.Module()
        for name, tensor in self.tensors.items():
            if isinstance(tensor, nn.Parameter):
                root.register_parameter(name, tensor)
            else:
                root.register_buffer(name, tensor)
        for name, layer in self.modules.items():
            parent = root
            for part in name.split(".")[:-1]:
                if not hasattr(parent, part):
                    parent.add_module(part, nn.Module())
                parent = getattr(parent, part)
            parent.add_module(name.split(".")[-1], layer)
        made = fx.GraphModule(root, self.graph, "OnnxNetwork").eval()
        made.graph.eliminate_dead_code()
        made.recompile()
        return made

    def _layer_name(self, wish: str) -> str:
        """Return a name that no layer has, nor begins with, such as "layer1.0.conv1"."""
        parts = [_identifier(part) if not part.isdigit() else part for part in wish.removesuffix(".weight").split(".") if part]
        name, count = ".".join(parts), 1
        names = {*self.modules, *self.tensors}
        while any(f"{name}.".startswith(f"{one}.") or f"{one}.".startswith(f"{name}.") for one in names):
            name, count = f"{'_'.join(parts)}_{count}", count + 1
        return name

    def _at(self, argument: Any, run: int) -> Any:
        """Return an argument in one of the two runs without data."""
        return fx.node.map_aggregate(
            argument,
            lambda one: (
                one.samples[run]
                if isinstance(one, Variable)
                else self.batches[run] * one.factor
                if isinstance(one, BatchMultiple)
                else one
            ),
        )

    def _nodes(self, argument: Any) -> Any:
        """Return an argument as nodes of the graph."""
        return fx.node.map_aggregate(
            argument,
            lambda one: (
                one.node if isinstance(one, Variable) else self._multiple(one.factor) if isinstance(one, BatchMultiple) else one
            ),
        )

    def _multiple(self, factor: int) -> fx.Node:
        if self.batch_node is None:
            first = next(iter(self.graph.nodes))  # the first input
            with self.graph.inserting_after(next(node for node in reversed(self.graph.nodes) if node.op == "placeholder")):
                self.batch_node = self.graph.call_method("size", (first, 0))
        return self.batch_node if factor == 1 else self.graph.call_function(operator.mul, (self.batch_node, factor))


@dataclass(frozen=True)
class _Input:
    """An input of an ONNX graph.

    Attributes:
        name: its name.
        dtype: the type of its elements.
        sizes: the size of each axis; a text is the name of a free axis.
    """

    name: str
    dtype: torch.dtype
    sizes: tuple[int | str, ...]

    def with_sizes(self, sizes: Mapping[str, int]) -> _Input:
        """Return the input with sizes in place of the names of free axes."""
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
    """Sizes for which a file is read.

    Attributes:
        shapes: the shape of each input at the two batch sizes.
        batches: the two batch sizes; equal if the batch is not free.
        batch: the batch size that the file is written for; None if it is free there.
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
    """Return the sizes for a module whose batch is free."""
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
    """Return the sizes for a module of the file's batch size, or of the examples'; 1 if it is free in both."""
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
    """Return the size of an axis that is not the batch: that of the file, or that of the examples where it is free."""
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
    """Return the module of a graph. Raises UnsupportedNodeError with the file and the node."""
    from onnx.numpy_helper import to_array

    from syno.model.onnx.operators import TRANSLATIONS

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
    """Return the bias for the output of each MatMul that only an Add of a vector of the file reads."""
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
    """Return the outputs of a node that computes with constants only; None for others."""
    from onnx.reference import ReferenceEvaluator

    from syno.model.onnx.operators import sizes_of

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
    """Return a model of one node."""
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
    """Raise DataError if outputs differ from those of ONNX Runtime, on the examples or on random numbers."""
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
    """Return the inputs of the calls of ONNX Runtime: one call, or two where only the file has a fixed batch size."""
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


def _identifier(name: str) -> str:
    """Return a name as an identifier of Python: "model/conv1:0" as "model_conv1_0"."""
    plain = NAME.sub("_", name).strip("_") or "tensor"
    return f"_{plain}" if plain[0].isdigit() else plain
