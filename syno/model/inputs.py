"""Inputs of a network: one tensor, a tuple of positional arguments, or a dict of keyword arguments; arguments may be nested.

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
    """Call a network with inputs: a tuple is its positional arguments, a dict its keyword arguments, else the only argument.

    The network gets copies of the tensors, since it may change its inputs in place.
    """
    args, kwargs = arguments_of(copied(inputs))
    return network(*args, **kwargs)


def copied(inputs: Any) -> Any:
    """Return inputs of the same structure with all tensors cloned, also those in attributes of a user's own objects."""
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
    """Return the positional and the keyword arguments with which a network is called for these inputs."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}


def first_inputs(inputs: Any) -> list[torch.Tensor]:
    """Return the tensors in a network's inputs, in their order."""
    return [leaf for leaf in pytree.tree_leaves(_plain(inputs)) if isinstance(leaf, torch.Tensor)]


def mapped(function: Callable[[torch.Tensor], Any], inputs: Any) -> Any:
    """Return inputs of the same structure, with `function(tensor)` in place of each tensor."""
    return pytree.tree_map_only(torch.Tensor, function, _plain(inputs))


def len_of_batch(inputs: Any) -> int:
    """Return the batch size of inputs: the length of the first axis of the first tensor that has axes; 1 if none has."""
    length = next((len(tensor) for tensor in first_inputs(inputs) if tensor.dim()), 1)
    return int(length)


def of_batch(inputs: Any, count: int) -> Any:
    """Return inputs with a batch of `count` samples: the first samples, repeated if there are too few.

    Tensors without a batch axis are unchanged, such as one number for all samples.
    """
    batch = len_of_batch(inputs)
    times = -(-count // min(batch, count))
    return mapped(lambda x: torch.cat([x[:count]] * times)[:count] if x.dim() and len(x) == batch else x, inputs)


def shapes_in_words(inputs: Any) -> str:
    """Return the shapes of the tensors in inputs for a message: "an input of shape [2, 3]"."""
    shapes = [str(list(tensor.shape)) for tensor in first_inputs(inputs)]
    return f"an input of shape {shapes[0]}" if len(shapes) == 1 else f"inputs of shapes {', '.join(shapes)}"


def _plain(inputs: Any) -> Any:
    """Return a mapping that is no dict, such as a tokenizer's output, as a dict; PyTorch's pytree knows dicts only."""
    return dict(inputs) if isinstance(inputs, Mapping) else inputs
