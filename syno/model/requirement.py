"""The requirement of a network on its operators: the least receptive field, such as 3 positions along both axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from syno.model.extraction import trace
from syno.model.geometry import CONVOLUTIONS, TRANSPOSED
from syno.model.inputs import Inputs
from syno.model.layer import Layer
from syno.space.reads import Reads

MOST = 2 / 3  # from this share of the network's FLOPs on, the replaced layers count as most of the network
PARTS = 3  # queries, keys and values
AXES = {1: "the axis", 2: "both axes", 3: "all axes"}  # by their number
SQUARE, LINE = 3, 2  # positions along an axis: a position and both neighbours; more than one position


@dataclass(frozen=True)
class Requirement:
    """The requirement of a network on its operators.

    Attributes:
        reads: the least receptive field; None: no requirement.
        reason: a clause that follows "because".
    """

    reads: Reads | None
    reason: str


def requirement(model: nn.Module, example: Inputs, layers: Sequence[Layer], share: float) -> Requirement:
    """Return the requirement of a network on the operators in these layers.

    Convolutions: a network that does not mix positions cannot see shapes. So if most of it is replaced, the operator itself
    must mix positions along both axes: its receptive field after two applications, as of neighbouring layers, must be a square
    around its own position. The square's side is the smallest window of the replaced layers, but at least 3. Most of the
    network is replaced if the replaced layers have more than two thirds of its FLOPs, and fewer than half as many other layers
    mix positions along both axes. Layers that mix are convolutions with windows larger than 1 along both axes, recurrent layers
    and attention; poolings do not count, and neither does the first convolution, which sees edges only. In other networks a
    line is enough: two positions along one axis.

    "Both axes" are those along which some replaced layer has a window larger than 1 and more than one position: elsewhere there
    is nothing to mix. Layers with one position along an axis do not limit the side of the square.

    Two applications must read all channels, unless a replaced layer has groups, and at least half as many other convolutions
    without groups mix the channels.

    Layers with 1x1 windows mix channels only, and so must their operators. Projections to queries, keys and values have no
    requirement: attention mixes positions, and other linear layers mix channels. Operators for other linear layers must read
    all channels. For pictures that are not square, and in one or three dimensions, the requirement holds along every axis.

    Source: the operators that the paper's authors published. All 12 for ResNet-18 (92 % of the FLOPs) read a square when they
    are applied twice. For DenseNet-121 (44 %), ResNeXt-29 (46 %) and EfficientNet-V2-S (49 %, and 30 other layers mix) many
    read lines only.

    Args:
        model: the original network, which is run once.
        example: a batch of its inputs.
        layers: the replaced layers.
        share: share of the network's FLOPs in the replaced layers.
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
    # In a picture smaller than the window, an operator that reads all positions need not be centred.
    centred = is_square and count == window
    # Of two axes of one size, of which only one is mixed, an operator need not read along the other.
    is_each = is_square and all(axis in mixed for axis, name in enumerate(names) if name in positions)
    options = {"channels": "none" if grouped else "all", "along": "every" if is_each else "any"}
    return Requirement(Reads.model_validate({**positions, "applied": 2, "centred": centred, **options}), facts)


def odd_at_most(size: int) -> int:
    """Return the largest odd number up to `size`; an odd window has a middle."""
    return (size - 1) // 2 * 2 + 1


def _is_mixed(layer: Layer, axis: int) -> bool:
    """Return whether a layer mixes positions along an axis: its window is larger than 1, and the axis has several positions."""
    return bool(layer.module.kernel_size[axis] > 1 and min(layer.own_input[2 + axis], layer.input[2 + axis]) > 1)


def _others(count: int) -> str:
    return f"{count} other layer{' mixes' if count == 1 else 's mix'}" if count else "no other layer mixes"


def _mixing_channels(model: nn.Module, example: Inputs, replaced: set[str]) -> int:
    """Return the number of convolutions without groups, except the replaced ones and the first convolution."""
    found = [call for call in trace(model, example) if isinstance(call.module, (*CONVOLUTIONS, *TRANSPOSED))]
    return len({call.name for call in found if call.module.groups == 1} - replaced - {call.name for call in found[:1]})


def _mixing(model: nn.Module, example: Inputs, replaced: set[str], axes: Sequence[int]) -> int:
    """Return the number of layers that mix positions along these axes, except the replaced ones and the first convolution."""
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
