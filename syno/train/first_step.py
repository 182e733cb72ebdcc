"""One step of a training, tried before anything that takes long: forward and backward on one batch, and a test on another."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from syno.base.errors import DataError
from syno.base.user_code import user_code
from syno.train.making import is_own
from syno.train.optimization import on_device, own_state
from syno.train.tasks import Task, task_of
from syno.train.workload import Workload


def try_step(workload: Workload) -> float:
    """Take the network as it is forward and backward over the first batch, test it on one batch, and return the loss in nats.

    Nothing of it is kept. It finds what every training would fail on: a device that isn't there or is too small, data and
    labels in another format or range than trainings take, a network whose output isn't one for the data, numbers that aren't
    finite.

    Raises:
        SpecError: there is no such device.
        DataError: the data is not what a training takes.
        ShapeError: the network's output is not one for the data, or the batch is larger than the data set.
        TrainingError: the device's memory does not suffice.
        UserCodeError: the network or the data raised an exception.
    """
    settings, seed = workload.settings.training, workload.settings.seed
    with on_device(settings.device) as device, own_state(seed, settings, device):
        network = workload.network(None, seed).to(device)
        with _data_of(workload):
            task = task_of(workload.data, settings, seed, device)
            batch = next(iter(task.batches.epoch(1)), None)
            test = next(iter(task.tests), None)
        for part, one in (("train", batch), ("test", test)):
            if one is None:
                raise DataError(f"{workload.data.name} has no batch to {part} on")
            with _data_of(workload):
                task.check(one)
        return _try(workload, task, network, batch, test)


def _try(workload: Workload, task: Task, network: nn.Module, batch: object, test: object) -> float:
    with user_code(f'a training step of the model "{workload.settings.model}" on one batch of {workload.data.name}'):
        network.train()
        with _noting_outputs(network) as outputs:
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
    if is_own(workload.settings.model) and outputs[0] > workload.data.classes:
        warnings.warn(
            f'the model "{workload.settings.model}" makes {outputs[0]} outputs for {workload.data.classes} classes; '
            "those above are never right",
            stacklevel=2,
        )
    return value


@contextmanager
def _data_of(workload: Workload) -> Iterator[None]:
    """Batches of a data set of the user's own are made by the user's code."""
    with user_code(f'the data set "{workload.settings.data}"'):
        yield


@contextmanager
def _noting_outputs(network: nn.Module) -> Iterator[list[int]]:
    """The lengths of the last axes of the network's outputs."""
    found: list[int] = []

    def note(module: nn.Module, inputs: object, output: object) -> None:
        found.append(output.shape[-1] if isinstance(output, torch.Tensor) and output.dim() else 0)

    hook = network.register_forward_hook(note)
    try:
        yield found
    finally:
        hook.remove()
