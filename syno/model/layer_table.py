"""All layers of a network that have weights, as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from syno.model.counting import WEIGHTED, layer_cost
from syno.model.extraction import LayerCall, sorted_out, trace
from syno.model.geometry import TRANSPOSED
from syno.model.layer import Layer
from syno.model.layer_row import LayerRow
from syno.model.layers import KINDS, LAYER_RULES, STEM, Where

OTHER_KIND = "the rule takes no such layer"
RULES = ("spatial", "pointwise", "grouped", "transposed", "linear")  # which together take layers of every kind


def layer_rows(model: nn.Module, example: torch.Tensor, where: Where) -> tuple[LayerRow, ...]:
    """Return a row for each layer with weights, in the order in which they run.

    Args and errors are those of `syno.model.extraction.replaceable`; there may be no layer to replace.
    """
    found, refused = sorted_out(model, example, where)
    replaced = {layer.name for layer in found}
    possible = {layer.name: layer for layer in sorted_out(model, example, _every, keep_stem=False)[0]}
    uses: dict[str, list[LayerCall]] = {}
    for call in trace(model, example):
        if isinstance(call.module, (*WEIGHTED, *TRANSPOSED)):
            uses.setdefault(call.name, []).append(call)
    return tuple(
        LayerRow(
            name=name,
            kind=kind_of(calls[0].module),
            input=calls[0].input[1:],
            output=calls[0].output[1:],
            flops=sum(layer_cost(call)[0] for call in calls) / len(example),
            parameters=sum(one.numel() for one in calls[0].module.parameters()),
            reason="" if name in replaced else _advised(refused.get(name, OTHER_KIND), possible.get(name), found),
        )
        for name, calls in uses.items()
    )


def _every(layer: Layer) -> None:
    """A rule that takes every layer."""


_every.kind = KINDS  # type: ignore[attr-defined]


def _advised(reason: str, layer: Layer | None, others: Sequence[Layer]) -> str:
    """Return why a layer stays, and what takes it; `layer` is None if it cannot be replaced."""
    if layer is None:
        return f"{reason}, so it cannot be replaced"
    fitting = (name for name in RULES if isinstance(layer.module, getattr(LAYER_RULES[name], "kind", KINDS)))
    rule = None if reason == STEM else next((name for name in fitting if LAYER_RULES[name](layer) is None), None)
    wanted = rule or layer.name
    if any(len(other.lengths) != len(layer.lengths) for other in others):
        return f"{reason}; an experiment of its own takes it, with `layers: {wanted}`"
    return f"{reason}; add {wanted} to `layers` to replace it"


def kind_of(module: nn.Module) -> str:
    """Return a layer in words: "3x3 convolution, stride 2", "depthwise 3x3 convolution", "linear"."""
    if isinstance(module, nn.Linear):
        return "linear"
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
    return ", ".join([words, *details])


def _one(values: tuple[int, ...]) -> str:
    return str(values[0]) if len(set(values)) == 1 else "x".join(map(str, values))
