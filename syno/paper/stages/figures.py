"""The paper's figures, headline numbers and page, of an import of published data or of joined results."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.files import write_whole
from syno.config import AnyExperiment, Experiment
from syno.paper.ablations.parts import read_ablations
from syno.paper.artifact import RECORD
from syno.paper.artifact.imported import MADE_BY, ImportRecord
from syno.paper.joined import with_names, with_roles
from syno.paper.places import HEADLINES, JOINED
from syno.paper.stages import ablations
from syno.paper.stages.join import MADE_BY as JOINED_BY
from syno.paper.stages.join import JoinRecord, notes, operators_of
from syno.run.table import read_losses, read_measurements, write_table
from syno.stages.places import FORMATS, REPORT
from syno.stages.provenance import read_kept
from syno.stages.store import OperatorStore

if TYPE_CHECKING:
    import pandas

    from syno.paper.figures.catalogue import Numbers


def draw_paper(folder: Path, chosen: Iterable[str] = ()) -> list[Path]:
    """Draw figures of the paper from the measurements in a folder of results, and write the tables that they show.

    Args:
        folder: The folder of results of an import or of an experiment. Numbers missing in its measurements are left out.
        chosen: Names in `PAPER_FIGURES`; all figures if it is empty.

    Returns the files. Raises SpecError if there are no measurements, UnknownNameError for an unknown figure.
    """
    from syno.paper.figures.catalogue import PAPER_FIGURES
    from syno.report.figures import save

    figures = {name: PAPER_FIGURES[name] for name in chosen or PAPER_FIGURES}
    numbers = read_numbers(folder)
    devices = JoinRecord.read(folder / JOINED).left_out if (folder / JOINED).is_file() else ()
    files: list[Path] = []
    for name, figure in figures.items():
        tables = figure.tables(numbers)
        for table, rows in tables.items():
            files += write_table(rows, folder, table)
        files += save(figure.draw(numbers, tables, figure.notes(numbers, devices)), folder / "figures" / name, FORMATS)
    return files


def write_headlines(folder: Path) -> pandas.DataFrame:
    """Write the headline numbers beside the paper's as a table, and return it. SpecError if there are no measurements."""
    from syno.paper.figures.headlines import headline_table, headlines

    table = headline_table(headlines(*read_numbers(folder)))
    write_table(table, folder, HEADLINES)
    return table


def read_numbers(folder: Path) -> Numbers:
    """Return the input of the paper's figures in a folder of results. SpecError if there are no measurements."""
    from syno.paper.figures.catalogue import Numbers

    made_by = JOINED_BY if (folder / JOINED).is_file() else MADE_BY
    kept = read_kept(folder)
    rows = with_roles(read_measurements(folder, made_by), folder.name)
    rows = with_names(rows, kept.tune.stands_for if isinstance(kept, Experiment) else {})
    losses = read_losses(folder, made_by)
    named = losses.assign(experiment=_names(losses["experiment"], folder))
    return Numbers(rows, named, read_ablations(folder, made_by))


def _names(experiments: pandas.Series, folder: Path) -> list[str]:
    """Return the names of experiments, with the folder's in place of a missing one."""
    return [name if isinstance(name, str) else folder.name for name in experiments]


def write_page(folder: Path, output: Path | None = None) -> Path:
    """Write the page of an import: figures, headline numbers, operators; return its file. SpecError if there is no import."""
    from syno.paper.figures.page import paper_page

    numbers, record, store = read_numbers(folder), ImportRecord.read(folder / RECORD), OperatorStore(folder)
    operators = {one.name: store.get(one.key) for one in record.operators if one.key is not None}
    lines = [f"read from {record.artifact}", *(f"missing or damaged: {problem}" for problem in record.problems)]
    file = output or folder / REPORT
    write_whole(file, paper_page(numbers, operators, lines, ablations.page_parts(folder)), durable=False)
    return file


def write_joined_page(experiment: AnyExperiment, output: Path | None) -> Path:
    """Write the page of joined results: figures, headline numbers, operators, the joined experiments, missing results."""
    from syno.paper.figures.page import paper_page

    numbers, record = read_numbers(experiment.folder), JoinRecord.read(experiment.folder / JOINED)
    file = output or experiment.folder / REPORT
    write_whole(file, paper_page(numbers, operators_of(experiment, record), notes(record)), durable=False)
    return file
