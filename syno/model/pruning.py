"""Narrower networks: structured pruning, which removes whole channels from every layer, by the library Torch-Pruning.

>>> import torch
>>> from torch import nn
>>> network = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 10, 1))
>>> narrowed(network, torch.zeros(1, 3, 8, 8), 0.5)
Sequential(
  (0): Conv2d(3, 16, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
  (1): ReLU()
  (2): Conv2d(16, 10, kernel_size=(1, 1), stride=(1, 1))
)
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

from syno.base.errors import MisfitError
from syno.model.inputs import Inputs, call
from syno.model.outputs import copy_of, tensors_in

# Numbers of channels are multiples of it: vectors of AVX2 have 8 numbers, and libraries fill channels up to that. In a network
# with few channels, 4: a multiple of 8 would leave 16 channels no choice but 8.
MULTIPLE, MULTIPLE_OF_FEW, FEW = 8, 4, 32
PRUNED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear)
# Beginnings of names of autograd's nodes that multiply an input by a weight: behind them are other layers' channels.
PRODUCTS = ("Convolution", "Addmm", "Mm", "Bmm", "Baddbmm", "Linear")
VIEWS = 3  # nodes, such as a transposition, between a product and its weight


def narrowed(network: nn.Module, example: Inputs, share: float) -> nn.Module:
    """Return a copy of a network with a share of the channels of each layer: those whose weights are the largest.

    Channels that a sum or a concatenation ties together are removed together. A layer that makes the network's output keeps its
    channels, and so does the input. All layers lose the same share, so that the shapes do not depend on the weights.

    Args:
        network: with layers in `PRUNED`; it is not changed.
        example: its inputs.
        share: of the channels that stay, above 0 and below 1.

    Raises MisfitError if the library cannot follow the network's channels, or nothing can be removed.
    """
    import torch_pruning

    found = copy_of(network).eval()
    for parameter in found.parameters():
        parameter.requires_grad_(True)  # autograd shows which layers make the output
    last = _last_layers(found, example)
    channels = {module: _channels(module) for module in found.modules() if isinstance(module, PRUNED) and module not in last}
    if not channels:
        raise MisfitError("it has no convolution and no linear layer whose channels could be removed")
    multiple = MULTIPLE if min(channels.values()) >= FEW else MULTIPLE_OF_FEW
    stay = {module: max(1, round(share * count / multiple)) * multiple for module, count in channels.items()}
    before, shapes = _size(found), _shapes(found, example)
    try:
        with warnings.catch_warnings(), torch.enable_grad():
            warnings.simplefilter("ignore")
            pruner = torch_pruning.pruner.BasePruner(
                found,
                example,
                importance=torch_pruning.importance.GroupMagnitudeImportance(p=2),
                pruning_ratio=0.0,
                pruning_ratio_dict={
                    module: (count - stay[module]) / count for module, count in channels.items() if stay[module] < count
                },
                ignored_layers=last,
                forward_fn=call,
                output_transform=tensors_in,
            )
            pruner.step()
        is_same = _shapes(found, example) == shapes
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0]
        raise MisfitError(f"Torch-Pruning cannot follow its channels ({type(error).__name__}: {said})") from error
    if not is_same:
        raise MisfitError("without some of the channels, its output has another shape")
    if _size(found) >= before:
        raise MisfitError(f"in no layer can {share:g} of the channels stay, in multiples of {multiple}")
    for parameter, given in zip(found.parameters(), network.parameters(), strict=True):
        parameter.requires_grad_(given.requires_grad)
    return found.train(network.training)


def _channels(module: nn.Module) -> int:
    return int(getattr(module, "out_channels", None) or module.out_features)


def _size(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def _shapes(network: nn.Module, example: Inputs) -> list[torch.Size]:
    with torch.no_grad():
        return [tensor.shape for tensor in tensors_in(call(network, example))]


def _last_layers(network: nn.Module, example: Inputs) -> list[nn.Module]:
    """Return the layers whose channels are those of an output: no other layer with a weight is behind them."""
    owners = {id(module.weight): module for module in network.modules() if isinstance(module, PRUNED)}
    found: dict[int, nn.Module] = {}
    with torch.enable_grad():
        ends = [tensor.grad_fn for tensor in tensors_in(call(network, example)) if tensor.grad_fn is not None]
    seen: set[Any] = set()
    while ends:
        node = ends.pop()
        if node in seen:
            continue
        seen.add(node)
        behind = [one for one, _ in node.next_functions if one is not None]
        if node.name().startswith(PRODUCTS):
            weights = [weight for one in behind if (weight := _weight(one)) is not None]
            found |= {id(weight): owners[id(weight)] for weight in weights if id(weight) in owners}
            if any(id(weight) in owners for weight in weights):
                continue
        ends += behind
    return list(found.values())


def _weight(node: Any) -> torch.Tensor | None:
    """Return the parameter of a node, or of one that is a view of it; None if there is none."""
    for _ in range(VIEWS):
        if hasattr(node, "variable"):
            parameter: torch.Tensor = node.variable
            return parameter
        behind = [one for one, _ in node.next_functions if one is not None]
        if len(behind) != 1:
            return None
        (node,) = behind
    return None
