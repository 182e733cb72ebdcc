"""Baselines: the network as it is and with known operators, trained with every seed of the experiment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from syno.base.errors import UnknownNameError, suggestion
from syno.base.names import ORIGINAL
from syno.config import Experiment
from syno.stages.places import training_file
from syno.stages.train import train

if TYPE_CHECKING:
    from syno.train.training_record import TrainingRecord


def train_baselines(
    experiment: Experiment, names: Sequence[str] = (), seeds: Sequence[int] | None = None
) -> Iterator[tuple[TrainingRecord, bool]]:
    """Train baselines one after another; gives the record of each, and whether it is new. One that is there stays.

    Args:
        experiment: says how, and which baselines there are.
        names: "original" and baselines; all of them if not given.
        seeds: those of `train: seeds` if not given.

    Raises UnknownNameError if one of the names is neither, before anything is trained.
    """
    from syno.train.training_record import TrainingRecord

    known = (ORIGINAL, *experiment.baselines)
    for name in names:
        if name not in known:
            raise UnknownNameError(
                f'experiment "{experiment.name}" has no baseline "{name}"; there are: {", ".join(known)}.'
                f"{suggestion(name, known)} Others are added under train: baselines"
            )
    for name in names or known:
        for seed in experiment.train.seeds if seeds is None else seeds:
            file = training_file(experiment, name, seed)
            is_new = not file.exists()
            yield train(experiment, name, seed) if is_new else TrainingRecord.read(file), is_new
