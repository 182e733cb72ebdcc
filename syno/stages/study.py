"""The study of an experiment: opened with its settings, and frozen as a table when the search has ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.errors import SpecError
from syno.config import Experiment
from syno.config.stopping import rounds_of
from syno.ir.text import parse_stored
from syno.results.parquet import read_parquet, write_parquet
from syno.space.space import Space
from syno.stages.places import FROZEN
from syno.stages.store import OperatorStore

if TYPE_CHECKING:
    import pandas

    from syno.search.study import Study

COLUMNS = ("number", "outcome", "reward", "operator")  # that every table of trials has


def open_study(experiment: Experiment, space: Space) -> Study:
    """Return the study, created if it does not exist. Raises SpecError if it exists with other settings."""
    from optuna import logging  # slow to import

    from syno.search.evaluation import make_pruner
    from syno.search.study import Study

    logging.set_verbosity(logging.WARNING)
    settings, spec, workload = experiment.study, experiment.operator_spec, experiment.workload
    more_settings = {"spec": spec.model_dump(mode="json", exclude={"name"})}
    if workload is not None:
        more_settings["workload"] = workload.model_dump(mode="json")
    if experiment.goal is not None and experiment.goal.measures:
        more_settings["timing"] = experiment.tune.latency.model_dump(mode="json")
    return Study(
        space,
        space_id=spec.id,
        more_settings=more_settings,
        name=experiment.name,
        storage=experiment.storage,
        policy=str(experiment.policy.get("name", "mcts")),
        policy_settings=experiment.policy_settings,
        seed=settings.seed,
        reward=experiment.make_reward(),
        warm_start=[choice.find() for choice in experiment.warm_start],
        pruner=None if settings.pruner is None else make_pruner(settings.pruner),
        stopping=settings.stopping,
        rounds=rounds_of(workload, experiment.evaluation),
        goal=experiment.goal,
        most_attempts=settings.most_attempts,
        heartbeat_seconds=settings.heartbeat_seconds,
        grace_seconds=settings.grace_seconds,
    )


def study_table(experiment: Experiment) -> pandas.DataFrame:
    """Return the trials as they are stored now; `syno.search.storage.records.table` describes the columns."""
    from syno.search.storage.records import table
    from syno.search.storage.store import read_trials

    return table(read_trials(experiment.storage, experiment.name))


def freeze(experiment: Experiment, output: Path | None = None) -> pandas.DataFrame:
    """Write all trials to `trials.parquet` and every evaluated operator to the operator store; returns the table.

    Raises SpecError if there is no study, or it has no trial.
    """
    table = study_table(experiment)
    if table.empty:
        raise SpecError(f'study "{experiment.name}" in {experiment.storage} has no trial; run `syno search` first')
    store = OperatorStore(experiment.folder)
    complete = table[table["outcome"] == "complete"]
    for number, text in zip(complete["number"], complete["operator"], strict=True):
        store.add(parse_stored(text, f"operator of trial {number}", f"{experiment.name}_{number}"))
    write_parquet(table, output or experiment.folder / FROZEN)
    return table


def read_frozen(experiment: Experiment) -> pandas.DataFrame:
    """Return the frozen table of an experiment. Raises SpecError if it does not exist, or holds something else."""
    return read_trials_table(experiment.folder / FROZEN)


def read_trials_table(file: Path) -> pandas.DataFrame:
    """Return the frozen table in a file. Raises SpecError if it does not exist, or holds something else."""
    return read_parquet(file, "syno freeze", COLUMNS)
