"""The graph of an exported network, and what its nodes compute with."""

from __future__ import annotations

import warnings
from typing import Any, TypeAlias

import torch
from torch import fx, nn

from syno.base.errors import SpecError
from syno.measure.operator_calls import with_calls
from syno.model.module import OperatorModule

Inputs: TypeAlias = tuple[torch.Tensor, ...]
aten = torch.ops.aten


def exported(module: nn.Module, example: Inputs) -> tuple[fx.GraphModule, list[OperatorModule]]:
    """Export a network as a graph of functional operations, with operators as opaque calls; return it and the operators."""
    network, operators = with_calls(module)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are about PyTorch's own internals
        program = torch.export.export(network, tuple(one.cpu() for one in example))
        graph = program.module(check_guards=False)
        if not _make_functional(graph):
            graph = program.run_decompositions({}).module(check_guards=False)
    return _without_hooks(graph), operators


def _without_hooks(program: fx.GraphModule) -> fx.GraphModule:
    """Return the network with a shape check that compilers evaluate once, instead of PyTorch's hooks (0.1 ms a call)."""
    network = fx.GraphModule(program, program.graph)
    for node in [node for node in network.graph.nodes if node.op == "placeholder"]:
        if isinstance(tensor := node.meta.get("val"), torch.Tensor):
            with network.graph.inserting_after(node):
                checked = network.graph.call_function(of_shape, (node, tuple(tensor.shape)))
            checked.meta["val"] = tensor
            node.replace_all_uses_with(checked, lambda user, checked=checked: user is not checked)
    network.recompile()
    return network


def of_shape(x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the tensor unchanged. Raises SpecError if it does not have this shape."""
    if x.shape != shape:
        raise SpecError(f"the network was made for an input of shape {list(shape)}; it got {list(x.shape)}")
    return x


def _make_functional(network: fx.GraphModule) -> bool:
    """Replace in-place operations on tensors that nothing else reads. Return whether no in-place operation is left."""
    for node in network.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            changed, name = node.args[0], node.target._schema.name.removesuffix("_")
            namespace, _, plain = name.partition("::")
            packet = getattr(getattr(torch.ops, namespace), plain, None)
            overload = getattr(packet, node.target._overloadname, None)
            if overload is None or len(changed.users) > 1 or changed.target not in NEW_TENSORS:
                return False
            node.target = overload
    network.recompile()
    return True


# Operations whose results share no memory with other tensors.
NEW_TENSORS = {
    aten.conv1d.default, aten.conv2d.default, aten.batch_norm.default, aten.linear.default, aten.add.Tensor, aten.mul.Tensor,
    aten.relu.default, aten.avg_pool2d.default, aten.max_pool2d.default,
}  # fmt: skip


def shape_of(node: Any) -> tuple[int, ...]:
    """Return the shape of a node's tensor."""
    return tuple(int(length) for length in node.meta["val"].shape)


def arguments_of(node: Any) -> dict[str, Any]:
    """Return the arguments of an operation by their names, with its defaults."""
    schema = node.target._schema.arguments
    named = dict(zip((argument.name for argument in schema), node.args, strict=False)) | node.kwargs
    return {argument.name: named.get(argument.name, argument.default_value) for argument in schema}


def is_float(node: fx.Node) -> bool:
    """Return whether the elements of a node's tensor are float32."""
    return bool(node.meta["val"].dtype == torch.float32)


def written_tensors(network: fx.GraphModule) -> set[str]:
    """Return the names of the network's tensors that its own calls modify, such as a counter, so that they are no constants."""
    return {node.target for node in network.graph.find_nodes(op="get_attr") if any(_writes(user, node) for user in node.users)}


def _writes(user: fx.Node, node: fx.Node) -> bool:
    if user.target is aten.batch_norm.default:
        return bool(user.args[5])  # the training mode, in which it changes its statistics
    is_mutable = isinstance(user.target, torch._ops.OpOverload) and user.target._schema.is_mutable
    return is_mutable and user.args[0] is node


def constant(network: fx.GraphModule, node: Any) -> torch.Tensor | None:
    """Return the value of a node that depends on weights alone; None for a node that depends on inputs."""
    if isinstance(node, int | float):
        return torch.tensor(float(node))
    if not isinstance(node, fx.Node):
        return None
    if node.op == "get_attr":
        if node.target in written_tensors(network):
            return None
        value: Any = network
        for part in node.target.split("."):
            value = getattr(value, part)
        return value.detach() if isinstance(value, torch.Tensor) and value.is_floating_point() else None
    if node.op != "call_function" or node.target not in VIEWS:
        return None
    given = constant(network, node.args[0])
    return None if given is None else node.target(given, *node.args[1:])


VIEWS = {aten.view.default, aten.reshape.default, aten.unsqueeze.default, aten._unsafe_view.default}
