"""Networks in a line: modules by name, and a function of them that is the forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class FunctionModule(nn.Module):
    """Modules by name, and a function of them and of the input that is the forward pass."""

    def __init__(self, run: Callable[[Any, torch.Tensor], Any], **modules: Any) -> None:
        super().__init__()
        self.run = run
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x: torch.Tensor) -> Any:
        return self.run(self, x)
