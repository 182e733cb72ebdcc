"""Traces of a network as graphs of `torch.fx`: one of the evaluation mode and one of the training mode, merged if possible.

Parameters and buffers are read where `forward` reads them, random numbers are drawn where it draws them, and flags of the
training mode stay flags. What a graph cannot hold is an error: decisions that depend on values, on random numbers or on what
earlier calls left in attributes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import fx, nn

from syno.base.errors import LoweringError
from syno.model.module import OperatorModule

# Functions without a tensor among their arguments, which torch.fx does not see.
RANDOM = ("rand", "randn", "randint", "randperm", "normal")
FACTORIES = (*RANDOM, "zeros", "ones", "empty", "full", "arange", "linspace", "eye")
# Attributes that a subclass of a torch.nn class can have without a change of the computation.
UNCHANGED = {"train", "eval", "extra_repr", "reset_parameters", *vars(type("Empty", (), {})), "__init__", "__annotations__"}
BATCH = 7  # of the example whose other lengths are numbers: a prime, since lengths that are multiples of it are the batch's


def assign_buffer(target: str, value: torch.Tensor) -> None:
    """Placeholder in a graph for the assignment of `value` to a buffer."""


class Whole(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """A wrapper that calls a network with one input, without optional arguments. Targets in graphs are names in this module."""

    TRAINING = "network.training"

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> Any:
        """Return the outputs of the network."""
        return self.network(x)

    @staticmethod
    def own(target: str) -> str:
        """Return a target's name in the network; "" for the network itself."""
        return target.removeprefix("network").removeprefix(".")

    def is_module(self, target: str) -> bool:
        """Return whether a target is a module, and not a tensor."""
        return isinstance(self._attribute(target), nn.Module)

    def is_constant(self, target: str) -> bool:
        """Return whether a target is a tensor that is neither a parameter nor a buffer."""
        owner, _, own = target.rpartition(".")
        holder = self.get_submodule(owner)
        return own not in holder._parameters and own not in holder._buffers and own not in holder._modules

    def tensor(self, target: str) -> torch.Tensor:
        """Return the network's parameter, buffer or constant with this target name."""
        found = self._attribute(target)
        assert isinstance(found, torch.Tensor)
        return found

    def modes(self, targets: Sequence[str]) -> dict[str, set[bool]]:
        """Return for each module the set of its flags `training` in the network's evaluation mode and training mode."""
        found: dict[str, set[bool]] = {target: set() for target in targets}
        for mode in (False, True):
            self.network.train(mode)
            for target in targets:
                found[target].add(self.get_submodule(target).training)
        return found

    def _attribute(self, target: str) -> Any:
        owner, _, own = target.rpartition(".")
        return getattr(self.get_submodule(owner), own)


def torch_class(module: nn.Module) -> type[nn.Module] | None:
    """Return the torch.nn class whose computation the module does; None if a subclass or the module itself overrides a part."""
    if "forward" in vars(module):
        return None
    own: dict[str, Any] = {}
    for kind in type(module).__mro__:
        if getattr(nn, kind.__name__, None) is kind:
            changed = any(hasattr(kind, name) or isinstance(value, property) for name, value in own.items())
            return None if kind is nn.Module or changed else kind
        own |= {name: value for name, value in vars(kind).items() if name not in UNCHANGED}
    return None


def traced(whole: Whole, example: torch.Tensor | None, *, training: bool) -> fx.Graph:
    """Return the traced graph of the network in one mode.

    Args:
        whole: the network. Constants of its `forward` become attributes of it.
        example: a batch of inputs whose lengths, except the batch size, become numbers in the graph. None: `forward` computes
            lengths.
        training: whether to trace the training mode.

    Raises LoweringError if the network's computation cannot be a graph.
    """
    mode = "training" if training else "evaluation"
    whole.network.train(training)
    before, attributes, buffers = _random_states(), _plain_attributes(whole), _buffers(whole)
    if example is not None:
        example = example[:1].expand(BATCH, *example.shape[1:]).contiguous()
    tracer = _Tracer(example)
    try:
        with tracer.seeing_functions(whole):
            graph = tracer.trace(whole)
    except Exception as error:  # there are very many kinds
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise LoweringError(f"the network's forward depends on values, so it cannot be written as source: {said[0]}") from error
    finally:
        assigned = {name: value for name, value in _buffers(whole).items() if value is not buffers.get(name)}
        for name, tensor in buffers.items():
            owner, _, own = name.rpartition(".")
            whole.get_submodule(owner)._buffers[own] = tensor
    if _random_states() != before:
        raise LoweringError(f"the network's forward decides by random numbers in {mode} mode")
    if changed := sorted(_changed(attributes, _plain_attributes(whole))):
        raise LoweringError(f"the network's forward changes its attribute {changed[0]} in {mode} mode")
    (output,) = (node for node in graph.nodes if node.op == "output")
    with graph.inserting_before(output):
        for name, value in assigned.items():
            if name not in buffers or not isinstance(value, fx.Proxy):
                raise LoweringError(f"the network's forward replaces its buffer {Whole.own(name)} in {mode} mode")
            graph.call_function(assign_buffer, (name, value.node))
    for node in reversed(graph.nodes):
        if not node.users and node.op == "call_method" and node.target in ("size", "dim"):
            graph.erase_node(node)  # a length of several that was not used
    return graph


def _buffers(whole: Whole) -> dict[str, Any]:
    return {
        f"{place}.{name}".lstrip("."): tensor
        for place, module in whole.named_modules()
        for name, tensor in module._buffers.items()
    }


def _changed(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[str]:
    """Yield the names of attributes whose values differ before and after a call."""
    for name in before.keys() | after.keys():
        if name not in before or name not in after or before[name] != after[name]:
            yield name


def _random_states() -> tuple[object, ...]:
    kind, keys, *rest = np.random.get_state(legacy=True)
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), (kind, np.asarray(keys).tobytes(), *rest)


def _plain_attributes(whole: Whole) -> dict[str, object]:
    """Return the modules' attributes that are numbers, flags or texts, which a call of `forward` can change."""
    return {
        f"{Whole.own(place)}.{name}".lstrip("."): value
        for place, module in whole.named_modules()
        for name, value in vars(module).items()
        if value is None or isinstance(value, bool | int | float | str)
    }


class _Proxy(fx.Proxy):  # type: ignore[misc]
    """A value in a traced graph. Its tensor is known if it is a parameter, a buffer, or computed from the example.

    The lengths of a known tensor are numbers, except the length of the batch.
    """

    value: Any = None

    def _known(self) -> torch.Tensor | None:
        return self.value if isinstance(self.value, torch.Tensor) else None

    def _length(self, axis: int) -> Any:
        assert isinstance(self.value, torch.Tensor)
        length = self.value.shape[axis]
        if axis == 0 and not self.tracer.is_constant(self.node) and length % BATCH == 0:
            return self.tracer.create_proxy("call_method", "size", (self, 0), {})
        return length

    @property
    def shape(self) -> Any:
        """The lengths of the value's axes."""
        if (known := self._known()) is None:
            return fx.proxy.Attribute(self, "shape")
        return tuple(self._length(axis) for axis in range(known.dim()))

    def size(self, dim: int | None = None) -> Any:
        """Return the lengths of the value's axes, or the length of the axis `dim`."""
        if (known := self._known()) is None:
            return self.tracer.create_proxy("call_method", "size", (self,) if dim is None else (self, dim), {})
        return self.shape if dim is None else self._length(dim % known.dim())

    def dim(self) -> Any:
        """Return the number of the value's axes."""
        known = self._known()
        return self.tracer.create_proxy("call_method", "dim", (self,), {}) if known is None else known.dim()

    @property
    def ndim(self) -> Any:
        """The number of the value's axes."""
        known = self._known()
        return fx.proxy.Attribute(self, "ndim") if known is None else known.dim()


class _Computed(_Proxy):
    """A value whose tensor is known from the example, so that it can be iterated over."""

    def __iter__(self) -> Any:
        return iter([self[place] for place in range(len(self.value))])


def _value(argument: Any) -> Any:
    """Return the tensor or number behind an argument of a node; other arguments as they are."""
    if isinstance(argument, fx.proxy.Attribute):
        return getattr(argument.root.value, argument.attr)
    return argument.value if isinstance(argument, _Proxy) else argument


class _Tracer(fx.Tracer):  # type: ignore[misc]
    """A tracer that keeps calls of torch.nn modules and of operators as nodes, and reads buffers like parameters.

    Args:
        example: the batch of inputs of `traced`, or None.
    """

    proxy_buffer_attributes = True

    def __init__(self, example: torch.Tensor | None) -> None:
        super().__init__()
        self.example = example
        self.is_computing = False
        self.constants: set[fx.Node] = set()  # parameters and buffers

    def is_constant(self, node: fx.Node) -> bool:
        """Return whether a node reads a parameter or a buffer, which has no batch axis."""
        return node in self.constants

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether the module becomes one call in the graph, instead of being traced."""
        return isinstance(m, OperatorModule) or (torch_class(m) is not None and not isinstance(m, nn.Sequential))

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """Return the proxy of a node."""
        return _Proxy(node, self) if self.example is None else _Computed(node, self)

    def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, *rest: Any, **options: Any) -> fx.Proxy:
        """Return the proxy of a new node; with an example, the node's tensor is computed."""
        proxy = super().create_proxy(kind, target, args, kwargs, *rest, **options)
        if kind == "get_attr":
            self.constants.add(proxy.node)
        if kind == "get_attr" or self.example is not None:
            proxy.value = self._computed(kind, target, args, kwargs)
        return proxy

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Return an attribute of a module; parameters and buffers as proxies in the graph."""
        return attr_val if self.is_computing else super().getattr(attr, attr_val, parameter_proxy_cache)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Add a call of a module to the graph; while the example is computed, call it with tensors."""
        return forward(*args, **kwargs) if self.is_computing else super().call_module(m, forward, args, kwargs)

    def _computed(self, kind: str, target: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of a node's operation, computed with the example's tensors."""
        args, kwargs = (fx.node.map_aggregate(one, _value) for one in (args, kwargs))
        self.is_computing = True
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                if kind == "placeholder":
                    return self.example
                if kind == "get_attr":
                    return self.root._attribute(target)
                if kind == "call_function":
                    return target(*args, **kwargs)
                if kind == "call_method":
                    return getattr(args[0], target)(*args[1:], **kwargs)
                return self.root.get_submodule(target)(*args, **kwargs) if kind == "call_module" else None
        finally:
            self.is_computing = False

    @contextmanager
    def seeing_functions(self, whole: Whole) -> Iterator[None]:
        """Trace, within the block, the functions of torch that make tensors from lengths or draw random numbers."""
        with ExitStack() as patches:
            for name in FACTORIES:
                patches.enter_context(patch.object(torch, name, self._seen(getattr(torch, name), name in RANDOM)))
            for names in _namespaces(whole):  # Python takes nothing but a number from `__len__`
                if "len" not in names:
                    names["len"] = _length
                    patches.callback(names.pop, "len")
            yield

    def _seen(self, function: Callable[..., Any], is_random: bool) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            given: list[Any] = []
            fx.node.map_aggregate((args, kwargs), given.append)
            is_in_graph = is_random or any(isinstance(one, fx.Proxy) for one in given)
            if self.is_computing or not is_in_graph:
                return function(*args, **kwargs)
            return self.create_proxy("call_function", function, args, kwargs)

        return call


def _length(value: Any) -> Any:
    """Return the length of the first axis of a graph value, or `len` of any other object."""
    return value.size(0) if isinstance(value, _Proxy) else len(value)


def _namespaces(whole: Whole) -> list[dict[str, Any]]:
    """Return the dictionaries of global names of the functions `forward` of all modules."""
    found = {}
    for module in whole.network.modules():
        for kind in type(module).__mro__:
            names = getattr(vars(kind).get("forward"), "__globals__", None)
            if names is not None and not kind.__module__.startswith("torch."):
                found[id(names)] = names
    return list(found.values())


def merged(whole: Whole, evaluation: fx.Graph, training: fx.Graph) -> fx.Graph | None:
    """Return one graph of both modes, which reads the network's `training` flag where they differ; None if more differs."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    same: dict[fx.Node, fx.Node] = {}
    flag: list[fx.Node] = []

    def both(first: Any, second: Any) -> Any:
        """Return the common argument of a pair of nodes. Raises _DiffersError if the arguments differ by more than a flag."""
        if isinstance(first, fx.Node):
            if not isinstance(second, fx.Node) or same.get(first) is not second:
                raise _DiffersError
            return copies[first]
        if type(first) is not type(second):
            raise _DiffersError
        if isinstance(first, Mapping):
            if list(first) != list(second):
                raise _DiffersError
            return {name: both(value, second[name]) for name, value in first.items()}
        if isinstance(first, tuple | list):
            if len(first) != len(second):
                raise _DiffersError
            pairs = [both(*pair) for pair in zip(first, second, strict=True)]
            return type(first)(*pairs) if hasattr(first, "_fields") else type(first)(pairs)
        if isinstance(first, slice):
            return slice(*(both(getattr(first, end), getattr(second, end)) for end in ("start", "stop", "step")))
        if first is False and second is True:
            if not flag:
                flag.append(graph.get_attr(Whole.TRAINING))
            return flag[0]
        if repr(first) != repr(second):
            raise _DiffersError
        return first

    nodes = list(evaluation.nodes), list(training.nodes)
    if len(nodes[0]) != len(nodes[1]):
        return None
    try:
        for one, other in zip(*nodes, strict=True):
            if one.op != other.op or not _is_same_target(whole, one, other):
                return None
            args, kwargs = both(one.args, other.args), both(one.kwargs, other.kwargs)
            copies[one] = graph.create_node(one.op, one.target, args, kwargs, name=one.name)
            same[one] = other
    except _DiffersError:
        return None
    return graph


class _DiffersError(Exception):
    """The arguments of two nodes differ by more than a flag."""


def _is_same_target(whole: Whole, first: fx.Node, second: fx.Node) -> bool:
    if first.target == second.target:
        return True
    if first.op != "get_attr" or not (whole.is_constant(first.target) and whole.is_constant(second.target)):
        return False
    return is_same_tensor(whole.tensor(first.target), whole.tensor(second.target))


def is_same_tensor(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two tensors have the same number format, shape and elements."""
    return bool(first.dtype == second.dtype and torch.equal(first, second))
