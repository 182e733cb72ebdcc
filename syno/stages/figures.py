"""Figures of an experiment, the paper's figures, and the report page, from the table of measurements and the frozen trials."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from syno.artifact import RECORD
from syno.artifact.imported import MADE_BY, ImportRecord
from syno.base.errors import SpecError
from syno.base.files import write_whole
from syno.config import Experiment
from syno.results.table import comparable, read_losses, read_measurements, write_table
from syno.stages import ablations, results
from syno.stages.places import FORMATS, HEADLINES, REPORT
from syno.stages.store import OperatorStore

if TYPE_CHECKING:
    import pandas

    from syno.report.paper.catalogue import Numbers

SEARCH_FIGURES, TRAINING_FIGURES, LATENCY_FIGURES = ("reward",), ("score-flops",), ("score-latency", "speedup")


def names(experiment: Experiment) -> tuple[str, ...]:
    """Return the names of an experiment's figures; one of published data has the paper's."""
    return (*_own_names(experiment), *ablations.figure_names(experiment))


def _own_names(experiment: Experiment) -> tuple[str, ...]:
    if experiment.artifact is not None:
        from syno.report.paper.catalogue import PAPER_FIGURES

        return tuple(PAPER_FIGURES)
    if experiment.workload is None:
        return SEARCH_FIGURES
    measured, searched = experiment.tune.compilers, experiment.searches
    return (*(LATENCY_FIGURES if measured else ()), *TRAINING_FIGURES, *(SEARCH_FIGURES if searched else ()))


def draw(experiment: Experiment, name: str) -> list[Path]:
    """Draw a figure in all formats; return the files. SpecError if this experiment has no such figure, or no results yet."""
    from syno.report.figures import save
    from syno.report.result_figures import FIGURES

    if name not in names(experiment):
        raise SpecError(f'experiment "{experiment.name}" has no figure "{name}"; it has: {", ".join(names(experiment))}')
    if name in ablations.figure_names(experiment):
        return ablations.draw_ablation(experiment.folder, name, FORMATS)
    if experiment.artifact is not None:
        return draw_paper(experiment.folder, [name])
    figure = FIGURES[name].draw(results.read(experiment))
    return save(figure, experiment.folder / "figures" / name, FORMATS)


def draw_paper(folder: Path, chosen: Iterable[str] = ()) -> list[Path]:
    """Draw figures of the paper from the measurements in a folder of results, and write the tables that they show.

    Args:
        folder: The folder of results: of an import, or of an experiment. What is not in its measurements is left out.
        chosen: Names in `PAPER_FIGURES`; all of them, if there is none.

    Returns the files. Raises SpecError if there are no measurements, UnknownNameError for an unknown figure.
    """
    from syno.report.figures import save
    from syno.report.paper.catalogue import PAPER_FIGURES

    figures = {name: PAPER_FIGURES[name] for name in chosen or PAPER_FIGURES}
    numbers = read_numbers(folder)
    files: list[Path] = []
    for name, figure in figures.items():
        tables = figure.tables(numbers)
        for table, rows in tables.items():
            files += write_table(rows, folder, table)
        files += save(figure.draw(numbers, tables, figure.notes(numbers)), folder / "figures" / name, FORMATS)
    return files


def write_headlines(folder: Path) -> pandas.DataFrame:
    """Write the headline numbers beside the paper's as a table, and return it. SpecError if there are no measurements."""
    from syno.report.paper.headlines import headline_table, headlines

    table = headline_table(headlines(read_numbers(folder).rows))
    write_table(table, folder, HEADLINES)
    return table


def read_numbers(folder: Path) -> Numbers:
    """Return the input of the paper's figures in a folder of results. SpecError if there are no measurements."""
    from syno.report.paper.catalogue import Numbers

    return Numbers(comparable(read_measurements(folder, MADE_BY)), read_losses(folder, MADE_BY))


def write_report(experiment: Experiment, output: Path | None = None) -> Path:
    """Write the page of an experiment; return its file. Figures are drawn into it anew. SpecError if there are no results yet.

    An experiment of published data has the page of its import.
    """
    if experiment.artifact is not None:
        return write_page(experiment.folder, output)
    from syno.report.page import page
    from syno.report.result_figures import pictures

    found = results.read(experiment)
    file = output or experiment.folder / REPORT
    write_whole(
        file, page(found, pictures(found, _own_names(experiment)), ablations.page_parts(experiment.folder)), durable=False
    )
    return file


def write_page(folder: Path, output: Path | None = None) -> Path:
    """Write the page of an import: figures, headline numbers, operators; return its file. SpecError if there is no import."""
    from syno.artifact.page import paper_page

    numbers, record, store = read_numbers(folder), ImportRecord.read(folder / RECORD), OperatorStore(folder)
    operators = {one.name: store.get(one.key) for one in record.operators if one.key is not None}
    notes = [f"read from {record.artifact}", *(f"missing or damaged: {problem}" for problem in record.problems)]
    file = output or folder / REPORT
    write_whole(file, paper_page(numbers, operators, notes, ablations.page_parts(folder)), durable=False)
    return file
