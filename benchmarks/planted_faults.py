"""Small faults in what a compiler makes of a network with an operator: compilers by name, for the process that measures."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from syno.measure.compilers import COMPILERS
from syno.measure.job import Job
from syno.model.module import OperatorModule

Change = Callable[[Tensor], Tensor]


def operators(network: nn.Module) -> list[nn.Module]:
    """The layers in which operators stand; in a network as it is, the convolutions that could be replaced."""
    found = [part for part in network.modules() if isinstance(part, OperatorModule)]
    return found or [part for part in network.modules() if isinstance(part, nn.Conv2d) and part.kernel_size == (3, 3)][1:]


def changed(network: nn.Module, number: int, change: Change) -> nn.Module:
    """A copy in which the output of the operator of this number is changed."""
    copied = deepcopy(network)
    operators(copied)[number].register_forward_hook(lambda module, inputs, output: change(output))
    return copied


def without_last_channel(y: Tensor) -> Tensor:
    return torch.cat([y[:, :-1], torch.zeros_like(y[:, -1:])], dim=1)


def without_corner(y: Tensor) -> Tensor:
    y = y.clone()
    y[..., 0, 0] = 0
    return y


def slightly_larger(y: Tensor) -> Tensor:
    return y * 1.001


def repeated_last_row(y: Tensor) -> Tensor:
    """The border of a window is off by one: the last row is that before it."""
    return torch.cat([y[..., :-1, :], y[..., -2:-1, :]], dim=-2)


def in_bfloat16(y: Tensor) -> Tensor:
    return y.bfloat16().float()


def all_in_bfloat16(network: nn.Module) -> Callable[..., Any]:
    """The network with its weights and its input rounded to 8 bits of mantissa; products are summed in single precision."""
    rounded = deepcopy(network).bfloat16().float()
    return lambda x: rounded(x.bfloat16().float())


FAULTS: dict[str, Callable[[nn.Module], Callable[..., Any]]] = {
    "channel": lambda network: changed(network, -1, without_last_channel),
    "corner": lambda network: changed(network, 0, without_corner),
    "factor": lambda network: changed(network, len(operators(network)) // 2, slightly_larger),
    "border": lambda network: changed(network, 0, repeated_last_row),
    "bfloat16": all_in_bfloat16,
    "operator-in-bfloat16": lambda network: changed(network, -1, in_bfloat16),
}


def _register(name: str, fault: Callable[[nn.Module], Callable[..., Any]]) -> None:
    @COMPILERS.register(f"test-fault-{name}")
    def compiler(job: Job) -> Callable[..., Any]:
        return fault(job.module)


for _name, _fault in FAULTS.items():
    _register(_name, _fault)
