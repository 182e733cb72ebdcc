"""Networks for exporters: each synthesized operator is one opaque call, of which PyTorch knows only the output shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import nn

from syno.algebra import Valuation
from syno.lower.interpreter import shapes
from syno.model.module import OperatorModule
from syno.model.shared_memory import copy_of

CALL = "synthesized"


class OperatorCall(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """A call of `syno::synthesized` in place of an operator.

    Args:
        number: the operator's number in the network.
        operator: kept as an attribute, not as a submodule, so that its weights are not exported.
    """

    def __init__(self, number: int, operator: OperatorModule) -> None:
        super().__init__()
        self.number, self.operator = number, (operator,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the operator's output shape."""
        (operator,) = self.operator
        shape = shapes(operator.graph, valuation_for(operator, x.shape))[2]
        return operator_call()(x, self.number, list(shape))


def valuation_for(operator: OperatorModule, shape: Sequence[int]) -> Valuation:
    """Return the operator's sizes for an input of this shape."""
    graph = operator.graph
    return graph.valuation({**graph.runtime_values([int(length) for length in shape], operator.sizes), **operator.sizes})


@cache
def operator_call() -> Any:
    """Define `syno::synthesized` on first use, and return it. It has a shape function but no implementation, and never runs."""
    torch.library.define(f"syno::{CALL}", "(Tensor x, int number, int[] shape) -> Tensor")
    torch.library.register_fake(f"syno::{CALL}", lambda x, number, shape: x.new_empty(shape))
    return getattr(torch.ops.syno, CALL)


def exchanged(module: nn.Module, replacements: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """Replace submodules of a network in place, as {submodule: replacement}; return the network (or its own replacement)."""
    for name, part in list(module.named_modules(remove_duplicate=False)):  # a module may be in several places
        if name and part in replacements:
            module.set_submodule(name, replacements[part])
    return replacements.get(module, module)


def with_calls(
    module: nn.Module, others: Callable[[nn.Module], nn.Module | None] = lambda _: None
) -> tuple[nn.Module, list[OperatorModule]]:
    """Return a copy of `module` for export, on the CPU, and the operators that its calls replace.

    Args:
        module: a network, or an operator by itself.
        others: returns the replacement of any other module of the copy, or None to keep the module.
    """
    copy = copy_of(module).cpu().eval().to(memory_format=torch.contiguous_format)
    operators = [part for part in copy.modules() if isinstance(part, OperatorModule)]
    replacements: dict[nn.Module, nn.Module] = {part: OperatorCall(number, part) for number, part in enumerate(operators)}
    for part in copy.modules():
        if part not in replacements and (other := others(part)) is not None:
            replacements[part] = other
    return exchanged(copy, replacements), operators
