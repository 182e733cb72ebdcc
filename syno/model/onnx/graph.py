"""Classes for reading an ONNX graph: constants, values that depend on data, nodes, and the module made of them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import fx, nn

from syno.base.errors import SpecError

if TYPE_CHECKING:
    import onnx

NAME = re.compile(r"\W+")


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
        """Whether the constant's value is the same at both batch sizes."""
        return bool(np.array_equal(*self.arrays))


@dataclass(frozen=True)
class Variable:
    """A value that depends on data: a node of the module's graph.

    Attributes:
        node: the node of the module's graph.
        samples: tensors without data (of PyTorch's device "meta") with the value's shape and type, at each batch size.
    """

    node: fx.Node
    samples: tuple[torch.Tensor, torch.Tensor]

    @property
    def rank(self) -> int:
        """The number of axes of the value."""
        return int(self.samples[0].dim())

    @property
    def shape(self) -> tuple[int, ...]:
        """The value's shape at the first batch size."""
        return tuple(self.samples[0].shape)


@dataclass(frozen=True)
class BatchMultiple:
    """An integer that is proportional to the batch size."""

    factor: int


Value: TypeAlias = Constant | Variable


class UnsupportedNodeError(SpecError):
    """An error for a node that has no translation. The message names its operator."""


class Node:
    """A node of an ONNX graph, with the values of its inputs.

    Args:
        proto: the node in the file.
        inputs: the values of its inputs; None for an optional input that is left out.
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
        """Return the input at index `at`, which must not be left out."""
        value = self.optional(at)
        if value is None:
            raise self.unsupported(f"without its input {at}")
        return value

    def optional(self, at: int) -> Value | None:
        """Return the input at index `at`; None if it is left out."""
        return self.inputs[at] if at < len(self.inputs) else None

    def variable(self, at: int) -> Variable:
        """Return the input at index `at`, which must depend on data."""
        value = self[at]
        if not isinstance(value, Variable):
            raise self.unsupported(f"whose input {at} is a constant")
        return value

    def constant(self, at: int) -> np.ndarray:
        """Return the value of the input at index `at`, which must depend neither on data nor on the batch size."""
        value = self[at]
        if not isinstance(value, Constant) or not value.is_fixed:
            raise self.unsupported(f"whose input {at} is computed from data or from the batch size")
        return value.arrays[0]

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the value of a node's attribute: a number, a list of numbers, or a text; the default if it is not set."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def listed(self, name: str, at: int) -> list[int] | None:
        """Return the integers of attribute `name` (old versions of ONNX) or of input `at` (new versions); None if left out."""
        if name in self.attributes:
            value = self.attributes[name]
            return [int(one) for one in (value if isinstance(value, Sequence) else [value])]
        return None if self.optional(at) is None else [int(one) for one in np.atleast_1d(self.constant(at))]

    def unsupported(self, detail: str = "") -> UnsupportedNodeError:
        """Return the error for a node without a translation; it names the node, and `detail` is what is not supported."""
        name = f' (node "{self.proto.name}")' if self.proto.name else ""
        return UnsupportedNodeError(f"the operator {self.operator}{f' {detail}' if detail else ''} is not known to Syno{name}")


class Reader:
    """Builds a module from an ONNX graph, node by node. Translations of operators call its methods.

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
        """Add an input to the module, with its shape at both batch sizes, and return it as a value."""
        first, second = (torch.empty(tuple(shape), dtype=dtype, device="meta") for shape in shapes)
        return Variable(self.graph.placeholder(_identifier(name)), (first, second))

    def check_sizes(self, value: Value | None, name: str, is_free: bool) -> None:
        """Let the module raise AssertionError if this input has other sizes, for which the module's constants may be wrong."""
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
        """Add a call of a function of tensors to the module, and return its result.

        Args:
            function: a function of PyTorch or Python.
            args, kwargs: the function's arguments: values, Python's numbers, `BatchMultiple`, and lists and tuples of them.
        """
        samples = tuple(function(*self._at(args, run), **self._at(kwargs, run)) for run in (0, 1))
        made = self.graph.call_function(function, self._nodes(args), self._nodes(kwargs))
        return Variable(made, (samples[0], samples[1]))

    def method(self, name: str, value: Value, *args: Any) -> Variable:
        """Add a call of a tensor's method, such as `reshape`, to the module, and return its result."""
        samples = tuple(getattr(self._at(value, run), name)(*self._at(args, run)) for run in (0, 1))
        made = self.graph.call_method(name, (self._nodes(value), *self._nodes(args)))
        return Variable(made, (samples[0], samples[1]))

    def layer(self, make: Callable[[], nn.Module], key: tuple[Any, ...], value: Variable, *others: Value) -> Variable:
        """Add a call of a layer to the module, and return its output. Layers of equal keys are one layer, called several times.

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
        """Return the element at index `at` of a tuple that a function returned."""
        return self.call(operator.getitem, value, at)

    def integers(self, node: Node, at: int) -> list[int | BatchMultiple]:
        """Return the integers of a node's input, such as a shape; they may be multiples of the batch size."""
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
        """Return the shape of a value; sizes may be multiples of the batch size."""
        return [self._integer(node, *pair) for pair in zip(*(sample.shape for sample in value.samples), strict=True)]

    def operand(self, node: Node, at: int) -> Any:
        """Return a node's input as an operand of a tensor function: a constant becomes a number or a weight of the module."""
        value = node[at]
        return value if isinstance(value, Variable) else self.tensor(node, value)

    def tensor(self, node: Node, value: Constant) -> Any:
        """Return a constant as a number, or as a tensor of the module; floating-point weights of the file become trainable."""
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
        """Return the finished module, whose outputs are these values."""
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
        """Return a name for a layer, as near to `wish` as possible, that is no other layer's name nor the prefix of one."""
        parts = [_identifier(part) if not part.isdigit() else part for part in wish.removesuffix(".weight").split(".") if part]
        name, count = ".".join(parts), 1
        names = {*self.modules, *self.tensors}
        while any(f"{name}.".startswith(f"{one}.") or f"{one}.".startswith(f"{name}.") for one in names):
            name, count = f"{'_'.join(parts)}_{count}", count + 1
        return name

    def _at(self, argument: Any, run: int) -> Any:
        """Return an argument as it is in one of the two runs without data, `run` 0 or 1."""
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
        """Return an argument with nodes of the module's graph in place of values."""
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


def _identifier(name: str) -> str:
    """Return a name as an identifier of Python: "model/conv1:0" as "model_conv1_0"."""
    plain = NAME.sub("_", name).strip("_") or "tensor"
    return f"_{plain}" if plain[0].isdigit() else plain
