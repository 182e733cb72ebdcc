"""Parameters and buffers that share memory: slices of one tensor, a weight and its transpose, tied weights.

PyTorch preserves tied weights that are one parameter object. But if parameters share only parts of their memory, copying,
moving to a device or changing the memory format silently separates them, and another network is trained.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from syno.base.errors import SpecError

Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class _View:
    """A tensor of a network as a view of shared memory: its module's index, its name in the module, and its strided layout."""

    module: int
    name: str
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class _Sharing:
    """A piece of memory that several tensors of a network share, and these tensors as views of it."""

    memory: torch.Tensor  # all of it, as bytes
    views: tuple[_View, ...]


def shared_tensors(network: nn.Module) -> list[list[str]]:
    """Return, for each piece of memory that several parameters and buffers share, the list of their names."""
    names = {number: name for number, (name, _) in enumerate(network.named_modules())}
    return [[f"{names[view.module]}.{view.name}".lstrip(".") for view in sharing.views] for sharing in _sharings(network)]


def overlapping_parameters(network: nn.Module) -> list[str]:
    """Return the names of parameters that share at least one element with another parameter or buffer."""
    tensors = dict((*network.named_buffers(), *network.named_parameters()))
    places: dict[str, torch.Tensor] = {}  # offset of the first byte of each element, by the tensor's name
    uses: dict[int, torch.Tensor] = {}  # number of tensors that use each byte, by the memory's address
    for sharing in _sharings(network):
        memory = sharing.memory.data_ptr()
        uses[memory] = torch.zeros(len(sharing.memory), dtype=torch.uint8)
        for name, tensor in tensors.items():
            if tensor.layout == torch.strided and not tensor.is_meta and tensor.untyped_storage().data_ptr() == memory:
                elements = torch.arange(len(sharing.memory) // tensor.element_size())
                own = elements.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).unique()
                places[name] = own * tensor.element_size()
                uses[memory][places[name]] += 1
    return [
        name
        for name in places
        if isinstance(tensors[name], nn.Parameter)
        and bool((uses[tensors[name].untyped_storage().data_ptr()][places[name]] > 1).any())
    ]


def copy_of(network: Model) -> Model:
    """Return a deep copy of a network, in which tensors share memory as they do in the network.

    Attributes that are results of autograd, such as a normalized weight or a stored feature, are detached in the copy.

    Raises SpecError if an attribute cannot be copied, or is a computed view of a weight, through which the copy would not
    learn.
    """
    sharings = _sharings(network)
    _check_views(network, sharings)
    try:
        with _ComputedAsValues():
            copied = deepcopy(network)
    except Exception as error:  # of the user's own objects
        place, reason = _not_copied(network) or (type(network).__name__, error)
        raise SpecError(
            f"the network cannot be copied, because {place} cannot ({type(reason).__name__}: {reason}); keep it outside of the "
            "network, or give its class a method __deepcopy__"
        ) from error
    _restore(copied, sharings, torch.clone)
    return copied


class _ComputedAsValues(TorchFunctionMode):  # type: ignore[misc]  # mypy does not look into torch
    """Lets `deepcopy` copy non-leaf tensors by value, which PyTorch refuses."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__deepcopy__ and not args[0].is_leaf:
            tensor, memo = args
            if id(tensor) not in memo:
                memo[id(tensor)] = tensor.detach().clone()
            return memo[id(tensor)]
        return func(*args, **(kwargs or {}))


def _check_views(network: nn.Module, sharings: list[_Sharing]) -> None:
    """Raise SpecError if a module stores a computed view of a weight, which may be used in place of the weight."""
    modules, names = list(network.modules()) if sharings else [], [name for name, _ in network.named_modules()]
    for sharing in sharings:
        tensors = {
            f"{names[view.module]}.{view.name}".lstrip("."): _own_tensors(modules[view.module])[view.name]
            for view in sharing.views
        }
        weight = next((name for name, tensor in tensors.items() if tensor.is_leaf and tensor.requires_grad), None)
        computed = next((name for name, tensor in tensors.items() if not tensor.is_leaf), None)
        if weight is not None and computed is not None:
            raise SpecError(
                f"the network keeps {computed}, a view of its weight {weight} that was computed once, with which a copy would "
                "not learn; compute it in forward, or detach() it"
            )


def _not_copied(network: nn.Module) -> tuple[str, Exception] | None:
    """Return the first attribute that cannot be copied by itself, in words, and the exception; None if all can be copied."""
    for path, module in network.named_modules():
        for name, value in vars(module).items():
            if name in ("_modules", "_parameters", "_buffers"):
                continue
            try:
                with _ComputedAsValues():
                    deepcopy(value, {id(one): one for one in network.modules()})
            except Exception as error:
                return f"its attribute {f'{path}.{name}'.lstrip('.')}", error
    return None


def moved_to(network: Model, device: torch.device | str) -> Model:
    """Move a network to a device in place, and return it; tensors that share memory share it on the device, too.

    Raises SpecError if weights have no values because they are on the device "meta".
    """
    empty = [name for name, tensor in (*network.named_parameters(), *network.named_buffers()) if tensor.is_meta]
    if empty:
        raise SpecError(
            f"{len(empty)} weights of {type(network).__name__} have no values ({empty[0]} is on the device meta); load them, as"
            " with load_state_dict(weights, assign=True), or make the network on a real device"
        )
    sharings = _sharings(network)
    network.to(device)
    _restore(network, sharings, lambda memory: memory.to(device))
    return network


def to_channels_last(network: nn.Module) -> None:
    """Convert the weights of two-dimensional convolutions to channels-last format in place, except those that share memory."""
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
        for name, tensor in _own_tensors(module).items():
            if tensor.is_meta or tensor.layout != torch.strided or nn.parameter.is_lazy(tensor):
                continue
            memory = tensor.untyped_storage()
            if memory.nbytes():
                view = _View(number, name, tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
                found.setdefault(memory.data_ptr(), []).append(view)
                memories[memory.data_ptr()] = memory
                tensors.setdefault(memory.data_ptr(), set()).add(id(tensor))
    return [_Sharing(_bytes(memories[place]), tuple(found[place])) for place, ids in tensors.items() if len(ids) > 1]


def _own_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return a module's own parameters, buffers, and tensors that are plain attributes, by name."""
    attributes = {**vars(module), **module._buffers, **module._parameters}
    return {name: tensor for name, tensor in attributes.items() if isinstance(tensor, torch.Tensor)}


def _bytes(memory: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=memory.device).set_(memory)


def _restore(network: nn.Module, sharings: list[_Sharing], made: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Point tensors that shared memory at the memory that `made` returns for it, with their offsets and strides."""
    modules = list(network.modules()) if sharings else []
    for sharing in sharings:
        memory = made(sharing.memory).untyped_storage()
        for view in sharing.views:
            tensor = _own_tensors(modules[view.module])[view.name]
            new = torch.empty(0, dtype=view.dtype, device=memory.device)
            tensor.data = new.set_(memory, view.offset, view.shape, view.stride)
