"""Modules in place of layers, which answer what people read on the layer: its sizes, device, number format and hooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import torch
from torch import nn
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from syno.base.errors import ReplacedWeightError

SIZES = (
    *("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "output_padding"),
    *("padding_mode", "transposed"),
)
SIZES_OF_LINEAR = ("in_features", "out_features")
HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)
OF_PYTORCH = vars(nn.Module()).keys()  # attributes of every module
# Hooks that make a layer's weight of others, which go with the layer.
NORMALIZATIONS = (WeightNorm, SpectralNorm)


@dataclass(frozen=True)
class ReplacedWeight:
    """Shape, dtype and device of the weight of a replaced layer, in its place: no tensor, without elements.

    Attributes:
        shape: the layer's.
        dtype, device: those of what stands in its place.
        requires_grad: whether the layer learnt.

    Raises ReplacedWeightError where its elements would be needed.
    """

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool = True

    def size(self, axis: int | None = None) -> torch.Size | int:
        """Return the lengths of all axes, or of one."""
        return self.shape if axis is None else self.shape[axis]

    def dim(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    def numel(self) -> int:
        """Return the number of elements."""
        return int(self.shape.numel())

    def is_floating_point(self) -> bool:
        """Return whether its numbers are real."""
        return bool(self.dtype.is_floating_point)

    def __len__(self) -> int:
        return int(self.shape[0])

    ndim = property(dim)
    data = property(lambda self: self)
    is_cuda = property(lambda self: self.device.type == "cuda")
    is_meta = property(lambda self: self.device.type == "meta")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in (torch.Tensor.to, torch.Tensor.type_as):  # of another tensor, as this one is
            args, given = (
                [one.like() if isinstance(one, cls) else one for one in args],
                {name: one.like() if isinstance(one, cls) else one for name, one in (kwargs or {}).items()},
            )
            return function(*args, **given)
        refuse(getattr(function, "__name__", "a function"))

    def like(self) -> torch.Tensor:
        """Return a tensor without elements, of its number format and device."""
        return torch.empty(0, dtype=self.dtype, device=self.device)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python looks for methods that may be missing
            raise AttributeError(name)
        refuse(name)


def refuse(use: str) -> NoReturn:
    """Raise ReplacedWeightError for this use of a weight."""
    raise ReplacedWeightError(
        f"an operator stands in place of this layer, and has no weight of the layer's shape ({use}); "
        "call the layer, or keep it by naming the layers to replace without it"
    )


def _operation(name: str) -> Any:
    def operation(self: ReplacedWeight, *_: object) -> NoReturn:
        refuse(name.strip("_"))

    return operation


for _name in ("add", "sub", "mul", "truediv", "floordiv", "matmul", "pow", "mod"):
    for _side in ("", "r"):
        setattr(ReplacedWeight, f"__{_side}{_name}__", _operation(_name))
for _name in ("neg", "abs", "getitem", "iter", "float", "bool"):
    setattr(ReplacedWeight, f"__{_name}__", _operation(_name))


class InPlace(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """Base of modules that stand in place of a layer. Without a layer they are as others."""

    _replaced: tuple[tuple[int, ...], bool] | None = None  # the shape of the layer's weight, and whether it learnt

    @property
    def weight(self) -> Any:
        """The module's own weight, or the `ReplacedWeight` of the layer."""
        for own in (self._parameters, self._buffers, self._modules):
            if "weight" in own:
                return own["weight"]
        if self._replaced is None:
            raise AttributeError("weight")
        shape, learns = self._replaced
        one = next((one for one in self.parameters() if one.is_floating_point()), None)
        one = next(self.buffers(), torch.empty(0)) if one is None else one
        return ReplacedWeight(torch.Size(shape), one.dtype, one.device, learns)

    def stand_for(self, layer: nn.Module) -> None:
        """Take the sizes of the layer, where the module has no attributes of these names itself, and its hooks."""
        weight = weight_of(layer)
        self._replaced = tuple(weight.shape), bool(weight.requires_grad)
        for name in SIZES_OF_LINEAR if isinstance(layer, nn.Linear) else SIZES:
            if not hasattr(self, name):
                setattr(self, name, getattr(layer, name))
        if not hasattr(self, "bias"):
            self.__dict__["bias"] = None
        move_hooks(layer, self)


class Sequential(InPlace, nn.Sequential):  # type: ignore[misc]
    """Modules in a row, in place of a layer. Its `bias` is that of the last one that has one."""

    @property
    def bias(self) -> Any:
        """The layer's bias, which is still trained; None if it had none."""
        return next((bias for module in reversed(list(self)) if (bias := getattr(module, "bias", None)) is not None), None)


def weight_of(layer: nn.Module) -> torch.Tensor:
    """Return a layer's weight. A parametrization of it makes it as in evaluation mode, as others learn from being read."""
    modes = [(module, module.training) for module in layer.modules()]
    for module, _ in modes:
        module.training = False
    try:
        found: torch.Tensor = layer.weight
    finally:
        for module, training in modes:
            module.training = training
    return found


def move_hooks(layer: nn.Module, module: nn.Module) -> None:
    """Give a module the hooks that a layer calls before and after `forward`, and before and after its gradients."""
    for name in HOOKS:
        getattr(module, name).update(
            {key: hook for key, hook in getattr(layer, name).items() if not isinstance(hook, NORMALIZATIONS)}
        )
    if layer._backward_hooks:
        module._is_full_backward_hook = layer._is_full_backward_hook


def put_in_place(network: nn.Module, names: Sequence[str], module: nn.Module) -> None:
    """Put a module in place of a layer of a network, under all its names, and in lists and mappings that modules have.

    Args:
        network: is changed.
        names: of the layer in the network, as `get_submodule` takes them.
        module: what is put there.
    """
    layer = network.get_submodule(names[0])
    for name in names:
        network.set_submodule(name, module)
    done: set[int] = set()
    for part in network.modules():
        own = vars(part)
        for name in own.keys() - OF_PYTORCH:
            own[name] = _exchange(own[name], layer, module, done)


def _exchange(value: Any, layer: nn.Module, module: nn.Module, done: set[int]) -> Any:
    """Return the value of an attribute, with a module in place of a layer; `done` has the ids of lists and mappings."""
    if value is layer:
        return module
    if isinstance(value, tuple):
        changed = [_exchange(one, layer, module, done) for one in value]
        if all(new is one for new, one in zip(changed, value, strict=True)):
            return value
        return type(value)._make(changed) if hasattr(value, "_make") else tuple(changed)
    if isinstance(value, list | dict) and id(value) not in done:
        done.add(id(value))
        for key, one in list(value.items() if isinstance(value, dict) else enumerate(value)):
            if (new := _exchange(one, layer, module, done)) is not one:
                value[key] = new
    return value


def clear_hooks(module: nn.Module) -> None:
    """Take all hooks from a module that `move_hooks` gives to another one."""
    for name in HOOKS:
        hooks = getattr(module, name)
        for key in [key for key, hook in hooks.items() if not isinstance(hook, NORMALIZATIONS)]:
            del hooks[key]


def in_place(module: nn.Module) -> InPlace:
    """Return a module that may stand in place of a layer: itself, but of a class that is `InPlace`, too."""
    if not isinstance(module, InPlace):
        kind: Any = type(module)
        module.__class__ = _in_place_class(kind)
    placed: InPlace = module
    return placed


@cache
def _in_place_class(kind: Any) -> Any:
    return type(
        kind.__name__, (InPlace, kind), {"__reduce__": _reduce_in_place, "__module__": kind.__module__, "own_class": kind}
    )


def _reduce_in_place(module: Any) -> tuple[Any, ...]:
    return _make_in_place, (module.own_class,), module.__dict__


def _make_in_place(kind: Any) -> Any:
    made = _in_place_class(kind)
    return made.__new__(made)
