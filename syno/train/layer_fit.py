"""Fitting operators to the layers that they replace, so that a training starts near the trained original network.

In the order of execution, the weights of each operator are fitted by least squares to the outputs of the layer in the trained
network. Its inputs are those in the network with all earlier operators already fitted, so that it also corrects their errors.
Finally, the statistics of batch normalization are measured again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from syno.base.errors import UserCodeError
from syno.model.calls import Call, Mode, steady_training_mode
from syno.model.extraction import evaluation_mode
from syno.train.tasks import DeviceTask

SAMPLES = 96  # most samples of a fit: operators have few weights, and each sample has many positions
CHECKED = 3  # one of three samples is held out, and decides whether the fit is used
STATISTICS = 512  # samples for measuring the statistics of batch normalization
MOST_NUMBERS = 2**24  # most elements of a layer's recorded inputs and outputs: 64 MiB
# For one layer, to which many operators are fitted in turn. With 24 samples of 64 channels of 8x8, operators rank as in a fit
# of all layers with 96 samples, in a sixth of the time.
FEW_NUMBERS, FEWEST_SAMPLES = 2**18, 8
# L-BFGS continues in rounds as long as a round reduces the error by a fifth. If an operator cannot express its layer, that is
# about 60 steps; if it can, 400 steps leave hardly any error. Adam left twice the error in the same time.
STEPS, HISTORY = 20, 10
ROUNDS, IMPROVEMENT = 20, 0.8
LEAST = 1e-7  # an error that counts as zero
TOLERANCE = 1e-14


class LayerFit(NamedTuple):
    """Errors of a fit of an operator to a layer.

    Attributes:
        layer: name of the layer.
        before, after: mean squared error of the operator's outputs on held-out samples, divided by the variance of the layer's
            outputs.
    """

    layer: str
    before: float
    after: float


class RecordedLayer(NamedTuple):
    """A layer with recorded inputs and outputs of some samples, to which operators are fitted.

    Attributes:
        layer: name of the layer.
        inputs, outputs: recorded inputs and outputs of the layer, shape [samples, ...].
    """

    layer: str
    inputs: torch.Tensor
    outputs: torch.Tensor

    def fit(self, module: nn.Module) -> LayerFit:
        """Fit a module in place; return the errors. The fit is discarded if it does not reduce the held-out error."""
        inputs, outputs = self.inputs, self.outputs
        if not any(weight.requires_grad for weight in module.parameters()):
            error = float(_Error(module, inputs, outputs).of(module(inputs)))
            return LayerFit(self.layer, error, error)
        held_out = max(1, len(inputs) // CHECKED)
        pairs = [(inputs[:held_out], outputs[:held_out]), (inputs[held_out:], outputs[held_out:])]
        checked, learnt = (_Error(module, *pair) for pair in (pairs if len(inputs) > 1 else pairs[:1] * 2))
        begun = checked.flat
        with torch.no_grad():
            before = float(checked(begun))
            after = float(checked(fitted := _least(learnt, begun)))
            if not after < before:
                fitted, after = begun, before
            for weight, values in zip(checked.weights.values(), fitted.split(checked.sizes), strict=True):
                weight.copy_(values.view(weight.shape))
        return LayerFit(self.layer, before, after)


def record_layer(network: nn.Module, layer: str, task: DeviceTask) -> RecordedLayer | None:
    """Record a few inputs and outputs of a layer of the trained network, to compare operators by their fit errors.

    None if the layer does not run on the first batches, as in a network that takes other execution paths for them.
    """
    calls = [call for batch in _samples(task, SAMPLES) for call in task.calls(network, batch)]
    with _tested_mode(network, task, calls)(network):
        by_call = _recorded(network, layer, task, calls, FEW_NUMBERS, FEWEST_SAMPLES)
    if not by_call:
        return None
    return RecordedLayer(layer, *(torch.cat(each) for each in zip(*by_call.values(), strict=True)))


def fit_layers(network: nn.Module, original: nn.Module, layers: Sequence[str], task: DeviceTask) -> tuple[LayerFit, ...]:
    """Fit the modules that replace layers, in place; return their errors, which do not increase.

    Args:
        network: the network with other modules in place of the layers.
        original: the trained network.
        layers: names of the replaced layers, in the order of execution.
        task: the task, on whose batches both networks run.
    """
    calls = [call for batch in _samples(task, SAMPLES) for call in task.calls(original, batch)]
    mode = _tested_mode(original, task, calls)
    with mode(network), mode(original):
        fits = [_fit(network, original, layer, task, calls) for layer in layers]
    measure_statistics(network, task)
    return tuple(fit for fit in fits if fit is not None)


def _tested_mode(network: nn.Module, task: DeviceTask, calls: Sequence[Call]) -> Mode:
    """Return evaluation mode; steady training mode if the network fails on these calls in evaluation mode."""
    try:
        with evaluation_mode(network), torch.no_grad():
            task.run(network, calls[0])
    except UserCodeError:
        return steady_training_mode
    return evaluation_mode


def _samples(task: DeviceTask, count: int) -> Iterator[Any]:
    """Yield batches with `count` samples in total, or fewer if an epoch has fewer."""
    for batch in task.batches.epoch(1):
        part = task.parts(batch, count)[0]
        yield part
        count -= task.samples(part)
        if count <= 0:
            return


def _fit(network: nn.Module, original: nn.Module, name: str, task: DeviceTask, calls: Sequence[Call]) -> LayerFit | None:
    """Fit the module that replaces the layer `name`; return the errors. None, with a warning, if the layer does not run."""
    inputs = {number: values for number, (values, _) in _recorded(network, name, task, calls).items()}
    outputs = {number: made for number, (_, made) in _recorded(original, name, task, calls).items()}
    # An operator may let the network take other execution paths, on which the layer does not run.
    both = [number for number, samples in inputs.items() if number in outputs and len(samples) == len(outputs[number])]
    if not both:
        warnings.warn(f"nothing was fitted to the layer {name}: it does not run on the first batches to train on", stacklevel=2)
        return None
    recorded = RecordedLayer(name, *(torch.cat([of[number] for number in both]) for of in (inputs, outputs)))
    return recorded.fit(network.get_submodule(name))


class _Error:
    """The relative squared error of a module's outputs, as a function of its learnable weights as one vector.

    A vector, since torch's L-BFGS does not accept weights in channels-last memory format.
    """

    def __init__(self, module: nn.Module, inputs: torch.Tensor, outputs: torch.Tensor) -> None:
        self.module, self.inputs, self.outputs = module, inputs, outputs
        self.weights = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
        self.sizes = [weight.numel() for weight in self.weights.values()]
        spread = outputs.var(correction=0)
        self.scale = spread if spread > 0 else outputs.square().mean().clamp(min=1e-30)

    @property
    def flat(self) -> torch.Tensor:
        """The current weights as one vector."""
        return torch.cat([weight.detach().reshape(-1) for weight in self.weights.values()])

    def __call__(self, flat: torch.Tensor) -> torch.Tensor:
        parts = flat.split(self.sizes)
        values = {name: part.view(weight.shape) for (name, weight), part in zip(self.weights.items(), parts, strict=True)}
        return self.of(functional_call(self.module, values, (self.inputs,)))

    def of(self, made: torch.Tensor) -> torch.Tensor:
        """Return the squared error of these outputs, relative to the variance of the targets."""
        return functional.mse_loss(made, self.outputs) / self.scale


@torch.enable_grad()  # type: ignore[untyped-decorator]
def _least(error: Callable[[torch.Tensor], torch.Tensor], begun: torch.Tensor) -> torch.Tensor:
    """Minimize the error by L-BFGS, starting at `begun`; return the minimum's position."""
    flat = begun.clone().requires_grad_(True)
    optimizer = torch.optim.LBFGS(
        [flat],
        max_iter=STEPS,
        history_size=HISTORY,
        line_search_fn="strong_wolfe",
        tolerance_grad=TOLERANCE,
        tolerance_change=TOLERANCE,
    )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = error(flat)
        value.backward()
        return value

    last = float("inf")
    for _ in range(ROUNDS):
        optimizer.step(closure)
        now = float(error(flat.detach()))
        if not LEAST < now < IMPROVEMENT * last:
            break
        last = now
    return flat.detach()


def _recorded(
    network: nn.Module, name: str, task: DeviceTask, calls: Sequence[Call], most: int = MOST_NUMBERS, fewest: int = 1
) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    """Return inputs and outputs of a module in calls of a network, by the call's number, for a limited number of samples.

    Args:
        most: limit of the total number of elements stored.
        fewest: samples of the first call that are stored even beyond this limit.
    """
    by_call, room, number = dict[int, tuple[torch.Tensor, torch.Tensor]](), most, 0

    def note(module: nn.Module, inputs: tuple[torch.Tensor, ...], made: torch.Tensor) -> None:
        nonlocal room
        each = (inputs[0].numel() + made.numel()) // max(1, len(made))
        kept = min(len(made), max(room // max(1, each), 0 if by_call else fewest))
        room -= kept * each
        if kept:  # later modules may change it in place
            by_call[number] = inputs[0].detach()[:kept].clone(), made.detach()[:kept].clone()

    hook = network.get_submodule(name).register_forward_hook(note)
    try:
        with torch.no_grad():
            for number, call in enumerate(calls):  # noqa: B007  (the hook reads it)
                task.run(network, call)
    finally:
        hook.remove()
    return by_call


def output_difference(network: nn.Module, original: nn.Module, task: DeviceTask) -> float:
    """Return the mean difference of the outputs of two networks: the pure distillation loss."""
    total = count = 0.0
    for batch in _samples(task, STATISTICS):
        samples, calls = task.samples(batch), task.calls(original, batch)
        with torch.no_grad():
            each = [task.difference(network, original, call) for call in calls]
        total, count = total + samples * sum(each) / len(each), count + samples
    return total / max(1.0, count)


@contextmanager
def _measuring(normalizations: Sequence[_BatchNorm]) -> Iterator[None]:
    """In the block, let batch normalization layers use cumulative averages over all batches as running statistics."""
    kept = [(layer.momentum, layer.training, [buffer.clone() for buffer in layer.buffers()]) for layer in normalizations]
    for layer in normalizations:
        layer.reset_running_stats()
        layer.momentum, layer.training = None, True
    try:
        yield
    finally:
        for layer, (momentum, training, before) in zip(normalizations, kept, strict=True):
            layer.momentum, layer.training = momentum, training
            if not layer.num_batches_tracked:  # as in a head that is for training only
                for buffer, value in zip(layer.buffers(), before, strict=True):
                    buffer.copy_(value)


def measure_statistics(network: nn.Module, task: DeviceTask) -> None:
    """Measure the running statistics of batch normalization anew; other layers, such as dropout, are in evaluation mode."""
    normalizations = [layer for layer in network.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]
    if not normalizations:
        return
    calls = [call for batch in _samples(task, STATISTICS) for call in task.calls(network, batch)]
    with _tested_mode(network, task, calls)(network), _measuring(normalizations), torch.no_grad():
        for call in calls:
            task.run(network, call)
