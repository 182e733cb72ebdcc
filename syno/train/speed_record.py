"""The record of training speeds: the original network and the network with an operator, measured in turns in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, Self

import torch
from pydantic import AwareDatetime, BaseModel, ConfigDict
from torch import nn

from syno.base.errors import SpecError
from syno.base.files import ORIGINAL
from syno.base.interval import AS_THE_ORIGINAL, times_as_fast
from syno.base.record import Count, PositiveInterval, versions
from syno.data import PictureData, TokenSet
from syno.measure.machine import device_name
from syno.measure.timing import median_interval, stopwatch_of
from syno.measure.tuning_record import Line, MeasuredSubject, MeasurementRecord
from syno.model.replacements import AnyOperator
from syno.train.micro_batches import AUTO, add_gradients, chosen
from syno.train.numerics import on_device, own_state
from syno.train.own_task import Task
from syno.train.progress import TrainingResult
from syno.train.settings import SpeedSettings, TrainingSettings, WorkloadSettings
from syno.train.tasks import task_of
from syno.train.training import train
from syno.train.workload import Workload

WARM_UP_STEPS = 2  # steps of each network before the first turn: the first step compiles and allocates


class Passes(NamedTuple):
    """Milliseconds for one batch: of the forward pass with the loss, and of the forward and backward passes together."""

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
    """Train the networks in turns; return steps per second, as a list of turns with one number per network.

    Turns cancel a drift of the machine's speed. A step is a whole training step: making a batch, both passes, gradient
    clipping, and the optimizer. Tests do not count.

    Args:
        networks: the networks, on the training device; their weights change.
        data: the training data.
        settings: settings of the training; `most_steps` is the number of steps per turn.
        turns: number of turns.
        report: called after every turn.
        results: if given, the result of each of these trainings is appended to it.
    """
    for network in networks:
        train(network, data, settings.model_copy(update={"most_steps": WARM_UP_STEPS}))
    speeds: list[list[float]] = []
    for turn in range(turns):
        speeds.append([])
        for network in networks:
            result = train(network, data, settings, seed=turn)
            speeds[-1].append(result.steps / result.step_seconds)
            if results is not None:
                results.append(result)
        report()
    return speeds


def passes(
    networks: Sequence[nn.Module],
    data: PictureData | TokenSet,
    settings: TrainingSettings,
    device: torch.device,
    turns: int,
    report: Callable[[], None] = lambda: None,
) -> list[list[Passes]]:
    """Time both passes of the networks on one batch, in turns; return a list of turns with the times of each network.

    Args:
        networks: the networks, on the device.
        data: the source of the batch.
        settings: settings of the training; `most_steps` is the number of repetitions per turn, and `micro_batch` is not `auto`.
        device: device of the networks.
        turns: number of turns.
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
                for part in [batch] if settings.micro_batch is None else task.parts(batch, int(settings.micro_batch)):
                    task.loss(network, part)

        def both(network: nn.Module) -> None:
            for _ in range(repeats):
                network.zero_grad(set_to_none=True)
                add_gradients(task, network, batch, None if settings.micro_batch is None else int(settings.micro_batch))

        def once(network: nn.Module) -> Passes:
            return Passes(stopwatch(lambda: forward(network)) / repeats, stopwatch(lambda: both(network)) / repeats)

        for network in timed:
            once(network)
        times: list[list[Passes]] = []
        for _ in range(turns):
            times.append([once(network) for network in timed])
            report()
        return times


def data_seconds(data: PictureData | TokenSet, settings: TrainingSettings, device: torch.device) -> float:
    """Return the seconds for making one batch, without other work at the same time."""
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


class TrainingSpeed(BaseModel):
    """The training speed of one network.

    Attributes:
        forward_ms: milliseconds of the forward pass, with the loss, on one batch.
        forward_backward_ms: milliseconds of the forward and backward passes on one batch.
        samples_per_second: samples per second of whole steps, including making batches, clipping and the optimizer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    forward_ms: PositiveInterval
    forward_backward_ms: PositiveInterval
    samples_per_second: PositiveInterval


class SpeedRecord(MeasurementRecord):
    """The training speeds of two networks.

    Attributes:
        operator: text of the operator.
        workload: settings of the network, the data set and the training.
        settings: settings of the measurement.
        device_setting: the device in the settings, such as "cuda:1".
        device: the device's name.
        batch: batch size in pictures or sequences.
        sample: kind of a sample: a picture, or a token of a text.
        samples: samples in one step.
        original: the speed of the original network.
        changed: the speed of the network with the operator.
        ratio: speedup of training over the original: the median of the turns' ratios.
        versions, date: versions of packages, and time of the measurement.
    """

    kind_of_record = "record of training speed"
    again = "run `syno tune training`"
    passing = frozenset({"date"})

    operator: str
    operator_id: str  # the original is trained beside each operator
    workload: WorkloadSettings
    settings: SpeedSettings
    device_setting: str
    device: str
    batch: Count
    sample: Literal["picture", "token"]
    samples: Count
    original: TrainingSpeed
    changed: TrainingSpeed
    ratio: PositiveInterval
    versions: dict[str, str]
    date: AwareDatetime

    @property
    def measured(self) -> tuple[MeasuredSubject, ...]:
        """The measured workload with the settings; PyTorch itself trains, without a compiler."""
        return (MeasuredSubject(self.workload, self.settings, ""),)

    def lines(self, place: str = "") -> Iterator[Line]:
        """Yield the lines to print: the training speeds of both networks, and their ratio."""
        for name, speed in (("original", self.original), (self.name, self.changed)):
            samples, forward, both = speed.samples_per_second, speed.forward_ms, speed.forward_backward_ms
            yield Line(
                f"{name} on {self.device}: {samples.value:,.1f} {self.sample}s per second (95 % in {samples.low:,.1f} to "
                f"{samples.high:,.1f}), forward {forward.value:.4g} ms, both passes {both.value:.4g} ms"
            )
        yield Line(f"{self.name} trains {times_as_fast(self.ratio, form='.3f', level='95 % in ')}")

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row with the training throughput of the original, and one of the network with the operator, from one source.

        A ratio of two throughputs compares two rows of one source.
        """
        fast = times_as_fast(self.ratio, AS_THE_ORIGINAL, ".3f", "95 %: ")
        own = {"operator": self.name, "operator_id": self.operator_id, "note": f"{fast}, in turns with it"}
        of_original = {"operator": ORIGINAL, "key": ORIGINAL, "role": ORIGINAL, "note": f"in turns with {self.name}"}
        for speed, network in ((self.original, of_original), (self.changed, own)):
            yield (
                network
                | speed.samples_per_second._asdict()
                | {
                    "metric": "training_throughput",
                    "model": self.workload.model,
                    "data": self.workload.data,
                    "device": self.device,
                    "batch": self.batch,
                    "threads": self.workload.training.threads,
                    "repeats": self.settings.turns,
                    "versions": self.versions,
                    "when": self.date,
                }
            )

    @classmethod
    def make(
        cls,
        workload: Workload,
        operator: AnyOperator,
        settings: SpeedSettings,
        device: str,
        report: Callable[[], None] = lambda: None,
    ) -> Self:
        """Measure on a device of this machine, and return the record. `report` is called after each of `2 * turns` turns.

        Raises:
            SpecError: the device does not exist, or the operator does not fit.
            TrainingError: the device runs out of memory.
        """
        if isinstance(workload.data, Task):
            raise SpecError(
                f"tune: training is for classification and text, and {workload.data} is a task of your own; leave it out"
            )
        training = measured_training(workload.settings.training, settings, device)
        with on_device(device) as place:
            networks = [workload.network(replacement, workload.settings.seed).to(place) for replacement in (None, operator)]
            if training.micro_batch == AUTO:
                training = training.model_copy(update={"micro_batch": _chosen(networks, workload.data, training, place)})
            times = passes(networks, workload.data, training, place, settings.turns, report)
            steps = steps_per_second(networks, workload.data, training, settings.turns, report)
        is_text = isinstance(workload.data, TokenSet)
        samples = training.batch * workload.data.length if isinstance(workload.data, TokenSet) else training.batch
        speeds = [
            TrainingSpeed(
                forward_ms=median_interval([turn[place].forward_ms for turn in times]),
                forward_backward_ms=median_interval([turn[place].forward_backward_ms for turn in times]),
                samples_per_second=median_interval([samples * turn[place] for turn in steps]),
            )
            for place in range(2)
        ]
        return cls(
            name=operator.name,
            operator=str(operator),
            operator_id=operator.id,
            workload=workload.settings,
            settings=settings,
            device_setting=device,
            device=device_name(device),
            batch=training.batch,
            sample="token" if is_text else "picture",
            samples=samples,
            original=speeds[0],
            changed=speeds[1],
            ratio=median_interval([changed / original for original, changed in steps]),
            versions=versions(["torch", "numpy"]),
            date=datetime.now(UTC),
        )


def _chosen(
    networks: Sequence[nn.Module], data: PictureData | TokenSet, settings: TrainingSettings, device: torch.device
) -> int:
    """Return the size of a micro-batch that fits into memory for all of these networks, if the setting is `auto`."""
    with own_state(0, settings, device):
        task = task_of(data, settings, 0, device)
        batch = next(iter(task.batches.epoch(1)))
        return min(chosen(task, network.train(), batch) or settings.batch for network in networks)


def measured_training(training: TrainingSettings, settings: SpeedSettings, device: str) -> TrainingSettings:
    """Return the settings for measuring a training: the experiment's, with the measurement's device and number of steps."""
    limits = {"most_steps": settings.steps, "epochs": max(training.epochs, settings.steps), "most_tests": 1}
    free = dict.fromkeys(("round_steps", "most_minutes", "most_epoch_seconds"))
    return training.model_copy(
        update={**limits, **free, "device": device, "batch": settings.batch or training.batch, "processes": 1}
    )
