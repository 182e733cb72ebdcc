"""Networks for inference in which native kernels compute those layers for which they are faster than PyTorch.

The network is exported as a graph. In it, calls of `syno::native` replace operators, and other layers that can be written as
operators (`layers`), if that makes the network faster (`choice`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch._inductor import config

from syno.base.errors import first_line
from syno.base.text_tables import plural
from syno.measure.inductor import frozen_with_code
from syno.measure.native.build import compiler, compiler_version
from syno.measure.native.choice import USUAL, Call, LayerChoice, Workshop
from syno.measure.native.ends import with_ends
from syno.measure.native.layers import End, PlacedLayer, layers_of, of_operator
from syno.measure.native.network_graph import Inputs, aten, exported
from syno.measure.native.torch_operator import torch_operator
from syno.measure.operator_calls import exchanged
from syno.measure.tuning_record import CompiledCode
from syno.model.module import OperatorModule
from syno.model.shared_memory import copy_of


@dataclass(frozen=True)
class NativeNetwork:
    """A network with native kernels.

    Attributes:
        module: a module with the network's inputs and outputs, and a copy of its weights.
        layers: the choice for each layer that a kernel can compute.
        reason: the reason why kernels have no fused epilogues; "" if they have.
    """

    module: nn.Module
    layers: tuple[LayerChoice, ...]
    reason: str = ""

    @property
    def kernels(self) -> int:
        """The number of layers that kernels compute."""
        return sum(layer.is_native for layer in self.layers)

    @property
    def summary(self) -> str:
        """A sentence: the number of layers that kernels compute, and faults that keep kernels from computing more."""
        faulty = [f"without that of {layer.name}: {layer.reason}" for layer in self.layers if layer.is_faulty]
        return "; ".join(
            filter(None, (f"native kernels in {self.kernels} of {plural(len(self.layers), 'layer')}", *faulty, self.reason))
        )

    @property
    def is_mostly_native(self) -> bool:
        """Whether the network has at least as many native kernels as PyTorch convolutions."""
        graph: Any = getattr(self.module, "graph", None)
        convolutions = 0 if graph is None else sum(node.target is aten.conv2d.default for node in graph.nodes)
        return self.kernels >= max(convolutions, 1)

    def compiled(self, example: Inputs) -> Callable[..., Any]:
        """Return the network, compiled by Inductor."""
        return self.compiled_with_code(example)[0]

    def compiled_with_code(self, example: Inputs) -> tuple[Callable[..., Any], CompiledCode]:
        """Return the network compiled by Inductor, and a description of the code.

        Inductor converts convolutions to channels-last format, which kernels do not support, so that tensors would be copied
        between them. This conversion is enabled only if most layers are PyTorch convolutions.
        """
        with config.patch(layout_optimization=config.layout_optimization and not self.is_mostly_native):
            compiled, code = frozen_with_code(self.module, example)
        made = {"native_kernels": self.kernels, "native_layers": len(self.layers), "made_by": compiler_version(compiler())}
        return compiled, code.model_copy(update=made)


def store_of_user() -> Path:
    """Return the folder of this user's kernels: $XDG_CACHE_HOME/syno/native, or ~/.cache/syno/native."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "syno" / "native"


def native_network(module: nn.Module, example: Inputs, store: Path, threads: int = 1) -> NativeNetwork:
    """Return a network that computes what `module` does in evaluation mode, with native kernels where they are faster.

    Args:
        module: a network, or an operator alone; it is not changed.
        example: inputs of the network; the result takes inputs of these shapes only.
        store: the folder of kernels and measured times, which processes can share.
        threads: number of CPU threads of the network.

    Raises:
        MissingPackageError: there is no C++ compiler.
    """
    compiler()
    workshop = Workshop(store, threads)
    try:
        network, operators = exported(module, example)
    except Exception as error:  # PyTorch raises very many kinds of exceptions
        reason = f"the network cannot be exported, so only operators are native: {type(error).__name__}: {first_line(error)}"
        return NativeNetwork(*_with_native_modules(module, example, workshop), reason)
    names = {
        operator: name or operator.graph.name
        for operator, name in zip(
            operators, (name for name, part in module.named_modules() if isinstance(part, OperatorModule)), strict=True
        )
    }
    layers = layers_of(network, operators, names)
    choices, kernels = _chosen(network, layers, workshop)
    if _are_most(network, [layer.node for layer in kernels if not layer.layer.is_pooling]):
        if len(kernels) < len(layers):
            layers = [replace(layer, layer=layer.layer.in_contiguous) for layer in layers]
            choices, kernels = _chosen(network, layers, workshop)
    elif any(layer.layer.is_pooling for layer in layers):
        others = [layer for layer in layers if not layer.layer.is_pooling]
        stay = {layer.node: LayerChoice(name=layer.layer.name, is_native=False, reason=AMONG_CONVOLUTIONS) for layer in layers}
        choices, kernels = _chosen(network, others, workshop)
        choices = stay | choices
    _put_in(network, layers, kernels, choices, workshop)
    network.graph.eliminate_dead_code()
    network.delete_all_unused_submodules()
    network.recompile()
    return NativeNetwork(network, tuple(choices[layer.node] for layer in layers))


AMONG_CONVOLUTIONS = "most layers are convolutions of PyTorch, which keep tensors in channels-last format"


def _are_most(network: fx.GraphModule, kernels: Sequence[fx.Node]) -> bool:
    """Return whether there are at least as many kernels as convolutions that PyTorch computes.

    If so, Inductor's convolutions get contiguous data, with which some are slower. Otherwise they get channels-last data, which
    kernels do not support: then a pooling layer between convolutions is faster without a kernel.
    """
    convolutions = [node for node in network.graph.nodes if node.target is aten.conv2d.default]
    return len(kernels) >= sum(node not in kernels for node in convolutions)


def _chosen(
    network: fx.GraphModule, layers: Sequence[PlacedLayer], workshop: Workshop
) -> tuple[dict[Any, LayerChoice], list[PlacedLayer]]:
    """Return the choice for each layer, by its node, and the layers that kernels compute, each with its epilogue.

    If a layer gets no kernel, its epilogue's nodes may be fused into another layer, so the choice is repeated for the others.
    """
    choices: dict[Any, LayerChoice] = {}
    while True:
        layers = with_ends(network, layers)
        choices |= {layer.node: found for layer, found in zip(layers, workshop.chosen(layers), strict=True)}
        kernels = [layer for layer in layers if choices[layer.node].is_native]
        if len(kernels) == len(layers):
            return choices, kernels
        layers = kernels


def _put_in(
    network: fx.GraphModule,
    layers: Sequence[PlacedLayer],
    kernels: Sequence[PlacedLayer],
    choices: Mapping[Any, LayerChoice],
    workshop: Workshop,
) -> None:
    """Replace layers and their epilogues in the graph by calls of kernels, and calls of other operators by their modules."""
    graph, made = network.graph, dict[Any, Any]()
    for layer in layers:
        if layer.operator is not None and not choices[layer.node].is_native:
            with graph.inserting_before(layer.node):
                network.add_submodule(layer.node.name, layer.operator)
                made[layer.node] = graph.call_module(layer.node.name, layer.node.args[:1])
            made[layer.node].meta["val"] = layer.node.meta["val"]
            layer.node.replace_all_uses_with(made[layer.node])
            graph.erase_node(layer.node)
    for layer in kernels:  # ordered such that a kernel comes after those that write its input and its residual
        last, end, name = layer.last, layer.end, layer.node.name
        call = workshop.call(layer.layer, end, choices[layer.node].formats, last.meta["val"].shape)
        tensors = {"factors": call.factors, "scale": call.scale, "shift": call.shift}
        with graph.inserting_before(last):
            factors, scale, shift = (_held(network, f"{name}_{kind}", tensor) for kind, tensor in tensors.items())
            arguments = call.arguments(layer.input, factors, scale, shift, made.get(end.residual, end.residual))
            new = graph.call_function(torch_operator(workshop.store), arguments)
        new.meta["val"] = last.meta["val"].new_empty(call.shape)
        made[last] = new
        last.replace_all_uses_with(new)
        for old in reversed(end.nodes):
            graph.erase_node(old)


def _held(network: fx.GraphModule, name: str, tensor: torch.Tensor | None) -> fx.Node | None:
    """Register a tensor as a buffer of the network under `name`, and return a node that reads it; None for no tensor."""
    if tensor is None:
        return None
    network.register_buffer(name, tensor)
    return network.graph.get_attr(name)


class NativeLayer(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """A kernel in place of an operator's module."""

    def __init__(self, call: Call, operator: Any) -> None:
        super().__init__()
        self.native, self.operator = call, operator
        self.register_buffer("factors", call.factors)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the operator's output."""
        return self.operator(*self.native.arguments(x, self.factors, None, None, None))


def _with_native_modules(module: nn.Module, example: Inputs, workshop: Workshop) -> tuple[nn.Module, tuple[LayerChoice, ...]]:
    """Return a copy of a network with `NativeLayer`s in place of operators, if these are faster and get inputs of one shape."""
    copy = copy_of(module).eval()
    seen: dict[OperatorModule, set[torch.Size]] = {}
    names = {part: name or part.graph.name for name, part in copy.named_modules() if isinstance(part, OperatorModule)}
    hooks = [
        part.register_forward_pre_hook(lambda part, inputs: seen.setdefault(part, set()).add(inputs[0].shape)) for part in names
    ]
    with torch.no_grad():
        copy(*example)
    for hook in hooks:
        hook.remove()
    replacements: dict[nn.Module, nn.Module] = {}
    layers = []
    for part, given in seen.items():
        if len(given) > 1:
            layers.append(LayerChoice(name=names[part], is_native=False, reason="it gets inputs of several shapes"))
            continue
        layer = of_operator(part, names[part], next(iter(given)))
        found = workshop.alone(layer)
        layers.append(found)
        if found.is_native:
            call = workshop.call(layer, End.of(layer), USUAL, layer.shapes[1])
            replacements[part] = NativeLayer(call, torch_operator(workshop.store))
    return exchanged(copy, replacements), tuple(layers)
