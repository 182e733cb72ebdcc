"""Modules in place of a network's layers: the operator, and around it modules for the layer's stride, padding and bias."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from syno.algebra import Valuation
from syno.base.errors import GraphError, MisfitError, SizeError, ValuationError
from syno.ir.dim import Dim
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.rewriting import HEIGHT, WIDTH, for_wide_pictures
from syno.lower.causality import leak
from syno.model.computation import padded
from syno.model.geometry import LayerAxis, Padding, ends_of_ceil
from syno.model.inputs import Inputs
from syno.model.layer import STRIDE, Layer
from syno.model.module import OperatorModule, build
from syno.model.shared_memory import copy_of, to_channels_last
from syno.model.stand_ins import InPlace, Sequential, in_place, put_in_place, weight_of

POOLINGS = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}  # by the number of axes of positions


class Bias(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """Adds a trained bias to each channel: input and output are [N, C, ...] for pictures, [..., C] for features.

    Args:
        values: initial values, [C].
        axes: the number of axes after the channels: 2 for pictures, 0 for features.
    """

    def __init__(self, values: torch.Tensor, axes: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(values.detach().clone())
        self.axes = axes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input plus the bias, of the input's shape."""
        return x + self.bias.view(-1, *(1,) * self.axes)

    def extra_repr(self) -> str:
        """Return the number of channels, for `repr`."""
        return f"{len(self.bias)}"


class Fitted(InPlace):
    """Pads a module's input with zeros and crops its output, so that it has the output positions of the replaced convolution.

    Args:
        module: from [N, C_in, ...] to [N, C_out, ...]; it keeps lengths, or divides them by its stride.
        axes: the replaced layer's spatial axes.
        has_stride: whether the module is strided and takes multiples of the stride only, to which lengths are padded.
    """

    def __init__(self, module: nn.Module, axes: Sequence[LayerAxis], *, has_stride: bool = False) -> None:
        super().__init__()
        self.module, self.axes, self.has_stride = module, tuple(axes), has_stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the module's output, padded and cropped to as many positions as the layer's output has."""
        lengths = [x.shape[2 + place] for place in range(len(self.axes))]
        zeros: list[int] = []
        for axis, length in zip(reversed(self.axes), reversed(lengths), strict=True):
            ahead, behind = axis.zeros
            zeros += [ahead, behind + (-(ahead + length + behind)) % axis.stride if self.has_stride else behind]
        if self.has_stride or any(zeros):
            x = functional.pad(x, zeros)
        x = self.module(x)
        for place, (axis, length) in enumerate(zip(self.axes, lengths, strict=True), 2):
            if not axis.keeps:
                x = x.narrow(place, axis.skipped, axis.output(length))
        return x

    def extra_repr(self) -> str:
        """Return the numbers of added zeros and of cropped positions, for `repr`."""
        return f"zeros={[axis.zeros for axis in self.axes]}, skipped={[axis.skipped for axis in self.axes]}"


class Padded(nn.Module):  # type: ignore[misc]
    """Pads an input [N, C, ...] as a convolution does whose padding is not a fixed number of zeros (`Layer.pads_before`).

    Args:
        layer: the convolution.
        padding: the convolution's padding.
    """

    def __init__(self, layer: nn.Module, padding: Padding) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.dilation = layer.kernel_size, layer.stride, layer.dilation
        self.mode, self.ends = padding.mode, padding.ends

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the padded tensor."""
        lengths = [x.shape[2 + axis] for axis in range(len(self.kernel_size))]
        return padded(x, self.ends or ends_of_ceil(self, lengths), self.mode)

    def extra_repr(self) -> str:
        """Return the padding's mode and numbers of positions, for `repr`."""
        return f"{self.mode}{f', {list(self.ends)}' if self.ends else ''}"


class InFormat(nn.Module):  # type: ignore[misc]
    """Converts a tensor to a memory format, for networks that call `view` on it.

    Args:
        memory_format: torch.contiguous_format or torch.channels_last.
    """

    def __init__(self, memory_format: torch.memory_format) -> None:
        super().__init__()
        self.memory_format = memory_format

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tensor in the memory format; it is not copied if it has the format already."""
        return x.contiguous(memory_format=self.memory_format)

    def extra_repr(self) -> str:
        """Return the memory format, for `repr`."""
        return str(self.memory_format)


class AlongAxes(InPlace):
    """Applies a module of [N, L, features] to tensors with no or several axes in place of L, such as [N, features].

    Args:
        module: the module; the axes between N and the features are flattened into L.
        axes: the number of these axes.
    """

    def __init__(self, module: nn.Module, axes: int) -> None:
        super().__init__()
        self.module, self.axes = module, axes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the module's output: [N, ..., features] -> [N, ..., other features]."""
        if self.axes == 0:
            return self.module(x.unsqueeze(1)).squeeze(1)
        return self.module(x.flatten(1, self.axes)).unflatten(1, x.shape[1 : 1 + self.axes])

    def extra_repr(self) -> str:
        """Return the number of flattened axes, for `repr`."""
        return f"axes={self.axes}"


def in_place_of(module: nn.Module, layer: Layer, *, has_stride: bool = False) -> nn.Module:
    """Return the module, surrounded by modules for the layer's stride, padding and bias, in the layer's training mode.

    Args:
        module: the operator's module, or a module baseline.
        layer: the layer that it replaces.
        has_stride: whether the module is strided itself, so that no pooling is needed.
    """
    if layer.is_projection and layer.axes != 1:
        module = AlongAxes(module, layer.axes)
    before: list[nn.Module] = []
    if layer.stride > 1 and not has_stride:
        scaled = layer.strides[0] if len(set(layer.strides)) == 1 else layer.strides
        pooling = POOLINGS[len(layer.strides)]
        before = [nn.Upsample(scale_factor=scaled) if layer.is_transposed else pooling(scaled, ceil_mode=True)]
    after = [] if layer.module.bias is None else [Bias(layer.module.bias, len(layer.lengths))]
    fills = has_stride and not layer.is_transposed and layer.positions != layer.shapes_with_stride[0][2:]
    if fills or not layer.keeps:
        inner = nn.Sequential(*before, module) if before else module
        before, module = [], Fitted(inner, layer.windows, has_stride=fills)
    if layer.padding is not None and layer.pads_before:
        before.insert(0, Padded(layer.module, layer.padding))
    if layer.memory_format is not None:
        after.append(InFormat(layer.memory_format))
    # An operator has one variable `stride` where a layer has one stride for each axis.
    has_others = any(hasattr(module, name) for name in layer.read)
    whole = in_place(Sequential(*before, module, *after) if before or after or has_others else module)
    whole.stand_for(layer.module)
    return whole.train(layer.module.training)


SEQUENCE_AXES = (1, 1)  # of a projection's output and input


@dataclass(frozen=True)
class Placement:
    """Where and how a replacement is applied; see the arguments of `syno.substitute`.

    Attributes:
        network: the original network; it is not changed.
        example: inputs of the network.
        layers: the layers to replace; for a mixture, all replaceable layers, or None to find them.
        takes_all: whether it is an error if the replacement leaves a layer as it is.
    """

    network: nn.Module
    example: Inputs
    layers: Sequence[Layer] | None
    seed: int = 0
    mode: str = "fused"
    is_causal: bool = False
    batch: int | None = None
    takes_all: bool = False


def with_operators(to: Placement, name: str, operators: Sequence[PGraph | None]) -> nn.Module:
    """Return a copy of the network with `operators[i]` in place of the i-th layer of the placement; None: that layer stays.

    Raises MisfitError if an operator does not fit its layer, all layers stay, or one stays where the placement takes all.
    """
    assert to.layers is not None
    pairs = [(layer, operator) for layer, operator in zip(to.layers, operators, strict=True) if operator is not None]
    if to.takes_all and len(pairs) < len(operators):
        lost = min(layer.name for layer, operator in zip(to.layers, operators, strict=True) if operator is None)
        raise MisfitError(f"{name} is no cheaper than the layer {lost}, or does not fit it")
    if not pairs:
        raise MisfitError(f"{name} is no cheaper than each of the {len(operators)} layers, or fits none; take another layer")
    layers, fitting = [layer for layer, _ in pairs], [_for_width(operator, layer) for layer, operator in pairs]
    valuations = [_fitting_values(operator, layer) for operator, layer in zip(fitting, layers, strict=True)]
    if to.is_causal:
        for operator, layer, values in zip(fitting, layers, valuations, strict=True):
            _check_causality(operator, layer, values)
    modules = [
        _module(operator, layer, values, seed, to.mode, to.batch)
        for operator, layer, values, seed in zip(fitting, layers, valuations, _seeds(to.seed, len(layers)), strict=True)
    ]
    return _with_modules(to.network, layers, modules)


def with_module(to: Placement, name: str, build: Callable[[Mapping[str, int], int | None], nn.Module]) -> nn.Module:
    """Return a copy of the network with `build(values, seed)` in place of each layer.

    Args:
        to: the network and its layers.
        name: name of the replacement, for messages.
        build: makes a module from the values of a layer's variables and the seed of its weights.

    Raises MisfitError if the module does not fit a layer.
    """
    layers = to.layers or ()
    seeds = _seeds(to.seed, len(layers))
    modules = [_built(name, build, layer, seed, to.is_causal) for layer, seed in zip(layers, seeds, strict=True)]
    return _with_modules(to.network, layers, modules)


def _seeds(seed: int, count: int) -> list[int]:
    seeds: list[int] = torch.randint(2**62, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
    return seeds


def _with_modules(model: nn.Module, layers: Sequence[Layer], modules: Sequence[nn.Module]) -> nn.Module:
    """Return a copy of the network with modules in place of layers."""
    if layers[0].module is model:
        return modules[0]
    copied = copy_of(model)
    for layer, module in zip(layers, modules, strict=True):
        put_in_place(copied, layer.names, module)
    if any(isinstance(module, OperatorModule) and module.is_channels_last for module in copied.modules()):
        to_channels_last(copied)  # else torch reorders the weight at each call, to match its channels-last input
    return copied


def _for_width(operator: PGraph, layer: Layer) -> PGraph:
    """Return the operator with a variable for the width beside the height, so that its module takes pictures of any size.

    The operator is returned as it is if the layer's pictures are square and the two axes cannot be separated, or if its weights
    have one element for each position.

    Raises MisfitError if the pictures are not square and the axes cannot be separated.
    """
    if len(layer.lengths) != 2:
        return operator
    try:
        wide = for_wide_pictures(operator)
    except GraphError as error:
        if layer.is_square:
            return operator
        raise _misfit(operator.name, layer, f"{error}; take another operator, or square pictures") from error
    return operator if layer.is_square and not wide.runtime_variables >= {HEIGHT, WIDTH} else wide


def _built(
    name: str, build: Callable[[Mapping[str, int], int | None], nn.Module], layer: Layer, seed: int, is_causal: bool
) -> nn.Module:
    """Return `build(values, seed)` for this layer, with its stride, padding and bias. MisfitError if it does not fit."""
    if layer.is_projection or is_causal:
        raise _misfit(name, layer, "it is a module that replaces convolutions; name an operator for this network")
    if not layer.is_square:
        raise _misfit(name, layer, "it is a module for square pictures; name an operator for this network")
    weight = weight_of(layer.module)
    try:
        with torch.device("meta" if weight.is_meta else "cpu"):
            module = build(layer.values, None if weight.is_meta else seed).to(weight.device, weight.dtype)
            shape = module(torch.zeros(layer.input, device=weight.device, dtype=weight.dtype)).shape
    except SizeError as error:
        raise _misfit(name, layer, str(error)) from error
    if shape != layer.output:
        raise _misfit(name, layer, f"its output is {list(shape)}, where the layer has {list(layer.output)}")
    return in_place_of(module, layer)


def _fitting_values(operator: PGraph, layer: Layer) -> Valuation:
    """Return the values of the operator's variables in this layer. MisfitError if variables or shapes do not fit the layer."""
    given = layer.values_with_stride if _has_stride(operator) else layer.values
    width = {WIDTH: given[HEIGHT]} if layer.is_square else {}
    table, known = operator.variables, {**operator.variables.defaults, **width, **given}
    if unknown := [name for name in table if name not in known]:
        raise _misfit(
            operator.name,
            layer,
            f"it has the variable {unknown[0]}, but a layer has values for {', '.join(layer.values)} only"
            f"; {'take an operator of these' if operator.name in OPERATORS else 'give it a default or another name'}",
        )
    try:
        values = operator.valuation({name: known[name] for name in table})
    except (SizeError, ValuationError) as error:
        raise _misfit(operator.name, layer, str(error)) from error
    for title, dims, needed in zip(
        ("input", "output"), (operator.input, operator.output), _shapes(operator, layer), strict=True
    ):
        shape = [values.integer(dim.size) for dim in dims]
        if shape != list(needed):
            reason = f"its {title} is {_shape(dims)} = {shape}, where the layer has {list(needed)}; take another operator"
            raise _misfit(operator.name, layer, reason)
    return values


def _has_stride(operator: PGraph) -> bool:
    """Return whether the operator is strided: it has the variable `stride`."""
    return STRIDE in operator.variables


def _shapes(operator: PGraph, layer: Layer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the input and output shapes that the operator must have. MisfitError if the layer's axes differ in stride."""
    if not _has_stride(operator):
        return layer.input, layer.output
    if len(set(layer.strides)) > 1:
        raise _misfit(
            operator.name, layer, f"the layer's strides are {layer.strides}, and the operator has one; take another operator"
        )
    return layer.shapes_with_stride


def _check_causality(operator: PGraph, layer: Layer, values: Mapping[str, int]) -> None:
    """Raise MisfitError if the operator reads ahead along the sequence, or if the layer has no sequence."""
    if not layer.is_projection:
        reason = "which of a picture's positions come later is not known"
        raise _misfit(operator.name, layer, f"{reason}; give causal=False, or a rule that takes linear layers")
    if found := leak(operator, SEQUENCE_AXES, values):
        raise _misfit(
            operator.name,
            layer,
            f"it reads ahead, and would see the token that the model is to predict: {found}. Take an operator whose windows "
            "along the sequence reach back only, as one of 2 positions does",
        )


def _module(operator: PGraph, layer: Layer, values: Mapping[str, int], seed: int, mode: str, batch: int | None) -> nn.Module:
    """Return the operator as a module in place of this layer, with the layer's device, dtype and training mode."""
    weight = weight_of(layer.module)
    # A variable without a value may be of any length at run time: N, and seq_len if no primitive changes it.
    free = {"N"} | (operator.unchanged_variables & {"seq_len"})
    given = {name: value for name, value in values.items() if name not in free}
    if batch is not None and "N" in operator.unchanged_variables:
        given["N"] = batch
    chosen = None if weight.is_meta else seed  # tensors without data get no random numbers
    try:
        module: nn.Module = build(operator, given, mode=mode, seed=chosen, device=weight.device, dtype=weight.dtype)
    except (SizeError, ValuationError) as error:
        raise _misfit(operator.name, layer, str(error)) from error
    return in_place_of(module, layer, has_stride=_has_stride(operator))


def _misfit(name: str, layer: Layer, reason: str) -> MisfitError:
    sizes = ", ".join(f"{name}={value}" for name, value in layer.values.items())
    kind = type(layer.module).__name__
    return MisfitError(f"{name} does not fit layer {layer.name or kind} ({sizes}): {reason}")


def _shape(dims: tuple[Dim, ...]) -> str:
    return f"[{', '.join(str(dim.size) for dim in dims)}]"
