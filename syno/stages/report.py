"""The page of an experiment or of an import: one file of HTML that opens without a server."""

from __future__ import annotations

from pathlib import Path

from syno.artifact.imported import RECORD, ImportRecord
from syno.base.files import write_whole
from syno.config import Experiment
from syno.stages import results
from syno.stages.figures import names, read_numbers
from syno.stages.store import OperatorStore

FILE = "report.html"


def write_report(experiment: Experiment, output: Path | None = None) -> Path:
    """Write the page of an experiment; return its file. Figures are drawn into it anew. SpecError if there are no results yet.

    An experiment of published data has the page of its import.
    """
    if experiment.artifact is not None:
        return write_page(experiment.folder, output)
    from syno.report.page import page
    from syno.report.result_figures import pictures

    found = results.read(experiment)
    file = output or experiment.folder / FILE
    write_whole(file, page(found, pictures(found, names(experiment))), durable=False)
    return file


def write_page(folder: Path, output: Path | None = None) -> Path:
    """Write the page of an import: figures, headline numbers, operators; return its file. SpecError if there is no import."""
    from syno.artifact.page import paper_page

    numbers, record, store = read_numbers(folder), ImportRecord.read(folder / RECORD), OperatorStore(folder)
    operators = {one.name: store.get(one.key) for one in record.operators if one.key is not None}
    notes = [f"read from {record.artifact}", *(f"missing or damaged: {problem}" for problem in record.problems)]
    file = output or folder / FILE
    write_whole(file, paper_page(numbers, operators, notes), durable=False)
    return file
