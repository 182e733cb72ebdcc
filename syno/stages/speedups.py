"""Speedups of an experiment's network with operators: measured in turns with the original, and stored for all studies.

Speedups of selected operators are measured again for the verdicts, since the highest of many measurements is biased upwards:
of 80 equal operators, the 95 % interval of the seemingly fastest contains its speedup in only 75 % of all cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.errors import SpecError
from syno.base.files import ORIGINAL, is_folder
from syno.base.gpu_leases import leased
from syno.base.record import Record
from syno.config import Experiment
from syno.measure.speedup_record import SpeedupRecord
from syno.model.networks import Network
from syno.stages.measure import network_to_measure, shown
from syno.stages.operators import network_of
from syno.stages.places import SELECTED, speedups_file, trials_folder
from syno.stages.provenance import check
from syno.stages.selection import read_selected

if TYPE_CHECKING:
    from syno.measure.breakdown_record import BreakdownRecord
    from syno.measure.speedups import Choice, Speedups

STORE = Path("results/latencies")  # of all experiments
AGAIN = "syno tune selected"


def screening_speedups(experiment: Experiment) -> Speedups:
    """Return the speedups by which an experiment with a goal screens operators and chooses mixtures.

    They are over the original with the goal's compiler. With `fastest`, each is a lower bound of the speedup in the verdict,
    since a network may be faster with another compiler than in the search.
    """
    goal = experiment.goal
    assert goal is not None
    original = None if goal.screening_compiler == goal.compiler else goal.compiler
    return speedups_of(experiment, goal.screening_compiler, goal.device, original_compiler=original)


def speedups_of(
    experiment: Experiment,
    compiler: str,
    device: str,
    *,
    measured: Choice = "auto",
    store: Path | None = None,
    original_compiler: str | None = None,
) -> Speedups:
    """Return the store of speedups of an experiment's network; its method `of` measures an operator by `tune: latency`.

    Args:
        experiment: the experiment, with a workload.
        compiler, device: names, as in `tune: compilers` and `tune: devices`.
        measured: see `syno.measure.speedups.Speedups`.
        store: the folder of records; by default `results/latencies`, which all experiments share.
        original_compiler: the compiler of the original network, if it is another one.

    Raises as `syno.stages.measurements.measure`.
    """
    from syno.measure.compilers import own_settings
    from syno.measure.speedups import Speedups

    network, settings = network_to_measure(experiment, ORIGINAL, compiler, device), experiment.tune
    return Speedups(
        network,
        compiler,
        device,
        settings.latency,
        measured=measured,
        store=store or STORE,
        time_limit_s=settings.time_limit_seconds,
        memory_limit_mib=settings.memory_limit_mib,
        folder=trials_folder(experiment, device),
        remote=settings.device(device, compiler),
        original_compiler=original_compiler,
        **own_settings(settings),
    )


def measured_speedups(
    experiment: Experiment, operators: Sequence[str | Network], speedups: Speedups
) -> Iterator[tuple[SpeedupRecord, bool]]:
    """Yield the record of each operator, and whether it was stored. All names are resolved before anything is measured.

    Args:
        experiment: the experiment whose operators are named.
        operators: names, ids, files or baselines, or folders of operators' files.
        speedups: measures and stores speedups.

    Raises:
        UnknownNameError: there is no such operator. SpecError: it is the original.
        DeviceError: a remote device does not answer.
    """
    found = []
    for name in (one for operator in operators for one in in_folder(operator)):
        operator = network_of(experiment, name).replacement
        if operator is None:
            raise SpecError("the original network is measured beside each operator, in turns; give an operator or a baseline")
        found.append(operator)
    for operator in found:
        known = speedups.known(operator)
        if known is not None:
            yield known, True
            continue
        with shown(f"speedup of {operator.name}, {speedups.compiler} on {speedups.device}") as progress:
            record = speedups.of(operator, progress)
        yield record, False


def in_folder(name: str | Network) -> Sequence[str | Network]:
    """Return the operator files in the folder `name`, sorted by name; [name] if it is no folder."""
    if isinstance(name, Network):
        return [name]
    files = sorted(map(str, Path(name).glob("*.txt"))) if is_folder(Path(name)) else []
    return files or [name]


def breakdown(experiment: Experiment, network: Network, compiler: str, device: str, file: Path) -> BreakdownRecord:
    """Measure the replaced layers as they are and with an operator, in turns, and the operator's stages.

    The times of layers are stored in `results/latencies`, so a call that was interrupted after them continues with the
    stages. Arguments and exceptions are as in `syno.stages.measurements.measure`, which calls this function.
    """
    from syno.measure.breakdown_record import BreakdownRecord

    with speedups_of(experiment, compiler, device, measured="layers") as speedups:
        ((speedup, _),) = measured_speedups(experiment, [network], speedups)
        operator = network.replacement
        assert operator is not None  # it is not the original
        with leased(device):
            return BreakdownRecord.make(operator, speedup, speedups)


class SelectedSpeedups(Record):
    """The speedups of the selected operators, measured after the selection.

    Attributes:
        speedups: the records by the operator's key.
    """

    kind_of_record = "record of the speedups of selected operators"
    again = f"run `{AGAIN}`"

    speedups: dict[str, SpeedupRecord]


def measure_selected(experiment: Experiment, output: Path | None = None) -> SelectedSpeedups:
    """Measure the speedups of the selected operators by the goal's compiler on its device, and write a record of all of them.

    Measurements of the search are not reused. Each new measurement is stored in a folder beside the record, so that an
    interrupted job continues with the next operator.

    Args:
        experiment: the experiment, with a goal for which latencies are measured.
        output: file of the record; by default in the folder of results.

    Raises:
        SpecError: there is no such goal, or no selection yet.
        DeviceError: the original itself cannot be measured.
    """
    if experiment.goal_pair is None:
        raise SpecError(
            f'experiment "{experiment.name}" has no goal for which latencies are measured; `syno tune speedup` measures any '
            "operator"
        )
    keys = [one.key for one in read_selected(experiment.folder / SELECTED)]
    file = speedups_file(experiment, *experiment.goal_pair)
    with speedups_of(experiment, *experiment.goal_pair, store=file.with_suffix("")) as speedups:
        found = {key: record for key, (record, _) in zip(keys, measured_speedups(experiment, keys, speedups), strict=True)}
    record = SelectedSpeedups(speedups=found)
    record.write(output or file)
    return record


def selected_speedups(experiment: Experiment) -> dict[str, SpeedupRecord]:
    """Return the stored measurements of `measure_selected`, by the operator's key; {} without a record.

    Raises SpecError if the record is damaged, or of another network or other settings.
    """
    if experiment.goal_pair is None or not (file := speedups_file(experiment, *experiment.goal_pair)).is_file():
        return {}
    found = SelectedSpeedups.read(file).speedups
    for key, record in found.items():
        check(file, record, experiment, Network(key), AGAIN)
    return found
