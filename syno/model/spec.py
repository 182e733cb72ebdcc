"""The spec of operators that replace layers of a network."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from syno.base.errors import SpecError
from syno.ir.rewriting import HEIGHT, WIDTH
from syno.model.counting import count
from syno.model.extraction import replaceable, trace
from syno.model.geometry import CONVOLUTIONS, STRIDE, TRANSPOSED, Layer, Where
from syno.model.inputs import Inputs
from syno.space.complete import Cost
from syno.space.reads import AUTO, Reads
from syno.space.spec import OperatorSpec

# ---- requirement of a network ----------------------------------------------------------------------------------------

# The requirement that a network has of an operator in its layers: which part of the input it must read.

MOST = 2 / 3  # share of a network's FLOPs from which on its replaced layers are most of it
PARTS = 3  # queries, keys and values
AXES = {1: "the axis", 2: "both axes", 3: "all axes"}  # by their number
SQUARE, LINE = 3, 2  # positions along an axis: a position and both neighbours; more than one position


@dataclass(frozen=True)
class Requirement:
    """The requirement that a network has of operators.

    Attributes:
        reads: the requirement; None if the network asks for nothing.
        reason: why, as a clause that follows "because".
    """

    reads: Reads | None
    reason: str


def requirement(model: nn.Module, example: Inputs, layers: Sequence[Layer], share: float) -> Requirement:
    """Return the requirement of a network for the operators in these layers.

    A network that does not mix positions cannot see shapes. So where most of it is replaced, the operator itself must mix
    positions along both axes: applied twice, as by neighbouring layers, it reads a square around its own position. Along each
    axis this has 3 positions, or as many as the smallest window of the replaced layers. That is so if the replaced layers have
    more than two thirds of the network's FLOPs, and there are less than half as many other layers that mix positions along both
    axes. Those are convolutions with windows larger than 1 along both, recurrent layers and attention; poolings do not count,
    and neither does the first convolution, which sees edges only. In other networks a line is enough: two positions along one
    axis.

    Along an axis with one position there is nothing to mix. So what is said of both axes is said of those along which a
    replaced layer has a window larger than 1 and more than one position, and the number of positions that is asked for does not
    depend on layers that have one only.

    Channels are all read within two applications, unless a replaced layer has groups, and there are at least half as many other
    convolutions without groups: then these mix channels.
    Layers whose windows have one position mix channels only, and so must an operator in their place. For projections to
    queries, keys and values nothing is asked for: attention mixes positions, and other linear layers channels. In place of
    other linear layers, an operator must read all channels. On pictures that are not square, and in one or three dimensions,
    the same is asked for along every axis.

    Source: the operators that the paper's authors published. All 12 for ResNet-18 (92 % of the FLOPs) read a square when they
    are applied twice. For DenseNet-121 (44 %), ResNeXt-29 (46 %) and EfficientNet-V2-S (49 %, and 30 other layers mix) many
    read lines only.

    Args:
        model: the original network, which is run once.
        example: a batch of its inputs.
        layers: those that are replaced.
        share: of the network's FLOPs that these layers have.
    """
    if layers[0].is_projection:
        if all(layer.output[-1] == PARTS * layer.input[-1] for layer in layers):
            return Requirement(None, "attention mixes positions, and the other linear layers of the network mix channels")
        return Requirement(Reads(centred=False), "linear layers mix channels, and there may be no others that do")
    if all(set(layer.module.kernel_size) == {1} for layer in layers):
        reads = None if any(layer.module.groups > 1 for layer in layers) else Reads(centred=True)
        return Requirement(reads, "the replaced layers read their own position only, and others mix positions")
    names = max((layer.lengths for layer in layers), key=lambda lengths: len(set(lengths)))
    mixed = [axis for axis in range(len(names)) if any(_is_mixed(layer, axis) for layer in layers)]
    left = _mixing(model, example, {layer.name for layer in layers}, mixed)
    is_whole = len(mixed) == len(names)
    axes = AXES[len(names)] if is_whole or not mixed else " and ".join(names[axis] for axis in mixed)
    replaced = f"the {len(layers)} replaced layers have" if len(layers) > 1 else "the replaced layer has"
    others = f"besides them and the first, {_others(left)} positions along {axes}"
    facts = f"{replaced} {share:.0%} of the network's FLOPs, and {others}"
    is_square = share > MOST and 2 * left < len(layers)
    if not is_square:
        facts += "; a square is asked for where they have more than two thirds, and less than half as many others mix"
    lengths = [length for layer in layers for axis in mixed if (length := layer.input[2 + axis]) > 1]
    window = max(SQUARE, _odd(min((int(layer.module.kernel_size[axis]) for layer in layers for axis in mixed), default=1)))
    count = min([window if is_square else LINE, *lengths])
    positions = {names[axis]: count for axis in mixed}
    grouped = [layer.name for layer in layers if layer.module.groups > 1]
    mixers = _mixing_channels(model, example, {layer.name for layer in layers}) if grouped else 0
    if grouped and 2 * mixers < len(layers):
        facts += f"; {grouped[0]} itself has groups, but {_others(mixers)} channels"
        grouped = []
    elif grouped:
        facts += f"; {grouped[0]} itself has groups, and {_others(mixers)} channels"
    if not positions:
        facts += "; the replaced layers have one position along each axis of their windows"
        return Requirement(None if grouped else Reads(centred=False, channels="all"), facts)
    # In a smaller picture all positions along an axis are read, anyway.
    centred = is_square and count == window
    # Of two axes of one size, of which only one is mixed, an operator need not read along the other.
    is_each = is_square and all(axis in mixed for axis, name in enumerate(names) if name in positions)
    options = {"channels": "none" if grouped else "all", "along": "every" if is_each else "any"}
    return Requirement(Reads.model_validate({**positions, "applied": 2, "centred": centred, **options}), facts)


def _odd(size: int) -> int:
    """Return the largest odd number that is not above a size: windows of such have a middle."""
    return (size - 1) // 2 * 2 + 1


def _is_mixed(layer: Layer, axis: int) -> bool:
    """Return whether a layer mixes positions along an axis: it and an operator have several there, and its window is larger."""
    return bool(layer.module.kernel_size[axis] > 1 and min(layer.own_input[2 + axis], layer.input[2 + axis]) > 1)


def _others(count: int) -> str:
    return f"{count} other layer{' mixes' if count == 1 else 's mix'}" if count else "no other layer mixes"


def _mixing_channels(model: nn.Module, example: Inputs, replaced: set[str]) -> int:
    """Return the number of convolutions without groups, without the replaced ones and the first."""
    found = [call for call in trace(model, example) if isinstance(call.module, (*CONVOLUTIONS, *TRANSPOSED))]
    return len({call.name for call in found if call.module.groups == 1} - replaced - {call.name for call in found[:1]})


def _mixing(model: nn.Module, example: Inputs, replaced: set[str], axes: Sequence[int]) -> int:
    """Return the number of layers that mix positions along these axes, without the replaced ones and the first convolution."""
    calls = trace(model, example)
    first = next((call.name for call in calls if isinstance(call.module, CONVOLUTIONS)), None)
    return len({call.name for call in calls if _mixes(call.module, axes)} - replaced - {first})


def _mixes(module: nn.Module, axes: Sequence[int]) -> bool:
    if isinstance(module, (*CONVOLUTIONS, *TRANSPOSED)):
        return all(side > 1 for axis, side in enumerate(module.kernel_size) if axis in axes or not axes)
    return isinstance(module, (nn.MultiheadAttention, nn.RNNBase))


def in_words(reads: Reads) -> str:
    """Return a requirement in words: `applied twice, an operator reads 3 positions along every axis H, around its own, ...`."""
    axes = ", ".join(f"{count} positions along {reads.along} axis {size}" for size, count in reads.positions.items())
    parts = [f"{axes}{', around its own' if reads.centred else ''}"] if axes else ["its own position"] if reads.centred else []
    if reads.channels == "all":
        parts.append("all channels")
    return f"{'applied twice, ' if reads.applied == 2 else ''}an operator reads {' and '.join(parts)}"


# ---- spec of a network -----------------------------------------------------------------------------------------------

WINDOW = 3  # positions, which must fit where H is 4
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
    """Return DEFAULTS for tensors whose axes after that of the channels have these variables, such as L, or H and W.

    Args:
        lengths: the variables.
        window: of operators that read as far as a layer with a large kernel does, an odd number; beside that of `DEFAULTS`.
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
    """Return the size of the largest kernel along any axis, but at most the positions that there are; an odd number."""
    axes = [pair for layer in layers for pair in zip(layer.windows, layer.input[2 : 2 + len(layer.windows)], strict=True)]
    kernel = max((axis.kernel for axis, _ in axes), default=1)
    fitting = min((length for axis, length in axes if axis.kernel == kernel), default=1)
    return _odd(min(kernel, fitting))


def spec_for(
    model: nn.Module,
    example: Inputs,
    *,
    options: Mapping[str, Any] | None = None,
    where: Where = "spatial",
    keep_stem: bool = True,
) -> OperatorSpec:
    """Return the spec of operators for the replaceable layers of `model`.

    Layers of equal sizes make one row. The budget's rest is the cost of the model outside of them, so that
    `cost(operator, spec)` is that of the whole model with the operator (in one order of work for all layers; modules take the
    best one for each).
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
            added to the rest found here. `reads: auto` is what the network asks for; see `syno.model.spec`.
        where, keep_stem: the layers; see `replaceable`.

    Raises SpecError if there is no layer to replace, if there are layers of both kinds, or if the options are wrong.
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
    """Return the share of the model's FLOPs that the layers to replace have, given the cost of the rest."""
    whole = count(model, example).flops
    return 1 - rest.flops / whole if whole else 0.0


def rest_cost(model: nn.Module, example: Inputs, layers: Sequence[Layer]) -> Cost:
    """Return the cost of `model` outside of the layers to replace, for one batch, without memory. Their biases stay.

    A weight that a layer to replace shares with one that stays does stay. A model with any operator costs more than that.
    """
    replaced = {id(part) for layer in layers for part in layer.module.modules()}
    inside = {name for name, module in model.named_modules() if id(module) in replaced}
    staying = [module for module in model.modules() if id(module) not in replaced]
    left = {id(one): one.numel() for module in staying for one in module.parameters(recurse=False)}
    biases = sum(layer.module.bias.numel() for layer in layers if layer.module.bias is not None)
    work = count(model, example).work
    return Cost(sum(one.flops for one in work if one.runs_in not in inside), sum(left.values()) + biases, 0)
