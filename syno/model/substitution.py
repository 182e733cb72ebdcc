"""An operator in place of a network's layers.

>>> import torch, syno
>>> from torch import nn
>>> model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, bias=False))
>>> changed = syno.substitute(model, syno.OPERATORS["separable_conv2d"](), torch.zeros(1, 3, 16, 16), where=["2"])
>>> [type(layer).__name__ for layer in changed]
['Conv2d', 'ReLU', 'SeparableConv2d']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

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
from syno.model.baselines import KnownLayer, Mixture, ModuleBaseline, NarrowerLayer, NetworkBaseline, Replacement
from syno.model.computation import padded
from syno.model.extraction import layers_of, replaceable
from syno.model.geometry import STRIDE, Layer, LayerAxis, Padding, Where, ends_of_ceil
from syno.model.inputs import Inputs
from syno.model.module import OperatorModule, build
from syno.model.outputs import copy_of, to_channels_last
from syno.model.proof import InPlace, Sequential, in_place, put_in_place, weight_of
from syno.model.pruning import narrowable, narrowed

if TYPE_CHECKING:
    import torch
    from torch import nn


# ---- modules around an operator --------------------------------------------------------------------------------------

# Modules around an operator in a network: they add the bias of the layer that it replaces, or change axes and positions.

POOLINGS = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}  # by the number of axes of positions


class Bias(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """A learnt number for each channel or feature. [N, C, ...] -> the same for pictures, [..., C] for features.

    Args:
        values: where training begins, [C].
        axes: the number of axes after that of the channels: 2 for pictures, 0 for features.
    """

    def __init__(self, values: torch.Tensor, axes: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(values.detach().clone())
        self.axes = axes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum."""
        return x + self.bias.view(-1, *(1,) * self.axes)

    def extra_repr(self) -> str:
        """Return the number of channels."""
        return f"{len(self.bias)}"


class Fitted(InPlace):
    """A module in place of a convolution whose padding, kernel or stride gives it other positions than the module has.

    Args:
        module: from [N, C_in, ...] to [N, C_out, ...], around which zeros are added and positions are left out.
        axes: the layer's axes after that of the channels.
        has_stride: whether the module takes lengths that are multiples of the stride only, so that zeros fill them up.
    """

    def __init__(self, module: nn.Module, axes: Sequence[LayerAxis], *, has_stride: bool = False) -> None:
        super().__init__()
        self.module, self.axes, self.has_stride = module, tuple(axes), has_stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the module's output with as many positions as the layer's output has."""
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
        """Return the zeros and the positions that are left out."""
        return f"zeros={[axis.zeros for axis in self.axes]}, skipped={[axis.skipped for axis in self.axes]}"


class Padded(nn.Module):  # type: ignore[misc]
    """Adds the positions of a convolution's padding that are no zeros, or a number that depends on the length.

    Args:
        layer: the convolution.
        padding: what it adds to [N, C, ...].
    """

    def __init__(self, layer: nn.Module, padding: Padding) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.dilation = layer.kernel_size, layer.stride, layer.dilation
        self.mode, self.ends = padding.mode, padding.ends

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the longer tensor."""
        lengths = [x.shape[2 + axis] for axis in range(len(self.kernel_size))]
        return padded(x, self.ends or ends_of_ceil(self, lengths), self.mode)

    def extra_repr(self) -> str:
        """Return the mode and the number of positions."""
        return f"{self.mode}{f', {list(self.ends)}' if self.ends else ''}"


class InFormat(nn.Module):  # type: ignore[misc]
    """Brings a tensor into a memory format, for networks that use `view` on it.

    Args:
        memory_format: torch.contiguous_format or torch.channels_last.
    """

    def __init__(self, memory_format: torch.memory_format) -> None:
        super().__init__()
        self.memory_format = memory_format

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tensor in the memory format: itself if it is in it."""
        return x.contiguous(memory_format=self.memory_format)

    def extra_repr(self) -> str:
        """Return the memory format."""
        return str(self.memory_format)


class AlongAxes(InPlace):
    """A module of [N, L, features] for tensors with another number of axes between N and the features, such as [N, features].

    Args:
        module: is applied to all positions of these axes.
        axes: their number, 0 or more.
    """

    def __init__(self, module: nn.Module, axes: int) -> None:
        super().__init__()
        self.module, self.axes = module, axes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, ..., features] -> [N, ..., other features]."""
        if self.axes == 0:
            return self.module(x.unsqueeze(1)).squeeze(1)
        return self.module(x.flatten(1, self.axes)).unflatten(1, x.shape[1 : 1 + self.axes])

    def extra_repr(self) -> str:
        """Return the number of axes."""
        return f"axes={self.axes}"


def in_place_of(module: nn.Module, layer: Layer, *, has_stride: bool = False) -> nn.Module:
    """Return the module, in the layer's training mode, between modules for the layer's stride, padding and bias.

    Args:
        module: of the operator, or of a baseline.
        layer: which it replaces.
        has_stride: whether it has the layer's stride itself.
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
    # An operator's variable, such as its stride, is a number where a layer has one for each axis.
    has_others = any(hasattr(module, name) for name in layer.read)
    whole = in_place(Sequential(*before, module, *after) if before or after or has_others else module)
    whole.stand_for(layer.module)
    return whole.train(layer.module.training)


# ---- substitution ----------------------------------------------------------------------------------------------------

SEEDS_APART = 2**32  # weights of two operators in one network differ, which begin with seeds that follow each other
SEQUENCE_AXES = (1, 1)  # of a projection's output and input


def substitute(
    model: nn.Module,
    operator: Replacement,
    example: Inputs,
    *,
    where: Where = "spatial",
    seed: int = 0,
    mode: str = "fused",
    causal: bool | None = None,
    keep_stem: bool = True,
    batch: int | None = None,
    layers: Sequence[Layer] | None = None,
) -> nn.Module:
    """Return a copy of `model` with `operator` in some of its layers.

    Where operators work on channels-last data, the convolutions that stay store their weights channels-last: shapes and values
    are the same.

    The layers are convolutions, transposed convolutions, or linear layers. In place of a layer with a stride there is an
    average pooling by the stride, of a transposed one an enlargement, and the operator after it; an operator with the variable
    `stride` has the stride itself. Where the layer's padding does not keep the size, zeros are added ahead, and positions left
    out behind. A layer's bias stays, and is added after the operator.

    >>> import syno, torch
    >>> from torch import nn
    >>> network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
    >>> example = torch.zeros(1, 3, 16, 16)
    >>> changed = syno.substitute(network, syno.OPERATORS["separable_conv2d"](), example)
    >>> syno.model_cost(network, example).flops, syno.model_cost(changed, example).flops
    (202752, 90112)

    Args:
        model: any module that runs on the example; it is not changed, and the weights of layers that stay are copied.
        operator: from [N, C_in, H, H] to [N, C_out, H, H]; from [N, seq_len, H_in] to [N, seq_len, t*H_in] or
            [N, seq_len, H_out]. Its other variables have defaults. On pictures that are not square, one of squares gets a
            variable W for the width, where it does not mix both axes. Or a baseline that is a module; or a whole network with
            fewer channels or a mixture, whatever the layers are.
        example: the model's inputs, of any batch size: a tensor, a tuple of arguments, or a dict of named arguments.
        where: the layers. The name of a rule: "spatial", "paper-3x3", "paper", "projections", or `package.module:rule` for
            your own. Or such a rule, which returns why a `Layer` stays, or None. Or the names of layers, as `named_modules`
            has them, or patterns of names, such as `blocks.*.conv1`.
        seed: of the operators' weights, which are different in every layer.
        mode: the form of the operators: "fused", or "literal". A baseline that is a module has one form.
        causal: whether the model predicts later positions of a sequence, so that an operator that reads ahead is refused.
            None: as the model's attribute `causal` says; if it has none, False.
        keep_stem: whether the convolution that runs first stays, unless it is named.
        batch: the batch size to choose the form of the operators' code for; it takes any other one, too. None: a usual one.
        layers: those that `replaceable` found in the same network with other weights, instead of `where`; so they are looked
            for once for many operators. None: they are looked for.

    Raises:
        MisfitError: the operator does not fit a layer (the message says which, and why), or reads ahead in a causal model.
        SpecError: there is no such layer, or one that is named cannot be replaced.
        UnknownNameError: there is no such rule.
        LoweringError: the operator cannot be lowered, or is too large to find out whether it reads ahead.
    """
    if isinstance(operator, NetworkBaseline):
        return narrowed(model, example, operator.share)
    if isinstance(operator, Mixture):
        return _mixed(model, operator, example, seed, mode, causal, batch, layers)
    layers = replaceable(model, example, where, keep_stem=keep_stem) if layers is None else layers_of(model, layers)
    if isinstance(operator, NarrowerLayer):
        return _narrower(model, operator, example, layers)
    is_causal = getattr(model, "causal", False) if causal is None else causal
    operators: Sequence[PGraph] = [operator] * len(layers) if isinstance(operator, PGraph) else []
    if isinstance(operator, KnownLayer):
        layers, operators = _known(operator, layers)
    seeds = torch.randint(2**62, (len(layers),), generator=torch.Generator().manual_seed(seed)).tolist()
    if isinstance(operator, ModuleBaseline):
        modules = [_baseline(operator, layer, number, is_causal) for layer, number in zip(layers, seeds, strict=True)]
    else:
        modules = _operators(operators, layers, seeds, mode, is_causal, batch)
    if layers[0].module is model:
        return modules[0]
    copied = copy_of(model)
    for layer, module in zip(layers, modules, strict=True):
        put_in_place(copied, layer.names, module)
    if any(isinstance(module, OperatorModule) and module.is_channels_last for module in copied.modules()):
        to_channels_last(copied)  # else torch copies the weight at each call, to match its data
    return copied


def _mixed(
    model: nn.Module,
    mixture: Mixture,
    example: Inputs,
    seed: int,
    mode: str,
    causal: bool | None,
    batch: int | None,
    layers: Sequence[Layer] | None,
) -> nn.Module:
    """Return the network with the operators of a mixture; `layers` are those of the network, also others than its own."""
    changed = model if mixture.base is None else narrowed(model, example, mixture.base.share)
    for one, names in mixture.narrower.parts:  # first, since operators have the sizes that are left
        assert isinstance(one, NarrowerLayer)
        changed = narrowed(changed, example, one.share, names)
    parts = [part for part in enumerate(mixture.parts, 1) if not isinstance(part[1][0], NarrowerLayer)]
    if parts and (layers is None or changed is not model):  # all are looked for at once
        layers = replaceable(changed, example, [name for _, (_, names) in parts for name in names])
    for number, (one, names) in parts:
        own, chosen = seed + number * SEEDS_APART, [layer for layer in layers or () if layer.name in names]
        if lost := set(names) - {layer.name for layer in chosen}:
            raise MisfitError(f"{mixture.name} has an operator for the layer {sorted(lost)[0]}, which cannot be replaced here")
        if isinstance(one, KnownLayer) and (lost := set(names) - {layer.name for layer in _known(one, chosen)[0]}):
            raise MisfitError(f"{one.name} is no cheaper than the layer {sorted(lost)[0]}, or does not fit it")
        changed = substitute(changed, one, example, seed=own, mode=mode, causal=causal, batch=batch, layers=chosen)
    return copy_of(model) if changed is model else changed


def _narrower(model: nn.Module, narrower: NarrowerLayer, example: Inputs, layers: Sequence[Layer]) -> nn.Module:
    """Return the network in which those of the layers are narrower that can be. MisfitError if none can."""
    names = narrowable(model, example, narrower.share, [layer.name for layer in layers])
    if not names:
        raise MisfitError(
            f"{narrower.name} fits none of the {len(layers)} layers: their channels are those of other layers, too, or too few"
        )
    return narrowed(model, example, narrower.share, names)


def operator_in(layer: Layer, known: KnownLayer) -> PGraph | None:
    """Return the operator by which a known layer takes the place of a layer; None where the layer stays."""
    kernel, groups = [axis.kernel for axis in layer.windows], getattr(layer.module, "groups", 1)
    return known.operator(kernel, *layer.channels, groups)


def _known(known: KnownLayer, layers: Sequence[Layer]) -> tuple[list[Layer], list[PGraph]]:
    """Return the layers that a known layer takes the place of, each with its operator. MisfitError if it takes none."""
    found: list[tuple[Layer, PGraph]] = []
    for layer in layers:
        if (operator := operator_in(layer, known)) is not None:
            found.append((layer, operator))
    if not found:
        raise MisfitError(f"{known.name} is no cheaper than each of the {len(layers)} layers, or fits none; take another layer")
    return [layer for layer, _ in found], [operator for _, operator in found]


def _operators(
    operators: Sequence[PGraph], layers: Sequence[Layer], seeds: Sequence[int], mode: str, is_causal: bool, batch: int | None
) -> list[nn.Module]:
    """Return each layer's operator as a module. MisfitError if one does not fit its layer."""
    fitting = [_for_width(operator, layer) for operator, layer in zip(operators, layers, strict=True)]
    valuations = [_fitting_values(one, layer) for one, layer in zip(fitting, layers, strict=True)]
    if is_causal:
        for operator, layer, values in zip(operators, layers, valuations, strict=True):
            _check_causality(operator, layer, values)
    return [
        _module(one, layer, values, number, mode, batch)
        for one, layer, values, number in zip(fitting, layers, valuations, seeds, strict=True)
    ]


def _for_width(operator: PGraph, layer: Layer) -> PGraph:
    """Return the operator of pictures with a height and a width, so that its module takes pictures of any size.

    Where there is no such operator, or its weights have an element for each position, the one given is for square pictures.

    Raises MisfitError if pictures are not square, and the operator needs that.
    """
    if len(layer.lengths) != 2:
        return operator
    try:
        found = for_wide_pictures(operator)
    except GraphError as error:
        if layer.is_square:
            return operator
        raise _misfit(operator, layer, f"{error}; take another operator, or square pictures") from error
    return operator if layer.is_square and not found.runtime_variables >= {HEIGHT, WIDTH} else found


def _baseline(baseline: ModuleBaseline, layer: Layer, seed: int, is_causal: bool) -> nn.Module:
    """Return the module of a baseline for this layer. MisfitError if it does not fit the layer."""
    if layer.is_projection or is_causal:
        raise _misfit(baseline, layer, "it is a module that replaces convolutions; name an operator for this network")
    if not layer.is_square:
        raise _misfit(baseline, layer, "it is a module for square pictures; name an operator for this network")
    weight = weight_of(layer.module)
    try:
        with torch.device("meta" if weight.is_meta else "cpu"):
            module = baseline.build(layer.values, None if weight.is_meta else seed).to(weight.device, weight.dtype)
            shape = module(torch.zeros(layer.input, device=weight.device, dtype=weight.dtype)).shape
    except SizeError as error:
        raise _misfit(baseline, layer, str(error)) from error
    if shape != layer.output:
        raise _misfit(baseline, layer, f"its output is {list(shape)}, where the layer has {list(layer.output)}")
    return in_place_of(module, layer)


def _fitting_values(operator: PGraph, layer: Layer) -> Valuation:
    """Return the values of the operator's variables in this layer. MisfitError if variables or shapes do not fit the layer."""
    given = layer.values_with_stride if _has_stride(operator) else layer.values
    width = {WIDTH: given[HEIGHT]} if layer.is_square else {}
    table, known = operator.variables, {**operator.variables.defaults, **width, **given}
    if unknown := [name for name in table if name not in known]:
        raise _misfit(
            operator,
            layer,
            f"it has the variable {unknown[0]}, but a layer has values for {', '.join(layer.values)} only"
            f"; {'take an operator of these' if operator.name in OPERATORS else 'give it a default or another name'}",
        )
    try:
        values = operator.valuation({name: known[name] for name in table})
    except (SizeError, ValuationError) as error:
        raise _misfit(operator, layer, str(error)) from error
    for title, dims, needed in zip(
        ("input", "output"), (operator.input, operator.output), _shapes(operator, layer), strict=True
    ):
        shape = [values.integer(dim.size) for dim in dims]
        if shape != list(needed):
            reason = f"its {title} is {_shape(dims)} = {shape}, where the layer has {list(needed)}; take another operator"
            raise _misfit(operator, layer, reason)
    return values


def _has_stride(operator: Replacement) -> bool:
    """Return whether the operator has the layer's stride itself, as a variable."""
    return isinstance(operator, PGraph) and STRIDE in operator.variables


def _shapes(operator: PGraph, layer: Layer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the input and output shapes that the operator must have. MisfitError if the layer has several strides."""
    if not _has_stride(operator):
        return layer.input, layer.output
    if len(set(layer.strides)) > 1:
        raise _misfit(
            operator, layer, f"the layer's strides are {layer.strides}, and the operator has one; take another operator"
        )
    return layer.shapes_with_stride


def _check_causality(operator: PGraph, layer: Layer, values: Mapping[str, int]) -> None:
    """Raise MisfitError if the operator reads ahead along the sequence, or if the layer has no sequence."""
    if not layer.is_projection:
        reason = "which of a picture's positions come later is not known"
        raise _misfit(operator, layer, f"{reason}; give causal=False, or a rule that takes linear layers")
    if found := leak(operator, SEQUENCE_AXES, values):
        raise _misfit(
            operator,
            layer,
            f"it reads ahead, and would see the token that the model is to predict: {found}. Take an operator whose windows "
            "along the sequence reach back only, as one of 2 positions does",
        )


def _module(operator: PGraph, layer: Layer, values: Mapping[str, int], seed: int, mode: str, batch: int | None) -> nn.Module:
    """Return the operator as a module for this layer, on its device, with its number format and training mode."""
    weight = weight_of(layer.module)
    # The module takes any batch, and sequences of any length if the operator works on each position by itself.
    free = {"N"} | (operator.unchanged_variables & {"seq_len"})
    given = {name: value for name, value in values.items() if name not in free}
    if batch is not None and "N" in operator.unchanged_variables:
        given["N"] = batch
    chosen = None if weight.is_meta else seed  # tensors without data get no random numbers
    try:
        module: nn.Module = build(operator, given, mode=mode, seed=chosen, device=weight.device, dtype=weight.dtype)
    except (SizeError, ValuationError) as error:
        raise _misfit(operator, layer, str(error)) from error
    return in_place_of(module, layer, has_stride=_has_stride(operator))


def why_it_does_not_fit(operator: Replacement, layer: Layer, model: nn.Module) -> str | None:
    """Return why an operator cannot have the sizes of a layer of the model; None if it can."""
    example, is_causal = torch.zeros(layer.own_input), getattr(model, "causal", False)
    try:
        substitute(layer.module, operator, example, where=lambda _: None, causal=is_causal, keep_stem=False)
    except MisfitError as error:
        return str(error)
    return None


def _misfit(operator: Replacement, layer: Layer, reason: str) -> MisfitError:
    sizes = ", ".join(f"{name}={value}" for name, value in layer.values.items())
    kind = type(layer.module).__name__
    return MisfitError(f"{operator.name} does not fit layer {layer.name or kind} ({sizes}): {reason}")


def _shape(dims: tuple[Dim, ...]) -> str:
    return f"[{', '.join(str(dim.size) for dim in dims)}]"
