"""The requirement that a network has of operators in its layers: which part of the input they must read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from syno.model.extraction import trace
from syno.model.geometry import CONVOLUTIONS, TRANSPOSED
from syno.model.inputs import Inputs
from syno.model.layer import Layer
from syno.space.reads import Reads

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
    kernel = min((int(layer.module.kernel_size[axis]) for layer in layers for axis in mixed), default=1)
    window = max(SQUARE, odd_at_most(kernel))
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


def odd_at_most(size: int) -> int:
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
