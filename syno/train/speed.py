"""The speed of training: networks train in turns, in one process, so that a drift of the machine's speed cancels."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import nn

from syno.data import PictureData, TokenSet
from syno.measure.timing import stopwatch_of
from syno.train.optimization import own_state
from syno.train.progress import TrainingResult
from syno.train.settings import TrainingSettings
from syno.train.tasks import task_of
from syno.train.training import train

WARM_UP_STEPS = 2  # of each network before the first turn: the first one compiles and allocates


class Passes(NamedTuple):
    """Milliseconds of one batch: of the forward pass with the loss, and of both passes."""

    forward_ms: float
    forward_backward_ms: float


def steps_per_second(
    networks: Sequence[nn.Module],
    data: PictureData | TokenSet,
    settings: TrainingSettings,
    turns: int,
    report: Callable[[], None] = lambda: None,
    results: list[TrainingResult] | None = None,
) -> list[list[float]]:
    """Train the networks in turns, and return the steps in a second of each turn: for each turn, one number for each network.

    A step is that of a training: it makes a batch, runs both passes, clips gradients, and updates weights. Tests do not count.

    Args:
        networks: on the device where they are trained; their weights change.
        data: to train on.
        settings: of the training; `most_steps` is the number of steps in a turn.
        turns: how often each network is trained.
        report: called after every turn.
        results: if given, the result of each of these trainings is appended to it.
    """
    for network in networks:
        train(network, data, settings.model_copy(update={"most_steps": WARM_UP_STEPS}))
    found: list[list[float]] = []
    for turn in range(turns):
        found.append([])
        for network in networks:
            result = train(network, data, settings, seed=turn)
            found[-1].append(result.steps / result.step_seconds)
            if results is not None:
                results.append(result)
        report()
    return found


def passes(
    networks: Sequence[nn.Module],
    data: PictureData | TokenSet,
    settings: TrainingSettings,
    device: torch.device,
    turns: int,
    report: Callable[[], None] = lambda: None,
) -> list[list[Passes]]:
    """Run both passes of the networks on one batch in turns, and return the times: for each turn, those of each network.

    Args:
        networks: on the device.
        data: of which the batch is.
        settings: of the training; `most_steps` is the number of repeats in a turn.
        device: where the networks are.
        turns: how often each network is timed.
        report: called after every turn.
    """
    repeats, stopwatch = settings.most_steps or 1, stopwatch_of(device.type)
    with own_state(0, settings, device):
        task = task_of(data, settings, 0, device)
        batch = next(iter(task.batches.epoch(1)))
        timed = [torch.compile(network) if settings.compile else network for network in networks]
        for network in timed:
            network.train()

        def forward(network: nn.Module) -> None:
            for _ in range(repeats):
                task.loss(network, batch)

        def both(network: nn.Module) -> None:
            for _ in range(repeats):
                network.zero_grad(set_to_none=True)
                task.loss(network, batch).backward()

        def once(network: nn.Module) -> Passes:
            return Passes(stopwatch(lambda: forward(network)) / repeats, stopwatch(lambda: both(network)) / repeats)

        for network in timed:
            once(network)
        found: list[list[Passes]] = []
        for _ in range(turns):
            found.append([once(network) for network in timed])
            report()
        return found


def data_seconds(data: PictureData | TokenSet, settings: TrainingSettings, device: torch.device) -> float:
    """Return the seconds of making one batch, with nothing beside it."""
    batches = data.train_batches(settings.batch, seed=0, device=device)
    each = iter(batches.epoch(1))
    next(each)
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    count = min(settings.most_steps or 1, len(batches) - 1)
    synchronize()
    began = time.perf_counter()
    for _ in range(count):
        next(each)
    synchronize()
    return (time.perf_counter() - began) / count
