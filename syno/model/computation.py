"""Check by running that a layer computes what its class and attributes say, and detection of how it pads its input.

A subclass of a convolution, or a layer with a `forward` of its own, may compute anything. Such a layer runs on random inputs of
several sizes with random weights, and is compared with PyTorch's convolutions with each possible padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from syno.base.user_code import reason_of
from syno.model.geometry import CONVOLUTIONS, TRANSPOSED, Padding, ends_of, ends_of_ceil
from syno.model.shared_memory import copy_of
from syno.model.stand_ins import NORMALIZATIONS, clear_hooks

CONVOLVE = {nn.Conv1d: functional.conv1d, nn.Conv2d: functional.conv2d, nn.Conv3d: functional.conv3d}
CONVOLVE_TRANSPOSED = {
    nn.ConvTranspose1d: functional.conv_transpose1d,
    nn.ConvTranspose2d: functional.conv_transpose2d,
    nn.ConvTranspose3d: functional.conv_transpose3d,
}
OWN = {"weight", "bias"}  # the only parameters of a layer that an operator can replace
# Rounding, as a share of the largest output: far less than quantization or a scaling changes.
TOLERANCES = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.float32: 1e-4, torch.complex64: 1e-4}
ROUGH = 2e-2  # of float16 and bfloat16
LONGER = (0, 1, 3)  # positions added to each axis: a padding that depends on the length differs for at least one of them


def padding_of(layer: nn.Module, shape: Sequence[int]) -> Padding | str | None:
    """Return a layer's actual padding if it differs from its attributes, or the reason why no operator can replace the layer.

    None if the layer computes what its attributes say.

    Args:
        layer: a convolution, transposed convolution or linear layer. It is not changed.
        shape: shape of the layer's input in the network, [N, C, ...] or [N, ..., features].
    """
    kind = _kind(layer)
    others = [name for name, _ in layer.named_parameters() if name not in (*OWN, *normalized(layer))]
    if others or not isinstance(getattr(layer, "weight", None), torch.Tensor):
        return f"its weight is computed from {' and '.join(others) or 'something else'}, which an operator has no place for"
    if _is_plain(layer, kind):
        is_other = isinstance(layer, CONVOLUTIONS) and layer.padding_mode != "zeros"
        return Padding(layer.padding_mode, ends_of(layer)) if is_other else None
    name = "linear layer" if kind is nn.Linear else "convolution"
    differs = f"its class {type(layer).__name__} computes something else than a {name} with its weight"
    try:
        for padding in _paddings(layer, shape):
            if _matches(layer, kind, padding, shape):
                return padding
    except Exception as error:  # the class is the user's own
        return f"its class {type(layer).__name__} does not run by itself: {reason_of(error)}"
    return differs


def normalized(layer: nn.Module) -> list[str]:
    """Return the names of the parameters from which a layer's parametrizations compute its weight and bias.

    They are removed with the layer, since an operator in its place has weights of its own.
    """
    names = [name for name, _ in layer.named_parameters() if name.startswith("parametrizations.")]
    hooks = [hook for hook in layer._forward_pre_hooks.values() if isinstance(hook, NORMALIZATIONS)]
    return names + [f"{hook.name}_{end}" for hook in hooks for end in ("g", "v", "orig")]


def _kind(layer: nn.Module) -> Any:
    """Return the class of PyTorch's layers, such as `nn.Conv2d`, from which the layer's class derives."""
    return next(kind for kind in (*CONVOLUTIONS, *TRANSPOSED, nn.Linear) if isinstance(layer, kind))


def _is_plain(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """Return whether the layer runs the `forward` of PyTorch's class `kind`, not an override."""
    names = [name for name in ("forward", "_conv_forward") if hasattr(kind, name)]
    return all(getattr(type(layer), name) is getattr(kind, name) and name not in vars(layer) for name in names)


def _paddings(layer: nn.Module, shape: Sequence[int]) -> Iterator[Padding | None]:
    """Yield the paddings that may be the layer's, the simplest first; None is the padding of its attributes."""
    if not isinstance(layer, CONVOLUTIONS):
        yield None
        return
    if layer.padding_mode == "zeros":
        yield None
    else:
        yield Padding(layer.padding_mode, ends_of(layer))
    yield Padding("zeros", ends_of_ceil(layer, shape[2:]))
    if isinstance(layer, nn.Conv1d):  # a causal one reads earlier positions only
        yield Padding("zeros", ((layer.dilation[0] * (layer.kernel_size[0] - 1), 0),))
    for child in layer.children():
        ends = getattr(child, "padding", None)  # of nn.ZeroPad2d: from the last axis on
        if isinstance(ends, tuple) and len(ends) == 2 * len(layer.kernel_size):
            own = [tuple(ends[2 * axis : 2 * axis + 2]) for axis in reversed(range(len(layer.kernel_size)))]
            yield Padding("zeros", tuple((a + b, c + d) for (a, c), (b, d) in zip(own, ends_of(layer), strict=True)))
    yield Padding("ceil")


def _matches(layer: nn.Module, kind: type[nn.Module], padding: Padding | None, shape: Sequence[int]) -> bool:
    """Return whether the layer computes what PyTorch's class `kind` computes with this padding.

    They are compared in both modes, and at every tried size at which the layer runs. Exceptions of the layer at its size in the
    network are passed on.
    """
    copied = copy_of(layer)
    clear_hooks(copied)  # they move along with the layer, and are not its own computation
    if any(parameter.is_meta for parameter in copied.parameters()):
        copied.to_empty(device="cpu")
    weight = copied.weight
    generator = torch.Generator(weight.device).manual_seed(0)
    for parameter in copied.parameters():
        with torch.no_grad():
            parameter.normal_(std=max(parameter[0].numel(), 1) ** -0.5, generator=generator)
    for mode in (False, True):
        copied.train(mode)
        for longer in LONGER if padding is None or isinstance(layer, CONVOLUTIONS) else LONGER[:1]:
            lengths = [2, *shape[1:]] if kind is nn.Linear else [2, shape[1], *(length + longer for length in shape[2:])]
            x = torch.randn(lengths, device=weight.device, dtype=weight.dtype, generator=generator)
            try:
                with torch.no_grad():
                    y = copied(x)
            except Exception:
                if longer:  # a layer of one size
                    continue
                raise
            try:
                expected = _output_as_class(copied, kind, padding, x)
            except RuntimeError:  # a padding that is impossible at this size
                return False
            if not isinstance(y, torch.Tensor) or y.shape != expected.shape or y.dtype != expected.dtype:
                return False
            if not (y - expected).abs().max() <= TOLERANCES.get(x.dtype, ROUGH) * expected.abs().max():
                return False
    return True


@torch.no_grad()  # type: ignore[untyped-decorator]
def _output_as_class(layer: nn.Module, kind: type[nn.Module], padding: Padding | None, x: torch.Tensor) -> torch.Tensor:
    """Return the output of PyTorch's class `kind` with the layer's weights and this padding."""
    if kind is nn.Linear:
        return functional.linear(x, layer.weight, layer.bias)
    if kind in CONVOLVE_TRANSPOSED:
        sizes = layer.stride, layer.padding, layer.output_padding, layer.groups, layer.dilation
        return CONVOLVE_TRANSPOSED[kind](x, layer.weight, layer.bias, *sizes)
    shown = Padding("zeros", ends_of(layer)) if padding is None else padding
    x = padded(x, shown.ends or ends_of_ceil(layer, x.shape[2:]), shown.mode)
    return CONVOLVE[kind](x, layer.weight, layer.bias, layer.stride, 0, layer.dilation, layer.groups)


def padded(x: torch.Tensor, ends: Sequence[Sequence[int]], mode: str) -> torch.Tensor:
    """Pad a tensor [N, C, ...] at both ends of each axis after the channels.

    Args:
        x: the tensor.
        ends: numbers of positions added ahead of and behind each of these axes.
        mode: the kind of padding, as in `syno.model.geometry.Padding`.
    """
    lengths = [length for pair in reversed(ends) for length in pair]
    return functional.pad(x, lengths) if mode in ("zeros", "ceil") else functional.pad(x, lengths, mode=mode)
