"""Tuning: one network, one compiler, one device, one record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.base.errors import SpecError
from syno.config import Experiment
from syno.stages.data import FILE, DataRecord, look
from syno.stages.places import key_of, operator_of, trials_folder, tuning_file
from syno.stages.tuning_progress import shown

if TYPE_CHECKING:
    from syno.ir.graph import PGraph
    from syno.measure.network_subject import LanguageModelSubject, NetworkSubject
    from syno.measure.tuning_record import TuningRecord
    from syno.train.settings import WorkloadSettings


def tune(experiment: Experiment, given: str, compiler: str, device: str, output: Path | None = None) -> TuningRecord:
    """Compile and measure the network with an operator, or as it is, and write a record; one that failed says why.

    Args:
        experiment: says how, in its group `tune`.
        given: "original", a baseline, or an operator's id, name or file.
        compiler, device: as in that group.
        output: the file; by default among the experiment's results.

    Raises:
        UnknownNameError: there is no such operator, compiler or network.
        SpecError: there is no such device, or what the compiler makes does not run there.
        DeviceError: a remote device does not answer.
    """
    from syno.base.devices import require_device
    from syno.measure.compilers import own_settings
    from syno.measure.tuning import tune as tuned

    if experiment.workload is None:
        raise SpecError(f'experiment "{experiment.name}" has no workload, so there is no network to measure')
    operator, settings = operator_of(experiment, given), experiment.tune
    remote = settings.device(device, compiler)
    if remote is None:
        require_device(device)
    elif remote.address is not None:
        from syno.measure.tvm.tracker import reach

        reach(device, remote.address, remote.key or device)
    made = experiment.folder / FILE
    data = DataRecord.read(made) if made.exists() else look(experiment)
    with shown(f"{given}, {compiler} on {device}") as progress:
        record = tuned(
            _subject(experiment.workload, data, operator, compiler),
            compiler,
            device,
            settings.latency,
            time_limit_s=settings.time_limit_seconds,
            memory_limit_mib=settings.memory_limit_mib,
            folder=trials_folder(experiment, device),
            remote=remote,
            progress=progress,
            **own_settings(settings),
        )
    record.write(output or tuning_file(experiment, key_of(experiment, given), compiler, device))
    return record


def _subject(
    workload: WorkloadSettings, data: DataRecord, operator: PGraph | None, compiler: str
) -> NetworkSubject | LanguageModelSubject:
    """The network of the workload, for data of that shape."""
    from syno.measure.compilers import compiler_named
    from syno.measure.network_subject import LanguageModelSubject, NetworkSubject

    given: dict[str, Any] = {
        **{"model": workload.model, "width": workload.width, "layers": workload.layers},
        "operator": None if operator is None else str(operator),
    }
    if data.image_shape is None:
        given |= {"vocabulary": data.classes, "length": data.length}
        return LanguageModelSubject(**given)
    channels_last = workload.training.channels_last and compiler_named(compiler).channels_last
    given |= {"classes": data.classes, "image_shape": data.image_shape}
    return NetworkSubject(**given, memory_format="channels_last" if channels_last else "contiguous")
