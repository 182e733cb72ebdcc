"""The speed of training: a record for each network with an operator and each device of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.devices import require_device
from syno.base.errors import SpecError
from syno.base.files import ORIGINAL
from syno.base.gpu_leases import leased
from syno.base.progress import Progress, display
from syno.config import Experiment
from syno.measure.tvm.targets import is_here
from syno.results.breakdown import rows_of_speed
from syno.stages.operators import ComparedNetwork, check_belongs, key_of, operator_of
from syno.stages.places import speed_file
from syno.stages.train import settings_of_training

if TYPE_CHECKING:
    from syno.results.measurement import Measurement
    from syno.train.speed_record import SpeedRecord


def measure_speed(experiment: Experiment, given: str, device: str, output: Path | None = None) -> SpeedRecord:
    """Train the original network and the network with an operator in turns, and write a record of their speeds.

    Args:
        experiment: the experiment; `tune: speed` has the settings.
        given: a baseline, or an operator's id, name or file.
        device: a device of this machine, as in `tune: devices`.
        output: file of the record; by default in the folder of results.

    Raises:
        SpecError: there is no workload, `given` is the original, or the operator does not fit the network.
        UnknownNameError: there is no such operator.
        MissingDeviceError: this machine has no such device.
        TrainingError: the device's memory does not suffice.
    """
    if experiment.workload is None:
        raise SpecError(f'experiment "{experiment.name}" has no workload, so there is no network to train')
    experiment.use_code()
    if given == ORIGINAL:
        raise SpecError("the original network is measured beside each operator, in turns; give an operator or a baseline")
    if not is_here(device):
        raise SpecError(f'"{device}" is not a device of this machine; training is measured on cpu or cuda')
    require_device(device)
    operator = operator_of(experiment, given)
    assert operator is not None  # it is not the original
    from syno.train.speed_record import SpeedRecord  # imports torch
    from syno.train.workload import Workload

    workload = Workload(settings_of_training(experiment), experiment.network.data)
    turns = 2 * experiment.tune.speed.turns
    with leased(device), _shown(f"training of {given} on {device}", turns) as report:
        record = SpeedRecord.make(workload, operator, experiment.tune.speed, device, report)
    record.write(output or speed_file(experiment, key_of(experiment, given), device))
    return record


@dataclass(frozen=True)
class SpeedProgress(Progress):
    """The progress of a measurement: `finished` of `total` turns."""

    def __str__(self) -> str:
        return f"{self.title}: turn {self.finished} of {self.total}, {self.seconds:.0f} s elapsed"


@contextmanager
def _shown(title: str, turns: int) -> Iterator[Callable[[], None]]:
    """Yield a function that shows the progress after each turn."""
    began, done = time.monotonic(), 0

    with display() as there:

        def report() -> None:
            nonlocal done
            done += 1
            seconds = time.monotonic() - began
            there.show(SpeedProgress(title, done, turns, 0, seconds=seconds, rate=done / max(seconds, 1e-9)))

        yield report


def speed_measurements(experiment: Experiment, networks: Sequence[ComparedNetwork]) -> Iterator[Measurement]:
    """Yield the speeds in the records of these networks, and those of the original in the same records.

    Raises SpecError if a record is damaged, or of another network or other settings.
    """
    if not experiment.tune.training or experiment.workload is None:
        return
    from syno.train.speed_record import SpeedRecord  # imports torch

    for device in filter(is_here, experiment.tune.devices):
        for network in networks:
            file = speed_file(experiment, network.key, device)
            if network.key == ORIGINAL or not file.is_file():
                continue
            record = SpeedRecord.read(file)
            check_belongs(record, network, file)
            if (record.workload, record.settings) != (settings_of_training(experiment), experiment.tune.speed):
                raise SpecError(
                    f"{file} is of another training, or of other settings (tune: speed), than the experiment's; delete it and "
                    "run `syno tune training` or the workflow again"
                )
            yield from rows_of_speed(record, file.relative_to(experiment.folder).as_posix(), network.key, network.role)
