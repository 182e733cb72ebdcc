"""What runs in a network, and on which shapes: found by running it once on an example."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from syno.base.user_code import user_code


@dataclass(frozen=True)
class Call:
    """One use of a layer in a forward pass, with the shapes of its first input and of its output."""

    name: str
    module: nn.Module
    input: tuple[int, ...]
    output: tuple[int, ...]


def trace(model: nn.Module, example: torch.Tensor) -> list[Call]:
    """Every use of a module that computes something itself, in order. The model is run once and left as it was.

    Such a module has weights of its own, or no submodules. UserCodeError if the model fails on the example.
    """
    calls: list[Call] = []

    def note(name: str) -> Callable[[nn.Module, object, object], None]:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            calls.append(Call(name, module, _shape(inputs), _shape(output)))

        return hook

    noted = [
        (name, module)
        for name, module in model.named_modules()
        if not list(module.children()) or list(module.parameters(recurse=False))
    ]
    hooks = [module.register_forward_hook(note(name)) for name, module in noted]
    try:
        what = f"{type(model).__name__}, run on an input of shape {list(example.shape)},"
        with torch.no_grad(), _evaluation_mode(model), user_code(what):
            model(example)
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def _shape(value: object) -> tuple[int, ...]:
    """The shape of a tensor, or of the first of several; empty if there is none."""
    if isinstance(value, tuple | list):
        return _shape(value[0]) if value else ()
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


@contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Batch normalization must not learn from the example."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
