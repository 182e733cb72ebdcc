"""Training a network to classify pictures: short and deterministic."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional

from syno.errors import ShapeError
from syno.evaluate.datasets.contract import Pair, PictureData
from syno.evaluate.pruning import EpochReport, Pruned
from syno.evaluate.settings import Metric, TrainingSettings

TEST_BATCH = 512


@dataclass(frozen=True)
class TrainingResult:
    """How training went. Equal for equal arguments on one machine and thread: times do not count.

    Attributes:
        metric: what the scores are: "accuracy", a fraction of the test pictures, or "loss" on the test text, in nats per token.
        score: of the trained network; 0 (a loss: infinite) if training broke.
        scores: after each epoch.
        losses: the mean cross-entropy over each epoch's steps, in nats.
        steps: how many there were.
        stopped: why the report or a broken loss ended it; None if it went through.
        seconds: of wall time, testing included.
        cpu_seconds: of this process.
    """

    metric: Metric
    score: float
    scores: tuple[float, ...]
    losses: tuple[float, ...]
    steps: int
    stopped: str | None
    seconds: float = field(compare=False)
    cpu_seconds: float = field(compare=False)


class _Broken(Exception):  # noqa: N818  (a result, no error)
    """Training made numbers that are none."""


def train(
    model: nn.Module,
    data: PictureData,
    settings: TrainingSettings | None = None,
    *,
    seed: int = 0,
    report: EpochReport | None = None,
) -> TrainingResult:
    """Train `model`, in place, on the device where it is.

    The global random state and number of threads are as before afterwards. What broke (a loss that is not finite) and
    what was pruned are results, not exceptions.

    Args:
        model: [N, channels, H, W] -> logits [N, classes].
        data: what to learn, and what to test on.
        settings: the recipe.
        seed: of the order of pictures, and of whatever is random in the model (dropout). Its weights are as given.
        report: called after every epoch; see `syno.evaluate.pruning`.

    Raises ShapeError if the batch is larger than the data set.
    """
    settings = settings or TrainingSettings()
    if settings.batch > data.train_count:
        raise ShapeError(
            f"batch is {settings.batch}, but {data.name} has {data.train_count} pictures to train on; give a smaller one"
        )
    wall, cpu = time.perf_counter(), time.process_time()
    progress = _Progress()
    with _own_state(seed, settings.threads):
        try:
            for epoch, accuracy in enumerate(_epochs(model, data, settings, seed, progress), 1):
                if report is not None and report(epoch, accuracy) is False:
                    progress.stopped = f"stopped by the report after epoch {epoch}"
                    break
        except Pruned as pruned:
            progress.stopped = str(pruned)
        except _Broken as broken:
            progress.stopped = str(broken)
            progress.broken = True
    return TrainingResult(
        metric="accuracy",
        score=0.0 if progress.broken else progress.scores[-1],
        scores=tuple(progress.scores),
        losses=tuple(progress.losses),
        steps=progress.steps,
        stopped=progress.stopped,
        seconds=time.perf_counter() - wall,
        cpu_seconds=time.process_time() - cpu,
    )


def measure_accuracy(model: nn.Module, batches: Iterable[Pair]) -> float:
    """The fraction of pictures whose greatest logit is that of their label; NaN if any logit is not finite."""
    model.eval()
    right = count = 0
    with torch.no_grad():
        for images, labels in batches:
            logits = model(images)
            if not torch.isfinite(logits).all():
                return float("nan")
            right += int((logits.argmax(1) == labels).sum())
            count += len(labels)
    return right / count


@dataclass
class _Progress:
    scores: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    steps: int = 0
    stopped: str | None = None
    broken: bool = False


def _epochs(model: nn.Module, data: PictureData, settings: TrainingSettings, seed: int, progress: _Progress) -> Iterator[float]:
    """Train, and yield the accuracy after each epoch."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    layout = torch.channels_last if settings.channels_last else torch.contiguous_format
    batches = data.train_batches(settings.batch, seed=seed, device=device, layout=layout)
    tests = data.test_batches(TEST_BATCH, device=device, layout=layout)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):  # an operator's weights have any number of axes, and a layout of their own
            module.to(memory_format=layout)
    per_epoch = len(batches)
    optimizer = torch.optim.SGD(
        model.parameters(), settings.learning_rate, settings.momentum, weight_decay=settings.weight_decay, nesterov=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, settings.learning_rate, epochs=settings.epochs, steps_per_epoch=per_epoch, cycle_momentum=False
    )
    for epoch in range(1, settings.epochs + 1):
        model.train()
        total = 0.0
        for images, labels in batches.epoch(epoch):
            loss = functional.cross_entropy(model(images), labels)
            value = loss.item()
            progress.steps += 1
            if not torch.isfinite(loss):
                raise _Broken(f"the loss is {value} at step {progress.steps}, in epoch {epoch}")
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            if settings.clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            optimizer.step()
            schedule.step()
            total += value
        progress.losses.append(total / per_epoch)
        accuracy = measure_accuracy(model, tests)
        if accuracy != accuracy:  # NaN
            raise _Broken(f"the network's output is not finite after epoch {epoch}")
        progress.scores.append(accuracy)
        yield accuracy


@contextmanager
def _own_state(seed: int, threads: int) -> Iterator[None]:
    """Random numbers and threads of one's own."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(before)
