"""The jobs of measurements: of networks and layers by each compiler on each device that it reaches, and of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from syno.base.files import ORIGINAL
from syno.stages import places
from syno.stages.networks import measured

if TYPE_CHECKING:
    from syno.config import Experiment

ONLY = "only"  # the value of `tune: layers` with which networks are not measured


def of_networks(experiment: Experiment, networks: Sequence[str]) -> list[dict[str, str]]:
    """Return the wildcards of each measurement of a whole network."""
    return [] if experiment.tune.layers == ONLY else _jobs(experiment, networks)


def of_layers(experiment: Experiment, networks: Sequence[str]) -> list[dict[str, str]]:
    """Return the wildcards of each measurement of a network's layers."""
    return _jobs(experiment, networks) if experiment.tune.layers else []


def of_breakdown(experiment: Experiment, networks: Sequence[str]) -> list[dict[str, str]]:
    """Return the wildcards of each measurement of where the time goes; the original is measured beside each other network."""
    from syno.measure.compilers import name_in_files

    has_any = experiment.tune.breakdown and experiment.workload is not None
    return [
        {"key": key, "compiler": name_in_files(compiler), "device": places.in_a_name(device)}
        for compiler, device in (breakdown_pairs(experiment) if has_any else ())
        for key in measured(experiment, networks)
        if key != ORIGINAL
    ]


def of_speedups(experiment: Experiment, networks: Sequence[str]) -> list[dict[str, str]]:
    """Return the wildcards of the measurement of the selected operators' speedups: for the goal's compiler on its device."""
    from syno.measure.compilers import name_in_files

    if experiment.goal_pair is None or experiment.workload is None:
        return []
    compiler, device = experiment.goal_pair
    return [{"compiler": name_in_files(compiler), "device": places.in_a_name(device)}]


def breakdown_pairs(experiment: Experiment) -> list[tuple[str, str]]:
    """Return the pairs (compiler, device) for which it is measured where the time goes: those of this machine."""
    from syno.measure.tvm.targets import is_here

    return [(compiler, device) for compiler, device in experiment.tune.pairs if is_here(device)]


def of_training(experiment: Experiment, networks: Sequence[str]) -> list[dict[str, str]]:
    """Return the wildcards of each measurement of the speed of training; the original is measured beside each other network."""
    from syno.measure.tvm.targets import is_here

    has_any = experiment.tune.training and experiment.workload is not None
    return [
        {"key": key, "device": places.in_a_name(device)}
        for device in filter(is_here, experiment.tune.devices if has_any else ())
        for key in measured(experiment, networks)
        if key != ORIGINAL
    ]


def _jobs(experiment: Experiment, networks: Sequence[str]) -> list[dict[str, str]]:
    from syno.measure.compilers import name_in_files

    if experiment.workload is None:
        return []
    found = [(key, *pair) for pair in experiment.tune.pairs for key in measured(experiment, networks)]
    found += [(ORIGINAL, *pair) for pair in experiment.tune.original_pairs if ORIGINAL in networks]
    return [
        {"key": key, "compiler": name_in_files(compiler), "device": places.in_a_name(device)} for key, compiler, device in found
    ]
