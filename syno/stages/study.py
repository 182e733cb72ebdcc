"""The trials of an experiment's study as a table, which is written (frozen) when the search has ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.errors import SpecError
from syno.config import Experiment
from syno.ir.text import parse_stored
from syno.run.goal import nearest_screened
from syno.run.parquet import read_parquet, write_parquet
from syno.run.table import trials_in
from syno.run.values import Trial
from syno.stages.places import FROZEN
from syno.stages.store import OperatorStore

if TYPE_CHECKING:
    import pandas

    from syno.ir.graph import PGraph

COLUMNS = ("number", "outcome", "reward", "operator")  # that every table of trials has
NEAREST = 6  # operators that are shown where none meets the goal


def study_table(experiment: Experiment) -> pandas.DataFrame:
    """Return the study's trials stored so far; `syno.search.storage.records.table` describes the columns.

    Raises SpecError if there is no study, or it has no trial although its space may hold operators.
    """
    import pandas

    from syno.search.storage.records import table
    from syno.search.storage.store import read_study

    trials, is_exhausted = read_study(experiment.storage, experiment.name)
    if trials:
        return table(trials)
    if is_exhausted:
        return pandas.DataFrame(columns=[*COLUMNS, "message", "ended"])
    raise SpecError(f'study "{experiment.name}" in {experiment.storage} has no trial; run `syno search` first')


def freeze(experiment: Experiment, output: Path | None = None) -> pandas.DataFrame:
    """Write all trials to `trials.parquet`, and operators to the operator store; returns the table.

    The operators are those of complete trials; without any, the screened operators nearest to the goal (`shown_trials`).

    Raises SpecError if there is no study, or it has no trial although its space may hold operators.
    """
    table = study_table(experiment)
    store = OperatorStore(experiment.folder)
    for operator in operators_of(experiment, shown_trials(experiment, trials_in(table))):
        store.add(operator)
    write_parquet(table, output or experiment.folder / FROZEN)
    return table


def shown_trials(experiment: Experiment, trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials whose operators `freeze` stores: complete trials, or else the screened trials nearest to the goal."""
    complete = [trial for trial in trials if trial.outcome == "complete"]
    if complete or experiment.goal is None:
        return complete
    return [one.trial for one in nearest_screened(experiment.goal, trials)[:NEAREST]]


def operators_of(experiment: Experiment, trials: Iterable[Trial]) -> list[PGraph]:
    """Return the operators of trials, with the names that the store gives them."""
    return [
        parse_stored(trial.operator, f"operator of trial {trial.number}", f"{experiment.name}_{trial.number}")
        for trial in trials
    ]


def read_frozen(experiment: Experiment) -> pandas.DataFrame:
    """Return the frozen table of an experiment. Raises SpecError if it does not exist, or holds something else."""
    return read_trials_table(experiment.folder / FROZEN)


def read_trials_table(file: Path) -> pandas.DataFrame:
    """Return the frozen table in a file. Raises SpecError if it does not exist, or holds something else."""
    return read_parquet(file, "syno freeze", COLUMNS)
