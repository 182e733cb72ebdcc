"""Which layers of a network can be replaced, and the sizes they have there.

Sizes are found by running the network once on an example, so they are those of any network that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import nn

from syno.errors import SpecError
from syno.model.tracing import Call, trace
from syno.registry import Registry


@dataclass(frozen=True)
class Layer:
    """A convolution that can be replaced.

    Attributes:
        name: in the network, as `get_submodule` takes it.
        module: the convolution.
        values: of N, C_in, C_out and H: what stands in its place maps [N, C_in, H, H] to [N, C_out, H, H].
        stride: the convolution itself maps [N, C_in, stride*H, stride*H] there; an operator comes after a pooling by it.
    """

    name: str
    module: nn.Conv2d
    values: Mapping[str, int]
    stride: int = 1


LayerRule: TypeAlias = Callable[[Layer], str | None]  # why the layer is not replaced, in words; None if it is
LAYER_RULES: Registry[LayerRule] = Registry("rule for layers")


@dataclass(frozen=True)
class Convolutions:
    """A rule: square convolutions of one group and no bias that keep the picture's size, but for their stride.

    Attributes:
        kernels: their side lengths; None for every odd one above 1.
        strides: those of which there may be.
        least_size: smaller C_in, C_out or H stay as they are.
    """

    kernels: tuple[int, ...] | None = None
    strides: tuple[int, ...] = (1,)
    least_size: int = 1

    def __call__(self, layer: Layer) -> str | None:
        """See `LayerRule`."""
        convolution = layer.module
        kernel, padding, stride = convolution.kernel_size, convolution.padding, convolution.stride
        sides, strides = f"{kernel[0]}x{kernel[1]}", " or ".join(map(str, self.strides))
        size, name = min((size, name) for name, size in layer.values.items() if name != "N")
        same = tuple(d * (k // 2) for d, k in zip(convolution.dilation, kernel, strict=True))
        checks = (
            (kernel[0] != kernel[1], f"its kernel is {sides}, not square"),
            (kernel[0] % 2 == 0, f"its kernel is {sides}, not odd"),
            (kernel[0] not in (self.kernels or range(2, kernel[0] + 1)), f"its kernel is {sides}"),
            (stride not in [(s, s) for s in self.strides], f"its stride is {stride}, not {strides}"),
            (convolution.groups != 1, f"it has {convolution.groups} groups"),
            (padding not in (same, "same"), f"its padding is {padding}, which does not keep the size"),
            (convolution.bias is not None, "it has a bias, which operators have not"),
            (size < self.least_size, f"its {name} is {size}, below {self.least_size}"),
        )
        return next((reason for holds, reason in checks if holds), None)


LAYER_RULES.register("spatial")(Convolutions())
# The paper's searches, and its evaluation on ImageNet: 16 and 19 layers of ResNet-18.
LAYER_RULES.register("paper-3x3")(Convolutions(kernels=(3,), strides=(1, 2), least_size=4))
LAYER_RULES.register("paper")(Convolutions(kernels=(1, 3), strides=(1, 2), least_size=4))


def replaceable(
    model: nn.Module, example: torch.Tensor, rule: str | LayerRule = "spatial", *, keep_stem: bool = True
) -> tuple[Layer, ...]:
    """The layers of `model` that operators can replace, in the order in which they run.

    Args:
        model: run once on the example, in evaluation mode without gradients; it is left as it was.
        example: an input, of the batch size that N shall have.
        rule: says for a layer why it is not replaced, or None; or its name in `LAYER_RULES`, or `package.module:name`.
        keep_stem: whether the convolution that runs first stays.

    Raises:
        SpecError: there is none. It lists the convolutions that there are, each with the reason.
        UnknownNameError: there is no such rule.
    """
    refuse = LAYER_RULES.find(rule) if isinstance(rule, str) else rule
    uses: dict[str, list[Call]] = {}
    for call in trace(model, example):
        if isinstance(call.module, nn.Conv2d):
            uses.setdefault(call.name, []).append(call)
    found, refused = [], []
    for position, (name, used) in enumerate(uses.items()):
        layer = _layer(used) if position or not keep_stem else "it is the first convolution"
        reason = layer if isinstance(layer, str) else refuse(layer)
        if reason is not None:
            refused.append(f"{name}: {reason}")
        elif isinstance(layer, Layer):
            found.append(layer)
    if not found:
        raise SpecError(
            f"{type(model).__name__} has no layer to replace ({'; '.join(refused) or 'it runs no Conv2d'}); "
            "give another model or a rule that takes one of its layers"
        )
    return tuple(found)


def _layer(used: list[Call]) -> Layer | str:
    """A convolution as a layer, or why operators with the sizes N, C_in, C_out, H do not fit here."""
    if len(used) > 1:
        return f"it runs {len(used)} times"
    call, before, after = used[0], used[0].input, used[0].output
    if len(before) != 4 or before[2] != before[3]:
        return f"its input is {list(before)}, not square"
    stride = call.module.stride[0]
    if before[2:] != (stride * after[2], stride * after[3]):
        return f"it maps {list(before)} to {list(after)}" + (f" with stride {stride}" if stride > 1 else "")
    values = {"N": before[0], "C_in": before[1], "C_out": after[1], "H": after[2]}
    return Layer(call.name, call.module, MappingProxyType(values), stride)
