"""The share of a network's time that each of its layers takes, in plain PyTorch: a quick look, and no latency to compare.

>>> import torch
>>> from torch import nn
>>> shares = layer_shares(nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU()), torch.zeros(1, 3, 64, 64))
>>> sorted(shares), round(sum(shares.values()), 6)
(['', '0', '1'], 1.0)
"""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import ExitStack

import torch
from torch import nn

from syno.model.counting import layer_names
from syno.model.extraction import evaluation_mode
from syno.model.inputs import Inputs, call, first_inputs

MOST_PASSES = 7
MOST_SECONDS = 3.0  # of passes, after which no other begins


def layer_shares(model: nn.Module, example: Inputs) -> dict[str, float]:
    """Return the share of the time of a forward pass for each module, without the modules in it.

    The time of a module is the least over passes: on a busy machine, others have a module's core in most of them.
    Parametrizations, and what TorchScript has compiled, are parts of their layer; a layer that TorchScript compiled has no
    time of its own.

    Args:
        model: on the device of the example; it is left as it was.
        example: a batch of its inputs.

    Returns shares by the modules' names. Those of all modules together are 1.
    """
    passes: list[dict[str, float]] = []
    names, device = layer_names(model), first_inputs(example)[0].device
    with ExitStack() as hooks, torch.no_grad(), evaluation_mode(model):
        spent: dict[str, float] = defaultdict(float)
        running: list[str] = []
        since = [0.0]  # when the innermost module began, or went on after one in it

        def change(name: str | None) -> None:
            """Give the time that has passed to the innermost module; another begins, or with None it ends."""
            now = _now(device)
            if running:
                spent[running[-1]] += now - since[0]
            if name is None:
                running.pop()
            else:
                running.append(name)
            since[0] = now

        for module in model.modules():
            if not isinstance(module, torch.jit.ScriptModule):  # it takes no hooks
                name = names[id(module)]
                hooks.enter_context(module.register_forward_pre_hook(lambda *_, name=name: change(name), prepend=True))
                hooks.enter_context(module.register_forward_hook(lambda *_: change(None), always_call=True))
        call(model, example)  # a first pass prepares memory and kernels
        until = time.perf_counter() + MOST_SECONDS
        while len(passes) < MOST_PASSES and (not passes or time.perf_counter() < until):
            spent.clear()
            call(model, example)
            passes.append(dict(spent))
    least = {name: min(one.get(name, 0.0) for one in passes) for name in passes[0]}
    whole = sum(least.values())
    return {name: seconds / whole for name, seconds in least.items()}


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
