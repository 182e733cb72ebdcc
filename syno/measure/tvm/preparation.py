"""A network made ready for export: normalizations as products and sums, operators as one call each.

PyTorch sees each synthesized operator as one call of `syno::synthesized`, which knows nothing but the shape of its result;
what it computes is put in when the exported program is read (`syno.measure.tvm.network`).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from typing import Any

import torch
from torch import nn

from syno.algebra import Valuation
from syno.lower.interpreter import shapes
from syno.model.module import OperatorModule

CALL = "synthesized"


class Affine(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """What a normalization with fixed statistics computes: x * scale + offset. [N, C, ...] -> [N, C, ...]."""

    def __init__(self, norm: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__()
        scale = torch.rsqrt(norm.running_var + norm.eps)
        scale = scale if norm.weight is None else scale * norm.weight
        offset = -norm.running_mean * scale
        offset = offset if norm.bias is None else offset + norm.bias
        self.register_buffer("scale", scale.detach())
        self.register_buffer("offset", offset.detach())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        shape = (-1, *(1,) * (x.dim() - 2))
        return x * self.scale.view(shape) + self.offset.view(shape)


class Call(nn.Module):  # type: ignore[misc]
    """Stands for an operator.

    Args:
        number: which one of the network it is.
        operator: is not a submodule: its weights are no part of what is exported.
    """

    def __init__(self, number: int, operator: OperatorModule) -> None:
        super().__init__()
        self.number, self.operator = number, (operator,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See the module."""
        (operator,) = self.operator
        shape = shapes(operator.graph, valuation_for(operator, x.shape))[2]
        return _call()(x, self.number, list(shape))


def valuation_for(operator: OperatorModule, shape: Sequence[int]) -> Valuation:
    """The operator's sizes for an input of this shape."""
    graph = operator.graph
    free = {str(dim.size): int(length) for dim, length in zip(graph.input, shape, strict=True)}
    return graph.valuation({**{name: free[name] for name in graph.runtime_variables}, **operator.sizes})


def prepared(module: nn.Module) -> tuple[nn.Module, list[OperatorModule]]:
    """A copy of `module` for export, on the CPU, and the operators that its calls stand for."""
    copy = deepcopy(module).cpu().eval().to(memory_format=torch.contiguous_format)
    operators = [part for part in copy.modules() if isinstance(part, OperatorModule)]
    replacements: dict[nn.Module, nn.Module] = {part: Call(number, part) for number, part in enumerate(operators)}
    for part in copy.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is not None:
            replacements[part] = Affine(part)
    for name, part in list(copy.named_modules(remove_duplicate=False)):  # one may stand in several places
        if name and part in replacements:
            copy.set_submodule(name, replacements[part])
    return replacements.get(copy, copy), operators


@cache
def _call() -> Any:
    """`syno::synthesized`, defined when first used. It has a shape and no implementation: nothing ever runs it."""
    library = torch.library.Library("syno", "FRAGMENT")
    library.define(f"{CALL}(Tensor x, int number, int[] shape) -> Tensor")
    torch.library.register_fake(f"syno::{CALL}", lambda x, number, shape: x.new_empty(shape), lib=library)
    _call.library = library  # type: ignore[attr-defined]  # the definition lives as long as this object does
    return getattr(torch.ops.syno, CALL)
