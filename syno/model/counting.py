"""The cost of a network for one batch: FLOPs, parameters, memory.

One multiply-add counts as one FLOP. Convolutions, matrix products, recurrent layers and operators count as they run, whether a
layer is called or a function is called with its weight. Normalization, activations, pooling, additions and products of two
activations (attention) do not count, as is usual. Functions without a formula do not count either, and are reported by name.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.weak import WeakTensorKeyDictionary

from syno.algebra import Valuation
from syno.base.user_code import user_code
from syno.ir.support import share_inside, windows_inside
from syno.lower.choose import plan
from syno.lower.plan import FLOAT_BYTES, Plan
from syno.model.extraction import LayerCall, check_example, evaluation_mode, plain_attention, shape_of, trace
from syno.model.inputs import Inputs, call, len_of_batch, shapes_in_words
from syno.model.layer_rules import KINDS
from syno.model.module import OperatorModule
from syno.model.outputs import tensors_in
from syno.space.complete import Cost

Origin: TypeAlias = frozenset[int]  # the ids of the weights from which a tensor was computed
ACTIVATION: Origin = frozenset({0})  # of tensors that depend on the network's input; no object has this id
CONSTANT: Origin = frozenset()

aten = torch.ops.aten
CONVOLUTIONS = frozenset(
    {
        aten.convolution,
        aten._convolution,
        aten.cudnn_convolution,
        aten._slow_conv2d_forward,
        aten.convolution_overrideable,
    }
)
WITH_PADDING = frozenset({aten.convolution, aten._convolution})  # only these share one order of arguments with the padding
# Indices of the two factors among the arguments; for a bilinear layer, of one input and of the weight.
FACTORS: Mapping[Any, tuple[int, int]] = {
    **dict.fromkeys(CONVOLUTIONS, (0, 1)),
    **{aten.mm: (0, 1), aten.addmm: (1, 2), aten.bmm: (0, 1), aten.baddbmm: (1, 2), aten._scaled_mm: (0, 1)},
    **{aten.mv: (0, 1), aten.addmv: (1, 2), aten.dot: (0, 1), aten.vdot: (0, 1), aten.addbmm: (1, 2), aten._trilinear: (0, 1)},
}
# The multiply-adds of functions that PyTorch's counter does not know.
FORMULAS: Mapping[Any, Callable[..., int]] = {
    **dict.fromkeys((aten.mv, aten.dot, aten.vdot), lambda one, other: one.numel()),
    aten.addmv: lambda _, one, other, **options: one.numel(),
    aten.addbmm: lambda _, one, other, **options: one.numel() * other.shape[-1],
    aten._trilinear: lambda one, weight, *options: len(one) * weight.numel(),
}


def _all_matrices(arguments: Sequence[Any]) -> list[torch.Tensor]:
    """Return the weight matrices of a recurrent layer; PyTorch passes all its weights as one list."""
    return [weight for weight in arguments[1] if weight.dim() == 2]


# PyTorch's counter does not know recurrent layers that run as a whole. Each matrix is multiplied once at every step.
RECURRENT: Mapping[Any, Callable[[Sequence[Any]], list[torch.Tensor]]] = {
    aten.mkldnn_rnn_layer: lambda arguments: list(arguments[1:3]),
    aten._cudnn_rnn: _all_matrices,
    aten.miopen_rnn: _all_matrices,
}
# Functions that do multiply-adds, but for which neither PyTorch's counter nor this one has a formula.
UNKNOWN_BEGINNINGS = ("_fft_", "linalg_", "_linalg_", "_cdist_", "_trilinear", "_native_multi_head", "_transformer_encoder")
UNKNOWN_ENDS = ("mm", "mv", "dot", "matmul", "_lstm_mps", "quantized_lstm", "quantized_gru")
OWN_NAMESPACES = frozenset({"aten", "prim", "prims", "profiler", "inductor"})  # of PyTorch; custom operators have others


@dataclass
class LayerWork:
    """The multiply-adds that a module's `forward` does with the weights of one layer, for a batch.

    Attributes:
        layer: name of the layer that owns the weights. It is the module itself if the weights are its own, belong to several
            layers, or to none. Parametrizations and submodules that TorchScript compiled are parts of their layer.
        runs_in: name of the module whose `forward` does the work; the same as `layer` if the layer is called.
        input, output: shapes of input and output in the first call; or of the first factor and the product if the layer is not
            called.
        flops: multiply-adds.
        inside: number of multiply-adds that do not read padding, and so cannot be skipped.
    """

    layer: str
    runs_in: str
    input: tuple[int, ...]
    output: tuple[int, ...]
    flops: int = 0
    inside: float = 0.0


@dataclass(frozen=True)
class Count:
    """The work, parameters and memory of a network for one batch.

    Attributes:
        work: per layer, in the order in which the layers begin to run.
        parameters: number of trained parameters; tied ones count once.
        memory_bytes: largest memory that one product or one operator needs.
        attention_flops: multiply-adds of products of two activations; `flops` does not contain them.
        not_counted: functions whose multiply-adds are unknown, each with the modules that call it.
    """

    work: tuple[LayerWork, ...]
    parameters: int
    memory_bytes: int
    attention_flops: int
    not_counted: tuple[str, ...]

    @property
    def flops(self) -> int:
        """All multiply-adds of the layers with weights."""
        return sum(work.flops for work in self.work)

    @property
    def inside(self) -> float:
        """The share of the multiply-adds that read no padding."""
        return sum(work.inside for work in self.work) / max(self.flops, 1) if self.flops else 1.0

    @property
    def cost(self) -> Cost:
        """The cost of the network: FLOPs, parameters and memory."""
        return Cost(flops=self.flops, parameters=self.parameters, memory_bytes=self.memory_bytes)


def model_cost(model: nn.Module, example: Inputs) -> Cost:
    """Return the cost of a network for a batch of the example's size.

    Memory is the largest sum of the float32 bytes of input, weights and output of one layer; for an operator, of one stage of
    its plan.

    FLOPs are those of the convolutions and matrix products that PyTorch's `FlopCounterMode` sees, of recurrent layers, and of
    the plans of operators. Products of two activations do not count. A warning names functions whose FLOPs are unknown, which
    are not counted.

    >>> import syno, torch
    >>> from torch import nn
    >>> network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
    >>> syno.model_cost(network, torch.zeros(1, 3, 16, 16))
    Cost(flops=202752, parameters=808, memory_bytes=18688)

    Raises SpecError if there is no batch in the example, UserCodeError if the model fails on it.
    """
    counted = count(model, example)
    if counted.not_counted:
        warnings.warn(f"the FLOPs do not count {', '.join(counted.not_counted)}, of which nothing is known", stacklevel=2)
    return counted.cost


def count(model: nn.Module, example: Inputs) -> Count:
    """Run a model once, and return its work, parameters and memory. The model is unchanged.

    Raises SpecError if there is no batch in the example, UserCodeError if the model fails on it.
    """
    check_example(example)
    counter = _Counter(model)
    description = f"{type(model).__name__}, run on {shapes_in_words(example)},"
    with torch.no_grad(), evaluation_mode(model), plain_attention(), _uncompiled(), user_code(description), counter.of(example):
        call(model, example)
    return counter.count()


def _uncompiled() -> AbstractContextManager[object]:
    """Return a context in which a compiled model runs eagerly. It does not import PyTorch's compiler, which takes seconds."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def layer_names(model: nn.Module) -> dict[int, str]:
    """Return the name of the layer that each module belongs to, by the module's id: mostly its own name.

    A parametrization belongs to the layer whose weight it computes, a submodule of a TorchScript module to that module.
    """
    names = {id(module): name for name, module in model.named_modules()}
    for module in list(model.modules()):  # from outside to inside
        if isinstance(module, torch.jit.ScriptModule):
            names |= dict.fromkeys(map(id, module.modules()), names[id(module)])
        elif is_parametrized(module):
            names |= dict.fromkeys(map(id, module.parametrizations.modules()), names[id(module)])
    return names


class _Counter(TorchDispatchMode):  # type: ignore[misc]  # mypy does not look into torch
    """Counts the aten functions that run, each for the module whose `forward` is innermost.

    It tracks the origin of each tensor: the network's input, or the weights from which it was computed. This tells products
    of two activations from products with weights, and assigns a function that uses a layer's weight to the layer.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return false, for PyTorch: nothing is compiled (see `_uncompiled`), and importing the compiler takes seconds."""
        return False

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.names = model, layer_names(model)
        self.modules = dict(model.named_modules())
        self.formulas = FlopCounterMode(display=False).flop_registry
        self.running = [""]
        self.operators = 0  # number that are running: the functions that they call are counted by their plans
        self.origins = WeakTensorKeyDictionary()
        self.owners: dict[int, list[str]] = {}
        self.weights: list[torch.Tensor] = []  # held, so that no other tensor gets their ids
        for module in model.modules():
            for weight in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                self.weights.append(weight)
                self.owners.setdefault(id(weight), []).append(self.names[id(module)])
                self.origins[weight] = frozenset({id(weight)})
        self.work: dict[tuple[str, str], LayerWork] = {}
        self.calls: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self.unknown: dict[str, list[str]] = {}  # by the name of a function, the modules that call it
        self.memory = self.attention = 0
        self.whole: set[Any] = set()  # functions that cannot be decomposed

    @contextmanager
    def of(self, example: object) -> Iterator[None]:
        """Count the functions that run in the block, with the tensors of `example` as the network's input."""
        for tensor in tensors_in([example]):
            self.origins[tensor] = ACTIVATION
        with ExitStack() as hooks:
            for module in self.model.modules():
                if not isinstance(module, torch.jit.ScriptModule):  # it takes no hooks
                    name = self.names[id(module)]
                    # Ahead of other hooks, since some of them compute the layer's weight.
                    hooks.enter_context(module.register_forward_pre_hook(partial(self._enter, name), prepend=True))
                    after = module.register_forward_hook(partial(self._leave, name), with_kwargs=True, always_call=True)
                    hooks.enter_context(after)
            with self:
                yield

    def _enter(self, name: str, module: nn.Module, inputs: object) -> None:
        self.running.append(name)
        self.operators += isinstance(module, OperatorModule)

    def _leave(self, name: str, module: nn.Module, inputs: tuple[Any, ...], options: Mapping[str, Any], output: object) -> None:
        self.running.pop()
        given = shape_of((*inputs, *options.values()))
        if name not in self.running:  # else it is a parametrization of the layer
            self.calls.setdefault(name, (given, shape_of(output)))
        if isinstance(module, OperatorModule):
            self.operators -= 1
            if not self.operators:
                flops, memory, inside = _operator_cost(module, given)
                self._add(name, name, given, shape_of(output), flops, memory, inside)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator):
            self._note_unknown(str(func))
            return func(*args, **kwargs)
        if func not in self.whole:
            with self:
                made = NotImplemented if func is torch.ops.prim.device.default else func.decompose(*args, **kwargs)
            if made is not NotImplemented:
                return made
            self.whole.add(func)
        made = func(*args, **kwargs)
        given = [self.origins.get(tensor, CONSTANT) for tensor in tensors_in((*args, *kwargs.values()))]
        origin = ACTIVATION if ACTIVATION in given else CONSTANT.union(*given)
        if not self.operators:
            self._note(func, args, kwargs, made, origin)
        for tensor in tensors_in([made]) if origin else ():
            self.origins[tensor] = origin
            if func._schema.is_mutable and tensor._base is not None:  # a part of it was written to
                self.origins[tensor._base] = origin
        return made

    def _note(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], made: Any, origin: Origin) -> None:
        """Add the multiply-adds of a function that ran to the counts."""
        packet = func.overloadpacket
        if packet in FORMULAS and origin is not ACTIVATION:  # such as the norm of a weight
            return
        if packet in FACTORS and (packet in FORMULAS or packet in self.formulas):
            one, other = (args[place] for place in FACTORS[packet])
            if packet in FORMULAS:
                flops = FORMULAS[packet](*args, **kwargs)
            else:
                flops = self.formulas[packet](*args, **kwargs, out_val=made) // 2  # it counts a multiply-add as two
            is_layer = packet in CONVOLUTIONS or isinstance(self.modules[self.running[-1]], KINDS)
            if not is_layer and all(self.origins.get(of) is ACTIVATION for of in (one, other)):
                self.attention += flops
            else:
                inside = _inside_of_convolution(args, made) if packet in WITH_PADDING else 1.0
                self._count(flops, one, [one, other], made, inside)
        elif packet in RECURRENT:
            matrices = RECURRENT[packet](args)
            steps = args[0].numel() // max(args[0].shape[-1], 1)
            self._count(steps * sum(of.numel() for of in matrices), args[0], [args[0], *matrices], next(tensors_in([made])))
        elif packet.__name__.startswith("_scaled_dot_product") and "backward" not in packet.__name__:
            query, key, value = (tuple(of.shape) for of in args[:3])
            self.attention += math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
        elif origin is ACTIVATION and _is_unknown(packet.__name__, func.namespace):
            self._note_unknown(str(packet))

    def _count(
        self, flops: int, inputs: torch.Tensor, factors: Sequence[torch.Tensor], made: torch.Tensor, inside: float = 1.0
    ) -> None:
        """Add a product's multiply-adds to the layer that owns its weights; `inside` is the share that reads no padding."""
        runs_in = self.running[-1]
        layer = runs_in
        if not isinstance(self.modules[runs_in], KINDS):
            found = [self.origins.get(of, CONSTANT) for of in factors]
            weights = CONSTANT.union(*(origin for origin in found if origin is not ACTIVATION))
            owners = {runs_in if runs_in in self.owners[of] else self.owners[of][0] for of in weights}
            layer = owners.pop() if len(owners) == 1 else runs_in
        memory = FLOAT_BYTES * sum(of.numel() for of in (*factors, made))
        self._add(layer, runs_in, tuple(inputs.shape), tuple(made.shape), flops, memory, inside)

    def _add(
        self,
        layer: str,
        runs_in: str,
        input_shape: tuple[int, ...],
        made: tuple[int, ...],
        flops: int,
        memory: int,
        inside: float,
    ) -> None:
        work = self.work.setdefault((layer, runs_in), LayerWork(layer, runs_in, input_shape, made))
        work.flops += flops
        work.inside += flops * inside
        self.memory = max(self.memory, memory)

    def _note_unknown(self, function: str) -> None:
        name = self.running[-1]
        kind = type(self.modules[name]).__name__
        places = self.unknown.setdefault(function, [])
        if (place := f"{name} ({kind})" if name else kind) not in places:
            places.append(place)

    def count(self) -> Count:
        """Return the counts so far."""
        for work in self.work.values():
            if work.layer == work.runs_in and work.layer in self.calls:
                work.input, work.output = self.calls[work.layer]
        unknown = tuple(
            f"{function} in {places[0]}{f' and {len(places) - 1} more' if len(places) > 1 else ''}"
            for function, places in self.unknown.items()
        )
        return Count(tuple(self.work.values()), parameters(self.model), self.memory, self.attention, unknown)


def _is_unknown(name: str, namespace: str) -> bool:
    """Return whether a function of this name may do multiply-adds although no formula counts them."""
    return namespace not in OWN_NAMESPACES or name.startswith(UNKNOWN_BEGINNINGS) or name.endswith(UNKNOWN_ENDS)


def published_flops(model: nn.Module, example: Inputs) -> int:
    """Return the FLOPs for one sample as the paper's authors counted them, to compare with their figures.

    In addition to the FLOPs of `model_cost`, they count
    - 4 for each element that a batch or layer normalization reads,
    - 1 for each element that an average pooling module writes, and, if it is adaptive, for each that it reads (a pooling
      function does not count),
    - for an operator, the number of elements of its input, of its weights (once per batch), and of a result that is only moved.

    Source: the artifact's figures, which this reproduces; thop, which counted all layers but operators.
    """
    surplus = sum(map(_published_surplus, trace(model, example)))
    return (count(model, example).flops + surplus) // len_of_batch(example)


def _published_surplus(call: LayerCall) -> int:
    """Return the multiply-adds that `published_flops` counts for a layer in addition to its FLOPs."""
    read, made = math.prod(call.input), math.prod(call.output)
    if isinstance(call.module, OperatorModule):
        chosen, valuation = _plan_of(call.module, call.input)
        return chosen.published_flops(valuation) - chosen.flops(valuation)
    if isinstance(call.module, nn.BatchNorm2d | nn.LayerNorm):
        return 4 * read
    if isinstance(call.module, nn.AvgPool2d):
        return made
    return read + made if isinstance(call.module, nn.AdaptiveAvgPool2d) else 0


def parameters(module: nn.Module) -> int:
    """Return the number of parameters of a module; tied ones count once."""
    return sum(parameter.numel() for parameter in module.parameters())


def published_parameters(model: nn.Module) -> int:
    """Return the number of parameters as the paper's authors counted them: without embeddings.

    Source: the artifact's figures for GPT-2; thop, which knows no embedding.
    """
    return parameters(model) - sum(parameters(module) for module in model.modules() if isinstance(module, nn.Embedding))


def _operator_cost(module: OperatorModule, input_shape: tuple[int, ...]) -> tuple[int, int, float]:
    """Return the cost of one call of an operator by its plan: multiply-adds, bytes, and the share that reads no padding."""
    chosen, valuation = _plan_of(module, input_shape)
    return chosen.flops(valuation), chosen.peak_memory_bytes(valuation), windows_inside(module.graph, valuation)


def _inside_of_convolution(args: Sequence[Any], made: torch.Tensor) -> float:
    """Return the share of a convolution's multiply-adds that read no padding."""
    x, weight, _, stride, padding, dilation, is_transposed = args[:7]
    if is_transposed:
        return 1.0
    sizes = (padding, stride, dilation)
    settings = [size if len(size) == x.dim() - 2 else [size[0]] * (x.dim() - 2) for size in sizes]
    axes = zip(x.shape[2:], weight.shape[2:], made.shape[2:], *settings, strict=True)
    return math.prod(share_inside(*axis) for axis in axes)


def _plan_of(module: OperatorModule, input_shape: tuple[int, ...]) -> tuple[Plan, Valuation]:
    """Return the plan of an operator on an input of this shape, and the values of the operator's variables."""
    values = {**module.sizes, **module.graph.runtime_values(input_shape, module.sizes)}
    return plan(module.graph, values), module.graph.valuation(values)
