"""The share of a network's time that each of its layers takes, in plain PyTorch: a quick look, and no latency to compare.

>>> import torch
>>> from torch import nn
>>> shares = layer_shares(nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU()), torch.zeros(1, 3, 64, 64))
>>> list(shares), 0 < sum(shares.values()) <= 1
(['0', '1'], True)
"""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from statistics import median

import torch
from torch import nn

from syno.model.extraction import evaluation_mode

MOST_PASSES = 7
MOST_SECONDS = 3.0  # of passes, after which no other begins


def layer_shares(model: nn.Module, example: torch.Tensor) -> dict[str, float]:
    """Return the share of the time of a forward pass for each module without submodules, by its name: the median over passes.

    Args:
        model: on the device of the example; it is left as it was.
        example: a batch of inputs.
    """
    model_passes: list[dict[str, float]] = []
    with ExitStack() as hooks, torch.no_grad(), evaluation_mode(model):
        spent: dict[str, float] = defaultdict(float)
        begun: dict[str, float] = {}

        def begin(name: str, module: nn.Module, inputs: object) -> None:
            begun[name] = _now(example)

        def end(name: str, module: nn.Module, inputs: object, output: object) -> None:
            spent[name] += _now(example) - begun[name]

        for name, module in model.named_modules():
            if not list(module.children()):
                hooks.enter_context(module.register_forward_pre_hook(partial(begin, name)))
                hooks.enter_context(module.register_forward_hook(partial(end, name)))
        model(example)  # a first pass prepares memory and kernels
        until = time.perf_counter() + MOST_SECONDS
        while len(model_passes) < MOST_PASSES and (not model_passes or time.perf_counter() < until):
            spent.clear()
            start = _now(example)
            model(example)
            whole = _now(example) - start
            model_passes.append({name: seconds / whole for name, seconds in spent.items()})
    return {name: median(one[name] for one in model_passes) for name in model_passes[0]}


def _now(example: torch.Tensor) -> float:
    if example.is_cuda:
        torch.cuda.synchronize(example.device)
    return time.perf_counter()
