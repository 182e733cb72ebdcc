"""Figures and the report page of an experiment, from the table of measurements and the frozen trials.

Extensions add figures, and kinds of experiments with figures and a page of their own: `syno.stages.kinds`.
"""

from __future__ import annotations

from pathlib import Path

from syno.base.errors import SpecError
from syno.base.files import write_whole
from syno.config import AnyExperiment, Experiment
from syno.stages import results
from syno.stages.kinds import FIGURE_SETS, kind_of
from syno.stages.measurements import ONLY
from syno.stages.places import FORMATS, REPORT

SEARCH_FIGURES, TRAINING_FIGURES = ("reward", "search-time"), ("score-flops", "learning")
LATENCY_FIGURES = ("score-speedup", "score-latency", "speedup")
UNTRAINED_FIGURES = ("speedup",)  # of latencies alone
LAYER_FIGURES = ("layers",)
BREAKDOWN_FIGURES = ("breakdown",)
GOAL_FIGURES = ("score-speedup",)  # of the speedups that a search with a goal has measured


def names(experiment: AnyExperiment) -> tuple[str, ...]:
    """Return the names of an experiment's figures."""
    kind = kind_of(experiment)
    own = _own_names(Experiment.checked(experiment)) if kind is None else kind.names(experiment)
    return (*own, *(name for figures in FIGURE_SETS for name in figures.names(experiment)))


def _own_names(experiment: Experiment) -> tuple[str, ...]:
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


def draw(experiment: AnyExperiment, name: str) -> list[Path]:
    """Draw a figure in all formats; return the files. SpecError if this experiment has no such figure, or no results yet."""
    from syno.report.figures import save
    from syno.report.result_figures import FIGURES

    if name not in names(experiment):
        raise SpecError(f'experiment "{experiment.name}" has no figure "{name}"; it has: {", ".join(names(experiment))}')
    kind = kind_of(experiment)
    for figures in (*FIGURE_SETS, *([] if kind is None else [kind])):
        if name in figures.names(experiment):
            return figures.draw(experiment, name)
    run = results.read(Experiment.checked(experiment))
    figure = FIGURES[name].draw(run, run.notes)
    return save(figure, experiment.folder / "figures" / name, FORMATS)


def write_report(experiment: AnyExperiment, output: Path | None = None) -> Path:
    """Write the page of an experiment, with figures drawn anew; return its file. SpecError if there are no results yet."""
    kind = kind_of(experiment)
    if kind is not None:
        return kind.write_page(experiment, output)
    from syno.report.page import page
    from syno.report.result_figures import pictures

    experiment = Experiment.checked(experiment)
    run = results.read(experiment)
    file = output or experiment.folder / REPORT
    parts = [part for figures in FIGURE_SETS for part in figures.page_parts(experiment)]
    write_whole(file, page(run, pictures(run, _own_names(experiment)), parts), durable=False)
    return file
