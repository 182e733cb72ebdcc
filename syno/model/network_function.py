"""Calls of functions and classes that make networks, such as a user's own, which need not take all arguments.

>>> def make(classes): return torch.nn.Linear(4, classes)
>>> call(make, {"classes": 3, "channels": 1, "width": 1.0, "seed": 0})
Linear(in_features=4, out_features=3, bias=True)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

SEED, WIDTH = "seed", "width"


def arguments_taken(make: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the arguments that a function takes; a width other than 1 in any case, since without it all is different.

    A network may be of a fixed number of classes and channels; whether it fits the data shows in the first batch.
    """
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # no function, or one written in C
        return dict(arguments)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(arguments)
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in arguments.items() if name in names or (name == WIDTH and value != 1)}


def call(make: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Return what a function makes of those of the arguments that it takes.

    If it takes no seed, the seed is that of torch's random numbers during the call, so that equal arguments make equal weights.
    """
    taken = arguments_taken(make, arguments)
    if SEED in taken or SEED not in arguments:
        return make(**taken)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(arguments[SEED])
        return make(**taken)
