"""Which layers of a network can be replaced, and the sizes they have there.

Sizes are found by running the network once on an example, so they are those of any network that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import nn

from syno.errors import SpecError

LayerRule = Callable[[nn.Conv2d], str | None]


@dataclass(frozen=True)
class Layer:
    """A convolution that can be replaced.

    Attributes:
        name: in the network, as `get_submodule` takes it.
        module: the convolution.
        values: of N, C_in, C_out and H: it maps [N, C_in, H, H] to [N, C_out, H, H].
    """

    name: str
    module: nn.Conv2d
    values: Mapping[str, int]


@dataclass(frozen=True)
class Call:
    """One use of a layer in a forward pass, with the shapes of its first input and of its output."""

    name: str
    module: nn.Module
    input: tuple[int, ...]
    output: tuple[int, ...]


def spatial_convolution(convolution: nn.Conv2d) -> str | None:
    """The usual rule of what is replaced. None for a layer that is; otherwise the reason why it is not, in words."""
    kernel, padding = convolution.kernel_size, convolution.padding
    same = tuple(d * (k // 2) for d, k in zip(convolution.dilation, kernel, strict=True))
    checks = (
        (kernel[0] != kernel[1], f"its kernel is {kernel[0]}x{kernel[1]}, not square"),
        (kernel[0] == 1, "its kernel is 1x1"),
        (kernel[0] % 2 == 0, f"its kernel is {kernel[0]}x{kernel[1]}, not odd"),
        (convolution.stride != (1, 1), f"its stride is {convolution.stride}, not 1"),
        (convolution.groups != 1, f"it has {convolution.groups} groups"),
        (padding not in (same, "same"), f"its padding is {padding}, which does not keep the size"),
        (convolution.bias is not None, "it has a bias, which operators have not"),
    )
    return next((reason for holds, reason in checks if holds), None)


def replaceable(
    model: nn.Module, example: torch.Tensor, rule: LayerRule = spatial_convolution, *, keep_stem: bool = True
) -> tuple[Layer, ...]:
    """The layers of `model` that operators can replace, in the order in which they run.

    Args:
        model: run once on the example, in evaluation mode without gradients; it is left as it was.
        example: an input, of the batch size that N shall have.
        rule: says for a convolution why it is not replaced, or None.
        keep_stem: whether the convolution that runs first stays.

    Raises SpecError if there is none. It lists the convolutions that there are, each with the reason.
    """
    calls = [call for call in trace(model, example) if isinstance(call.module, nn.Conv2d)]
    uses: dict[str, list[Call]] = {}
    for call in calls:
        uses.setdefault(call.name, []).append(call)
    found, refused = [], []
    for position, (name, used) in enumerate(uses.items()):
        reason = "it is the first convolution" if keep_stem and not position else rule(used[0].module) or _misfit(used)
        if reason is not None:
            refused.append(f"{name}: {reason}")
            continue
        batch, channels, height, _ = used[0].input
        values = {"N": batch, "C_in": channels, "C_out": used[0].output[1], "H": height}
        found.append(Layer(name, used[0].module, MappingProxyType(values)))
    if not found:
        raise SpecError(
            f"{type(model).__name__} has no layer to replace ({'; '.join(refused) or 'it runs no Conv2d'}); "
            "give another model or a rule that takes one of its layers"
        )
    return tuple(found)


def trace(model: nn.Module, example: torch.Tensor) -> list[Call]:
    """Every use of a module that computes something itself, in order. The model is run once and left as it was.

    Such a module has weights of its own, or no submodules.
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
        with torch.no_grad(), _evaluation_mode(model):
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


def _misfit(used: list[Call]) -> str | None:
    """Why an operator with the sizes N, C_in, C_out, H does not fit here."""
    if len(used) > 1:
        return f"it runs {len(used)} times"
    before, after = used[0].input, used[0].output
    if len(before) != 4 or before[2] != before[3]:
        return f"its input is {list(before)}, not square"
    if before[2:] != after[2:]:
        return f"it maps {list(before)} to {list(after)}"
    return None


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
