"""The kinds of measurements of an experiment's networks: the measured quantity, its networks, and the paths of records.

From a row of the list below follow the kind's stage (`workflow_stages`), its command (`syno tune COMMAND`), the checks of its
records and its rows in the table of measurements. Its rule is in `workflow/rules/tune.smk`. The help page takes commands from
here, so functions and classes that take long to import are given as `module:name`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from syno.base.errors import SpecError
from syno.base.files import ORIGINAL
from syno.stages import places
from syno.stages.networks import measured as measured_networks

if TYPE_CHECKING:
    from syno.config import Experiment
    from syno.measure.tuning_record import MeasurementRecord, TuningRecord
    from syno.model.networks import Network
    from syno.train.speed_record import SpeedRecord

ONLY = "only"  # the value of `tune: layers` with which networks are not measured


@dataclass(frozen=True)
class MeasurementKind:
    """One kind of measurements: a record for each network, each compiler and each device.

    Attributes:
        name: the name of the stage, of its rule, and of the folder of its records.
        command: the word after `syno tune`.
        help: the command's text on the help page.
        record: the class of records, a `syno.measure.tuning_record.MeasurementRecord`.
        make: the function that measures, which `measure` calls. Functions of a few lines are in this module.
        is_measured: whether an experiment has jobs of this kind.
        is_in_table: whether the table of measurements has the rows of its records; if not, it has a table of its own.
        is_read: whether the tables include existing records; by default as `is_measured`.
        settings: the part of the experiment's settings that records depend on.
        of_original: whether the original has a measurement of its own, also on remote devices. Otherwise it is measured in
            turns with each operator, on devices of this machine.
        has_compiler: whether networks are measured with each compiler. Otherwise PyTorch itself trains the networks.
        is_of_shortlist: whether operators may be selected by this quantity (`select: by: latency`).
        subject: the measured quantity in words, for messages.
        is_by_layer: whether a job measures each size of the replaced layers, and so may take the time limit several times.
        minutes: time limit of a job's first attempt, where the settings have none.
    """

    name: str
    command: str
    help: str
    record: str
    make: str
    is_measured: Callable[[Experiment], bool]
    is_in_table: bool = True
    is_read: Callable[[Experiment], bool] | None = None
    settings: str = "tune"
    of_original: bool = False
    has_compiler: bool = True
    is_of_shortlist: bool = False
    subject: str = "latency"
    is_by_layer: bool = False
    minutes: int = 10

    @property
    def pattern(self) -> str:
        """The path of a record in the folder of results, with wildcards in braces."""
        return f"{self.name}/{{key}}/{'{compiler}-' if self.has_compiler else ''}{{device}}.json"

    @property
    def again(self) -> str:
        """The command that repeats a measurement of this kind, for messages."""
        return f"syno tune {self.command}"

    def file(self, experiment: Experiment, key: str, compiler: str, device: str) -> Path:
        """Return the record file of the network with this key, for a compiler and a device."""
        return places.measurement_file(self.pattern, experiment, key, compiler, device)

    def pairs(self, experiment: Experiment) -> list[tuple[str, str]]:
        """Return the pairs (compiler, device) with which operators are measured; the compiler is "" if the kind has none."""
        pairs = experiment.tune.pairs if self.has_compiler else [("", device) for device in experiment.tune.present_devices]
        if self.of_original:
            return list(pairs)
        from syno.measure.tvm.targets import is_here

        return [(compiler, device) for compiler, device in pairs if is_here(device)]

    def jobs(self, experiment: Experiment, networks: Sequence[str]) -> list[dict[str, str]]:
        """Return the wildcards of each measurement of the networks with these keys."""
        from syno.measure.compilers import name_in_files

        if experiment.workload is None or not self.is_measured(experiment):
            return []
        keys = [key for key in measured_networks(experiment, networks) if self.of_original or key != ORIGINAL]
        found = [(key, *pair) for pair in self.pairs(experiment) for key in keys]
        if self.of_original and ORIGINAL in networks:
            found += [(ORIGINAL, *pair) for pair in experiment.tune.original_pairs]
        by_compiler = [{"compiler": name_in_files(compiler)} if self.has_compiler else {} for _, compiler, _ in found]
        return [
            {"key": key, **of_compiler, "device": places.in_a_name(device)}
            for (key, _, device), of_compiler in zip(found, by_compiler, strict=True)
        ]

    def records_of(self, experiment: Experiment) -> list[tuple[str, str]]:
        """Return the pairs (compiler, device) whose existing records are in the tables of an experiment."""
        if experiment.workload is None or not (self.is_read or self.is_measured)(experiment):
            return []
        if not self.of_original:
            return self.pairs(experiment)
        return [(compiler, device) for device in experiment.tune.device_names for compiler in experiment.tune.all_compilers]


def speedup_jobs(experiment: Experiment, networks: Sequence[str]) -> list[dict[str, str]]:
    """Return the wildcards of the job that measures the selected operators' speedups, with the goal's compiler and device."""
    from syno.measure.compilers import name_in_files

    if experiment.goal_pair is None or experiment.workload is None:
        return []
    compiler, device = experiment.goal_pair
    return [{"compiler": name_in_files(compiler), "device": places.in_a_name(device)}]


def network_latency(experiment: Experiment, network: Network, compiler: str, device: str, file: Path) -> TuningRecord:
    """Compile the whole network and measure its latency."""
    from syno.stages.measure import measured, network_to_measure

    subject = network_to_measure(experiment, network, compiler, device)
    return measured(experiment, subject, compiler, device, f"{network.key}, {compiler} on {device}")


def training_speed(experiment: Experiment, network: Network, compiler: str, device: str, file: Path) -> SpeedRecord:
    """Train the original network and the network with an operator in turns; `tune: speed` has the settings."""
    from syno.base.gpu_leases import leased
    from syno.stages.measure import shown_turns
    from syno.stages.train import settings_of_training
    from syno.train.speed_record import SpeedRecord  # imports torch
    from syno.train.workload import Workload

    operator = network.replacement
    assert operator is not None  # it is not the original
    workload = Workload(settings_of_training(experiment), experiment.network.data)
    turns = 2 * experiment.tune.speed.turns
    with leased(device), shown_turns(f"training of {network.key} on {device}", turns) as report:
        return SpeedRecord.make(workload, operator, experiment.tune.speed, device, report)


# fmt: off
_LIST = (
    MeasurementKind(
        "tune", "model", "Measure the network of an experiment with one operator.",
        record="syno.measure.tuning_record:TuningRecord", make="syno.stages.measurements:network_latency",
        is_measured=lambda experiment: experiment.tune.layers != ONLY,
        is_read=lambda experiment: True, of_original=True, is_of_shortlist=True),
    MeasurementKind(
        "layers", "layers",
        "Measure each distinct replaced layer of the network of an experiment by itself, as it is or as one operator.",
        record="syno.measure.layers_record:LayersRecord", make="syno.stages.measure:layer_latencies",
        is_measured=lambda experiment: bool(experiment.tune.layers),
        of_original=True, is_by_layer=True),
    MeasurementKind(
        "breakdown", "breakdown",
        "Measure where the time of the network goes, by replaced layer and stage, as it is and with one operator.",
        record="syno.measure.breakdown_record:BreakdownRecord", make="syno.stages.speedups:breakdown",
        is_measured=lambda experiment: experiment.tune.breakdown, is_in_table=False, subject="where the time goes",
        is_by_layer=True),
    MeasurementKind(
        "speed", "training",
        "Measure how fast the network with one operator trains, and the original in turns with it.",
        record="syno.train.speed_record:SpeedRecord", make="syno.stages.measurements:training_speed",
        is_measured=lambda experiment: experiment.tune.training,
        settings="speed", has_compiler=False, subject="training", minutes=60),
)
# fmt: on
KINDS: dict[str, MeasurementKind] = {kind.name: kind for kind in _LIST}


def measure(
    kind: str, experiment: Experiment, name: str | Network, compiler: str, device: str, output: Path | None = None
) -> MeasurementRecord:
    """Measure the original network, or the network with an operator, and write a record.

    A failure to compile or measure is a record, too, with the reason.

    Args:
        kind: a name in `KINDS`.
        experiment: the experiment; its group `tune` has the settings.
        name: "original", a baseline, or an operator's id, name or file.
        compiler, device: names, as in `tune: compilers` and `tune: devices`. The compiler is "" if the kind has none.
        output: file of the record; by default in the folder of results.

    Raises:
        UnknownNameError: there is no such operator, compiler or network.
        SpecError: there is no workload, no such device, the compiler does not reach it, or the operator does not fit. For kinds
            that measure in turns with the original: `name` is the original, or the device is another machine's.
        DeviceError: a remote device does not answer, or the original itself cannot be measured in turns.
        TrainingError: the device's memory does not suffice for a training.
    """
    from syno.base.devices import require_device
    from syno.measure.tvm.targets import is_here
    from syno.stages.operators import keep_operator, network_of

    chosen = KINDS[kind]
    if experiment.workload is None:
        what = "measure" if chosen.has_compiler else "train"
        raise SpecError(f'experiment "{experiment.name}" has no workload, so there is no network to {what}')
    experiment.use_code()
    network = network_of(experiment, name)
    if not chosen.of_original:
        if network.is_original:
            raise SpecError("the original network is measured beside each operator, in turns; give an operator or a baseline")
        if not is_here(device):
            raise SpecError(f'"{device}" is not a device of this machine; {chosen.subject} is measured on cpu or cuda')
        require_device(device)
    keep_operator(experiment, network)
    file = output or chosen.file(experiment, network.key, compiler, device)
    record: MeasurementRecord = resolve_name(chosen.make)(experiment, network, compiler, device, file)
    record.write(file)
    return record
