"""The tensors in what modules take and return: in tuples, mappings, dataclasses, and objects of a user's own.

>>> import torch
>>> [len(tensor) for tensor in tensors_in({"logits": torch.zeros(2), "hidden": [torch.zeros(3), None]})]
[2, 3]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils import _pytree as pytree

from syno.model.inputs import call, mapped

# ---- shared memory ---------------------------------------------------------------------------------------------------

# Parameters and buffers that share memory: slices of one tensor, a weight and its transpose, tied weights.
#
# PyTorch keeps parameters that are one object, but copies, devices and memory formats give parameters that share memory partly
# memory of their own, without a word: what is trained then is another network.

Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class _View:
    """A tensor of a network, by the number of its module and its name there, and its place in memory."""

    module: int
    name: str
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class _Sharing:
    """Different tensors of a network in one piece of memory."""

    memory: torch.Tensor  # all of it, as bytes
    views: tuple[_View, ...]


def shared_tensors(network: nn.Module) -> list[list[str]]:
    """Return the names of parameters and buffers that are different tensors in the same memory, by the memory."""
    names = {number: name for number, (name, _) in enumerate(network.named_modules())}
    return [[f"{names[view.module]}.{view.name}".lstrip(".") for view in sharing.views] for sharing in _sharings(network)]


def copy_of(network: Model) -> Model:
    """Return a copy of a network, in which tensors share memory as they do in the network."""
    copied = deepcopy(network)
    _restore(copied, _sharings(network), torch.clone)
    return copied


def moved_to(network: Model, device: torch.device | str) -> Model:
    """Move a network to a device, and return it; tensors that share memory still do."""
    sharings = _sharings(network)
    network.to(device)
    _restore(network, sharings, lambda memory: memory.to(device))
    return network


def to_channels_last(network: nn.Module) -> None:
    """Give weights of two-dimensional convolutions the memory format of channels-last data, except those that share memory."""
    modules = list(network.modules())
    keep = {id(modules[view.module]) for sharing in _sharings(network) for view in sharing.views}
    for module in modules:
        if isinstance(module, nn.Conv2d) and id(module) not in keep:
            module.to(memory_format=torch.channels_last)


def _sharings(network: nn.Module) -> list[_Sharing]:
    found: dict[int, list[_View]] = {}
    memories: dict[int, torch.UntypedStorage] = {}
    tensors: dict[int, set[int]] = {}
    for number, module in enumerate(network.modules()):
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is None or tensor.is_meta or tensor.layout != torch.strided or nn.parameter.is_lazy(tensor):
                continue
            memory = tensor.untyped_storage()
            if memory.nbytes():
                view = _View(number, name, tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
                found.setdefault(memory.data_ptr(), []).append(view)
                memories[memory.data_ptr()] = memory
                tensors.setdefault(memory.data_ptr(), set()).add(id(tensor))
    return [_Sharing(_bytes(memories[place]), tuple(found[place])) for place, ids in tensors.items() if len(ids) > 1]


def _bytes(memory: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=memory.device).set_(memory)


def _restore(network: nn.Module, sharings: list[_Sharing], made: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Let tensors that shared memory share the memory that `made` returns in its place."""
    modules = list(network.modules()) if sharings else []
    for sharing in sharings:
        memory = made(sharing.memory).untyped_storage()
        for view in sharing.views:
            module = modules[view.module]
            tensor = module._parameters.get(view.name)
            tensor = module._buffers[view.name] if tensor is None else tensor
            assert tensor is not None
            new = torch.empty(0, dtype=view.dtype, device=memory.device)
            tensor.data = new.set_(memory, view.offset, view.shape, view.stride)


# ---- tensors in inputs and outputs -----------------------------------------------------------------------------------

DEEPEST = 8  # levels of nesting: objects may hold each other


def tensors_in(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value, in their order.

    Args:
        value: a tensor, a container, or an object, whose attributes are searched. Modules and classes are not.
        depth: the level of nesting of `value`, up to `DEEPEST`.
    """
    if isinstance(value, torch.Tensor):
        yield value
        return
    if depth > DEEPEST or isinstance(value, str | bytes | nn.Module | type):
        return
    parts: Any = ()
    if isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, Sequence | Set):
        parts = value
    elif is_dataclass(value):  # which may have slots
        parts = [getattr(value, field.name) for field in fields(value)]
    elif hasattr(value, "__dict__"):
        parts = list(vars(value).values())
    for part in parts:
        yield from tensors_in(part, depth + 1)


def in_plain_containers(value: Any, depth: int = 0) -> Any:
    """Return an output with dicts in place of objects that PyTorch does not know as containers, such as dataclasses.

    A module with such outputs can be exported. Arguments, and the order of tensors, are those of `tensors_in`.
    """
    leaves, structure = pytree.tree_flatten(value)
    return pytree.tree_unflatten([_in_dict(leaf, depth) for leaf in leaves], structure)


def _in_dict(leaf: Any, depth: int) -> Any:
    if isinstance(leaf, torch.Tensor) or depth > DEEPEST or next(tensors_in(leaf), None) is None:
        return leaf
    if isinstance(leaf, Mapping):
        parts = dict(leaf)
    elif is_dataclass(leaf):  # which may have slots
        parts = {field.name: getattr(leaf, field.name) for field in fields(leaf)}
    else:
        parts = dict(enumerate(leaf)) if isinstance(leaf, Sequence | Set) else dict(vars(leaf))
    return {str(name): in_plain_containers(part, depth + 1) for name, part in parts.items()}


@contextmanager
def plain_outputs(network: nn.Module) -> Iterator[None]:
    """Let a network return plain containers in the block."""
    hook = network.register_forward_hook(lambda module, inputs, output: in_plain_containers(output))
    try:
        yield
    finally:
        hook.remove()


class OfTensors(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """A network as a module that takes the tensors in its inputs, in their order, and returns plain containers.

    Args:
        network: the network.
        inputs: its inputs; what is no tensor in them is the same in every call.
    """

    def __init__(self, network: nn.Module, inputs: Any) -> None:
        super().__init__()
        self.network = network
        self.places = mapped(lambda one: one.new_empty(0), inputs)

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Return the network's output for inputs with these tensors."""
        left = iter(tensors)
        return in_plain_containers(call(self.network, mapped(lambda _: next(left), self.places)))
