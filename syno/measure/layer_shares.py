"""Profile of a network by layer in eager PyTorch: each layer's share of the time. It is a quick estimate, no benchmark.

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
MOST_SECONDS = 3.0  # no further pass begins after so many seconds


def layer_shares(model: nn.Module, example: Inputs) -> dict[str, float]:
    """Return each module's share of the time of a forward pass, without its submodules' time.

    A module's time is the minimum over passes, since other processes disturb most passes on a busy machine. Parametrizations
    and submodules that TorchScript compiled are parts of their layer; a layer that TorchScript compiled has no time of its own.

    Args:
        model: the network, on the device of the example; it is not changed.
        example: a batch of its inputs.

    Returns shares by the modules' names; they add up to 1.
    """
    passes: list[dict[str, float]] = []
    names, device = layer_names(model), first_inputs(example)[0].device
    with ExitStack() as hooks, torch.no_grad(), evaluation_mode(model):
        spent: dict[str, float] = defaultdict(float)
        running: list[str] = []
        since = [0.0]  # time at which the innermost module began, or continued after a submodule

        def change(name: str | None) -> None:
            """Add the time since the last change to the innermost module; then begin module `name`, or with None end it."""
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
