"""The sources of plots: a study, a table of trials or latencies, or the folder of an experiment's results."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import pandas

from syno.base.errors import SpecError
from syno.notebook.study import Study
from syno.report.results import TRIAL_COLUMNS, complete
from syno.results import FOLDER, MEASUREMENTS
from syno.stages.places import FROZEN
from syno.stages.study import read_frozen, study_table
from syno.stages.tables import Tables, read_layers, read_tables
from syno.stages.top import find_experiment

Source: TypeAlias = Study | pandas.DataFrame | str | Path


def trials_of(source: Source) -> pandas.DataFrame:
    """Return the trials of a study, of a table of trials, or of an experiment's results, numbered from 0.

    Raises SpecError if there is no trial, or the table lacks a column.
    """
    if isinstance(source, Study):
        found: pandas.DataFrame = source.trials
    elif isinstance(source, pandas.DataFrame):
        found = source
    else:
        experiment = find_experiment(str(source))
        is_frozen = (experiment.folder / FROZEN).is_file()
        found = read_frozen(experiment) if is_frozen else study_table(experiment)
    if found.empty:
        raise SpecError("there is no trial to plot; run the study first")
    return complete(pandas.DataFrame(found), TRIAL_COLUMNS, "trials")


def tables_of(source: Source) -> Tables | None:
    """Return the tables of scores and latencies of an experiment's results; None for other sources, and if there are none."""
    if isinstance(source, Study | pandas.DataFrame):
        return None
    experiment = find_experiment(str(source))
    return read_tables(experiment) if (experiment.folder / FOLDER / f"{MEASUREMENTS}.parquet").is_file() else None


def layers_of(source: pandas.DataFrame | str | Path) -> pandas.DataFrame:
    """Return the latencies of single layers of an experiment's results, or the table that is given."""
    return source if isinstance(source, pandas.DataFrame) else read_layers(find_experiment(str(source)))


def one_target(rows: pandas.DataFrame, device: str | None, compiler: str | None) -> pandas.DataFrame:
    """Return the rows of one device and compiler. Raises SpecError if there is none, or there are several to choose from."""
    chosen = rows
    for name, given in (("device", device), ("compiler", compiler)):
        chosen = chosen if given is None else chosen[chosen[name] == given]
    found = list(dict.fromkeys(zip(chosen["device"], chosen["compiler"], strict=True)))
    if len(found) == 1:
        return chosen
    there = dict.fromkeys(zip(rows["device"], rows["compiler"], strict=True))
    shown = ", ".join(f"{one} with {other}" for one, other in there) or "none"
    asked = "several" if found else "none of these"
    raise SpecError(f"there are latencies of {asked} to choose from: {shown}; give device and compiler")
