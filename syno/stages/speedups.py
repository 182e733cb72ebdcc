"""Speedups of an experiment's network by operators: measured in turns with the original, and kept for all studies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.errors import SpecError
from syno.base.files import ORIGINAL, is_folder
from syno.config import Experiment
from syno.stages.operators import operator_of
from syno.stages.places import trials_folder
from syno.stages.tune import network_to_measure, shown

if TYPE_CHECKING:
    from syno.measure.speedup_record import SpeedupRecord
    from syno.measure.speedups import Choice, Speedups

STORE = Path("results/latencies")  # of all experiments


def speedups_of(
    experiment: Experiment, compiler: str, device: str, *, measured: Choice = "auto", store: Path | None = None
) -> Speedups:
    """Return the speedups of an experiment's network, whose `of` measures an operator; `tune: latency` has the settings.

    Args:
        experiment: has a workload.
        compiler, device: names, as in `tune: compilers` and `tune: devices`.
        measured: see `syno.measure.speedups.Speedups`.
        store: the folder of records; by default `results/latencies`, which all experiments share.

    Raises as `syno.stages.tune.tune`.
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
        **own_settings(settings),
    )


def measured_speedups(
    experiment: Experiment, operators: Sequence[str], speedups: Speedups
) -> Iterator[tuple[SpeedupRecord, bool]]:
    """Yield the record of each operator, and whether it was in the store. All are found before anything is measured.

    Args:
        experiment: its operators are found by name or id.
        operators: names, ids, files, baselines, or folders of operators' files.
        speedups: measures.

    Raises:
        UnknownNameError: there is no such operator. SpecError: it is the original.
        DeviceError: a remote device does not answer.
    """
    found = []
    for given in (one for text in operators for one in in_folder(text)):
        operator = operator_of(experiment, given)
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


def in_folder(given: str) -> list[str]:
    """Return the operators' files in a folder, by name; anything else as it is."""
    files = sorted(map(str, Path(given).glob("*.txt"))) if is_folder(Path(given)) else []
    return files or [given]
