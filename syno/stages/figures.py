"""The figures of an experiment, in several formats. They read the tables and the frozen trials, and nothing else."""

from __future__ import annotations

from pathlib import Path

from syno.base.errors import SpecError
from syno.config import Experiment
from syno.stages import results
from syno.stages.paper_figures import draw_paper

OF_THE_SEARCH, OF_TRAININGS, OF_MEASUREMENTS = ("reward",), ("score-flops",), ("score-latency", "speedup")
FORMATS = ("svg", "png", "pdf")


def names(experiment: Experiment) -> tuple[str, ...]:
    """The figures that an experiment has; one of published data has the paper's."""
    if experiment.artifact is not None:
        from syno.report.paper.catalogue import PAPER_FIGURES

        return tuple(PAPER_FIGURES)
    if experiment.workload is None:
        return OF_THE_SEARCH
    measured, searched = experiment.tune.compilers, experiment.searches
    return (*(OF_MEASUREMENTS if measured else ()), *OF_TRAININGS, *(OF_THE_SEARCH if searched else ()))


def draw(experiment: Experiment, name: str) -> list[Path]:
    """Draw a figure in all formats; returns the files. SpecError if this experiment has no such figure, or no results yet."""
    from syno.report.figures import save
    from syno.report.pictures import FIGURES

    if name not in names(experiment):
        raise SpecError(f'experiment "{experiment.name}" has no figure "{name}"; it has: {", ".join(names(experiment))}')
    if experiment.artifact is not None:
        return draw_paper(experiment.folder, [name])
    figure = FIGURES[name].draw(results.read(experiment))
    return save(figure, experiment.folder / "figures" / name, FORMATS)
