"""Measurements of latency: a record for each network, compiler and device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.base.errors import SpecError
from syno.base.gpu_leases import leased
from syno.base.progress import Display, Progress, display
from syno.config import Experiment
from syno.config.dependencies import check_placed
from syno.data.settings import is_picture
from syno.stages.data import DataRecord, look
from syno.stages.operators import key_of, operator_of
from syno.stages.places import DATA, trials_folder, tuning_file

if TYPE_CHECKING:
    from syno.measure.measuring import Findings
    from syno.measure.network_subject import LanguageModelSubject, NetworkSubject
    from syno.measure.tuning_record import TuningRecord
    from syno.model.baselines import Replacement
    from syno.train.settings import WorkloadSettings


def tune(experiment: Experiment, given: str, compiler: str, device: str, output: Path | None = None) -> TuningRecord:
    """Compile and measure the original network, or the network with an operator, and write a record.

    A failure to compile or measure is a record, too, with the reason.

    Args:
        experiment: the experiment; its group `tune` has the settings.
        given: "original", a baseline, or an operator's id, name or file.
        compiler, device: names, as in `tune: compilers` and `tune: devices`.
        output: file of the record; by default in the folder of results.

    Raises:
        UnknownNameError: there is no such operator, compiler or network.
        SpecError: there is no such device, or the compiler does not reach it.
        DeviceError: a remote device does not answer.
    """
    subject = network_to_measure(experiment, given, compiler, device)
    record = measured(experiment, subject, compiler, device, f"{given}, {compiler} on {device}")
    record.write(output or tuning_file(experiment, key_of(experiment, given), compiler, device))
    return record


def network_to_measure(experiment: Experiment, given: str, compiler: str, device: str) -> NetworkSubject | LanguageModelSubject:
    """Return the network of an experiment, or the network with an operator, as what is measured.

    Raises as `tune`, before the data is read and anything is measured.
    """
    from syno.base.devices import require_device
    from syno.measure.tvm.targets import DeviceSettings

    if experiment.workload is None:
        raise SpecError(f'experiment "{experiment.name}" has no workload, so there is no network to measure')
    experiment.use_code()
    check_placed(experiment.name, experiment.after, experiment.workload)
    operator = operator_of(experiment, given)
    remote = experiment.tune.device(device, compiler)
    if remote is None:
        require_device(device)
    elif isinstance(remote, DeviceSettings) and remote.address is not None:
        from syno.measure.tvm.tracker import reach

        reach(device, remote.address, remote.key or device)
    made = experiment.folder / DATA
    data = DataRecord.read(made) if made.exists() else look(experiment)
    return subject_of(experiment.workload, data, operator, compiler)


def measured(
    experiment: Experiment, subject: NetworkSubject | LanguageModelSubject, compiler: str, device: str, title: str
) -> TuningRecord:
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


def subject_of(
    workload: WorkloadSettings, data: DataRecord, operator: Replacement | None, compiler: str
) -> NetworkSubject | LanguageModelSubject:
    """Return the network of the workload, with an operator, for data of the record's shape."""
    from syno.measure.compilers import compiler_named
    from syno.measure.network_subject import LanguageModelSubject, NetworkSubject

    given: dict[str, Any] = {
        **{name: getattr(workload, name) for name in ("model", "model_settings", "width", "placed", "layers")},
        "operator": None if operator is None else str(operator),
    }
    if data.image_shape is None:
        given |= {"vocabulary": data.classes, "length": data.length}
        return LanguageModelSubject(**given)
    channels_last = is_picture(data.image_shape) and workload.training.channels_last and compiler_named(compiler).channels_last
    given |= {"classes": data.classes, "image_shape": data.image_shape}
    return NetworkSubject(**given, memory_format="channels_last" if channels_last else "contiguous")


@dataclass(frozen=True)
class TuningProgress(Progress):
    """The progress of a measurement: `finished` of `total` trials while TVM tunes, without counts in other phases.

    Attributes:
        phase: name of the current phase.
    """

    phase: str = ""

    @classmethod
    def of(cls, title: str, findings: Findings, seconds: float) -> TuningProgress:
        """Return the progress after so many seconds."""
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
        title: what is compiled, and for which device.
        on: where progress is shown; by default on standard error.
    """
    began = time.monotonic()
    with on or display() as there:
        yield lambda findings: there.show(TuningProgress.of(title, findings, time.monotonic() - began))
