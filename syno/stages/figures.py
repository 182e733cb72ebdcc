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
from syno.results.ablations import read_ablations
from syno.results.joined import with_roles
from syno.results.table import read_losses, read_measurements, write_table
from syno.stages import ablations, results
from syno.stages.join import MADE_BY as JOINED_BY
from syno.stages.join import JoinRecord, notes, operators_of
from syno.stages.places import FORMATS, HEADLINES, JOINED, REPORT
from syno.stages.store import OperatorStore
from syno.stages.tuning_jobs import ONLY

if TYPE_CHECKING:
    import pandas

    from syno.report.paper.catalogue import Numbers

SEARCH_FIGURES, TRAINING_FIGURES = ("reward", "search-time"), ("score-flops", "learning")
LATENCY_FIGURES = ("score-speedup", "score-latency", "speedup")
UNTRAINED_FIGURES = ("speedup",)  # of latencies alone
LAYER_FIGURES = ("layers",)
BREAKDOWN_FIGURES = ("breakdown",)
GOAL_FIGURES = ("score-speedup",)  # of the speedups that a search with a goal has measured


def names(experiment: Experiment) -> tuple[str, ...]:
    """Return the names of an experiment's figures; one of published data, or of joined results, has the paper's."""
    return (*_own_names(experiment), *ablations.figure_names(experiment))


def _own_names(experiment: Experiment) -> tuple[str, ...]:
    if _is_of_paper(experiment):
        from syno.report.paper.catalogue import PAPER_FIGURES

        return tuple(PAPER_FIGURES)
    if experiment.workload is None:
        return SEARCH_FIGURES
    trained, layers = experiment.train.seeds, experiment.tune.layers
    of_networks = LATENCY_FIGURES if trained else UNTRAINED_FIGURES
    of_latency = (*(of_networks if layers != ONLY else ()), *(LAYER_FIGURES if layers else ()))
    parts = BREAKDOWN_FIGURES if experiment.tune.breakdown else ()
    is_timed = experiment.goal is not None and experiment.goal.measures and trained
    return (
        *((*of_latency, *parts) if experiment.tune.compilers else GOAL_FIGURES if is_timed else ()),
        *(TRAINING_FIGURES if trained else ()),
        *(SEARCH_FIGURES if experiment.searches else ()),
    )


def _is_of_paper(experiment: Experiment) -> bool:
    """Return whether an experiment has the paper's figures, headline numbers and page."""
    return experiment.artifact is not None or experiment.join is not None


def draw(experiment: Experiment, name: str) -> list[Path]:
    """Draw a figure in all formats; return the files. SpecError if this experiment has no such figure, or no results yet."""
    from syno.report.figures import save
    from syno.report.result_figures import FIGURES

    if name not in names(experiment):
        raise SpecError(f'experiment "{experiment.name}" has no figure "{name}"; it has: {", ".join(names(experiment))}')
    if name in ablations.figure_names(experiment):
        return ablations.draw_ablation(experiment.folder, name, FORMATS)
    if _is_of_paper(experiment):
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

    table = headline_table(headlines(*read_numbers(folder)))
    write_table(table, folder, HEADLINES)
    return table


def read_numbers(folder: Path) -> Numbers:
    """Return the input of the paper's figures in a folder of results. SpecError if there are no measurements."""
    from syno.report.paper.catalogue import Numbers

    made_by = JOINED_BY if (folder / JOINED).is_file() else MADE_BY
    rows = with_roles(read_measurements(folder, made_by), folder.name)
    losses = read_losses(folder, made_by)
    named = losses.assign(experiment=_named(losses["experiment"], folder))
    return Numbers(rows, named, read_ablations(folder, made_by))


def _named(experiments: pandas.Series, folder: Path) -> list[str]:
    """Return the names of experiments, with the folder's in place of a missing one."""
    return [name if isinstance(name, str) else folder.name for name in experiments]


def write_report(experiment: Experiment, output: Path | None = None) -> Path:
    """Write the page of an experiment; return its file. Figures are drawn into it anew. SpecError if there are no results yet.

    An experiment of published data has the page of its import, one of joined results a page of the same kind.
    """
    if experiment.join is not None:
        return _write_joined_page(experiment, output)
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
    from syno.report.paper.page import paper_page

    numbers, record, store = read_numbers(folder), ImportRecord.read(folder / RECORD), OperatorStore(folder)
    operators = {one.name: store.get(one.key) for one in record.operators if one.key is not None}
    lines = [f"read from {record.artifact}", *(f"missing or damaged: {problem}" for problem in record.problems)]
    file = output or folder / REPORT
    write_whole(file, paper_page(numbers, operators, lines, ablations.page_parts(folder)), durable=False)
    return file


def _write_joined_page(experiment: Experiment, output: Path | None) -> Path:
    """Write the page of joined results: figures, headline numbers, operators, what was joined, and what is missing."""
    from syno.report.paper.page import paper_page

    numbers, record = read_numbers(experiment.folder), JoinRecord.read(experiment.folder / JOINED)
    file = output or experiment.folder / REPORT
    write_whole(file, paper_page(numbers, operators_of(experiment, record), notes(record)), durable=False)
    return file
