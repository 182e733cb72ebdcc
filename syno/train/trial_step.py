"""A trial step before long work: forward and backward on one batch, and a test on another."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import replace
from math import isfinite

import torch
from torch import nn

from syno.base.errors import DataError, SynoError, UserCodeError
from syno.base.registry import is_path
from syno.base.user_code import user_code
from syno.data.contract import label_shape_of
from syno.model.calls import changes_inputs
from syno.model.shared_memory import moved_to
from syno.train.micro_batches import first_part
from syno.train.numerics import check_learns, on_device, own_state
from syno.train.own_task import Task
from syno.train.tasks import DeviceTask, task_of
from syno.train.training import score_now
from syno.train.weights import check_keeping
from syno.train.workload import Workload


def try_step(workload: Workload, *, keeps_weights: bool = True) -> float:
    """Run the original network forward and backward over one batch, test it on another, and return the loss in nats.

    This finds errors that every training would hit: a missing device, too little memory, data and labels in a wrong format or
    range, a network whose output does not fit the data, NaN or infinity.

    Args:
        workload: the network and the data.
        keeps_weights: whether to check that the network's weights can be saved and loaded.

    Raises:
        SpecError: this machine has no such device, or the network's weights cannot be saved.
        DataError: the data has a wrong shape, number format or range.
        ShapeError: the network's output does not fit the data, or the batch is larger than the data set.
        TrainingError: the device runs out of memory.
        UserCodeError: the network or the data raised an exception.
    """
    settings, seed = workload.settings.training, workload.settings.seed
    with on_device(settings.device) as device, own_state(seed, settings, device):
        network = moved_to(workload.network(None, seed), device)
        check_learns(network)
        if isinstance(workload.data, Task) and workload.data.fits:
            return score_now(network, workload.data)
        with user_code(f'the data set "{workload.settings.data}"'):  # possibly a user's own
            task = task_of(workload.data, settings, seed, device)
            batch, test = next(iter(task.batches.epoch(1)), None), next(iter(task.tests), None)
            for part, sample in (("train", batch), ("test", test)):
                if sample is not None:
                    task.check(sample)
                elif part == "train" or not isinstance(
                    workload.data, Task
                ):  # the score of a user's own task may need no batches
                    raise DataError(f"{workload.data.name} has no batch to {part} on")
        _warn_of_changed_inputs(workload, task, network, batch)
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


def _warn_of_changed_inputs(workload: Workload, task: DeviceTask, network: nn.Module, batch: object) -> None:
    """Warn if the network modifies its inputs in place."""
    with suppress(SynoError):  # the step itself reports errors
        if changes_inputs(network, lambda network: task.loss(network.train(), first_part(task, batch))):
            warnings.warn(
                f'the model "{workload.settings.model}" changes its input in place, as x.sub_(mean) does, so each call gets '
                "a copy, the time of which is in its latency; x = x - mean leaves the input as it is",
                stacklevel=3,
            )


def _runs_on_contiguous(workload: Workload) -> bool:
    """Return whether the step succeeds if pictures are not channels-last, as for a network that uses `view` on them."""
    training = workload.settings.training.model_copy(update={"channels_last": False})
    try:
        try_step(replace(workload, settings=workload.settings.model_copy(update={"training": training})), keeps_weights=False)
    except SynoError:
        return False
    return True


def _try(workload: Workload, task: DeviceTask, network: nn.Module, batch: object, test: object) -> float:
    """Run the trial step on these batches of training and test data, and return the training loss."""
    if isinstance(workload.data, Task):
        return _try_own(workload, task, network, batch)
    classes: list[int] = []  # lengths of the outputs' class axes
    axis = 1 if label_shape_of(workload.data) else -1

    def note(module: nn.Module, inputs: object, output: object) -> None:
        classes.append(output.shape[axis] if isinstance(output, torch.Tensor) and output.dim() else 0)

    with user_code(f'a training step of the model "{workload.settings.model}" on one batch of {workload.data.name}'):
        network.train()
        with network.register_forward_hook(note):
            loss = task.loss(network, first_part(task, batch))
        loss.backward()
        network.eval()
        with torch.no_grad():
            value, tested = float(loss.detach()), float(task.loss(network, test))
    if not all(abs(part) < float("inf") for part in (value, tested)):
        raise DataError(
            f"the loss on the first batch of {workload.data.name} is {value:g} in training and {tested:g} in testing, before "
            "anything was learnt; look for values in the data, or weights in the network, that are not finite"
        )
    assert not isinstance(workload.data, Task)
    if is_path(workload.settings.model) and classes[0] > workload.data.classes:
        warnings.warn(
            f'the model "{workload.settings.model}" makes {classes[0]} outputs for {workload.data.classes} classes; '
            "those above are never right",
            stacklevel=2,
        )
    return value


def _try_own(workload: Workload, task: DeviceTask, network: nn.Module, batch: object) -> float:
    """Run a trial step of a user's own task, including its score, and return the training loss."""
    with user_code(f'a training step of the model "{workload.settings.model}" on one batch of {task.name}'):
        network.train()
        loss = task.loss(network, first_part(task, batch))
        loss.backward()
    value, score = float(loss.detach()), task.score(network)
    if not isfinite(value) or score != score:
        raise DataError(
            f"{task.name}: the loss on the first batch is {value:g} and the score {score:g}, before anything was learnt; look "
            "for values in the data, or weights in the network, that are not finite"
        )
    return value
