"""Where an experiment's files are, and which operators it trains and measures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from syno.base.errors import SpecError, UnknownNameError
from syno.base.files import ORIGINAL
from syno.config import Experiment
from syno.ir.graph import PGraph
from syno.measure.compilers import name_in_files
from syno.stages import select
from syno.stages.store import OperatorStore, find_stored
from syno.stages.store_repair import find_lost

if TYPE_CHECKING:
    from syno.measure.tuning_record import TuningRecord
    from syno.train.training_record import TrainingRecord


class Entry(NamedTuple):
    """Something that is trained and measured.

    Attributes:
        key: in the names of its files: "original", a baseline's name, or the key of an operator in the store.
        role: "original", "baseline" or "found".
    """

    key: str
    role: str


def entries(experiment: Experiment) -> list[Entry]:
    """The original, the baselines, and the operators that were selected.

    Raises SpecError if nothing was selected yet, or the operator store lacks one of them.
    """
    selected = select.read_selected(experiment.folder / select.FILE)
    select.check_in_store(selected, experiment.folder)
    return [
        Entry(ORIGINAL, "original"),
        *(Entry(name, "baseline") for name in experiment.baselines),
        *(Entry(one.key, "found") for one in selected),
    ]


def operator_of(experiment: Experiment, given: str) -> PGraph | None:
    """The operator that a key, or whatever people write, means; None for the original network."""
    if given == ORIGINAL:
        return None
    if given in experiment.baselines:
        return experiment.baselines[given].find()
    try:
        return find_stored(given, experiment.folder)
    except UnknownNameError as error:
        if (lost := find_lost(experiment, given)) is not None:
            return lost
        hint = "; `syno freeze` writes the operators of a study there" if experiment.searches else ""
        raise UnknownNameError(f"{error}{hint}") from None


def key_of(experiment: Experiment, given: str) -> str:
    """The key of what people write. It is in the store then."""
    if given in (ORIGINAL, *experiment.baselines):
        return given
    operator = operator_of(experiment, given)
    assert operator is not None  # it is not the original
    return OperatorStore(experiment.folder).add(operator)


def check_belongs(record: TrainingRecord | TuningRecord, entry: Entry, file: Path) -> None:
    """Raise SpecError if the record in an entry's file is of something else, as after a copy into the wrong folder."""
    match entry.role:
        case "original":
            belongs = record.operator_id is None
        case "baseline":
            belongs = record.operator_id is not None
        case _:
            belongs = record.operator_id is not None and record.operator_id.startswith(entry.key)
    if not belongs:
        raise SpecError(
            f"{file} is the record of {record.name} ({record.operator_id or 'the network as it is'}), not of {entry.key}; "
            f"delete it and {record.again} again"
        )


def worker_file(experiment: Experiment, number: int) -> Path:
    """Of the record of a worker."""
    return experiment.folder / "search" / f"worker{number}.json"


def training_file(experiment: Experiment, key: str, seed: int) -> Path:
    """Of one training."""
    return experiment.folder / "train" / key / f"seed{seed}.json"


def tuning_file(experiment: Experiment, key: str, compiler: str, device: str) -> Path:
    """Of one measurement."""
    return experiment.folder / "tune" / key / f"{name_in_files(compiler)}-{_in_a_name(device)}.json"


def trials_folder(experiment: Experiment, device: str) -> Path:
    """Where TVM's trials on a device are kept: whatever is tuned there uses them."""
    return experiment.folder / "tvm" / _in_a_name(device)


def compiler_in_files(experiment: Experiment, part: str) -> str:
    """Return the compiler whose name in files this is."""
    return next(compiler for compiler in experiment.tune.compilers if name_in_files(compiler) == part)


def device_named(experiment: Experiment, part: str) -> str:
    """The device whose name in files this is."""
    return next(device for device in experiment.tune.devices if _in_a_name(device) == part)


def _in_a_name(device: str) -> str:
    """Of a device, without a dash, so that in COMPILER-DEVICE the last dash parts the two. No two devices have the same."""
    return device.replace(":", "").replace("-", ".")
