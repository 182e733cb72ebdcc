"""The page of an experiment: one file that opens without a server."""

from __future__ import annotations

from pathlib import Path

from syno.config import Experiment
from syno.files import write_whole
from syno.stages import results
from syno.stages.figures import FIGURES, names

FILE = "report.html"


def write_report(experiment: Experiment, output: Path | None = None) -> Path:
    """Write the page; returns its file. Figures are drawn into it anew. SpecError if there are no results yet."""
    from syno.report.figures import drawn
    from syno.report.page import page
    from syno.report.results import Picture

    found = results.read(experiment)
    pictures = []
    for name in names(experiment):
        title, caption, draw = FIGURES[name]
        pictures.append(Picture(title, drawn(draw(found, title), "svg").decode(), caption))
    file = output or experiment.folder / FILE
    write_whole(file, page(found, pictures))
    return file
