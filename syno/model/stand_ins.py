"""Modules in place of layers, with the attributes of the layer that code may read: sizes, weight's device and dtype, hooks."""

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
# Hooks that compute a layer's weight from other parameters; they are removed together with the layer.
NORMALIZATIONS = (WeightNorm, SpectralNorm)


# Networks read shape, dtype and device of a layer's weight: CLIP converts pictures to the dtype of its first convolution's.
# Without them such a layer could not be replaced. With a tensor of NaN in its place, a penalty on weights in a user's loss
# would look like a training that diverged; of a subclass of tensors, torch.compile reads the elements.
@dataclass(frozen=True)
class ReplacedWeight:
    """The `weight` attribute of a module in place of a layer: shape, dtype and device, but no elements; it is no tensor.

    Attributes:
        shape: shape of the layer's weight.
        dtype, device: dtype and device of the replacing module's weights.
        requires_grad: whether the layer's weight was trained.

    Raises ReplacedWeightError for each use that needs elements.
    """

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool = True

    def size(self, axis: int | None = None) -> torch.Size | int:
        """Return the lengths of all axes of the weight, or of one axis."""
        return self.shape if axis is None else self.shape[axis]

    def dim(self) -> int:
        """Return the number of axes of the weight."""
        return len(self.shape)

    def numel(self) -> int:
        """Return the number of elements of the layer's weight."""
        return int(self.shape.numel())

    def is_floating_point(self) -> bool:
        """Return whether the weight's dtype is floating-point."""
        return bool(self.dtype.is_floating_point)

    def __len__(self) -> int:
        return int(self.shape[0])

    ndim = property(dim)
    data = property(lambda self: self)
    is_cuda = property(lambda self: self.device.type == "cuda")
    is_meta = property(lambda self: self.device.type == "meta")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in (torch.Tensor.to, torch.Tensor.type_as):  # x.to(layer.weight) needs dtype and device only
            args, kwargs = (
                [value.like() if isinstance(value, cls) else value for value in args],
                {name: value.like() if isinstance(value, cls) else value for name, value in (kwargs or {}).items()},
            )
            return function(*args, **kwargs)
        refuse(getattr(function, "__name__", "a function"))

    def like(self) -> torch.Tensor:
        """Return an empty tensor with the dtype and device of the weight."""
        return torch.empty(0, dtype=self.dtype, device=self.device)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python looks for methods that may be missing
            raise AttributeError(name)
        refuse(name)


def refuse(use: str) -> NoReturn:
    """Raise ReplacedWeightError, whose message names `use`, the attempted use of the weight."""
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
    """Base class of modules in place of a layer. Before `stand_for` is called they behave as any module."""

    _replaced: tuple[tuple[int, ...], bool] | None = None  # the shape of the layer's weight, and whether it learnt

    @property
    def weight(self) -> Any:
        """The module's own weight, or the `ReplacedWeight` of the layer that it replaces."""
        for own in (self._parameters, self._buffers, self._modules):
            if "weight" in own:
                return own["weight"]
        if self._replaced is None:
            raise AttributeError("weight")
        shape, learns = self._replaced
        own_weight = next((weight for weight in self.parameters() if weight.is_floating_point()), None)
        own_weight = next(self.buffers(), torch.empty(0)) if own_weight is None else own_weight
        return ReplacedWeight(torch.Size(shape), own_weight.dtype, own_weight.device, learns)

    def stand_for(self, layer: nn.Module) -> None:
        """Copy the layer's size attributes, except those that the module has itself, and move its hooks to the module."""
        weight = weight_of(layer)
        self._replaced = tuple(weight.shape), bool(weight.requires_grad)
        for name in SIZES_OF_LINEAR if isinstance(layer, nn.Linear) else SIZES:
            if not hasattr(self, name):
                setattr(self, name, getattr(layer, name))
        if not hasattr(self, "bias"):
            self.__dict__["bias"] = None
        move_hooks(layer, self)


class Sequential(InPlace, nn.Sequential):  # type: ignore[misc]
    """A sequence of modules in place of one layer. `bias` is the bias of the last module that has one."""

    @property
    def bias(self) -> Any:
        """The replaced layer's bias, which is still trained; None if it had none."""
        return next((bias for module in reversed(list(self)) if (bias := getattr(module, "bias", None)) is not None), None)


def weight_of(layer: nn.Module) -> torch.Tensor:
    """Return a layer's weight. A parametrization computes it in evaluation mode: spectral normalization updates its state
    at each reading in training mode."""
    modes = [(module, module.training) for module in layer.modules()]
    for module, _ in modes:
        module.training = False
    try:
        weight: torch.Tensor = layer.weight
    finally:
        for module, training in modes:
            module.training = training
    return weight


def move_hooks(layer: nn.Module, module: nn.Module) -> None:
    """Add a layer's forward, pre-forward, backward and pre-backward hooks to a module."""
    for name in HOOKS:
        getattr(module, name).update(
            {key: hook for key, hook in getattr(layer, name).items() if not isinstance(hook, NORMALIZATIONS)}
        )
    if layer._backward_hooks:
        module._is_full_backward_hook = layer._is_full_backward_hook


def put_in_place(network: nn.Module, names: Sequence[str], module: nn.Module) -> None:
    """Replace a layer of a network, under all its names and in plain lists, tuples and dicts that modules have as attributes.

    Args:
        network: changed in place.
        names: all names of the layer in the network, as `get_submodule` takes them.
        module: the replacement.
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
    """Return an attribute's value with `module` in place of `layer`; lists and dicts are changed in place.

    `done` has the ids of lists and dicts that were visited, which may contain themselves.
    """
    if value is layer:
        return module
    if isinstance(value, tuple):
        changed = [_exchange(part, layer, module, done) for part in value]
        if all(new is old for new, old in zip(changed, value, strict=True)):
            return value
        return type(value)._make(changed) if hasattr(value, "_make") else tuple(changed)
    if isinstance(value, list | dict) and id(value) not in done:
        done.add(id(value))
        for key, part in list(value.items() if isinstance(value, dict) else enumerate(value)):
            if (new := _exchange(part, layer, module, done)) is not part:
                value[key] = new
    return value


def clear_hooks(module: nn.Module) -> None:
    """Remove the hooks of a module that `move_hooks` would add to its replacement."""
    for name in HOOKS:
        hooks = getattr(module, name)
        for key in [key for key, hook in hooks.items() if not isinstance(hook, NORMALIZATIONS)]:
            del hooks[key]


def in_place(module: nn.Module) -> InPlace:
    """Return the same module after changing its class to a subclass of both `InPlace` and its own class."""
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
