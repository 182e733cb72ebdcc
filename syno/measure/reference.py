"""References for the output check: modules in double precision, with inputs and weights that make errors visible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn

from syno.ir.graph import PGraph
from syno.model.inputs import call, first_inputs, mapped
from syno.model.proof import AXES_OF_PICTURES
from syno.model.shared_memory import copy_of

CORNER_GAIN, CORNER_SHARE = 8.0, 1 / 16  # how much larger corners are, and the share of a side over which that falls off
FEWEST_SAMPLES = 4
MOST_FLOPS = 8e9  # of all calls that are compared; at least one is made in any case


@dataclass(frozen=True)
class Material:
    """A module with its inputs and its reference, to be compiled, checked and measured.

    Attributes:
        module: the module, in evaluation mode, on the device.
        shape: shape of an input, with the batch.
        generator: random generator of the inputs, on the device.
        reference: computes the exact output, on the host and in double precision; takes inputs of any dtype and device.
        reference_name: "interpreter", "literal module", "fused module", "network of literal modules" or "eager module".
        flops: multiply-adds of one call.
        parameters: the number of trainable parameters.
        symbols: the vocabulary size if the input is token ids; None if it is real numbers.
        layout: the memory format of inputs.
        simulated: the reference as PyTorch operations, if the reference is none.
        inside: the share of the multiply-adds that read no padding, and so cannot be skipped.
        by_sample: whether the module computes each sample of a batch independently, so that comparing a few suffices.
        network_inputs: the inputs of a network with several, whose tensors the module takes; None: one input of `shape`.
        has_values: whether the values of `network_inputs` are used, since random values take another execution path.
    """

    module: nn.Module
    shape: tuple[int, ...]
    generator: torch.Generator
    reference: Callable[..., Any]
    reference_name: str
    flops: int
    parameters: int
    symbols: int | None = None
    layout: torch.memory_format = torch.contiguous_format
    simulated: Callable[..., Any] | None = None
    inside: float = 1.0
    by_sample: bool = False
    network_inputs: Any = None
    has_values: bool = False

    def make_inputs(self) -> tuple[Tensor, ...]:
        """Return a random input, a different one at each call."""
        if self.network_inputs is not None:
            return self._tensors(lambda shape: random_input(shape, self.generator))
        return (random_input(self.shape, self.generator, self.symbols).contiguous(memory_format=self.layout),)

    def make_check_inputs(self) -> list[tuple[Tensor, ...]]:
        """Return the inputs for which the output check compares the module with its reference."""
        if self.network_inputs is not None:
            return [self._tensors(lambda shape: telling_inputs(shape, self.generator, flops=self.flops)[0])]
        inputs = telling_inputs(self.shape, self.generator, self.symbols, self.flops)
        return [(x.contiguous(memory_format=self.layout),) for x in inputs]

    def _tensors(self, draw: Callable[[tuple[int, ...]], Tensor]) -> tuple[Tensor, ...]:
        """Return the tensors of `network_inputs`; tensors of real numbers are drawn by `draw`, unless `has_values`."""
        drawn = first_inputs(self.network_inputs if self.has_values else filled(self.network_inputs, draw))
        layouts = [self.layout if one.dim() == AXES_OF_PICTURES else torch.contiguous_format for one in drawn]
        device = self.generator.device
        return tuple(one.to(device, memory_format=layout) for one, layout in zip(drawn, layouts, strict=True))


class InDouble(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """Wraps a module in double precision on the host; it takes inputs of any device and floating-point dtype.

    Args:
        module: converted in place.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module.to("cpu", torch.float64).eval()

    def forward(self, *inputs: Any) -> Any:
        """Return the module's output for these inputs."""
        return self.module(*map(to_double, inputs))


class BySample(nn.Module):  # type: ignore[misc]
    """Applies a module to each sample separately: the literal mode may need too much memory for a whole batch."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """Return the module's output [N, ...], computed sample by sample from an input [N, ...]."""
        return torch.cat([self.module(sample) for sample in x.split(1)])


def in_double(module: nn.Module) -> nn.Module:
    """Return a copy of the module in double precision on the host, in evaluation mode."""
    return InDouble(copy_of(module))


def by_sample(module: nn.Module, graph: PGraph) -> nn.Module:
    """Return an operator's module in `BySample` if the operator's first axis is a batch, which no primitive changes."""
    leads = bool(graph.input and graph.output) and graph.input[0] == graph.output[0]
    return BySample(module) if leads and str(graph.input[0].size) in graph.unchanged_variables else module


def to_double(value: Any) -> Any:
    """Return a tensor on the host, in double precision if it is floating-point; other values unchanged."""
    if not isinstance(value, Tensor):
        return value
    return value.detach().cpu().double() if value.is_floating_point() else value.detach().cpu()


def random_input(shape: tuple[int, ...], generator: torch.Generator, symbols: int | None = None) -> Tensor:
    """Return uniform random numbers in [-0.5, 0.5), or int64 token ids below `symbols`, on the generator's device."""
    if symbols is not None:
        return torch.randint(symbols, shape, device=generator.device, generator=generator)
    return torch.rand(shape, device=generator.device, generator=generator).sub_(0.5)


def filled(inputs: Any, draw: Callable[[tuple[int, ...]], Tensor]) -> Any:
    """Return inputs in which `draw(shape)` replaces each tensor of real numbers."""
    return mapped(lambda x: draw(tuple(x.shape)).to(x.dtype) if x.is_floating_point() else x, inputs)


def telling_inputs(
    shape: tuple[int, ...], generator: torch.Generator, symbols: int | None = None, flops: int = 0
) -> list[Tensor]:
    """Return random inputs whose values grow towards the corners, so that a wrong pixel there visibly changes means.

    Args:
        shape: shape of an input, with the batch. Spatial axes are those after the first two, or the second if there are only
            two.
        generator: random generator of the inputs.
        symbols: the vocabulary size if the input is token ids, which do not grow.
        flops: multiply-adds of one call. The inputs have four samples in total, but fewer if calls are expensive.
    """
    count = min(ceil(FEWEST_SAMPLES / max(shape[0], 1)) if shape else 1, max(1, int(MOST_FLOPS / max(flops, 1))))
    inputs = [random_input(shape, generator, symbols) for _ in range(count)]
    if symbols is not None:
        return inputs
    gain = _corner_gain(shape).to(generator.device)
    return [each.mul_(gain) for each in inputs]


def _corner_gain(shape: tuple[int, ...]) -> Tensor:
    """Return factors from 1 in the middle to `CORNER_GAIN` in the corners, with the shape of the spatial axes."""
    sides = shape[2:] or shape[1:]
    distance = torch.zeros(sides)
    for axis, length in enumerate(sides):
        along = torch.arange(length, dtype=torch.float32)
        to_end = torch.minimum(along, length - 1 - along) / length
        distance = torch.maximum(distance, to_end.view(-1, *(1,) * (len(sides) - 1 - axis)))
    return 1 + (CORNER_GAIN - 1) * torch.exp(-distance / CORNER_SHARE)


def vary_constants(network: nn.Module, example: Any, seed: int) -> None:
    """Randomize, in place, parameters and statistics that are constant before training.

    An identity normalization, a zero bias or a branch that is multiplied by zero would hide errors. Other values, as in a
    trained network, are kept. Batch normalizations without running statistics get statistics close to those of their
    input for the example, so that all branches of a network have about the same magnitude.

    Args:
        network: the network, in evaluation mode.
        example: inputs of random values.
        seed: seed of the random values.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        if any(nn.parameter.is_lazy(parameter) for parameter in network.parameters()):
            call(network, example)  # parameters get their shapes
        for module in network.modules():
            for name, parameter in module.named_parameters(recurse=False):
                _vary(module, name, parameter, generator)
        with _fitted_statistics(network, generator):
            call(network, example)


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
            scale: Any = weight.std()  # the parameter is a bias
        else:
            scale = parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 0.25
        parameter.copy_(drawn * scale)


@contextmanager
def _fitted_statistics(network: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """In the context, set the statistics of batch normalizations that have seen no data from their first input."""
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
