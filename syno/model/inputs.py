"""The inputs of a network: one tensor, a tuple of positional arguments, or a dict of keyword arguments, nested as they may be.

>>> import torch
>>> call(lambda x, *, mask: x * mask, {"x": torch.ones(2), "mask": torch.zeros(2)})
tensor([0., 0.])
>>> len_of_batch((torch.zeros(3, 4), {"mask": torch.zeros(3)}))
3
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, TypeAlias

import torch
from torch.utils import _pytree as pytree

Inputs: TypeAlias = torch.Tensor | tuple[Any, ...] | Mapping[str, Any]


def call(network: Callable[..., Any], inputs: Any) -> Any:
    """Call a network: a tuple has its arguments, a dict its keyword arguments, and anything else is its only argument.

    The network gets copies of the tensors, as it may change what it gets in place.
    """
    args, kwargs = arguments_of(copied(inputs))
    return network(*args, **kwargs)


def copied(inputs: Any) -> Any:
    """Return inputs of the same structure with copies of their tensors, which nobody else holds.

    Objects of a user's own that have tensors as attributes are copied, too.
    """
    return pytree.tree_map(_copied, _plain(inputs))


def _copied(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.clone()
    own = getattr(leaf, "__dict__", None)
    if not own or isinstance(leaf, torch.nn.Module | type) or callable(leaf):
        return leaf
    changed = {name: copied(value) for name, value in own.items() if first_inputs(value)}
    if not changed:
        return leaf
    made = copy(leaf)
    made.__dict__.update(changed)
    return made


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments by position and by name."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}


def first_inputs(inputs: Any) -> list[torch.Tensor]:
    """Return the tensors in inputs, in their order."""
    return [leaf for leaf in pytree.tree_leaves(_plain(inputs)) if isinstance(leaf, torch.Tensor)]


def mapped(function: Callable[[torch.Tensor], Any], inputs: Any) -> Any:
    """Return inputs of the same structure, with what a function returns for each tensor in its place."""
    return pytree.tree_map_only(torch.Tensor, function, _plain(inputs))


def len_of_batch(inputs: Any) -> int:
    """Return the length of the first tensor along its first axis, which is the number of samples; 1 if it has no axis."""
    found = next((len(tensor) for tensor in first_inputs(inputs) if tensor.dim()), 1)
    return int(found)


def of_batch(inputs: Any, count: int) -> Any:
    """Return inputs of so many samples: the first ones, again and again where there are fewer.

    Tensors without the axis of the batch stay as they are, such as one number for all samples.
    """
    batch = len_of_batch(inputs)
    times = -(-count // min(batch, count))
    return mapped(lambda one: torch.cat([one[:count]] * times)[:count] if one.dim() and len(one) == batch else one, inputs)


def shapes_in_words(inputs: Any) -> str:
    """Return the shapes of the tensors in inputs, as a message about a call has them: "an input of shape [2, 3]"."""
    shapes = [str(list(one.shape)) for one in first_inputs(inputs)]
    return f"an input of shape {shapes[0]}" if len(shapes) == 1 else f"inputs of shapes {', '.join(shapes)}"


def _plain(inputs: Any) -> Any:
    """Return a mapping of another class as a dict, such as a tokenizer's, which is no container for PyTorch."""
    return dict(inputs) if isinstance(inputs, Mapping) else inputs
