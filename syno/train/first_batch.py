"""A check of an operator on the first batch, before its training: all weights must get gradients, and the input must matter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from syno.data import PictureData, TokenSet
from syno.model.module import OperatorModule
from syno.train.micro_batches import first_part
from syno.train.numerics import own_state
from syno.train.own_task import Task
from syno.train.settings import TrainingSettings
from syno.train.tasks import task_of

INPUT = ""  # key of the input among the weights' names


@dataclass(frozen=True)
class _Use:
    """One call of the operator in the network.

    Attributes:
        layer: name of the layer.
        module: the operator's module.
        inputs, output: the tensors of the call.
    """

    layer: str
    module: OperatorModule
    input: torch.Tensor
    output: torch.Tensor


def fault_on_first_batch(
    network: nn.Module, data: PictureData | TokenSet | Task, settings: TrainingSettings, seed: int
) -> str | None:
    """Return the reason why the operator in this network cannot be trained; None if the first batch shows no fault.

    The network runs forward and backward once, in float32, without an optimizer step and without influence on the later
    training. Faults are: an output or a gradient that is not finite; a weight whose gradient is exactly zero in all layers; an
    output that depends on the input in no layer. Layers whose output gradient is zero, such as those before a zero-initialized
    normalization, are ignored.

    Args:
        network: the network with an operator in its layers, on its device. Its running statistics change.
        data: the training data. A task with its own training is not checked, since its batches are unknown.
        settings, seed: settings and seed of the training.
    """
    if isinstance(data, Task) and data.fits:
        return None
    settings = settings.model_copy(update={"precision": "float32"})  # lower precision would round small gradients to zero
    uses: list[_Use] = []

    def note(layer: str, module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        assert isinstance(module, OperatorModule)
        uses.append(_Use(layer, module, inputs[0], output))

    device = next(network.parameters()).device
    with own_state(seed, settings, device):
        network.train()
        for name, module in network.named_modules():
            if isinstance(module, OperatorModule):
                module.register_forward_hook(partial(note, name))
        task = task_of(data, settings, seed, device)
        loss = task.loss(network, first_part(task, next(iter(task.batches.epoch(1)))))
        return _fault(loss, uses)


def _fault(loss: torch.Tensor, uses: list[_Use]) -> str | None:
    arriving = torch.autograd.grad(loss, [use.output for use in uses], retain_graph=True, allow_unused=True)
    moved: dict[str, bool] = {}  # by weight: whether its gradient is non-zero in some layer
    for use, gradient in zip(uses, arriving, strict=True):
        if not _is_finite([use.output]):
            return f"its output in layer {use.layer} is not finite on the first batch"
        if gradient is None or not gradient.any():  # the network, not the operator, stops the gradient
            continue
        weights = dict(use.module.named_parameters())
        of = {**weights, **({INPUT: use.input} if use.input.requires_grad else {})}
        gradients = torch.autograd.grad(use.output, list(of.values()), gradient, retain_graph=True, allow_unused=True)
        for name, weight_gradient in zip(of, gradients, strict=True):
            if weight_gradient is not None and not _is_finite([weight_gradient]):
                return f"the gradient of {_quoted_name(name)} in layer {use.layer} is not finite on the first batch"
            moved[name] = moved.get(name, False) or (weight_gradient is not None and bool(weight_gradient.any()))
    dead = [name for name, moves in moved.items() if not moves]
    if INPUT in dead:
        return "its output does not depend on its input on the first batch, in no layer"
    return (
        f"the gradient of {_quoted_name(dead[0])} is zero on the first batch, in every layer: it cannot learn" if dead else None
    )


def _is_finite(tensors: Iterable[torch.Tensor]) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def _quoted_name(name: str) -> str:
    return f"weight {name}" if name else "its input"
