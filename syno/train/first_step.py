"""A trial step of a training, made before anything that takes long: forward and backward on one batch, a test on another."""

from __future__ import annotations

import warnings
from dataclasses import replace

import torch
from torch import nn

from syno.base.errors import DataError, SynoError, UserCodeError
from syno.base.registry import is_path
from syno.base.user_code import user_code
from syno.data.contract import label_shape_of
from syno.model.memory import moved_to
from syno.train.optimization import on_device, own_state
from syno.train.tasks import Task, task_of
from syno.train.weights import check_keeping
from syno.train.workload import Workload


def try_step(workload: Workload, *, keeps_weights: bool = True) -> float:
    """Run the original network forward and backward over one batch, test it on another, and return the loss in nats.

    The result is not kept. This finds what every training would fail on: a device that is missing or too small, data and labels
    in a wrong format or range, a network whose output doesn't fit the data, NaN or infinity.

    Args:
        workload: the network and the data.
        keeps_weights: whether to try, too, that the network's weights can be kept in a file, and loaded again.

    Raises:
        SpecError: this machine has no such device, or the network's weights cannot be kept.
        DataError: the data has a wrong shape, number format or range.
        ShapeError: the network's output does not fit the data, or the batch is larger than the data set.
        TrainingError: the device's memory does not suffice.
        UserCodeError: the network or the data raised an exception.
    """
    settings, seed = workload.settings.training, workload.settings.seed
    with on_device(settings.device) as device, own_state(seed, settings, device):
        network = moved_to(workload.network(None, seed), device)
        with user_code(f'the data set "{workload.settings.data}"'):  # of the user's own, perhaps
            task = task_of(workload.data, settings, seed, device)
            batch, test = next(iter(task.batches.epoch(1)), None), next(iter(task.tests), None)
            for part, one in (("train", batch), ("test", test)):
                if one is None:
                    raise DataError(f"{workload.data.name} has no batch to {part} on")
                task.check(one)
        try:
            loss = _try(workload, task, network, batch, test)
        except UserCodeError as error:
            if settings.channels_last and _runs_on_contiguous(workload):
                raise UserCodeError(
                    f"{error} It works on pictures in contiguous memory: set training: {{channels_last: false}}, "
                    "or write reshape in place of view"
                ) from error
            raise
        if keeps_weights:
            check_keeping(network, workload.network(None, seed))
        return loss


def _runs_on_contiguous(workload: Workload) -> bool:
    """Return whether the step works without channels-last pictures, as that of a network that uses `view` on them does."""
    training = workload.settings.training.model_copy(update={"channels_last": False})
    try:
        try_step(replace(workload, settings=workload.settings.model_copy(update={"training": training})), keeps_weights=False)
    except SynoError:
        return False
    return True


def _try(workload: Workload, task: Task, network: nn.Module, batch: object, test: object) -> float:
    """Run the step on these batches, and return the loss in training."""
    classes: list[int] = []  # lengths of the axes of outputs that have logits
    axis = 1 if label_shape_of(workload.data) else -1

    def note(module: nn.Module, inputs: object, output: object) -> None:
        classes.append(output.shape[axis] if isinstance(output, torch.Tensor) and output.dim() else 0)

    with user_code(f'a training step of the model "{workload.settings.model}" on one batch of {workload.data.name}'):
        network.train()
        with network.register_forward_hook(note):
            loss = task.loss(network, batch)
        loss.backward()
        network.eval()
        with torch.no_grad():
            value, tested = float(loss.detach()), float(task.loss(network, test))
    if not all(abs(one) < float("inf") for one in (value, tested)):
        raise DataError(
            f"the loss on the first batch of {workload.data.name} is {value:g} in training and {tested:g} in testing, before "
            "anything was learnt; look for values in the data, or weights in the network, that are not finite"
        )
    if is_path(workload.settings.model) and classes[0] > workload.data.classes:
        warnings.warn(
            f'the model "{workload.settings.model}" makes {classes[0]} outputs for {workload.data.classes} classes; '
            "those above are never right",
            stacklevel=2,
        )
    return value
