"""The tensors in what modules take and return: in tuples, mappings, dataclasses, and objects of a user's own.

>>> import torch
>>> [len(tensor) for tensor in tensors_in({"logits": torch.zeros(2), "hidden": [torch.zeros(3), None]})]
[2, 3]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import nn

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
