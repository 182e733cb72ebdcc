"""The kinds of experiments: which have a search, which train, and which only hold the data or the results of others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from syno.base.errors import SpecError
from syno.config.stages import JoinSettings, SelectSettings
from syno.search.reward import Reward

SHAPES = "shapes"  # the data set without pictures
COSTS = {"original_flops", "original_parameters"}  # metrics
COUNTED = ("flops", "parameters", "memory_bytes")  # without a training


def no_search(name: str, select: SelectSettings, artifact: Path | None, join: JoinSettings | None) -> str | None:
    """Return why an experiment has no search, as a sentence; None if it has one."""
    if artifact is not None:
        return f'experiment "{name}" is of published data (artifact), so it has no search and no trials'
    if join is not None:
        return f'experiment "{name}" is of joined results (join), so it has no search and no trials'
    if select.operators:
        origin = "named operators (select: operators)"
    elif select.source is not None:
        origin = f"the operators that {select.source} selected (select: source)"
    else:
        return None
    return f'experiment "{name}" takes {origin}, so it has no search and no trials; begin with `syno select`'


def check_alone(name: str, kind: str, given: list[str], join: JoinSettings | None) -> None:
    """Raise SpecError if an experiment of published data, or of joined results, has options of a search or a training.

    An experiment that is alone in its file cannot join all others, either.

    Args:
        name: the experiment's name.
        kind: "artifact" or "join".
        given: the options that it has but must not have.
        join: what it joins.
    """
    if given and kind == "join":
        raise SpecError(f"join: an experiment of joined results has no {given[0]}; give it to an experiment that is joined")
    if given:
        raise SpecError(
            f"artifact: an experiment of published data has no {given[0]}; leave it out, or give it to another experiment "
            f"in the same file, which takes the operators: select: {{source: {name}}}"
        )
    if join is not None and join.of == "all":
        raise SpecError("join: of: all means the other experiments in the same file, and there is none; give folders")


def check_compares_with_nothing(reward: Reward) -> None:
    """Raise SpecError if a reward needs the cost of the original model, which is not known."""
    if not COSTS.isdisjoint(reward.needs):
        raise SpecError(
            f'the reward "{reward.name}" compares with the original model: give its cost, as in '
            "original: {flops: 2.3e+11, parameters: 1.1e+7}"
        )


def check_counts(reward: Reward) -> None:
    """Raise SpecError if a reward needs more than the costs that are counted without a training."""
    counted = dict.fromkeys((*COUNTED, *COSTS), 1.0)
    if missing := [name for name in reward.needed(counted) if name not in counted]:
        raise SpecError(
            f'evaluate: cost measures {", ".join(counted)}, and the reward "{reward.name}" needs {", ".join(missing)}: give '
            "another reward, such as reward: {name: savings}, or evaluate: training"
        )


def check_has_data(data: str, trains: bool) -> None:
    """Raise SpecError if an experiment trains on the data set that has only shapes."""
    if data == SHAPES and trains:
        raise SpecError(
            'workload: data: "shapes" has no pictures to train on, only their shape; give select: source or operators, and '
            "train: {seeds: []}, to measure latencies, or another data set"
        )


def check_without_workload(searches: bool, select: SelectSettings, spec: object, needing: Mapping[str, object]) -> None:
    """Raise SpecError if an experiment without a workload lacks a spec, or has something that needs a workload.

    Args:
        searches: whether it has a search.
        select: its selection.
        spec: its spec, as it is given.
        needing: what needs a workload, by the name of the option; what is not given is false.
    """
    give = "give the network and the data set, as in workload: {model: resnet8}"
    if not searches:
        option = "source" if select.source is not None else "operators"
        raise SpecError(f"select: {option} needs a workload: {give}")
    if not spec:
        raise SpecError("spec: is missing; give a preset's name, a spec file or its options, or a workload")
    for name, given in needing.items():
        if given:
            raise SpecError(f"{name} needs a workload: {give}")
