"""The spec of a search space derived from a network: shapes, layers and budget of the operators that may replace its layers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from syno.base.errors import SpecError
from syno.ir.rewriting import HEIGHT, WIDTH
from syno.model.counting import count
from syno.model.extraction import replaceable
from syno.model.inputs import Inputs
from syno.model.layer import STRIDE, Layer
from syno.model.layer_rules import Where
from syno.model.requirement import odd_at_most, requirement
from syno.space.complete import Cost
from syno.space.reads import AUTO
from syno.space.spec import OperatorSpec

WINDOW = 3  # positions of the default window: it must fit into pictures with H = 4
# Defaults of a spec for small networks on small pictures.
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
# Defaults for linear layers: an operator works on each position by itself.
LINEAR_DEFAULTS: Mapping[str, Any] = {
    "input": "N, seq_len, H_in: unordered",
    "output": "N, seq_len, H_out: unordered",
    "variables": "N:0, seq_len:0, H_in:2, H_out:4; s=2:2, g=4:3",
    "bound_axes": [(0, 0), (1, 1)],
    "depth": 8,
    "occurrences": {"tensors": 3, "merges": 2, "splits": 2, "shifts": 0, "strides": 0},
    "repeats": {"largest": 1, "tile": False},
    "contractions": {"least_elements": 16},
}
# Defaults for projections to queries, keys and values in small language models. The paper's search had k_2=5 and g=32, too.
SEQUENCE_DEFAULTS: Mapping[str, Any] = {
    "input": "N, seq_len, H_in: unordered",
    "output": "N, seq_len, t*H_in",
    "variables": "N:0, seq_len:0, H_in:4; k_1=2:3, t=3:3, g=4:3",
    "bound_axes": [(0, 0)],
    "depth": 7,
    "occurrences": {"tensors": 3, "merges": 2, "splits": 2, "shifts": 2, "strides": 0, "chain_length": 5},
    "windows": {"least_ratio": 1.0, "odd": False},  # windows of 2 positions read earlier positions only
    "repeats": {"largest": 3, "tile": True},
    "contractions": {"least_elements": 16},
}


def convolution_defaults(lengths: Sequence[str], window: int = WINDOW) -> dict[str, Any]:
    """Return `DEFAULTS` of a spec for convolutions whose spatial axes have these variables, such as L, or H and W.

    Args:
        lengths: the variables of the spatial axes.
        window: if above `WINDOW`, a second window size that operators may use, an odd number: that of the largest kernel.
    """
    larger = f", k_2={window}:2" if window > WINDOW else ""
    free = "".join(f", {name}" for name in lengths)
    table = "".join(f", {name}:0" for name in dict.fromkeys(lengths))
    return {
        **DEFAULTS,
        "input": f"N, C_in: unordered{free}",
        "output": f"N, C_out: unordered{free}",
        "variables": f"N:0, C_in:2, C_out:4{table}; k_1={WINDOW}:2{larger}, s=2:2, g=4:3",
    }


def _widest(layers: Sequence[Layer]) -> int:
    """Return the layers' largest kernel size along any axis, at most the axis' length, rounded down to an odd number."""
    axes = [pair for layer in layers for pair in zip(layer.windows, layer.input[2 : 2 + len(layer.windows)], strict=True)]
    kernel = max((axis.kernel for axis, _ in axes), default=1)
    fitting = min((length for axis, length in axes if axis.kernel == kernel), default=1)
    return odd_at_most(min(kernel, fitting))


def spec_for(
    model: nn.Module,
    example: Inputs,
    *,
    options: Mapping[str, Any] | None = None,
    where: Where = "spatial",
    keep_stem: bool = True,
) -> OperatorSpec:
    """Return the spec of operators for the replaceable layers of `model`.

    Layers of equal sizes make one row. The budget's rest is the cost of the other layers, so that `cost(operator, spec)` is the
    cost of the whole model with the operator. (It uses one plan for all layers; modules use the best plan for each.)
    `model_cost(model, example)` is the cost of the original.

    >>> import syno, torch
    >>> from torch import nn
    >>> network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
    >>> example = torch.zeros(1, 3, 16, 16)
    >>> spec = syno.spec_for(network, example, options={"depth": 5})
    >>> [(dict(layer.values), layer.count) for layer in spec.layers]  # the first convolution stays
    [({'N': 1, 'C_in': 8, 'C_out': 8, 'H': 16}, 1)]

    Args:
        model: the network.
        example: a batch of its inputs, whose length is N: a tensor, a tuple of arguments, or a dict of named arguments.
        options: fields of OperatorSpec that differ from DEFAULTS (SEQUENCE_DEFAULTS for projections). Those of `budget` are
            added to the rest. `reads: auto` is the requirement of the network; see `syno.model.requirement`.
        where, keep_stem: the layers; see `replaceable`.

    Raises SpecError if there is no layer to replace, if layers have different numbers of axes, or if the options are wrong.
    """
    layers = replaceable(model, example, where, keep_stem=keep_stem)
    if len(kinds := {len(layer.lengths): layer for layer in layers}) > 1:
        first, second = ((one.name, type(one.module).__name__) for one in list(kinds.values())[:2])
        raise SpecError(
            f"{type(model).__name__}: {first[0]} is a {first[1]} and {second[0]} a {second[1]}, and no operator is for both; "
            "give a rule that takes one kind"
        )
    outside = rest_cost(model, example, layers)
    rest = {"rest_flops": outside.flops, "rest_parameters": outside.parameters}
    given = dict(options or {})
    if taken := [name for name in ("layers", *rest) if name in given or name in given.get("budget", {})]:
        raise SpecError(f"options give {taken[0]}, which is found from the model; leave it out")
    names = max((layer.lengths for layer in layers), key=lambda lengths: len(set(lengths)))
    width = {WIDTH: HEIGHT} if names == (HEIGHT, WIDTH) else {}  # square ones are as wide as they are high
    has_stride = STRIDE in re.split(r"\W+", str(given.get("variables", "")))
    found = [layer.values_with_stride if has_stride else layer.values for layer in layers]
    values = [{**{new: one[old] for new, old in width.items()}, **one} for one in found]
    defaults: Mapping[str, Any] = convolution_defaults(names, _widest(layers))
    if layers[0].is_projection:
        are_projections = {layer.output[-1] == 3 * layer.input[-1] for layer in layers} == {True}
        defaults = SEQUENCE_DEFAULTS if are_projections else LINEAR_DEFAULTS
    fields = {"name": type(model).__name__.lower(), **defaults, **given}
    if "H_out" not in str(fields["variables"]):  # the features are t*H_in
        values = [{name: size for name, size in row.items() if name != "H_out"} for row in values]
    rows = Counter(tuple(row.items()) for row in values)
    if given.get("reads") == AUTO:
        fields["reads"] = requirement(model, example, layers, replaced_share(model, example, outside)).reads
    return OperatorSpec(
        **{
            **fields,
            "layers": [{"values": dict(values), "count": count} for values, count in rows.items()],
            "budget": {**rest, **given.get("budget", {})},
        }
    )


def replaced_share(model: nn.Module, example: Inputs, rest: Cost) -> float:
    """Return the share of the model's FLOPs in the replaced layers, where `rest` is the cost of the other layers."""
    whole = count(model, example).flops
    return 1 - rest.flops / whole if whole else 0.0


def rest_cost(model: nn.Module, example: Inputs, layers: Sequence[Layer]) -> Cost:
    """Return FLOPs and parameters of `model` without the replaced layers, for one batch: a lower bound with any operator.

    Included are the biases of the replaced layers and weights that are tied to layers that stay. Memory is 0.
    """
    replaced = {id(part) for layer in layers for part in layer.module.modules()}
    inside = {name for name, module in model.named_modules() if id(module) in replaced}
    staying = [module for module in model.modules() if id(module) not in replaced]
    left = {id(one): one.numel() for module in staying for one in module.parameters(recurse=False)}
    biases = sum(layer.module.bias.numel() for layer in layers if layer.module.bias is not None)
    work = count(model, example).work
    return Cost(sum(one.flops for one in work if one.runs_in not in inside), sum(left.values()) + biases, 0)
