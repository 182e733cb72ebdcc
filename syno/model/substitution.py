"""An operator in place of a network's layers, and the spec of a search for one.

>>> import torch, syno
>>> from syno.model.backbones import BACKBONES
>>> model, example = BACKBONES["resnet8"](classes=12), torch.zeros(1, 3, 16, 16)
>>> [layer.name for layer in replaceable(model, example)][:3]
['blocks.0.conv1', 'blocks.0.conv2', 'blocks.1.conv1']
>>> substituted = substitute(model, syno.OPERATORS["separable_conv2d"](), example)
>>> type(substituted.blocks[0].conv1).__name__
'SeparableConv2d'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from syno.errors import SizeError, SpecError, ValuationError
from syno.ir.dim import Dim
from syno.ir.graph import PGraph
from syno.model.counting import model_cost
from syno.model.layers import LAYER_RULES, Layer, LayerRule, replaceable
from syno.model.module import build
from syno.space.complete import Cost
from syno.space.spec import OperatorSpec

__all__ = ["LAYER_RULES", "Layer", "LayerRule", "model_cost", "replaceable", "spec_for", "substitute"]

# For small networks on small pictures: what a spec leaves out. Windows of 3 must fit where H is 4.
DEFAULTS: Mapping[str, Any] = {
    "input": "N, C_in: unordered, H, H",
    "output": "N, C_out: unordered, H, H",
    "variables": "N:0, C_in:2, C_out:4, H:0; k_1=3:2, s=2:2, g=4:3",
    "bound_axes": [(0, 0)],
    "depth": 10,
    "occurrences": {"tensors": 3, "merges": 1, "splits": 3, "shifts": 2, "strides": 0},
    "windows": {"least_ratio": 1.0},
    "repeats": {"largest": 1, "tile": False},
    "contractions": {"least_elements": 16},
}


def substitute(
    model: nn.Module,
    operator: PGraph,
    example: torch.Tensor,
    *,
    seed: int = 0,
    mode: str = "fused",
    rule: str | LayerRule = "spatial",
    keep_stem: bool = True,
) -> nn.Module:
    """A copy of `model` in which `operator` stands in place of each replaceable layer.

    In place of a layer with a stride there is an average pooling by it, and the operator after that.

    Args:
        model: is not changed; the weights of what stays are copied.
        operator: from [N, C_in, H, H] to [N, C_out, H, H]; its other variables have defaults.
        example: an input of the model; any batch size.
        seed: of the operators' weights, which are different in every layer.
        mode: the form of the operators: "fused", or "literal".
        rule, keep_stem: which layers; see `replaceable`.

    Raises:
        SpecError: the operator does not fit a layer (it says which, and why), or there is no layer.
        LoweringError: the operator cannot be lowered.
    """
    layers = replaceable(model, example, rule, keep_stem=keep_stem)
    seeds = torch.randint(2**62, (len(layers),), generator=torch.Generator().manual_seed(seed)).tolist()
    modules = [_fitted(operator, layer, number, mode) for layer, number in zip(layers, seeds, strict=True)]
    if layers[0].module is model:
        return modules[0]
    copied = deepcopy(model)
    for layer, module in zip(layers, modules, strict=True):
        copied.set_submodule(layer.name, module)
    return copied


def spec_for(
    model: nn.Module,
    example: torch.Tensor,
    *,
    options: Mapping[str, Any] | None = None,
    rule: str | LayerRule = "spatial",
    keep_stem: bool = True,
) -> OperatorSpec:
    """The spec of operators for the replaceable layers of `model`.

    Layers of equal sizes make one row. The budget's rest is what the model has beside them, so that `cost(operator, spec)`
    is the cost of the whole substituted model (in one order of work for all layers, where the modules take the best for each);
    `model_cost(model, example)` is that of the original.

    Args:
        model: the network.
        example: a batch of inputs; its length is N.
        options: fields of OperatorSpec that differ from DEFAULTS. Those of `budget` are added to the rest found here.
        rule, keep_stem: which layers; see `replaceable`.

    Raises SpecError if there is no layer to replace, or the options mean nothing.
    """
    layers = replaceable(model, example, rule, keep_stem=keep_stem)
    original = model_cost(model, example)
    replaced = [_layer_cost(layer) for layer in layers]
    rest = {
        "rest_flops": original.flops - sum(cost.flops for cost in replaced),
        "rest_parameters": original.parameters - sum(cost.parameters for cost in replaced),
    }
    given = dict(options or {})
    if taken := [name for name in ("layers", *rest) if name in given or name in given.get("budget", {})]:
        raise SpecError(f"options give {taken[0]}, which is found from the model; leave it out")
    rows = Counter(tuple(layer.values.items()) for layer in layers)
    fields = {"name": type(model).__name__.lower(), **DEFAULTS, **given}
    return OperatorSpec(
        **{
            **fields,
            "layers": [{"values": dict(values), "count": count} for values, count in rows.items()],
            "budget": {**rest, **given.get("budget", {})},
        }
    )


def _layer_cost(layer: Layer) -> Cost:
    side = layer.stride * layer.values["H"]
    shape = [layer.values["N"], layer.values["C_in"], side, side]
    return model_cost(layer.module, torch.empty(shape, device=layer.module.weight.device, dtype=layer.module.weight.dtype))


def _fitted(operator: PGraph, layer: Layer, seed: int, mode: str) -> nn.Module:
    """The operator as a module for this layer, on its device, in its number format and mode; see `substitute` for strides."""
    sizes = ", ".join(f"{name}={value}" for name, value in layer.values.items())
    failure = f"{operator.name} does not fit layer {layer.name or 'Conv2d'} ({sizes})"
    table, known = operator.variables, {**operator.variables.defaults, **layer.values}
    if unknown := [name for name in table if name not in known]:
        raise SpecError(
            f"{failure}: it has the variable {unknown[0]}, but a layer has values for {', '.join(layer.values)} only; "
            "give it a default or another name"
        )
    try:
        values = operator.valuation({name: known[name] for name in table})
        for title, dims, channels in (("input", operator.input, "C_in"), ("output", operator.output, "C_out")):
            shape, needed = (
                [values.integer(dim.size) for dim in dims],
                [layer.values[name] for name in ("N", channels, "H", "H")],
            )
            if shape != needed:
                raise SpecError(f"its {title} is {_shape(dims)} = {shape}, where the layer has {needed}; take another operator")
        given = {name: known[name] for name in table if name != "N"}  # any batch will do
        weight = layer.module.weight
        module: nn.Module = build(operator, given, mode=mode, seed=seed, device=weight.device, dtype=weight.dtype)
    except (SizeError, SpecError, ValuationError) as error:
        raise SpecError(f"{failure}: {error}") from error
    if layer.stride > 1:
        module = nn.Sequential(nn.AvgPool2d(layer.stride), module)
    return module.train(layer.module.training)


def _shape(dims: tuple[Dim, ...]) -> str:
    return f"[{', '.join(str(dim.size) for dim in dims)}]"
