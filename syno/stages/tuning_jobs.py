"""The jobs of measurements: each network, or its layers, by each compiler on each device that it reaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from syno.stages import places

if TYPE_CHECKING:
    from syno.config import Experiment

ONLY = "only"  # the value of `tune: layers` with which networks are not measured


def measured(experiment: Experiment, networks: Sequence[str]) -> list[str]:
    """Return the keys of those networks whose latency, or that of their layers, is measured."""
    return [key for key in networks if experiment.tune.baselines or key not in experiment.baselines]


def of_networks(experiment: Experiment, networks: Sequence[str]) -> list[dict[str, str]]:
    """Return the wildcards of each measurement of a whole network."""
    return [] if experiment.tune.layers == ONLY else _jobs(experiment, networks)


def of_layers(experiment: Experiment, networks: Sequence[str]) -> list[dict[str, str]]:
    """Return the wildcards of each measurement of a network's layers."""
    return _jobs(experiment, networks) if experiment.tune.layers else []


def _jobs(experiment: Experiment, networks: Sequence[str]) -> list[dict[str, str]]:
    from syno.measure.compilers import name_in_files

    return [
        {"key": key, "compiler": name_in_files(compiler), "device": places.in_a_name(device)}
        for compiler, device in (experiment.tune.pairs if experiment.workload is not None else ())
        for key in measured(experiment, networks)
    ]
