"""All figures of an experiment, and what is said about them on its page."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from syno.report.figures import drawn
from syno.report.result_figures import reward_figure, speedup_figure
from syno.report.results import Picture, Results
from syno.report.trade_off import cost_figure, pareto_figure

RESULT_FORMATS = ("svg", "pdf", "png")
ABOUT = {  # title and caption by the name of the file
    "pareto": (
        "Accuracy against latency",
        "Mean accuracy with its standard deviation over seeds; median latency with its 95 % interval. The higher and the "
        "further to the left, the better; along the line is what no other operator betters in both.",
    ),
    "cost": (
        "Accuracy against FLOPs",
        "Mean accuracy with its standard deviation over seeds, against the share of the original network's multiply-adds that "
        "is left with the operator in its place.",
    ),
    "speedup": (
        "Speedup over the original",
        "Latency of the original network over that with the operator, on the same device with the same compiler.",
    ),
    "reward": (
        "Rewards of the search",
        "Each dot is an operator that was tried. Below, without a reward: what was stopped early, and what failed.",
    ),
}


def result_figures(results: Results) -> dict[str, Figure]:
    """The figures that the results have numbers for, by the name of the file."""
    accuracy, latency, notes = results.accuracy, results.latency, results.notes
    figures = {}
    if not latency.empty and not accuracy.empty:
        figures["pareto"] = pareto_figure(accuracy, latency, notes)
    if not accuracy.empty:
        figures["cost"] = cost_figure(accuracy, notes)
    if not latency.empty:
        figures["speedup"] = speedup_figure(latency, notes)
    if not results.trials.empty:
        figures["reward"] = reward_figure(results.trials, notes)
    return figures


def pictures(figures: Mapping[str, Figure]) -> list[Picture]:
    """The figures as the page shows them; one of another name is titled with that."""
    known = {name: ABOUT.get(name, (name, "")) for name in figures}
    return [Picture(title, drawn(figures[name], "svg").decode(), caption) for name, (title, caption) in known.items()]
