"""The cost of a network for one batch: FLOPs, parameters, memory.

One multiply-add counts as one FLOP. Convolutions, linear layers and operators count; normalization, activations, pooling,
additions and products of activations (attention) do not, as is usual.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from syno.algebra import Valuation
from syno.base.errors import SpecError
from syno.lower.choose import plan
from syno.lower.plan import FLOAT_BYTES, Plan
from syno.model.around import Bias
from syno.model.extraction import LayerCall, evaluation_mode, trace
from syno.model.geometry import TRANSPOSED
from syno.model.module import OperatorModule
from syno.space.complete import Cost

WEIGHTED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
FREE = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.Embedding,
    nn.PReLU,
    Bias,
)  # though they have weights


def model_cost(model: nn.Module, example: torch.Tensor) -> Cost:
    """Return the cost of a network for a batch of the example's size.

    Memory is the most that one layer with weights holds in float32: its input, weights and output; for an operator, what the
    largest of its stages holds.

    Of a user's modules with parameters of their own, such as a factor or an embedding of positions, the products of matrices
    and the convolutions count that run in their `forward` itself; PyTorch's `FlopCounterMode` counts them.

    >>> import syno, torch
    >>> from torch import nn
    >>> network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
    >>> syno.model_cost(network, torch.zeros(1, 3, 16, 16))
    Cost(flops=202752, parameters=808, memory_bytes=18688)
    """
    calls = trace(model, example)
    own = _own_products(model, example) if any(map(_is_unknown, calls)) else {}
    counted = [(own.get(call.name, 0), 0) if _is_unknown(call) else layer_cost(call) for call in calls]
    return Cost(
        flops=sum(flops for flops, _ in counted),
        parameters=parameters(model),
        memory_bytes=max((memory for _, memory in counted), default=0),
    )


def _is_unknown(call: LayerCall) -> bool:
    """Return whether a module has parameters of its own, and is neither one of PyTorch's nor an operator."""
    is_known = isinstance(call.module, OperatorModule | Bias) or type(call.module).__module__.startswith("torch.nn.")
    return not is_known and bool(list(call.module.parameters(recurse=False)))


def _own_products(model: nn.Module, example: torch.Tensor) -> dict[str, int]:
    """Return the multiply-adds that run in each module itself, and in no module of it, by the module's name."""
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), evaluation_mode(model), counter:
        model(example)
    whole = {name: sum(of.values()) for name, of in counter.get_flop_counts().items()}
    own: dict[str, int] = {}
    for name, module in model.named_modules():
        path = f"{type(model).__name__}.{name}" if name else type(model).__name__
        own[name] = (whole.get(path, 0) - sum(whole.get(f"{path}.{child}", 0) for child, _ in module.named_children())) // 2
    return own


def published_flops(model: nn.Module, example: torch.Tensor) -> int:
    """Return the FLOPs for one sample as the paper's authors counted them, to compare with their figures.

    In addition to `model_cost`, they count 4 for each element that a batch or layer normalization reads, 1 for each element
    that an average pooling reads and writes (only those that it writes if its window is fixed; none if it is a function and no
    module), and for an operator the numbers of elements of its input, of its weights, the latter once in a batch, and of a
    result that is only moved.

    Source: the artifact's figures, which this reproduces; thop, which counted what is no operator.
    """
    counted = sum(layer_cost(call)[0] + _published_surplus(call) for call in trace(model, example))
    return counted // len(example)


def _published_surplus(call: LayerCall) -> int:
    """Return what `published_flops` counts for a layer in addition to `layer_cost`."""
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
    """Return the number of learnt parameters; shared ones count once."""
    return sum(parameter.numel() for parameter in module.parameters())


def published_parameters(model: nn.Module) -> int:
    """Return the number of learnt parameters as the paper's authors counted: without embeddings.

    Source: the artifact's figures for GPT-2; thop, which knows no embedding.
    """
    return parameters(model) - sum(parameters(module) for module in model.modules() if isinstance(module, nn.Embedding))


def layer_cost(call: LayerCall) -> tuple[int, int]:
    """Return multiply-adds and bytes of memory of one use of a layer. SpecError if its FLOPs are not known."""
    module = call.module
    if isinstance(module, OperatorModule):
        return _operator_cost(module, call)
    if isinstance(module, (*WEIGHTED, *TRANSPOSED)):
        weight = module.weight
        memory = FLOAT_BYTES * (math.prod(call.input) + weight.numel() + math.prod(call.output))
        elements = math.prod(call.input if isinstance(module, TRANSPOSED) else call.output)
        return elements * weight[0].numel(), memory  # weight[0]: of one element of the output, or of the input if transposed
    if isinstance(module, FREE) or not list(module.parameters(recurse=False)):
        return 0, 0
    raise SpecError(
        f"{call.name} is a {type(module).__name__}, whose FLOPs are not known; known are convolutions, Linear "
        "and operators: write it with these"
    )


def _operator_cost(module: OperatorModule, call: LayerCall) -> tuple[int, int]:
    chosen, valuation = _plan_of(module, call.input)
    return chosen.flops(valuation), chosen.peak_memory_bytes(valuation)


def _plan_of(module: OperatorModule, given: tuple[int, ...]) -> tuple[Plan, Valuation]:
    """Return the plan of an operator on an input of this shape, and the values of its variables."""
    values = {**module.sizes, **module.graph.runtime_values(given, module.sizes)}
    return plan(module.graph, values), module.graph.valuation(values)
