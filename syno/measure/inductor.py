"""TorchInductor for inference: weights are constants.

Compiled code cannot be trained: it has weights of its own, which do not change with the module's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import nn
from torch._inductor import config

Inputs: TypeAlias = tuple[torch.Tensor, ...]

# The vector instructions that the processor lists are assumed to work. Otherwise Inductor would, in each process, compile a
# program for each set of them, and run it in a new Python with PyTorch: 8 of the 23 seconds that compiling ResNet-8 takes.
FLAGS = {"cpp.vec_isa_ok": True}


def frozen(module: nn.Module, example: Inputs, **options: Any) -> Callable[..., Any]:
    """Compile a module with `torch.compile` and constant weights, for the shapes of `example`.

    Constants are folded into each other, and laid out as the kernels read them; the module keeps its own weights.

    Args:
        module: in evaluation mode.
        example: an input.
        options: arguments of `torch.compile`.
    """
    compiled: Callable[..., Any] = torch.compile(module, dynamic=False, **options)
    with torch.no_grad(), config.patch(freezing=True, **FLAGS):  # read when the first call compiles
        compiled(*example)
    return compiled
