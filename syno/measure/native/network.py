"""Networks for inference in which native kernels compute the layers that they are faster at.

The network is exported as a graph. In it, operators, and convolutions and linear layers that can be written as operators,
become calls of `syno::native` where that is measured to be faster than PyTorch's own code. What follows a layer, and is the
only user of its result, becomes the end of the kernel: biases and normalizations with fixed statistics, then a sum with
another tensor, then an activation.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from filelock import FileLock
from pydantic import BaseModel
from torch import fx, nn
from torch._inductor import config
from torch.nn import functional

from syno.base.errors import LoweringError
from syno.base.files import checksum, write_whole
from syno.ir.builder import Builder
from syno.ir.coordinates import Array
from syno.ir.graph import PGraph
from syno.lower.interpreter import shapes
from syno.lower.native.program import Epilogue
from syno.measure.inductor import frozen
from syno.measure.native.build import BuildError, compiler
from syno.measure.native.kernels import Kernel, Request, kernel_for
from syno.measure.native.torch_operator import make_callable, torch_operator
from syno.measure.operator_calls import exchanged, operator_call, valuation_for, with_calls
from syno.model.module import OperatorModule, prepare_for_inference

Inputs: TypeAlias = tuple[torch.Tensor, ...]
aten = torch.ops.aten

SECONDS_TIMED, LEAST_ROUNDS = 0.1, 8  # of each pair of a kernel and PyTorch's code
REPEAT_SECONDS = 5e-4  # of one reading of the clock, at least
NEAR_LIMIT = 0.6  # of the speed of products of matrices: no kernel is looked for where PyTorch's code reaches that
SHORTEST_MS = 0.02  # of PyTorch's code: in shorter ones, the time is that of a call
CLEARLY = 0.6  # of the time of an operator's module as it is: slower kernels are compared with the module when it is compiled


class LayerChoice(BaseModel):
    """Which code computes a layer, and why.

    Attributes:
        name: of the layer in the network.
        is_native: whether a native kernel computes it.
        native_ms: of the kernel with what follows the layer; None if there is none.
        other_ms: of PyTorch's code.
        reason: why there is no kernel.
    """

    name: str
    is_native: bool
    native_ms: float | None = None
    other_ms: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class NativeNetwork:
    """A network with native kernels.

    Attributes:
        module: takes and returns what the network does; it has weights of its own.
        layers: what computes each layer that a kernel could.
        reason: why kernels compute layers only, and nothing that follows them; empty where they compute that, too.
    """

    module: nn.Module
    layers: tuple[LayerChoice, ...]
    reason: str = ""

    @property
    def is_mostly_native(self) -> bool:
        """Whether it has at least as many kernels as convolutions of PyTorch."""
        graph: Any = getattr(self.module, "graph", None)
        convolutions = 0 if graph is None else sum(node.target is aten.conv2d.default for node in graph.nodes)
        return sum(layer.is_native for layer in self.layers) >= max(convolutions, 1)

    def compiled(self, example: Inputs) -> Callable[..., Any]:
        """Return the network, compiled by Inductor.

        Inductor has convolutions in channels-last format, and kernels are not: so it would copy tensors between them. It does
        that only where most layers are convolutions of its own.
        """
        with config.patch(layout_optimization=config.layout_optimization and not self.is_mostly_native):
            return frozen(self.module, example)


def store_of_user() -> Path:
    """Return the folder of this user's kernels: $XDG_CACHE_HOME/syno/native, or ~/.cache/syno/native."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "syno" / "native"


def native_network(module: nn.Module, example: Inputs, store: Path, threads: int = 1) -> NativeNetwork:
    """Return a network that computes what `module` does in evaluation mode, with native kernels where they are faster.

    Args:
        module: a network, or an operator by itself; it is not changed.
        example: its inputs, whose shapes are then fixed.
        store: the folder where kernels, and which of them are faster than PyTorch's code, are kept. Processes can share it.
        threads: how many the network will run on.

    Raises:
        MissingPackageError: there is no C++ compiler.
        WrongOutputError: a kernel computes something else than the interpreter.
    """
    compiler()
    workshop = Workshop(store, threads)
    try:
        network, operators = _exported(module, example)
    except Exception as error:  # PyTorch raises very many kinds of exceptions
        reason = f"the network cannot be exported, so only operators are native: {type(error).__name__}: {_first_line(error)}"
        return NativeNetwork(*_with_native_modules(module, example, workshop), reason)
    names = {
        operator: name or operator.graph.name
        for operator, name in zip(
            operators, (name for name, part in module.named_modules() if isinstance(part, OperatorModule)), strict=True
        )
    }
    layers: list[LayerChoice] = []
    for node in list(network.graph.nodes):
        operator = operators[node.args[1]] if node.target is operator_call().default else None
        layer = _layer(network, node, operator, names)
        if layer is not None:
            layers.append(_put_in(network, node, layer, operator, workshop))
    network.graph.eliminate_dead_code()
    network.delete_all_unused_submodules()
    network.recompile()
    return NativeNetwork(network, tuple(layers))


# ---- kernels, and whether they are faster ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """A layer that a kernel can compute.

    Attributes:
        name: in the network.
        graph: the layer as an operator.
        values: of its variables.
        weights: of the operator.
        bias: of each channel, if the layer has one.
        channel: the axis of the output that is numbered by channels.
        code: what PyTorch's code for it is.
        other: returns this code, as a function without arguments that does what a call would.
        compiled: returns the same when it is compiled, if that may be faster.
        products: the multiply-adds of PyTorch's code, if that is a library's.
    """

    name: str
    graph: PGraph
    values: dict[str, int]
    weights: tuple[Array, ...]
    bias: Array | None
    channel: int
    code: str
    other: Callable[[], Callable[[], object]]
    compiled: Callable[[], Callable[[], object]] | None = None
    products: int | None = None

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of the input and of the output, as the operator has them."""
        into, _, out = shapes(self.graph, self.graph.valuation(self.values))
        return into, out


@dataclass
class End:
    """What follows a layer, as a kernel computes it: (result * scale + shift) + residual, then the activation.

    Attributes:
        scale, shift: of each channel, in double precision.
        residual: the node of the tensor that is added.
        activation: a name in `syno.lower.native.program.ACTIVATIONS`.
        nodes: those that the kernel computes, from the layer's to the last.
    """

    scale: Array | None
    shift: Array | None
    residual: Any
    activation: str
    nodes: tuple[Any, ...]

    def epilogue(self, channel: int) -> Epilogue:
        """Return what the kernel has to do."""
        has_channels = self.scale is not None or self.shift is not None
        return Epilogue(
            channel=channel if has_channels else None,
            scale=self.scale is not None,
            shift=self.shift is not None,
            residual=self.residual is not None,
            activation=self.activation,
        )


@dataclass(frozen=True)
class Call:
    """A kernel with the tensors that are always the same."""

    kernel: Kernel
    name: str
    factors: torch.Tensor
    scale: torch.Tensor | None
    shift: torch.Tensor | None
    shape: tuple[int, ...]

    def arguments(self, x: Any, factors: Any, scale: Any, shift: Any, residual: Any) -> tuple[Any, ...]:
        """Return the arguments of the operator."""
        return x, factors, scale, shift, residual, self.name, list(self.shape), self.kernel.program.samples


class Workshop:
    """Makes kernels, and compares them with PyTorch's code.

    Args:
        store: the folder where both are kept.
        threads: how many run.
    """

    def __init__(self, store: Path, threads: int) -> None:
        self.store, self.threads = store, threads

    def chosen(self, layer: Layer, end: End, shape: Sequence[int]) -> tuple[LayerChoice, Call | None]:
        """Return which code is faster for a layer with what follows it, and the call of the kernel if that is."""
        try:
            if reason := hopeless(layer, self.threads):
                raise LoweringError(reason)
            call = self._call(layer, end, shape)
        except (LoweringError, BuildError) as error:
            return LayerChoice(name=layer.name, is_native=False, reason=_first_line(error)), None
        found = self._choice(layer, call).model_copy(update={"name": layer.name})
        return found, call if found.is_native else None

    def _call(self, layer: Layer, end: End, shape: Sequence[int]) -> Call:
        """Return a call of the fastest kernel. Raises LoweringError if the layer has none."""
        request = Request(
            str(layer.graph), tuple(sorted(layer.values.items())), epilogue=end.epilogue(layer.channel), threads=self.threads
        )
        kernel = stored_kernel(request, self.store)
        return Call(
            kernel,
            make_callable(kernel, self.store),
            aligned(kernel.factors(layer.weights)),
            None if end.scale is None else aligned(end.scale),
            None if end.shift is None else aligned(end.shift),
            tuple(int(length) for length in shape),
        )

    def _choice(self, layer: Layer, call: Call) -> LayerChoice:
        """Return which code is faster, from the store or measured now."""
        other_code = checksum(f"{layer.code} {torch.__version__}".encode())
        place = self.store / f"choice_{call.name}_{other_code[:12]}.json"
        if place.is_file():
            return LayerChoice.model_validate_json(place.read_text())
        with torch.no_grad(), pinned_threads(self.threads):
            native, other = self._native(layer, call), layer.other()
            native_ms, other_ms = fastest_in_turns(native, other)
            if layer.compiled is not None and native_ms > CLEARLY * other_ms:
                native_ms, other_ms = fastest_in_turns(native, layer.compiled())
        found = LayerChoice(name="", is_native=native_ms < other_ms, native_ms=native_ms, other_ms=other_ms)
        write_whole(place, found.model_dump_json(), durable=False)
        return found

    def _native(self, layer: Layer, call: Call) -> Callable[[], object]:
        into, out = layer.shapes
        epilogue = call.kernel.request.epilogue
        residual = torch.randn(out) if epilogue.residual else None
        arguments = call.arguments(torch.randn(into), call.factors, call.scale, call.shift, residual)
        return partial(torch_operator(self.store), *arguments)


def hopeless(layer: Layer, threads: int) -> str:
    """Return why no kernel can be faster than PyTorch's code for a layer; empty if one may be."""
    if layer.products is None:
        return ""
    with torch.no_grad(), pinned_threads(threads):
        (latency_ms,) = fastest_in_turns(layer.other())
    if latency_ms < SHORTEST_MS:
        return f"PyTorch's code takes {1e3 * latency_ms:.0f} microseconds, hardly more than a call"
    share = layer.products / latency_ms / speed_of_products(threads)
    return f"PyTorch's code has {share:.0%} of the speed of products of matrices" if share > NEAR_LIMIT else ""


@cache
def speed_of_products(threads: int) -> float:
    """Return the multiply-adds of PyTorch's fastest product of two matrices in a millisecond."""
    with torch.no_grad(), pinned_threads(threads):
        matrices = [torch.randn(side, side) for side in (128, 256, 512)]
        times = [fastest_in_turns(partial(torch.mm, one, one))[0] for one in matrices]
        return float(max(len(one) ** 3 / time_ms for one, time_ms in zip(matrices, times, strict=True)))


def stored_kernel(request: Request, store: Path) -> Kernel:
    """Return a kernel. Of several processes that want one that is not in the store, one makes it. Raises as `kernel_for`."""
    store.mkdir(parents=True, exist_ok=True)
    with FileLock(store / f"{checksum(repr(request).encode())[:20]}.lock"):
        return kernel_for(request, store)


def aligned(values: Array) -> torch.Tensor:
    """Return values as float32, at an address that vectors are loaded from."""
    return torch.empty(values.shape).copy_(torch.from_numpy(np.ascontiguousarray(values)))


@contextmanager
def pinned_threads(threads: int) -> Iterator[None]:
    """Let PyTorch use so many threads within the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fastest_in_turns(*calls: Callable[[], object]) -> tuple[float, ...]:
    """Return the least milliseconds of each call; they are timed in turns."""
    counts = []
    for call in calls:
        call()
        began = time.perf_counter()
        call()
        counts.append(max(1, math.ceil(REPEAT_SECONDS / max(time.perf_counter() - began, 1e-7))))
    least = [math.inf] * len(calls)
    end, rounds = time.monotonic() + SECONDS_TIMED * len(calls), 0
    while rounds < LEAST_ROUNDS or time.monotonic() < end:
        rounds += 1
        for number, (call, count) in enumerate(zip(calls, counts, strict=True)):
            began = time.perf_counter()
            for _ in range(count):
                call()
            least[number] = min(least[number], 1e3 * (time.perf_counter() - began) / count)
    return tuple(least)


# ---- layers in a graph -------------------------------------------------------------------------------------------------


def _exported(module: nn.Module, example: Inputs) -> tuple[fx.GraphModule, list[OperatorModule]]:
    """Return the network as a graph of functional operations in which operators are calls, and the operators."""
    network, operators = with_calls(module)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are about PyTorch's own internals
        program = torch.export.export(network, tuple(one.cpu() for one in example))
        graph = program.module(check_guards=False)
        if not _make_functional(graph):
            graph = program.run_decompositions({}).module(check_guards=False)
    return graph, operators


def _make_functional(network: fx.GraphModule) -> bool:
    """Exchange operations that change a tensor that nothing else uses. Return whether no others are left."""
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
    aten.conv2d.default, aten.batch_norm.default, aten.linear.default, aten.add.Tensor, aten.mul.Tensor, aten.relu.default,
    aten.avg_pool2d.default,
}  # fmt: skip


def _layer(
    network: fx.GraphModule, node: fx.Node, operator: OperatorModule | None, names: dict[OperatorModule, str]
) -> Layer | None:
    """Return what a node computes if a kernel could: an operator, a convolution, or a linear layer."""
    if operator is not None:
        return _of_operator(operator, names[operator], node.args[0].meta["val"].shape)
    if node.op == "call_function" and node.target is aten.conv2d.default:
        return _of_convolution(network, node)
    if node.op == "call_function" and node.target is aten.linear.default:
        return _of_linear(network, node)
    return None


def _of_operator(operator: OperatorModule, name: str, shape: Sequence[int]) -> Layer:
    prepared: Any = prepare_for_inference(operator)
    layout = torch.channels_last if operator.is_channels_last and len(shape) == 4 else torch.contiguous_format
    example = torch.randn([int(length) for length in shape]).contiguous(memory_format=layout)
    weights = tuple(weight.detach().float().numpy() for weight in operator.parameters())
    values = dict(valuation_for(operator, shape))
    return Layer(
        name,
        operator.graph,
        values,
        weights,
        None,
        min(1, len(operator.graph.output) - 1),
        operator.source,
        lambda: partial(prepared, example),
        lambda: _compiled(prepared, example),
    )


def _compiled(module: nn.Module, example: torch.Tensor) -> Callable[[], object]:
    return partial(frozen(module, (example,)), example)


def _of_convolution(network: fx.GraphModule, node: fx.Node) -> Layer | None:
    """Return a convolution with as many output positions as input positions, if a kernel can compute it."""
    arguments: Any = (*node.args, *(None, 1, 0, 1, 1)[len(node.args) - 2 :])
    x, weight, bias, stride, padding, dilation, groups = arguments
    factors, offsets = _constant(network, weight), None if bias is None else _constant(network, bias)
    if factors is None or (bias is not None and offsets is None) or not _is_float(x) or x.meta["val"].dim() != 4:
        return None
    kernel = factors.shape[2:]
    if _pair(stride) != (1, 1) or _pair(dilation) != (1, 1) or any(length % 2 == 0 for length in kernel):
        return None
    if _pair(padding) != tuple(length // 2 for length in kernel):
        return None
    batch, _, height, width = (int(length) for length in x.meta["val"].shape)
    sizes = {"C": factors.shape[1], "O": len(factors) // groups, "k_0": kernel[0], "k_1": kernel[1]}
    values = {"N": batch, "G": groups, "H": height, "W": width, **sizes}
    graph = convolution(tuple(kernel) == (1, 1))
    values = {name: values[name] for name in graph.variables}
    _, (expected,), _ = shapes(graph, graph.valuation(values))
    own = factors.numpy().reshape(expected)
    return Layer(
        weight.target.removesuffix(".weight"),
        graph,
        values,
        (own,),
        None if offsets is None else offsets.double().numpy(),
        1,
        "convolution",
        partial(_convolution_of_pytorch, tuple(x.meta["val"].shape), factors, groups),
        products=math.prod(node.meta["val"].shape) * factors[0].numel(),
    )


@cache
def convolution(is_pointwise: bool) -> PGraph:
    """Return a convolution as an operator from [N, G*C, H, W] to [N, G*O, H, W]; G are groups.

    The elements of its weight are those of PyTorch's weight, in the same order.
    """
    build = Builder(f"N, G, C, O, H, W{'' if is_pointwise else '; k_0=3, k_1=3'}", name="convolution")
    n, channel, y, x = build.output("N, G*O, H, W")
    group, o = build.merge(channel, "O")
    group, c, *window = build.contract([group, o, *build.reduce("C" if is_pointwise else "C, k_0, k_1")], outer=[o])
    read = [y, x] if is_pointwise else [build.unfold(side, tap) for side, tap in zip((y, x), window, strict=True)]
    return build.finish([n, build.split(group, c), *read])


def _convolution_of_pytorch(shape: tuple[int, ...], weight: torch.Tensor, groups: int) -> Callable[[], object]:
    """Return a convolution as Inductor calls it: with a weight that is laid out for it, and data in channels-last format."""
    x = torch.randn(shape).contiguous(memory_format=torch.channels_last)
    padding = [length // 2 for length in weight.shape[2:]]
    if not torch.backends.mkldnn.is_available():
        return partial(functional.conv2d, x, weight, None, 1, padding, 1, groups)
    layout = torch.ops.mkldnn._reorder_convolution_weight(weight, padding, [1, 1], [1, 1], groups, list(shape))
    call = torch.ops.mkldnn._convolution_pointwise.default
    return partial(call, x, layout, None, padding, [1, 1], [1, 1], groups, "none", [], "")


def _of_linear(network: fx.GraphModule, node: fx.Node) -> Layer | None:
    """Return a linear layer, if a kernel can compute it: its data is a row of features for each of all positions."""
    arguments: Any = (*node.args, *(None,)[len(node.args) - 2 :])
    x, weight, bias = arguments
    factors, offsets = _constant(network, weight), None if bias is None else _constant(network, bias)
    if factors is None or (bias is not None and offsets is None) or not _is_float(x):
        return None
    outputs, inputs = factors.shape
    *others, _ = x.meta["val"].shape
    if outputs < 2 or inputs < 2:
        return None
    values = {"N": math.prod(others), "I": inputs, "O": outputs}
    return Layer(
        weight.target.removesuffix(".weight"),
        linear(),
        values,
        (factors.numpy(),),
        None if offsets is None else offsets.double().numpy(),
        1,
        "linear",
        lambda: partial(functional.linear, torch.randn(values["N"], inputs), factors),
        products=math.prod(node.meta["val"].shape) * inputs,
    )


@cache
def linear() -> PGraph:
    """Return a linear layer as an operator from [N, I] to [N, O]. Its weight is PyTorch's."""
    build = Builder("N, I, O", name="linear")
    n, o = build.output("N, O")
    (i,) = build.contract(outer=[o], inner=build.reduce("I"))
    return build.finish([n, i])


def _is_float(node: fx.Node) -> bool:
    return bool(node.meta["val"].dtype == torch.float32)


def _pair(value: Any) -> tuple[int, ...]:
    values = value if isinstance(value, list | tuple) else [value]
    return tuple(values) * (2 // len(values))


# ---- what follows a layer ----------------------------------------------------------------------------------------------


def _constant(network: fx.GraphModule, node: Any) -> torch.Tensor | None:
    """Return the value of a node that depends on weights alone; None if it depends on more."""
    if isinstance(node, int | float):
        return torch.tensor(float(node))
    if not isinstance(node, fx.Node):
        return None
    if node.op == "get_attr":
        value: Any = network
        for part in node.target.split("."):
            value = getattr(value, part)
        return value.detach() if isinstance(value, torch.Tensor) and value.is_floating_point() else None
    if node.op != "call_function" or node.target not in VIEWS:
        return None
    given = _constant(network, node.args[0])
    return None if given is None else node.target(given, *node.args[1:])


VIEWS = {aten.view.default, aten.reshape.default, aten.unsqueeze.default, aten._unsafe_view.default}
ACTIVATIONS = {aten.relu.default: "relu"}


def _of_channels(value: torch.Tensor, shape: Sequence[int], channel: int) -> Array | None:
    """Return a constant that is broadcast to a shape as one number for each channel; None if it is more than that."""
    if value.dim() > len(shape):
        return None
    value = value.reshape(*(1,) * (len(shape) - value.dim()), *value.shape)
    if any(length != 1 for axis, length in enumerate(value.shape) if axis != channel):
        return None
    found: Array = (
        value.double().expand(*(shape[axis] if axis == channel else 1 for axis in range(len(shape)))).flatten().numpy()
    )
    return found


def _end(network: fx.GraphModule, node: fx.Node, layer: Layer) -> End:
    """Return what follows a layer and a kernel can compute."""
    shape = node.meta["val"].shape
    channel = len(shape) - 1 if layer.graph is linear() else layer.channel
    end = End(None, layer.bias, None, "identity", (node,))
    while len(end.nodes[-1].users) == 1:
        user = next(iter(end.nodes[-1].users))
        following = _with(network, end, user, shape, channel)
        if following is None:
            break
        end = replace(following, nodes=(*end.nodes, user))
    return end


def _with(network: fx.GraphModule, end: End, user: fx.Node, shape: Sequence[int], channel: int) -> End | None:
    """Return an end with what one more node computes; None if a kernel cannot."""
    if user.op != "call_function" or end.activation != "identity":
        return None
    if user.target in ACTIVATIONS:
        return replace(end, activation=ACTIVATIONS[user.target])
    if end.residual is not None:
        return None
    if user.target is aten.batch_norm.default and channel == 1 and user.args[0] is end.nodes[-1]:
        _, weight, bias, mean, variance, training, _, epsilon, _ = user.args
        tensors = [None if one is None else _constant(network, one) for one in (weight, bias, mean, variance)]
        if training or tensors[2] is None or tensors[3] is None:
            return None
        gain, offset, center, spread = (None if one is None else one.double().numpy() for one in tensors)
        scale = (spread + epsilon) ** -0.5 * (1 if gain is None else gain)
        return _scaled(end, scale, (0 if offset is None else offset) - center * scale)
    if user.target not in (aten.add.Tensor, aten.mul.Tensor) or user.kwargs.get("alpha", 1) != 1 or len(user.args) != 2:
        return None
    first, second = user.args
    other = second if first is end.nodes[-1] else first
    value = _constant(network, other)
    if value is not None:
        numbers = _of_channels(value, shape, channel)
        if numbers is None:
            return None
        is_sum = user.target is aten.add.Tensor
        return _scaled(end, None, numbers) if is_sum else _scaled(end, numbers, None)
    if user.target is not aten.add.Tensor or not isinstance(other, fx.Node) or other is end.nodes[-1]:
        return None
    added = other.meta["val"]
    return replace(end, residual=other) if added.shape == shape and added.dtype == torch.float32 else None


def _scaled(end: End, scale: Array | None, shift: Array | None) -> End:
    """Return an end after which results are multiplied with `scale`, and `shift` is added."""
    scales, shifts = end.scale, end.shift
    if scale is not None:
        scales, shifts = scale if scales is None else scales * scale, None if shifts is None else shifts * scale
    if shift is not None:
        shifts = shift if shifts is None else shifts + shift
    return replace(end, scale=scales, shift=shifts)


# ---- calls in a graph --------------------------------------------------------------------------------------------------


def _put_in(
    network: fx.GraphModule, node: fx.Node, layer: Layer, operator: OperatorModule | None, workshop: Workshop
) -> LayerChoice:
    """Exchange a layer, with what follows it, for a call of a kernel if that is faster. Return what was chosen."""
    graph, end = network.graph, _end(network, node, layer)
    last = end.nodes[-1]
    found, call = workshop.chosen(layer, end, last.meta["val"].shape)
    if call is not None:
        tensors = {"factors": call.factors, "scale": call.scale, "shift": call.shift}
        with graph.inserting_before(last):
            factors, scale, shift = (_held(network, f"{node.name}_{name}", tensor) for name, tensor in tensors.items())
            arguments = call.arguments(node.args[0], factors, scale, shift, end.residual)
            new = graph.call_function(torch_operator(workshop.store), arguments)
        replaced = end.nodes
    elif operator is not None:
        with graph.inserting_before(node):
            network.add_submodule(node.name, operator)
            new = graph.call_module(node.name, node.args[:1])
        replaced = (node,)
    else:
        return found
    new.meta["val"] = replaced[-1].meta["val"]
    replaced[-1].replace_all_uses_with(new)
    for old in reversed(replaced):
        graph.erase_node(old)
    return found


def _held(network: fx.GraphModule, name: str, tensor: torch.Tensor | None) -> fx.Node | None:
    """Return a node that gets a tensor, which the network holds from now on."""
    if tensor is None:
        return None
    network.register_buffer(name, tensor)
    return network.graph.get_attr(name)


# ---- calls in modules, where there is no graph -------------------------------------------------------------------------


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
    """Return a copy of a network in which the operators that get inputs of one shape are kernels, where these are faster."""
    copy = deepcopy(module).eval()
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
        layer = _of_operator(part, names[part], next(iter(given)))
        found, call = workshop.chosen(layer, End(None, None, None, "identity", ()), layer.shapes[1])
        layers.append(found)
        if call is not None:
            replacements[part] = NativeLayer(call, torch_operator(workshop.store))
    return exchanged(copy, replacements), tuple(layers)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
