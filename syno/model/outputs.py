"""Tensors in the outputs of modules: in tuples, mappings, dataclasses, and objects of a user's own classes.

>>> import torch
>>> [len(tensor) for tensor in tensors_in({"logits": torch.zeros(2), "hidden": [torch.zeros(3), None]})]
[2, 3]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from syno.model.inputs import arguments_of, mapped

DEEPEST = 8  # levels of nesting: objects may refer to each other in circles


def tensors_in(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value, in their order.

    Args:
        value: a tensor, a container, or an object, whose attributes are searched; modules and classes are not searched.
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
    """Return an output in which dicts replace objects that are no pytree containers, such as dataclasses.

    A module with such an output can be exported. Arguments and the order of tensors are those of `tensors_in`.
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
    """Convert the network's outputs by `in_plain_containers` within the block."""
    hook = network.register_forward_hook(lambda module, inputs, output: in_plain_containers(output))
    try:
        yield
    finally:
        hook.remove()


class OfTensors(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """Wraps a network so that it takes a flat list of tensors and returns plain containers.

    Args:
        network: the network.
        inputs: an example of the network's inputs; tensors are replaced in each call, all other values are constants.
    """

    def __init__(self, network: nn.Module, inputs: Any) -> None:
        super().__init__()
        self.network = network
        self.places = mapped(lambda tensor: tensor.new_empty(0), inputs)

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Return the network's output for the example inputs with their tensors replaced by these."""
        left = iter(tensors)
        args, kwargs = arguments_of(mapped(lambda _: next(left), self.places))
        return in_plain_containers(self.network(*args, **kwargs))
