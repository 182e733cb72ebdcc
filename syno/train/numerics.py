"""Numerics of a training from its settings: initial weights, optimizer, learning-rate schedule, number formats, device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from syno.base.devices import require_device
from syno.base.errors import SpecError, TrainingError
from syno.model.module import OperatorModule
from syno.train.settings import Initialization, TrainingSettings

TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}  # number formats of autocast
WITHOUT_DECAY = (
    nn.Embedding,
    nn.LayerNorm,
    nn.BatchNorm2d,
    nn.GroupNorm,
)  # modules without weight decay, if only matrices decay
CONVOLUTION_DEVIATION, LINEAR_DEVIATION = 0.1, 0.02  # source: the published training code for CIFAR-100


def initialize(network: nn.Module, how: Initialization, seed: int, *, is_own: bool = False) -> None:
    """Initialize weights, in place. Biases and normalizations keep their values.

    Args:
        network: the network, on the CPU.
        how: "fan-in", "keep" or "fit" changes nothing: operators are initialized such that they preserve variance. "paper"
            draws convolutions and operators from a truncated normal distribution with deviation 0.1, linear layers with 0.02,
            as the published code does for CIFAR-100; in a user's own network, whose layers may be trained, only operators.
            "paper-everywhere" draws all layers of a user's own network, too. "normal" draws operators with deviation 1, as the
            published code does for ImageNet.
        seed: seed of the random numbers.
        is_own: whether the network is a user's own.
    """
    if how in ("fan-in", "keep", "fit"):
        return
    draws_layers = how == "paper-everywhere" or (how == "paper" and not is_own)
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, OperatorModule):
            for weight in module.parameters():
                if how == "normal":
                    nn.init.normal_(weight, generator=generator)
                else:
                    nn.init.trunc_normal_(weight, std=CONVOLUTION_DEVIATION, generator=generator)
        elif draws_layers and isinstance(module, nn.Conv2d | nn.Linear):
            deviation = LINEAR_DEVIATION if isinstance(module, nn.Linear) else CONVOLUTION_DEVIATION
            nn.init.trunc_normal_(module.weight, std=deviation, generator=generator)


def check_learns(network: nn.Module) -> None:
    """Raise SpecError if all parameters of a network are frozen."""
    weights = list(network.parameters())
    if weights and not any(weight.requires_grad for weight in weights):
        raise SpecError(
            f"all {len(weights)} parameters of {type(network).__name__} are frozen (requires_grad is False), as code for "
            "inference and peft's merge_and_unload leave them, and cannot be trained; call model.requires_grad_(True) before"
        )


def make_optimizer(network: nn.Module, settings: TrainingSettings) -> Optimizer:
    """Return the optimizer for all parameters of a network. Raises SpecError if all are frozen."""
    check_learns(network)
    groups = _parameter_groups(network, settings)
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(groups, settings.learning_rate, settings.betas)
    return torch.optim.SGD(groups, settings.learning_rate, settings.momentum, nesterov=True)


def _parameter_groups(network: nn.Module, settings: TrainingSettings) -> list[dict[str, object]]:
    """Return the optimizer's parameter groups: parameters with weight decay, and without; empty groups are omitted."""
    without: set[int] = set()
    if settings.decay == "matrices":
        for module in network.modules():
            of_its_own = list(module.parameters(recurse=False))
            without |= {id(parameter) for parameter in of_its_own if isinstance(module, WITHOUT_DECAY) or parameter.dim() < 2}
    groups = [
        ([parameter for parameter in network.parameters() if (id(parameter) in without) == kept], kept)
        for kept in (False, True)
    ]
    return [{"params": of, "weight_decay": 0.0 if kept else settings.weight_decay} for of, kept in groups if of]


def make_schedule(optimizer: Optimizer, settings: TrainingSettings, steps: int, per_epoch: int) -> LRScheduler:
    """Return the learning-rate schedule over `steps` steps; call its `step` after each step."""
    if settings.schedule == "one-cycle":
        return OneCycleLR(optimizer, settings.learning_rate, total_steps=steps, cycle_momentum=False)
    return LambdaLR(optimizer, _factor(settings, steps, per_epoch))


def _factor(settings: TrainingSettings, steps: int, per_epoch: int) -> Callable[[int], float]:
    """Return the learning rate's factor on its highest value, as a function of the number of finished steps."""
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
        case "constant":
            return lambda step: 1.0
        case other:
            raise SpecError(f'the schedule "{other}" is not implemented; take one that docs/options.md lists')


def autocast(settings: TrainingSettings, device: torch.device) -> torch.autocast:
    """Return the autocast context for the precision of the settings."""
    number_format = TYPES.get(settings.precision)
    return torch.autocast(device.type, dtype=number_format, enabled=number_format is not None)


@contextmanager
def own_state(seed: int, settings: TrainingSettings, device: torch.device) -> Iterator[None]:
    """Set the random seeds, the number of threads and the precision of a training in the block; restore them afterwards."""
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


@contextmanager
def on_device(name: str) -> Iterator[torch.device]:
    """Yield the device of a training by its name. Unused cached memory is released at the end of the block.

    Raises MissingDeviceError if this machine has no such device, TrainingError if the device runs out of memory.
    """
    require_device(name, "training.device")
    device = torch.device(name)
    try:
        yield device
    except torch.OutOfMemoryError as error:
        first = str(error).split(". ", maxsplit=1)[0]
        raise TrainingError(f"out of memory on {name}: {first}; give a smaller micro_batch") from None
    finally:
        if device.type == "cuda":
            torch.cuda.empty_cache()
