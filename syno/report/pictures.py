"""The figures of an experiment by name, and what is said about them on its page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from matplotlib.figure import Figure

from syno.registry import Registry
from syno.report.figures import drawn
from syno.report.result_figures import reward_figure, speedup_figure
from syno.report.results import Picture, Results
from syno.report.trade_off import cost_figure, pareto_figure


class Drawing(NamedTuple):
    """A figure of an experiment.

    Attributes:
        title: what it shows.
        caption: how to read it.
        draw: makes it of results.
    """

    title: str
    caption: str
    draw: Callable[[Results], Figure]


FIGURES: Registry[Drawing] = Registry("figure")


def pictures(results: Results, names: Iterable[str]) -> list[Picture]:
    """The figures of these names, for a page. UnknownNameError for a name that is none."""
    drawings = [FIGURES[name] for name in names]
    return [Picture(title, drawn(draw(results), "svg").decode(), caption) for title, caption, draw in drawings]


FIGURES.register("accuracy-latency")(
    Drawing(
        "Accuracy against latency",
        "Mean accuracy with its standard deviation over seeds; median latency of the whole network with its 95 % interval. The "
        "higher and the further to the left, the better; along the line is what no other operator betters in both.",
        lambda found: pareto_figure(found.accuracy, found.latency, found.notes),
    )
)
FIGURES.register("accuracy-flops")(
    Drawing(
        "Accuracy against FLOPs",
        "Mean accuracy with its standard deviation over seeds, against the share of the original network's multiply-adds that "
        "is left with the operator in its place.",
        lambda found: cost_figure(found.accuracy, found.notes),
    )
)
FIGURES.register("speedup")(
    Drawing(
        "Speedup over the original",
        "Latency of the original network over that with the operator, on the same device with the same compiler.",
        lambda found: speedup_figure(found.latency, found.notes),
    )
)
FIGURES.register("reward")(
    Drawing(
        "Rewards of the search",
        "Each dot is an operator that was tried. Below, without a reward: what was stopped early, and what failed.",
        lambda found: reward_figure(found.trials, found.notes),
    )
)
