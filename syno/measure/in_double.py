"""Modules in double precision on the host, as references."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from syno.ir.graph import PGraph


class InDouble(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """A module in double precision on the host.

    Args:
        module: is taken over.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module.to("cpu", torch.float64).eval()

    def forward(self, *inputs: Any) -> Any:
        """Return the module's output for these inputs, which may be of any device and floating-point type."""
        return self.module(*(_in_double(value) for value in inputs))


class BySample(nn.Module):  # type: ignore[misc]
    """A module that is applied to each sample of a batch for itself: literal forms of whole batches may not fit in memory."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """[N, ...] -> [N, ...]."""
        return torch.cat([self.module(sample) for sample in x.split(1)])


def in_double(module: nn.Module) -> nn.Module:
    """A copy of the module in double precision on the host, in evaluation mode."""
    return InDouble(deepcopy(module))


def by_sample(module: nn.Module, graph: PGraph) -> nn.Module:
    """The module of an operator, sample by sample if its first axis goes straight through it and may have any length."""
    leads = bool(graph.input and graph.output) and graph.input[0] == graph.output[0]
    return BySample(module) if leads and str(graph.input[0].size) in graph.runtime_variables else module


def _in_double(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.detach().cpu().double() if value.is_floating_point() else value.detach().cpu()
