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

import torch
from torch import nn

from syno.algebra import Valuation
from syno.base.errors import GraphError, MisfitError, SizeError, ValuationError
from syno.ir.dim import Dim
from syno.ir.graph import PGraph
from syno.ir.own_size import WIDTH, for_wide_pictures
from syno.lower.causality import leak
from syno.model.around import in_place_of
from syno.model.baselines import ModuleBaseline, Replacement
from syno.model.extraction import layers_of, replaceable
from syno.model.layer import STRIDE, Layer
from syno.model.layers import Where
from syno.model.memory import copy_of, to_channels_last
from syno.model.module import OperatorModule, build
from syno.model.stand_in import put_in_place, weight_of

SIDES = {"H", "W"}  # of pictures
SEQUENCE_AXES = (1, 1)  # of a projection's output and input


def substitute(
    model: nn.Module,
    operator: Replacement,
    example: torch.Tensor,
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
            variable W for the width, where it does not mix both axes. Or a baseline that is a module.
        example: an input of the model, of any batch size.
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
    layers = replaceable(model, example, where, keep_stem=keep_stem) if layers is None else layers_of(model, layers)
    is_causal = getattr(model, "causal", False) if causal is None else causal
    seeds = torch.randint(2**62, (len(layers),), generator=torch.Generator().manual_seed(seed)).tolist()
    if isinstance(operator, ModuleBaseline):
        modules = [_baseline(operator, layer, number, is_causal) for layer, number in zip(layers, seeds, strict=True)]
    else:
        modules = _operators(operator, layers, seeds, mode, is_causal, batch)
    if layers[0].module is model:
        return modules[0]
    copied = copy_of(model)
    for layer, module in zip(layers, modules, strict=True):
        put_in_place(copied, layer.names, module)
    if any(isinstance(module, OperatorModule) and module.is_channels_last for module in copied.modules()):
        to_channels_last(copied)  # else torch copies the weight at each call, to match its data
    return copied


def _operators(
    operator: PGraph, layers: Sequence[Layer], seeds: Sequence[int], mode: str, is_causal: bool, batch: int | None
) -> list[nn.Module]:
    """Return the operator as a module for each of the layers. MisfitError if it does not fit one of them."""
    fitting = [_for_width(operator, layer) for layer in layers]
    valuations = [_fitting_values(one, layer) for one, layer in zip(fitting, layers, strict=True)]
    if is_causal:
        for layer, values in zip(layers, valuations, strict=True):
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
    if len(layer.lengths) != len(SIDES):
        return operator
    try:
        found = for_wide_pictures(operator)
    except GraphError as error:
        if layer.is_square:
            return operator
        raise _misfit(operator, layer, f"{error}; take another operator, or square pictures") from error
    return operator if layer.is_square and not found.runtime_variables >= SIDES else found


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
    width = {WIDTH: given["H"]} if layer.is_square else {}
    table, known = operator.variables, {**operator.variables.defaults, **width, **given}
    if unknown := [name for name in table if name not in known]:
        raise _misfit(
            operator,
            layer,
            f"it has the variable {unknown[0]}, but a layer has values for {', '.join(layer.values)} only; "
            "give it a default or another name",
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


def _misfit(operator: Replacement, layer: Layer, reason: str) -> MisfitError:
    sizes = ", ".join(f"{name}={value}" for name, value in layer.values.items())
    kind = type(layer.module).__name__
    return MisfitError(f"{operator.name} does not fit layer {layer.name or kind} ({sizes}): {reason}")


def _shape(dims: tuple[Dim, ...]) -> str:
    return f"[{', '.join(str(dim.size) for dim in dims)}]"
