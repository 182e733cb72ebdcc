"""Operators fitted to the layers that they replace, so that a training begins near the trained original network.

Layer by layer, in the order in which they run, the weights of an operator are changed by least squares until its outputs are
those of the layer in the trained network. Its inputs are those that it gets behind the operators that were fitted before, so
that it also corrects their errors. At the end the statistics of batch normalization are measured again.
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

SAMPLES = 96  # that operators are fitted on, at most: they have few weights, and each sample has many positions
CHECKED = 3  # one of so many samples is held out, and says whether the fit helps
STATISTICS = 512  # samples that the statistics of batch normalization are measured on
MOST_NUMBERS = 2**24  # in the inputs and outputs of a layer that are kept at once: 64 MiB
# Of one layer, to which many operators are fitted in turn. With 24 samples of 64 channels of 8x8, the same operators are ahead
# as in all layers with 96 samples, for a sixth of the time.
FEW_NUMBERS, FEWEST_SAMPLES = 2**18, 8
# Of L-BFGS, which goes on in rounds while a round takes away a fifth of the error. Where an operator cannot express its layer,
# that is some 60 steps; where it can, 400 steps leave hardly any error. Adam, with the same time, left twice the error.
STEPS, HISTORY = 20, 10
ROUNDS, IMPROVEMENT = 20, 0.8
LEAST = 1e-7  # an error that is as good as none
TOLERANCE = 1e-14


class LayerFit(NamedTuple):
    """How well an operator was fitted to a layer.

    Attributes:
        layer: its name.
        before, after: mean squared error of the operator's outputs on samples that were held out, divided by the variance of
            the layer's outputs.
    """

    layer: str
    before: float
    after: float


class RecordedLayer(NamedTuple):
    """A layer with recorded inputs and outputs of some samples, to which operators are fitted.

    Attributes:
        layer: its name.
        inputs, outputs: its inputs and outputs, shape [samples, ...].
    """

    layer: str
    inputs: torch.Tensor
    outputs: torch.Tensor

    def fit(self, module: nn.Module) -> LayerFit:
        """Fit a module in place, and return how well that went; it is not worse than before."""
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
            after = float(checked(found := _least(learnt, begun)))
            if not after < before:
                found, after = begun, before
            for weight, values in zip(checked.weights.values(), found.split(checked.sizes), strict=True):
                weight.copy_(values.view(weight.shape))
        return LayerFit(self.layer, before, after)


def record_layer(network: nn.Module, layer: str, task: DeviceTask) -> RecordedLayer | None:
    """Return a layer of a trained network with a few of its inputs and outputs, to compare operators by.

    None if it does not run on the first batches, as in a network that takes other execution paths for these.
    """
    calls = [call for batch in _samples(task, SAMPLES) for call in task.calls(network, batch)]
    with _tested_mode(network, task, calls)(network):
        found = _recorded(network, layer, task, calls, FEW_NUMBERS, FEWEST_SAMPLES)
    if not found:
        return None
    return RecordedLayer(layer, *(torch.cat(each) for each in zip(*found.values(), strict=True)))


def fit_layers(network: nn.Module, original: nn.Module, layers: Sequence[str], task: DeviceTask) -> tuple[LayerFit, ...]:
    """Fit the modules in place of layers, in place, and return how well that went; none is worse than before.

    Args:
        network: with other modules in place of the layers.
        original: the trained network.
        layers: names of those that were replaced, in the order in which they run.
        task: whose batches both networks take.
    """
    calls = [call for batch in _samples(task, SAMPLES) for call in task.calls(original, batch)]
    mode = _tested_mode(original, task, calls)
    with mode(network), mode(original):
        fits = [_fit(network, original, layer, task, calls) for layer in layers]
    measure_statistics(network, task)
    return tuple(fit for fit in fits if fit is not None)


def _tested_mode(network: nn.Module, task: DeviceTask, calls: Sequence[Call]) -> Mode:
    """Return evaluation mode, in which layers are tested; steady training mode if the network takes these calls in no other."""
    try:
        with evaluation_mode(network), torch.no_grad():
            task.run(network, calls[0])
    except UserCodeError:
        return steady_training_mode
    return evaluation_mode


def _samples(task: DeviceTask, count: int) -> Iterator[Any]:
    """Yield batches with so many samples together, if there are as many in an epoch."""
    for batch in task.batches.epoch(1):
        part = task.parts(batch, count)[0]
        yield part
        count -= task.samples(part)
        if count <= 0:
            return


def _fit(network: nn.Module, original: nn.Module, name: str, task: DeviceTask, calls: Sequence[Call]) -> LayerFit | None:
    """Fit the module in place of one layer. None, with a warning, if the layer does not run."""
    inputs = {number: given for number, (given, _) in _recorded(network, name, task, calls).items()}
    outputs = {number: made for number, (_, made) in _recorded(original, name, task, calls).items()}
    # An operator may let the network take other execution paths, on which the layer does not run.
    both = [number for number, one in inputs.items() if number in outputs and len(one) == len(outputs[number])]
    if not both:
        warnings.warn(f"nothing was fitted to the layer {name}: it does not run on the first batches to train on", stacklevel=2)
        return None
    recorded = RecordedLayer(name, *(torch.cat([of[number] for number in both]) for of in (inputs, outputs)))
    return recorded.fit(network.get_submodule(name))


class _Error:
    """The relative squared error of a module's outputs, as a function of its learnable weights in one vector.

    L-BFGS of torch takes no weights in channels-last memory.
    """

    def __init__(self, module: nn.Module, inputs: torch.Tensor, outputs: torch.Tensor) -> None:
        self.module, self.inputs, self.outputs = module, inputs, outputs
        self.weights = {name: one for name, one in module.named_parameters() if one.requires_grad}
        self.sizes = [one.numel() for one in self.weights.values()]
        spread = outputs.var(correction=0)
        self.scale = spread if spread > 0 else outputs.square().mean().clamp(min=1e-30)

    @property
    def flat(self) -> torch.Tensor:
        """The weights as they are."""
        return torch.cat([one.detach().reshape(-1) for one in self.weights.values()])

    def __call__(self, flat: torch.Tensor) -> torch.Tensor:
        parts = flat.split(self.sizes)
        given = {name: part.view(one.shape) for (name, one), part in zip(self.weights.items(), parts, strict=True)}
        return self.of(functional_call(self.module, given, (self.inputs,)))

    def of(self, made: torch.Tensor) -> torch.Tensor:
        """Return the error of these outputs."""
        return functional.mse_loss(made, self.outputs) / self.scale


@torch.enable_grad()  # type: ignore[untyped-decorator]
def _least(error: Callable[[torch.Tensor], torch.Tensor], begun: torch.Tensor) -> torch.Tensor:
    """Return where the error is least, near the point where it begins."""
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
    """Return the input and the output of a module in calls of a network, by their number, for so many samples as may be kept.

    Args:
        most: numbers that are kept.
        fewest: samples of the first call that are kept even if they have more.
    """
    found, room, number = dict[int, tuple[torch.Tensor, torch.Tensor]](), most, 0

    def note(module: nn.Module, inputs: tuple[torch.Tensor, ...], made: torch.Tensor) -> None:
        nonlocal room
        each = (inputs[0].numel() + made.numel()) // max(1, len(made))
        kept = min(len(made), max(room // max(1, each), 0 if found else fewest))
        room -= kept * each
        if kept:  # what comes behind may change it in place
            found[number] = inputs[0].detach()[:kept].clone(), made.detach()[:kept].clone()

    hook = network.get_submodule(name).register_forward_hook(note)
    try:
        with torch.no_grad():
            for number, call in enumerate(calls):  # noqa: B007  (the hook reads it)
                task.run(network, call)
    finally:
        hook.remove()
    return found


def output_difference(network: nn.Module, original: nn.Module, task: DeviceTask) -> float:
    """Return the mean difference of the outputs of two networks: the loss of distillation alone."""
    total = count = 0.0
    for batch in _samples(task, STATISTICS):
        samples, calls = task.samples(batch), task.calls(original, batch)
        with torch.no_grad():
            each = [task.difference(network, original, call) for call in calls]
        total, count = total + samples * sum(each) / len(each), count + samples
    return total / max(1.0, count)


@contextmanager
def _measuring(normalizations: Sequence[_BatchNorm]) -> Iterator[None]:
    """Let batch normalization take the mean over all batches in the block as its statistics, where it runs."""
    kept = [(one.momentum, one.training, [buffer.clone() for buffer in one.buffers()]) for one in normalizations]
    for one in normalizations:
        one.reset_running_stats()
        one.momentum, one.training = None, True
    try:
        yield
    finally:
        for one, (momentum, training, before) in zip(normalizations, kept, strict=True):
            one.momentum, one.training = momentum, training
            if not one.num_batches_tracked:  # as in a head that is for training only
                for buffer, value in zip(one.buffers(), before, strict=True):
                    buffer.copy_(value)


def measure_statistics(network: nn.Module, task: DeviceTask) -> None:
    """Measure the statistics of batch normalization again. All else, such as dropout, is as in evaluation."""
    found = [one for one in network.modules() if isinstance(one, _BatchNorm) and one.track_running_stats]
    if not found:
        return
    calls = [call for batch in _samples(task, STATISTICS) for call in task.calls(network, batch)]
    with _tested_mode(network, task, calls)(network), _measuring(found), torch.no_grad():
        for call in calls:
            task.run(network, call)
