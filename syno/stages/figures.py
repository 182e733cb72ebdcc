"""The figures of an experiment, by name. Each reads the tables and the frozen trials, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from syno.config import Experiment
from syno.errors import SpecError
from syno.registry import Registry
from syno.stages import results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from syno.report.results import Results

FORMATS = ("svg", "png", "pdf")


class Drawing(NamedTuple):
    """A figure of an experiment.

    Attributes:
        title: what it shows.
        caption: how to read it.
        draw: makes it of results and a title.
    """

    title: str
    caption: str
    draw: Callable[[Results, str], Figure]


FIGURES: Registry[Drawing] = Registry("figure")


def names(experiment: Experiment) -> list[str]:
    """The figures that an experiment has: those of what it trains and measures, and that of its search."""
    if experiment.workload is None:
        return ["reward"]
    return [name for name in FIGURES if experiment.tune.compilers or name not in ("accuracy-latency", "speedup")]


def draw(experiment: Experiment, name: str) -> list[Path]:
    """Draw a figure in all formats; returns the files.

    Raises UnknownNameError for a name that is none, SpecError if this experiment has no such figure, or no results yet.
    """
    from syno.report.figures import save

    drawing = FIGURES[name]
    if name not in names(experiment):
        raise SpecError(f'experiment "{experiment.name}" has no figure "{name}"; it has: {", ".join(names(experiment))}')
    figure = drawing.draw(results.read(experiment), drawing.title)
    return save(figure, experiment.folder / "figures" / name, FORMATS)


def _accuracy_latency(found: Results, title: str) -> Figure:
    from syno.report.trade_off import pareto_figure

    return pareto_figure(found.accuracy, found.latency, found.notes, title)


def _accuracy_flops(found: Results, title: str) -> Figure:
    from syno.report.trade_off import cost_figure

    return cost_figure(found.accuracy, found.notes, title)


def _speedup(found: Results, title: str) -> Figure:
    from syno.report.result_figures import speedup_figure

    return speedup_figure(found.latency, found.notes, title)


def _reward(found: Results, title: str) -> Figure:
    from syno.report.result_figures import reward_figure

    return reward_figure(found.trials, found.notes, title)


FIGURES.register("accuracy-latency")(
    Drawing(
        "Accuracy against latency",
        "Mean accuracy over seeds, with its standard deviation, against the median latency of the whole network, with its 95 % "
        "interval. The line is the Pareto front: nothing measured is both faster and more accurate.",
        _accuracy_latency,
    )
)
FIGURES.register("accuracy-flops")(
    Drawing(
        "Accuracy against FLOPs",
        "Mean accuracy over seeds, with its standard deviation, against the share of the original network's multiply-adds.",
        _accuracy_flops,
    )
)
FIGURES.register("speedup")(
    Drawing(
        "Speedup over the original",
        "Latency of the original network by that of the network with each operator, with the same compiler on the same device.",
        _speedup,
    )
)
FIGURES.register("reward")(
    Drawing("Rewards of the search", "The reward of each trial, and the best so far.", _reward),
)
