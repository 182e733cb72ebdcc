"""The record of how fast the original network and the network with an operator train, measured in turns in one process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict

from syno.base.record import Count, Record, versions
from syno.data import TokenSet
from syno.measure.machine import device_name
from syno.measure.timing import Interval
from syno.model.baselines import Replacement
from syno.train.optimization import on_device
from syno.train.settings import TrainingSettings, WorkloadSettings
from syno.train.speed import passes, steps_per_second
from syno.train.speed_settings import SpeedSettings
from syno.train.workload import Workload


class TrainingSpeed(BaseModel):
    """The speed of one network.

    Attributes:
        forward_ms: milliseconds of the forward pass, with the loss, on one batch.
        forward_backward_ms: milliseconds of both passes on one batch.
        samples_per_second: samples of whole steps in a second, with making batches, clipping and the optimizer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    forward_ms: Interval
    forward_backward_ms: Interval
    samples_per_second: Interval


class SpeedRecord(Record):
    """The speed of training of two networks.

    Attributes:
        name, operator, operator_id: of the operator: its name, text and id.
        workload: settings of the network, the data set and the training.
        settings: how it was measured.
        device_setting: the device as it was given, such as "cuda:1".
        device: its name.
        batch: pictures or sequences of a batch.
        sample: what a sample is: a picture, or a token of a text.
        samples: samples in one step.
        original: the speed of the original network.
        changed: the speed of the network with the operator.
        ratio: how many times as fast as the original the changed network trains: the median of the ratios of each turn.
        versions, date: of the packages, and the time.
    """

    kind_of_record = "record of training speed"
    again = "run `syno tune training`"
    passing = frozenset({"date"})

    name: str
    operator: str
    operator_id: str
    workload: WorkloadSettings
    settings: SpeedSettings
    device_setting: str
    device: str
    batch: Count
    sample: Literal["picture", "token"]
    samples: Count
    original: TrainingSpeed
    changed: TrainingSpeed
    ratio: Interval
    versions: dict[str, str]
    date: AwareDatetime

    @classmethod
    def make(
        cls,
        workload: Workload,
        operator: Replacement,
        settings: SpeedSettings,
        device: str,
        report: Callable[[], None] = lambda: None,
    ) -> Self:
        """Measure on a device of this machine, and return the record. `report` is called after each of `2 * turns` turns.

        Raises:
            SpecError: there is no such device, or the operator does not fit.
            TrainingError: the device's memory does not suffice.
        """
        training = measured_training(workload.settings.training, settings, device)
        with on_device(device) as place:
            networks = [workload.network(one, workload.settings.seed).to(place) for one in (None, operator)]
            times = passes(networks, workload.data, training, place, settings.turns, report)
            steps = steps_per_second(networks, workload.data, training, settings.turns, report)
        is_text = isinstance(workload.data, TokenSet)
        samples = training.batch * workload.data.length if isinstance(workload.data, TokenSet) else training.batch
        speeds = [
            TrainingSpeed(
                forward_ms=Interval.of([turn[place].forward_ms for turn in times]),
                forward_backward_ms=Interval.of([turn[place].forward_backward_ms for turn in times]),
                samples_per_second=Interval.of([samples * turn[place] for turn in steps]),
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
            ratio=Interval.of([changed / original for original, changed in steps]),
            versions=versions(["torch", "numpy"]),
            date=datetime.now(UTC),
        )


def measured_training(training: TrainingSettings, settings: SpeedSettings, device: str) -> TrainingSettings:
    """Return the settings of a training that is measured: those of the experiment, but its device and length."""
    limits = {"most_steps": settings.steps, "epochs": max(training.epochs, settings.steps), "most_tests": 1}
    free = dict.fromkeys(("round_steps", "most_minutes", "most_epoch_seconds"))
    return training.model_copy(update={**limits, **free, "device": device, "batch": settings.batch or training.batch})
