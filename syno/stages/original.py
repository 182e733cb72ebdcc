"""The original network in the training of a search: its score, with which a reward compares those of operators.

It is trained once for each study, before the first trial. The record is `search/original.json` in the folder of results. The
score is kept with the study, so that workers on other machines have it. Workers that share the folder wait for each other.
"""

from __future__ import annotations

import fcntl
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.errors import SpecError
from syno.base.gpu_leases import leased
from syno.base.progress import Progress
from syno.config import Experiment
from syno.results.majority import warning_of
from syno.search.relative_reward import compared_scores
from syno.stages.places import ORIGINAL_TRAINING

if TYPE_CHECKING:
    from syno.base.progress import Display
    from syno.search.study import Study
    from syno.train.training_record import TrainingRecord
    from syno.train.workload import Workload

KEY = "original"  # of the study's attribute


def original_scores(experiment: Experiment, study: Study, display: Display | None = None) -> dict[str, float]:
    """Return the original's score and that of chance, as metrics by name; trains the original if no worker has done so.

    None are needed, and {} is returned, if nothing is trained in the search, or neither reward nor goal compares scores. An
    interrupted training is resumed.

    Raises:
        SpecError: the original is not better than chance after this training.
        TrainingError: the device's memory does not suffice.
    """
    loses = experiment.goal is not None and experiment.goal.lose_at_most is not None
    if experiment.evaluation != "training" or not (loses or experiment.make_reward().compares_scores):
        return {}
    from syno.data.contract import majority_of  # imports torch
    from syno.train.workload import Workload

    network = experiment.network
    workload = Workload(network.settings.model_copy(update={"milestones": {}}), network.data)
    of = {"workload": workload.settings.model_dump(mode="json"), "data": network.data.hash}
    kept = study.kept(KEY)
    if kept is None or any(kept[name] != value for name, value in of.items()):
        record = _record(experiment, workload, display)
        study.keep(KEY, {**of, "metric": record.metric, "score": record.score})
        kept = study.kept(KEY)  # another worker may have been later
        assert kept is not None
    metric, score, most_frequent = str(kept["metric"]), float(kept["score"]), majority_of(network.data)
    if metric == "accuracy" and most_frequent is not None and (warning := warning_of(*most_frequent, score)):
        warnings.warn(warning, stacklevel=2)
    return compared_scores(metric, score, network.data.classes)


def _record(experiment: Experiment, workload: Workload, display: Display | None) -> TrainingRecord:
    """Return the record of the training of the original; it is made unless a worker that shares the folder has made it."""
    from syno.train.training_record import TrainingRecord

    file, seed, settings = experiment.folder / ORIGINAL_TRAINING, workload.settings.seed, workload.settings.training
    rounds = settings.epochs if settings.round_steps is None else -(-(settings.most_steps or 0) // settings.round_steps)

    def show(number: int, score: float) -> None:
        if display is not None:
            display.show(Progress(f"{experiment.name}, the original network", number, max(rounds, number), number))

    with _alone(file.with_suffix(".lock")):
        with suppress(SpecError):
            found = TrainingRecord.read(file)
            if found.workload == workload.settings and found.data_hash == workload.data.hash:
                return found
        with leased(settings.device, "training.device"), display or nullcontext():
            record = TrainingRecord.make(workload, None, seed, file.with_suffix(".checkpoint"), report=show)
        record.write(file)
        return record


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Wait until no other process is in such a block with this file. File systems without locks let all in."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as opened:
        with suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
