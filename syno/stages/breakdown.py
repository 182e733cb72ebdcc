"""Where the time of the network goes: a record for each operator, each compiler, and each device of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.base.errors import SpecError
from syno.base.gpu_leases import leased
from syno.config import Experiment
from syno.measure.tvm.targets import is_here
from syno.results.breakdown import breakdown_rows, breakdown_table
from syno.stages.operators import ComparedNetwork, check_belongs, key_of, operator_of
from syno.stages.own_records import check_speedup
from syno.stages.places import breakdown_file
from syno.stages.speedups import measured_speedups, speedups_of
from syno.stages.tuning_jobs import breakdown_pairs

if TYPE_CHECKING:
    import pandas

    from syno.measure.breakdown_record import BreakdownRecord

AGAIN = "syno tune breakdown"


def measure_breakdown(
    experiment: Experiment, given: str, compiler: str, device: str, output: Path | None = None
) -> BreakdownRecord:
    """Measure the replaced layers as they are and with an operator, in turns, and the operator's stages; write a record.

    The times of layers are kept in the store `results/latencies`, so a call that was interrupted after them goes on with the
    stages. A failure to compile or measure is a record, too, with the reason.

    Args:
        experiment: the experiment; `tune: latency` has the settings.
        given: a baseline, or an operator's id, name or file.
        compiler: a name, as in `tune: compilers`.
        device: a device of this machine, as in `tune: devices`.
        output: file of the record; by default in the folder of results.

    Raises:
        UnknownNameError: there is no such operator or compiler.
        SpecError: there is no workload, `given` is the original, or the device is another machine's.
        DeviceError: the original itself cannot be measured.
    """
    if not is_here(device):
        raise SpecError(f'"{device}" is not a device of this machine; where the time goes is measured on cpu or cuda')
    from syno.measure.breakdown_record import BreakdownRecord

    with speedups_of(experiment, compiler, device, measured="layers") as speedups:
        ((speedup, _),) = measured_speedups(experiment, [given], speedups)
        operator = operator_of(experiment, given)
        assert operator is not None  # it is not the original
        with leased(device):
            record = BreakdownRecord.make(operator, speedup, speedups)
    record.write(output or breakdown_file(experiment, key_of(experiment, given), compiler, device))
    return record


def breakdown_of(experiment: Experiment, networks: Sequence[ComparedNetwork]) -> pandas.DataFrame:
    """Return the parts of the time of these networks as a table (`syno.results.breakdown`), as far as there are records.

    Raises SpecError if a record is damaged, or of another network or other settings.
    """
    rows: list[dict[str, Any]] = []
    if not experiment.tune.breakdown or experiment.workload is None:
        return breakdown_table(rows)
    from syno.measure.breakdown_record import BreakdownRecord

    for network in networks:
        for compiler, device in breakdown_pairs(experiment):
            file = breakdown_file(experiment, network.key, compiler, device)
            if not file.is_file():
                continue
            record = BreakdownRecord.read(file)
            check_belongs(record, network, file)
            check_speedup(file, record.speedup, experiment, AGAIN)
            place = {**network._asdict(), "device": device, "compiler": compiler}
            rows += breakdown_rows(record, **place, source=file.relative_to(experiment.folder).as_posix())
    return breakdown_table(rows)
