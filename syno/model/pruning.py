"""Narrower networks and layers: structured pruning (removal of whole channels) with the library Torch-Pruning.

>>> import torch
>>> from torch import nn
>>> network = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 10, 1))
>>> narrowed(network, torch.zeros(1, 3, 8, 8), 0.5)
Sequential(
  (0): Conv2d(3, 16, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
  (1): ReLU()
  (2): Conv2d(16, 10, kernel_size=(1, 1), stride=(1, 1))
)

A residual sum ties the channels of several layers together. A layer whose channels are not tied can be narrowed alone: besides
it, only the layers that read its output change, which get fewer inputs.

>>> network = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
>>> narrowed(network, torch.zeros(1, 4), 0.5, ["2"])
Sequential(
  (0): Linear(in_features=4, out_features=32, bias=True)
  (1): ReLU()
  (2): Linear(in_features=32, out_features=16, bias=True)
  (3): ReLU()
  (4): Linear(in_features=16, out_features=3, bias=True)
)
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from syno.base.errors import MisfitError
from syno.model.inputs import Inputs, call, copied, mapped
from syno.model.outputs import tensors_in
from syno.model.shared_memory import copy_of

# Numbers of channels are rounded to multiples of 8: AVX2 vectors have 8 lanes, and libraries pad channels to that. In a network
# with fewer than 32 channels in some layer, to multiples of 4: of 16 channels only 8 could remain otherwise.
MULTIPLE, MULTIPLE_OF_FEW, FEW = 8, 4, 32
PRUNED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear)
# Prefixes of names of autograd nodes that multiply by a weight: what comes before such a node has other channels.
PRODUCTS = ("Convolution", "Addmm", "Mm", "Bmm", "Baddbmm", "Linear")
FOLLOWED: Any = {"forward_fn": call, "output_transform": tensors_in}  # how Torch-Pruning runs a network
VIEWS = 3  # most autograd nodes between a product and its weight, such as a transposition


def narrowed(network: nn.Module, example: Inputs, share: float, layers: Collection[str] | None = None) -> nn.Module:
    """Return a pruned copy of a network: each layer keeps a share of its channels, those with the largest weights (L2 norm).

    Channels that a sum or a concatenation ties together are removed together. The network's inputs and outputs keep their
    channels. All layers lose the same share, so that the shapes do not depend on the weights.

    Args:
        network: has layers of the classes in `PRUNED`; it is not changed.
        example: inputs of the network.
        share: share of the channels that stay, above 0 and below 1.
        layers: names of the layers to narrow, which must be in `narrowable`; None: all layers.

    Raises MisfitError if Torch-Pruning cannot trace the network's channels, no channel can be removed, or one of these layers
    is not in `narrowable`.
    """
    import torch_pruning

    found = _Copy(network, example, share)
    named = {} if layers is None else found.layers_to_narrow(layers)
    fewer = found.fewer if layers is None else {one: found.fewer[one] for one in named.values()}
    before, shapes = _size(found.network), _shapes(found.network, found.example)
    with _followed():
        pruner = torch_pruning.pruner.BasePruner(
            found.network,
            found.example,
            importance=torch_pruning.importance.GroupMagnitudeImportance(p=2),
            pruning_ratio=0.0,
            pruning_ratio_dict={one: (count - stay) / count for one, (count, stay) in fewer.items()},
            ignored_layers=found.last,
            **FOLLOWED,
        )
        tied = [name for name, one in named.items() if _tied(pruner.DG, one) != {one}]
    if tied:
        raise MisfitError(f"{tied[0]} cannot keep {share:g} of its channels: they are those of other layers, too")
    with _followed():
        pruner.step()
        is_same = _shapes(found.network, found.example) == shapes
    if not is_same:
        raise MisfitError("without some of the channels, its output has another shape")
    if _size(found.network) >= before:
        raise MisfitError(f"in no layer can {share:g} of the channels stay, in multiples of {found.multiple}")
    for parameter, given in zip(found.network.parameters(), network.parameters(), strict=True):
        parameter.requires_grad_(given.requires_grad)
    return found.network.train(network.training)


def narrowable(network: nn.Module, example: Inputs, share: float, layers: Iterable[str]) -> tuple[str, ...]:
    """Return the names of those layers that can be narrowed alone: only the inputs of the layers that read them change.

    An example is the first layer of a residual block, whose output only the second layer reads. A layer cannot be narrowed
    alone if its output is added to others, or if a depthwise convolution reads it, which would lose channels, too.

    Args:
        network, example, share: as for `narrowed`.
        layers: names of the candidates.

    Raises MisfitError if Torch-Pruning cannot trace the network's channels.
    """
    import torch_pruning

    found = _Copy(network, example, share)
    named = {name: one for name in layers if (one := found.network.get_submodule(name)) in found.fewer}
    with _followed():
        graph = torch_pruning.DependencyGraph().build_dependency(found.network, found.example, **FOLLOWED)
        return tuple(name for name, one in named.items() if _tied(graph, one) == {one})


class _Copy:
    """A copy of a network to prune, with the numbers of channels that its layers keep.

    Attributes:
        network: the copy, in evaluation mode.
        share: share of the channels that stay.
        example: the network's inputs, on its device.
        last: layers whose channels are an output's channels; they are not pruned.
        multiple: numbers of channels are rounded to multiples of it.
        fewer: the layers that lose channels, each with its number of channels before and after.
    """

    def __init__(self, network: nn.Module, example: Inputs, share: float) -> None:
        device = next((parameter.device for parameter in network.parameters()), None)
        self.network, self.share = copy_of(network).eval(), share
        self.example = copied(mapped(lambda tensor: tensor.to(device), example))
        for parameter in self.network.parameters():
            parameter.requires_grad_(True)  # autograd shows which layers make the output
        self.last = _last_layers(self.network, self.example)
        modules = (one for one in self.network.modules() if isinstance(one, PRUNED) and one not in self.last)
        channels = {module: _channels(module) for module in modules}
        if not channels:
            raise MisfitError("it has no convolution and no linear layer whose channels could be removed")
        self.multiple = MULTIPLE if min(channels.values()) >= FEW else MULTIPLE_OF_FEW
        stay = {one: max(1, round(share * count / self.multiple)) * self.multiple for one, count in channels.items()}
        self.fewer = {one: (count, stay[one]) for one, count in channels.items() if stay[one] < count}

    def layers_to_narrow(self, layers: Iterable[str]) -> dict[str, nn.Module]:
        """Return the modules of these layers, by name. MisfitError if one of them cannot lose channels."""
        modules, found = dict(self.network.named_modules()), dict[str, nn.Module]()
        for name in layers:
            if (one := modules.get(name)) not in self.fewer:
                few = f"there are too few for multiples of {self.multiple}"
                why = "there is no such layer" if one is None else "they are the output's" if one in self.last else few
                raise MisfitError(f"{name} cannot keep {self.share:g} of its channels: {why}")
            found[name] = one
        return found


@contextmanager
def _followed() -> Iterator[None]:
    """Convert each exception of Torch-Pruning in the block to a MisfitError."""
    try:
        with warnings.catch_warnings(), torch.enable_grad():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0]
        raise MisfitError(f"Torch-Pruning cannot follow its channels ({type(error).__name__}: {said})") from error


def _tied(graph: Any, module: nn.Module) -> set[nn.Module]:
    """Return the layers whose channels are tied to those of the layer `module`, including itself."""
    group = graph.get_pruning_group(module, graph.get_pruner_of_module(module).prune_out_channels, idxs=[0])
    losing = (dependency.target.module for dependency, _ in group if graph.is_out_channel_pruning_fn(dependency.handler))
    return {one for one in losing if isinstance(one, PRUNED)}


def _channels(module: nn.Module) -> int:
    return int(getattr(module, "out_channels", None) or module.out_features)


def _size(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def _shapes(network: nn.Module, example: Inputs) -> list[torch.Size]:
    with torch.no_grad():
        return [tensor.shape for tensor in tensors_in(call(network, example))]


def _last_layers(network: nn.Module, example: Inputs) -> list[nn.Module]:
    """Return the layers whose channels are channels of a network output: no layer with a weight reads them."""
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
    """Return the parameter behind an autograd node, through at most `VIEWS` views; None if there is none."""
    for _ in range(VIEWS):
        if hasattr(node, "variable"):
            parameter: torch.Tensor = node.variable
            return parameter
        behind = [one for one, _ in node.next_functions if one is not None]
        if len(behind) != 1:
            return None
        (node,) = behind
    return None
