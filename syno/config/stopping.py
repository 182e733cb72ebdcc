"""Checks of the settings that end trials early."""

from __future__ import annotations

from syno.base.errors import SpecError
from syno.base.registry import check_path, is_path
from syno.config.stages import StudySettings
from syno.train.settings import WorkloadSettings


def rounds_of(workload: WorkloadSettings | None, evaluation: str) -> int | None:
    """Return how often the evaluation of an operator reports: the epochs of its training; None if that is not known."""
    if workload is None or evaluation != "training" or workload.training.round_steps is not None:
        return None
    return workload.training.epochs


def check_stopping(study: StudySettings, rounds: int | None, *, runs: bool) -> None:
    """Raise SpecError if the pruner is wrong, or beside `stopping`, or if the steps of that do not fit the number of rounds.

    A pruner of a user's own is imported and made only if `runs`: if the experiment is about to run.
    """
    if study.pruner is not None:
        from syno.search.evaluation import make_pruner

        name = str(study.pruner.get("name", ""))
        if is_path(name) and not runs:
            check_path(name, "pruner")
        else:
            make_pruner(study.pruner)
    if study.stopping is None:
        return
    if study.pruner is not None:
        raise SpecError("study: pruner and stopping both end trials early; give one of them")
    study.stopping.rungs(rounds)
