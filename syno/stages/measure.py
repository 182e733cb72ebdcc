"""Measurement of an experiment's networks: the subjects, the settings, and the shown progress."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.base.devices import require_device
from syno.base.errors import SpecError
from syno.base.gpu_leases import leased
from syno.base.progress import Display, Progress, display
from syno.config import Experiment
from syno.config.dependencies import check_placed
from syno.data.settings import is_picture
from syno.model.networks import Network
from syno.stages.data import DataRecord, look, own_code_of
from syno.stages.operators import network_of
from syno.stages.places import DATA, trials_folder

if TYPE_CHECKING:
    from syno.measure.layers_record import LayersRecord
    from syno.measure.network_subject import AnyNetwork
    from syno.measure.protocol import Findings
    from syno.measure.tuning_record import Device, TuningRecord
    from syno.model.replacements import AnyOperator
    from syno.train.settings import WorkloadSettings

DIGITS = 12  # of the hash in the name of the folder with the layers that are done


def network_to_measure(experiment: Experiment, name: str | Network, compiler: str, device: str) -> AnyNetwork:
    """Return the subject to measure: an experiment's network, original or with an operator.

    Raises as `syno.stages.measurements.measure`, before the data is read and anything is measured.
    """
    from syno.measure.tvm.targets import DeviceSettings

    if experiment.workload is None:
        raise SpecError(f'experiment "{experiment.name}" has no workload, so there is no network to measure')
    experiment.use_code()
    check_placed(experiment.name, experiment.after, experiment.workload)
    operator = network_of(experiment, name).replacement
    remote = experiment.tune.device(device, compiler)
    if remote is None:
        require_device(device)
    elif isinstance(remote, DeviceSettings) and remote.address is not None:
        from syno.measure.tvm.tracker import reach

        reach(device, remote.address, remote.key or device)
    made = experiment.folder / DATA
    data = DataRecord.read(made) if made.exists() else None
    if data is None or data.own_code != own_code_of(experiment):  # then the network may have other inputs
        data = look(experiment)
    return subject_of(experiment.workload, data, operator, compiler)


def measured(experiment: Experiment, subject: AnyNetwork, compiler: str, device: str, title: str) -> TuningRecord:
    """Compile and measure a network or a layer with the experiment's settings; `title` is shown with the progress."""
    from syno.measure.compilers import own_settings
    from syno.measure.tuning import tune as tuned

    settings = experiment.tune
    remote = settings.device(device, compiler)
    with leased(device if remote is None else "cpu"), shown(title) as progress:
        return tuned(
            subject,
            compiler,
            device,
            settings.latency,
            time_limit_s=settings.time_limit_seconds,
            memory_limit_mib=settings.memory_limit_mib,
            **own_settings(settings),
            folder=trials_folder(experiment, device),
            remote=remote,
            progress=progress,
        )


def subject_of(workload: WorkloadSettings, data: DataRecord, operator: AnyOperator | None, compiler: str) -> AnyNetwork:
    """Return the network of the workload, with an operator, for data of the record's shape."""
    from syno.measure.compilers import compiler_named
    from syno.measure.network_subject import LanguageModelSubject, NetworkSubject, NetworkWithInputs

    given: dict[str, Any] = {
        **{name: getattr(workload, name) for name in ("model", "model_settings", "width", "placed", "layers")},
        "operator": None if operator is None else str(operator),
        "samples": data.inputs_to_measure,
    }
    if data.inputs is not None and data.image_shape is None:
        is_last = workload.training.channels_last and compiler_named(compiler).channels_last
        return NetworkWithInputs(**given, inputs=data.inputs, memory_format="channels_last" if is_last else "contiguous")
    if data.image_shape is None:
        given |= {"vocabulary": data.classes, "length": data.length}
        return LanguageModelSubject(**given)
    channels_last = is_picture(data.image_shape) and workload.training.channels_last and compiler_named(compiler).channels_last
    given |= {"classes": data.classes or 1, "image_shape": data.image_shape}
    return NetworkSubject(**given, memory_format="channels_last" if channels_last else "contiguous")


def layer_latencies(experiment: Experiment, network: Network, compiler: str, device: str, file: Path) -> LayersRecord:
    """Compile and measure each distinct replaced layer of the network, as it is or as an operator.

    If the operator does not fit a layer, or it cannot be compiled or measured, the record has the reason. Until all layers are
    measured, each has a file of its own in a folder beside the record, so that an interrupted job is resumed. The folder's name
    contains a hash of everything on which the measurements depend.
    """
    from syno.measure.layers_record import LayersRecord, MeasuredLayer, misfit_record
    from syno.model.extraction import distinct_layers
    from syno.model.substitution import why_it_does_not_fit

    subject = network_to_measure(experiment, network, compiler, device)
    done = file.with_suffix(f".{_digest(experiment, subject, compiler, device)}")
    original = subject.backbone()
    layers, found = distinct_layers(original, subject.example(), subject.layers), []
    for number, layer in enumerate(layers, 1):
        kept = done / f"{layer.layer.name}.json"
        record = _finished(kept)
        if record is None:
            title = f"{network.key}, {layer.name} ({number} of {len(layers)}), {compiler} on {device}"
            of_layer = subject.model_copy(update={"layer": layer.layer.name})
            operator = network.replacement
            reason = None if operator is None else why_it_does_not_fit(operator, layer.layer, original)
            if reason is None:
                record = measured(experiment, of_layer, compiler, device, title)
            else:
                there = _place(experiment, compiler, device)
                record = misfit_record(of_layer, reason, compiler, there, experiment.tune.latency)
            record.write(kept)
        found.append(MeasuredLayer(name=layer.name, position=layer.position, record=record))
    first = found[0].record
    whole = LayersRecord(name=first.name, operator_id=first.operator_id, compiler=compiler, layers=tuple(found))
    whole.write(file)  # before the files of its layers go
    for folder in file.parent.glob(f"{file.stem}.*/"):  # of earlier settings, too
        shutil.rmtree(folder, ignore_errors=True)
    return whole


def _digest(experiment: Experiment, subject: AnyNetwork, compiler: str, device: str) -> str:
    """Return the cache key of the measurements: a hash of everything on which they depend."""
    parts = (experiment.part("tune", code=True), subject.model_dump_json(), compiler, device, experiment.tune.made_for(device))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:DIGITS]


def _finished(kept: Path) -> TuningRecord | None:
    """Return the record of a layer that was measured before; None if there is none, or it is damaged."""
    from syno.measure.tuning_record import TuningRecord

    with suppress(SpecError):
        return TuningRecord.read(kept)
    return None


def _place(experiment: Experiment, compiler: str, device: str) -> Device:
    """Return the device of the experiment's settings as a record describes it: with its name, host and target."""
    from syno.measure.machine import device_name
    from syno.measure.tuning_record import Device

    remote, threads = experiment.tune.device(device, compiler), experiment.tune.latency.threads
    if remote is not None:
        return Device(kind=remote.kind, name=device, threads=threads)
    return Device(kind=device.partition(":")[0], name=device_name(device), threads=threads)


@dataclass(frozen=True)
class TuningProgress(Progress):
    """The progress of a measurement: `finished` of `total` trials while TVM tunes, without counts in other phases.

    Attributes:
        phase: name of the current phase.
    """

    phase: str = ""

    @classmethod
    def of(cls, title: str, findings: Findings, seconds: float) -> TuningProgress:
        """Return the progress that the findings of a measuring process show after `seconds`."""
        count = findings.count
        if findings.phase != "tuning" or count is None:
            return cls(title, 0, 1, 0, seconds=seconds, phase=findings.phase)
        place = f"tuning, task {max(count.task, 1)} of {count.tasks}, {count.trials} of {count.trials_wanted} trials"
        return cls(title, count.trials, max(count.trials_wanted, 1), 0, seconds=seconds, phase=place)

    def __str__(self) -> str:
        minutes = self.seconds / 60
        return f"{self.title}: {self.phase}, {f'{self.seconds:.0f} s' if minutes < 2 else f'{minutes:.0f} min'} elapsed"


@contextmanager
def shown(title: str, on: Display | None = None) -> Iterator[Callable[[Findings], None]]:
    """Yield a function that shows progress: on a terminal as a bar, in a log as a line from time to time.

    Args:
        title: the name of the network and of the device, shown with the progress.
        on: the display; by default on standard error.
    """
    began = time.monotonic()
    with on or display() as there:
        yield lambda findings: there.show(TuningProgress.of(title, findings, time.monotonic() - began))


@dataclass(frozen=True)
class SpeedProgress(Progress):
    """The progress of a measurement: `finished` of `total` turns."""

    def __str__(self) -> str:
        return f"{self.title}: turn {self.finished} of {self.total}, {self.seconds:.0f} s elapsed"


@contextmanager
def shown_turns(title: str, turns: int) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each turn of a measurement in turns, which shows the progress."""
    began, done = time.monotonic(), 0

    with display() as there:

        def report() -> None:
            nonlocal done
            done += 1
            seconds = time.monotonic() - began
            there.show(SpeedProgress(title, done, turns, 0, seconds=seconds, rate=done / max(seconds, 1e-9)))

        yield report
