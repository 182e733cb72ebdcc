"""The figures of an experiment by name, and what is said about them on its page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from matplotlib.figure import Figure

from syno.base.registry import Registry
from syno.report.figures import drawn
from syno.report.result_figures import reward_figure, speedup_figure
from syno.report.results import Picture, Results
from syno.report.trade_off import cost_figure, pareto_figure
from syno.results.metric import ScoreMetric


class Drawing(NamedTuple):
    """A figure of an experiment.

    Attributes:
        title: what it shows; `{metric}` and `{Metric}` in it are the name of the metric of its scores.
        caption: how to read it; `{better}` in it is where the better scores are.
        draw: makes it of results.
    """

    title: str
    caption: str
    draw: Callable[[Results], Figure]

    def words(self, metric: ScoreMetric) -> tuple[str, str]:
        """Title and caption, for scores of this metric."""
        named = {"metric": metric.name, "Metric": metric.name.capitalize(), "better": metric.better}
        return self.title.format(**named), self.caption.format(**named)


FIGURES: Registry[Drawing] = Registry("figure")


def pictures(results: Results, names: Iterable[str]) -> list[Picture]:
    """The figures of these names, for a page. UnknownNameError for a name that is none."""
    found = []
    for drawing in [FIGURES[name] for name in names]:
        title, caption = drawing.words(results.metric)
        found.append(Picture(title, drawn(drawing.draw(results), "svg").decode(), caption))
    return found


FIGURES.register("score-latency")(
    Drawing(
        "{Metric} against latency",
        "Mean {metric} with its standard deviation over seeds; median latency of the whole network with its 95 % interval. The "
        "{better} and the further to the left, the better; along the line is what no other operator betters in both.",
        lambda found: pareto_figure(found.scores, found.latency, found.notes),
    )
)
FIGURES.register("score-flops")(
    Drawing(
        "{Metric} against FLOPs",
        "Mean {metric} with its standard deviation over seeds, against the share of the original network's multiply-adds that "
        "is left with the operator in its place. The {better} and the further to the left, the better.",
        lambda found: cost_figure(found.scores, found.notes),
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
