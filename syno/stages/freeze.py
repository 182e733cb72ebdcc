"""The frozen table: the trials of a study as they are when the search has ended, and the operators in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.errors import SpecError
from syno.config import Experiment
from syno.ir.text import parse_stored
from syno.results.parquet import read_parquet, write_parquet
from syno.stages.store import OperatorStore

if TYPE_CHECKING:
    import pandas

TABLE = "trials.parquet"
COLUMNS = ("number", "outcome", "reward", "operator")  # that everything needs


def freeze(experiment: Experiment, output: Path | None = None) -> pandas.DataFrame:
    """Write all trials to `trials.parquet`, and every operator that was evaluated to the operator store; returns the table.

    Raises SpecError if there is no study, or it has no trial.
    """
    table = study_table(experiment)
    if table.empty:
        raise SpecError(f'study "{experiment.name}" in {experiment.storage} has no trial; run `syno search` first')
    store = OperatorStore(experiment.folder)
    complete = table[table["outcome"] == "complete"]
    for number, text in zip(complete["number"], complete["operator"], strict=True):
        store.add(parse_stored(text, f"operator of trial {number}", f"{experiment.name}_{number}"))
    write_parquet(table, output or experiment.folder / TABLE)
    return table


def study_table(experiment: Experiment) -> pandas.DataFrame:
    """The trials as they are stored now; `syno.search.storage.records.table` says which columns there are."""
    from syno.search.storage.records import table
    from syno.search.storage.store import read_trials

    return table(read_trials(experiment.storage, experiment.name))


def read_frozen(experiment: Experiment) -> pandas.DataFrame:
    """The frozen table. SpecError if it is not there, or holds something else."""
    return read_parquet(experiment.folder / TABLE, "syno freeze", COLUMNS)
