"""The layers of a network that do its multiply-adds, as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from syno.model.counting import LayerWork, count
from syno.model.extraction import sorted_out, trace
from syno.model.geometry import TRANSPOSED
from syno.model.inputs import Inputs, len_of_batch
from syno.model.layer import Layer
from syno.model.layer_row import LayerRow
from syno.model.layer_rules import KINDS, LAYER_RULES, STEM, Where
from syno.model.module import OperatorModule

REPLACED, WHOLE = "replaced", "(the network itself)"


OTHER_KIND = "the rule takes no such layer"
RULES = ("spatial", "pointwise", "grouped", "transposed", "linear")  # together they select layers of every kind


def layer_rows(model: nn.Module, example: Inputs, where: Where) -> tuple[LayerRow, ...]:
    """Return a row for each layer that does multiply-adds, and for each replaceable layer, in the order in which they run.

    The rows' FLOPs add up to the network's. Multiply-adds of functions that a module's `forward` calls have the row of the
    module, unless they use the weights of exactly one layer.

    Arguments and exceptions are those of `syno.model.extraction.replaceable`; there may be no layer to replace.
    """
    layers, refused = sorted_out(model, example, where)
    replaced = {layer.name for layer in layers}
    possible = {layer.name: layer for layer in sorted_out(model, example, _every, keep_stem=False)[0]}
    modules = dict(model.named_modules())
    work: dict[str, list[LayerWork]] = {}
    for part in count(model, example).work:
        work.setdefault(part.layer, []).append(part)
    for call in trace(model, example):  # layers that are called, but compute with another module's weight or with none
        if isinstance(call.module, KINDS) and call.name not in work:
            work[call.name] = [LayerWork(call.name, call.name, call.input, call.output)]

    def reason(name: str, of: Sequence[LayerWork]) -> str:
        if name in replaced:
            return ""
        module = modules[name]
        if isinstance(module, KINDS):
            if any(one.runs_in == name for one in of):
                return _with_advice(refused.get(name, OTHER_KIND), possible.get(name), layers)
            user = type(modules[of[0].runs_in]).__name__
            return f"{user} uses its weight without calling it, so it cannot be replaced"
        if isinstance(module, torch.jit.ScriptModule):
            return "TorchScript compiled it, so that its layers are not seen; give the network without that"
        if isinstance(module, OperatorModule):
            return "it is an operator already"
        return "it is neither a convolution nor a linear layer of torch.nn, so it cannot be replaced"

    return tuple(
        LayerRow(
            name=name,
            kind=kind_of(modules[name]),
            input=of[0].input[1:],
            output=of[0].output[1:],
            flops=sum(one.flops for one in of) / len_of_batch(example),
            parameters=_own_parameters(modules[name]),
            reason=reason(name, of),
        )
        for name, of in work.items()
    )


def _own_parameters(module: nn.Module) -> int:
    """Return the number of a module's parameters, including its submodules' only if these have no rows of their own."""
    is_whole = isinstance(module, torch.jit.ScriptModule) or is_parametrized(module) or isinstance(module, KINDS)
    return sum(one.numel() for one in module.parameters(recurse=is_whole))


def _every(layer: Layer) -> None:
    """A rule that selects every layer: it gives no reason to keep it."""


_every.kind = KINDS  # type: ignore[attr-defined]


def _with_advice(reason: str, layer: Layer | None, others: Sequence[Layer]) -> str:
    """Return the reason why a layer stays, with the setting that would replace it.

    `layer` is None if it cannot be replaced; `others` are the layers that are replaced.
    """
    if layer is None:
        return f"{reason}, so it cannot be replaced"
    fitting = (name for name in RULES if isinstance(layer.module, getattr(LAYER_RULES[name], "kind", KINDS)))
    rule = None if reason == STEM else next((name for name in fitting if LAYER_RULES[name](layer) is None), None)
    wanted = rule or layer.name
    if any(len(other.lengths) != len(layer.lengths) for other in others):
        return f"{reason}; an experiment of its own takes it, with `layers: {wanted}`"
    return f"{reason}; add {wanted} to `layers` to replace it"


def kind_of(module: nn.Module) -> str:
    """Return the kind of a layer in words, such as "3x3 convolution, stride 2" or "linear"; else the name of its class."""
    if isinstance(module, torch.jit.ScriptModule):
        return f"{module.original_name} of TorchScript"
    if isinstance(module, nn.Linear):
        return "linear" + _parametrizations(module)
    if not isinstance(module, KINDS):
        return type(module).__name__ + _parametrizations(module)
    sides = "x".join(map(str, module.kernel_size)) if len(module.kernel_size) > 1 else f"{module.kernel_size[0]}-tap"
    is_depthwise = 1 < module.groups == module.in_channels
    words = (
        f"{'depthwise ' if is_depthwise else ''}{sides} {'transposed ' if isinstance(module, TRANSPOSED) else ''}convolution"
    )
    details = [
        *([f"stride {_one(module.stride)}"] if set(module.stride) != {1} else []),
        *([f"dilation {_one(module.dilation)}"] if set(module.dilation) != {1} else []),
        *([f"{module.groups} groups"] if module.groups > 1 and not is_depthwise else []),
    ]
    return ", ".join([words, *details]) + _parametrizations(module)


def _parametrizations(module: nn.Module) -> str:
    """Return the clause about a layer's parametrized weights: ", parametrized weight (WeightNorm)"; "" if it has none."""
    if not is_parametrized(module):
        return ""
    made = {name: " and ".join(type(one).__name__.lstrip("_") for one in of) for name, of in module.parametrizations.items()}
    return f", parametrized {', '.join(f'{name} ({of})' for name, of in made.items())}"


def _one(values: tuple[int, ...]) -> str:
    return str(values[0]) if len(set(values)) == 1 else "x".join(map(str, values))
