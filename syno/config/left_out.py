"""Which optional devices an experiment leaves out: those that were not there when it first ran.

The decision is in a file beside the results. So all commands and all runs that continue leave out the same devices, and the
workflow plans the same jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from pydantic import AwareDatetime

from syno.base.errors import SpecError
from syno.base.record import Record
from syno.config.experiment import Experiment
from syno.config.kinds import AnyExperiment

FILE = "devices.json"  # in the folder of results


class DevicesRecord(Record):
    """The decision about the optional devices of an experiment (`tune: devices`).

    Attributes:
        there: names of the optional devices that were there.
        left_out: reasons why the others are left out, by the devices' names.
        date: time of the decision.
    """

    kind_of_record = "record of devices"
    again = "run `syno run`"
    passing = frozenset({"date"})
    there: tuple[str, ...]
    left_out: Mapping[str, str]
    date: AwareDatetime


def devices_file(experiment: AnyExperiment) -> Path:
    """Return the path of the file with the decision about optional devices."""
    return experiment.folder / FILE


def decided(experiment: AnyExperiment) -> AnyExperiment:
    """Return the experiment without the devices that its results leave out. Raises SpecError if the record is damaged."""
    if not isinstance(experiment, Experiment):
        return experiment
    optional, file = experiment.tune.optional_devices, devices_file(experiment)
    if not optional or not file.is_file():
        return experiment
    record = DevicesRecord.read(file)
    return leaving_out(experiment, {name: why for name, why in record.left_out.items() if name in optional})


def undecided(experiment: AnyExperiment) -> tuple[str, ...]:
    """Return the names of the optional devices about which nothing is decided yet."""
    if not isinstance(experiment, Experiment):
        return ()
    optional, file = experiment.tune.optional_devices, devices_file(experiment)
    if not optional or not file.is_file():
        return optional
    record = DevicesRecord.read(file)
    return tuple(name for name in optional if name not in record.there and name not in record.left_out)


def leaving_out(experiment: Experiment, reasons: Mapping[str, str]) -> Experiment:
    """Return the experiment without measurements on the devices in `reasons`, which maps their names to reasons.

    Raises SpecError if it selects by latency, and no device would be left.
    """
    made = experiment.model_copy(update={"tune": experiment.tune.leaving_out(reasons)})
    if reasons and made.select.by == "latency" and not made.tune.pairs:
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise SpecError(f'experiment "{experiment.name}" selects by latency, and none of its devices is there: {why}')
    return made


def record_devices(experiment: AnyExperiment) -> None:
    """Write the decision: which optional devices are there, and which are left out. Nothing if the experiment has none."""
    if isinstance(experiment, Experiment) and undecided(experiment):
        left_out = experiment.tune.left_out
        there = tuple(name for name in experiment.tune.optional_devices if name not in left_out)
        DevicesRecord(there=there, left_out=left_out, date=datetime.now(UTC)).write(devices_file(experiment))
