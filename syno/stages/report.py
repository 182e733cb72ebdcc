"""The page of an experiment: one file that opens without a server."""

from __future__ import annotations

from pathlib import Path

from syno.base.files import write_whole
from syno.config import Experiment
from syno.stages import results
from syno.stages.figures import names
from syno.stages.paper_figures import write_page

FILE = "report.html"


def write_report(experiment: Experiment, output: Path | None = None) -> Path:
    """Write the page; returns its file. Figures are drawn into it anew. SpecError if there are no results yet.

    One of published data has the paper's figures.
    """
    if experiment.artifact is not None:
        return write_page(experiment.folder, output)
    from syno.report.page import page
    from syno.report.pictures import pictures

    found = results.read(experiment)
    file = output or experiment.folder / FILE
    write_whole(file, page(found, pictures(found, names(experiment))), durable=False)
    return file
