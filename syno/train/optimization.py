"""The optimizer, the learning rate, and the numbers that a training computes with, as the settings say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from syno.train.settings import TrainingSettings

TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}  # of autocast
WITHOUT_DECAY = (nn.Embedding, nn.LayerNorm, nn.BatchNorm2d, nn.GroupNorm)  # where only matrices decay


def make_optimizer(network: nn.Module, settings: TrainingSettings) -> Optimizer:
    """The optimizer of all parameters."""
    groups = _parameter_groups(network, settings)
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(groups, settings.learning_rate, settings.betas)
    return torch.optim.SGD(groups, settings.learning_rate, settings.momentum, nesterov=True)


def _parameter_groups(network: nn.Module, settings: TrainingSettings) -> list[dict[str, object]]:
    """Parameters that decay, and those that do not."""
    without: set[int] = set()
    if settings.decay == "matrices":
        for module in network.modules():
            of_its_own = list(module.parameters(recurse=False))
            without |= {id(one) for one in of_its_own if isinstance(module, WITHOUT_DECAY) or one.dim() < 2}
    groups = [([one for one in network.parameters() if (id(one) in without) == kept], kept) for kept in (False, True)]
    return [{"params": of, "weight_decay": 0.0 if kept else settings.weight_decay} for of, kept in groups if of]


def make_schedule(optimizer: Optimizer, settings: TrainingSettings, steps: int, per_epoch: int) -> LRScheduler:
    """The learning rate over so many steps; its `step` is called after each one."""
    if settings.schedule == "one-cycle":
        return OneCycleLR(optimizer, settings.learning_rate, total_steps=steps, cycle_momentum=False)
    return LambdaLR(optimizer, _factor(settings, steps, per_epoch))


def _factor(settings: TrainingSettings, steps: int, per_epoch: int) -> Callable[[int], float]:
    """From how many steps have been taken to the share of the highest learning rate."""
    least = settings.final_learning_rate / settings.learning_rate

    def cosine(done: float) -> float:
        return least + (1 - least) * (1 + math.cos(math.pi * min(done, 1.0))) / 2

    def triangle(epoch: float) -> float:
        if epoch < settings.peak_epoch:
            return epoch / settings.peak_epoch
        return max(0.0, 1 - (epoch - settings.peak_epoch) / max(steps / per_epoch - settings.peak_epoch, 1e-12))

    match settings.schedule:
        case "cosine":
            return lambda step: cosine(step / steps)
        case "cosine-by-epoch":
            return lambda step: cosine(step // per_epoch / (steps / per_epoch))
        case "triangle":
            return lambda step: triangle(step / per_epoch)
        case _:
            return lambda step: 1.0


def autocast(settings: TrainingSettings, device: torch.device) -> torch.autocast:
    """The context in which networks compute."""
    given = TYPES.get(settings.precision)
    return torch.autocast(device.type, dtype=given, enabled=given is not None)


@contextmanager
def own_state(seed: int, settings: TrainingSettings, device: torch.device) -> Iterator[None]:
    """Random numbers, threads and precision of one's own; afterwards they are as they were."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    of_convolutions = torch.backends.cudnn.allow_tf32
    torch.set_num_threads(settings.threads)
    torch.set_float32_matmul_precision("high" if settings.tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = settings.tf32
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = of_convolutions
