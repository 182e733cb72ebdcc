"""Inputs and weights with which every part of a network shows in its output, so that an error in one is seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil

import torch
from torch import Tensor, nn

CORNER_GAIN, CORNER_SHARE = 8.0, 1 / 16  # how much larger corners are, and the share of a side over which that falls off
FEWEST_SAMPLES = 4
MOST_FLOPS = 8e9  # of all calls that are compared; one is in any case


def random_input(shape: tuple[int, ...], generator: torch.Generator, symbols: int | None = None) -> Tensor:
    """Numbers from -0.5 to 0.5, or int64 numbers of symbols if it says how many there are; on the generator's device."""
    if symbols is not None:
        return torch.randint(symbols, shape, device=generator.device, generator=generator)
    return torch.rand(shape, device=generator.device, generator=generator).sub_(0.5)


def telling_inputs(
    shape: tuple[int, ...], generator: torch.Generator, symbols: int | None = None, flops: int = 0
) -> list[Tensor]:
    """Random inputs whose values grow towards the corners, so that a wrong pixel in a corner changes means over a picture.

    Args:
        shape: with the batch; axes after the first two are those of a picture, or the second if there are no more.
        generator: draws them.
        symbols: how many, if the input is numbers of symbols, which do not grow.
        flops: of one call. So many inputs are made that there are four samples, but fewer where that costs much.
    """
    count = min(ceil(FEWEST_SAMPLES / max(shape[0], 1)) if shape else 1, max(1, int(MOST_FLOPS / max(flops, 1))))
    inputs = [random_input(shape, generator, symbols) for _ in range(count)]
    if symbols is not None:
        return inputs
    gain = _corner_gain(shape).to(generator.device)
    return [each.mul_(gain) for each in inputs]


def _corner_gain(shape: tuple[int, ...]) -> Tensor:
    """Factors from 1 in the middle to `CORNER_GAIN` in the corners, of the shape without its first axes."""
    sides = shape[2:] or shape[1:]
    distance = torch.zeros(sides)
    for axis, length in enumerate(sides):
        along = torch.arange(length, dtype=torch.float32)
        to_end = torch.minimum(along, length - 1 - along) / length
        distance = torch.maximum(distance, to_end.view(-1, *(1,) * (len(sides) - 1 - axis)))
    return 1 + (CORNER_GAIN - 1) * torch.exp(-distance / CORNER_SHARE)


def vary_constants(network: nn.Module, example: Tensor, seed: int) -> None:
    """Give random values to parameters and statistics that are constants before training, in place.

    A normalization that leaves everything as it is, a bias of zeros, and a branch that is multiplied by zero would hide errors.
    What is not constant, as in a trained network, stays. Batch normalizations that have seen no data get statistics close to
    those of their input for the example, so that all branches of a network are of about the same size.

    Args:
        network: in evaluation mode.
        example: an input, of random values.
        seed: of what is drawn.
    """
    generator = torch.Generator().manual_seed(seed)
    if any(nn.parameter.is_lazy(parameter) for parameter in network.parameters()):
        with torch.no_grad():
            network(example)  # parameters get their shapes
    with torch.no_grad():
        for module in network.modules():
            for name, parameter in module.named_parameters(recurse=False):
                _vary(module, name, parameter, generator)
        with _fitted_statistics(network, generator):
            network(example)


def _vary(module: nn.Module, name: str, parameter: Tensor, generator: torch.Generator) -> None:
    constant = parameter.flatten()[:1]
    if not parameter.is_floating_point() or not parameter.numel() or not bool((parameter == constant).all()):
        return
    drawn = torch.randn(parameter.shape, generator=generator).to(parameter)
    if float(constant) == 1.0:
        parameter.copy_(torch.rand(parameter.shape, generator=generator).add_(0.5))
    elif float(constant) == 0.0:
        weight = getattr(module, "weight", None)
        if name != "weight" and isinstance(weight, Tensor) and weight.dim() > 1:
            parameter.copy_(drawn * weight.std())  # a bias
        elif parameter.dim() > 1:
            parameter.copy_(drawn * parameter[0].numel() ** -0.5)
        else:
            parameter.copy_(drawn * 0.25)


@contextmanager
def _fitted_statistics(network: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """Within, a batch normalization that has seen no data takes its statistics from its first input."""
    hooks = [
        module.register_forward_pre_hook(_fit(generator))
        for module in network.modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
        and module.running_mean is not None
        and bool((module.running_mean == 0).all() and (module.running_var == 1).all())
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _fit(generator: torch.Generator) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
    def fit(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        deviation = inputs[0].float().std(correction=0).clamp_min(1e-6).cpu()
        features = module.running_mean.shape
        module.running_mean.copy_(0.25 * deviation * torch.randn(features, generator=generator))
        module.running_var.copy_(deviation.square() * torch.rand(features, generator=generator).mul_(1.5).add_(0.5))

    return fit
