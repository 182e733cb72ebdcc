"""The paper's figures by name: the tables that each is drawn from, how it is drawn, and its caption."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import pandas
from matplotlib.figure import Figure

from syno.base.registry import Registry
from syno.report.paper import comparisons, networks
from syno.report.paper.bars import case_study_figure, end_to_end_figure, layerwise_figure, savings_figure
from syno.report.paper.points import imagenet_figure, language_figure
from syno.results.paper import GUARD, WRONG_GUARD

Tables: TypeAlias = Mapping[str, pandas.DataFrame]
ORIGINS = {"artifact": "the authors' published data", "paper": "the paper", "measured": "measurements made here"}


class Numbers(NamedTuple):
    """The input of figures.

    Attributes:
        rows: The table of measurements, from any mixture of origins, without those that do not compare with others.
        losses: The loss curve of GPT-2's training (step, minutes, loss); without rows where there is none.
    """

    rows: pandas.DataFrame
    losses: pandas.DataFrame


class PaperFigure(NamedTuple):
    """A figure of the paper.

    Attributes:
        title: The title.
        caption: How it was made, and how to read it.
        metrics: The quantities in it; the notes name their origins.
        tables: Makes the tables of its numbers, by name.
        draw: Draws it from the numbers, the tables, and the notes at its bottom.
    """

    title: str
    caption: str
    metrics: tuple[str, ...]
    tables: Callable[[Numbers], Tables]
    draw: Callable[[Numbers, Tables, tuple[str, ...]], Figure]

    def notes(self, numbers: Numbers) -> tuple[str, ...]:
        """Return the caption, the origins of the numbers, and a warning if some of them are wrong."""
        used = numbers.rows[numbers.rows["metric"].isin(self.metrics)]
        sources = [_source(metric, used[used["metric"] == metric]) for metric in self.metrics]
        is_wrong = "latency" in self.metrics and (used["note"] == WRONG_GUARD).any()
        told = "; ".join(filter(None, sources))
        return (self.caption, *([f"Sources: {told}."] if told else []), *([GUARD] if is_wrong else []))


PAPER_FIGURES: Registry[PaperFigure] = Registry("figure of the paper")


def _source(metric: str, used: pandas.DataFrame) -> str:
    places = " and ".join(ORIGINS[origin] for origin in ORIGINS if (used["origin"] == origin).any())
    return f"{metric}: {places}" if places else ""


def _network_tables(numbers: Numbers) -> Tables:
    best = networks.fastest(numbers.rows)
    return {"figure-5": best, "figure-5-means": networks.means(best)}


def _layer_tables(numbers: Numbers) -> Tables:
    found = comparisons.layers(numbers.rows)
    return {"figure-9": found, "figure-9-means": comparisons.best_over_best(found)}


FIVE, SIX, EIGHT, NINE, TEN, ALPHA = (
    "Figure 5: speedups of networks",
    "Figure 6: accuracy on ImageNet against latency",
    "Figure 8: case study, ResNet-18 with TVM",
    "Figure 9: layers of ResNet-34 beside NAS-PTE",
    "Figure 10: loss of GPT-2",
    "Beside αNAS: FLOPs and parameters saved",
)
PAPER_FIGURES.register("figure-5")(
    PaperFigure(
        FIVE,
        "For each network, device and compiler the fastest operator whose accuracy on CIFAR-100 is above the network's less "
        "0.01, over the network as it is. ResNet-34 has ResNet-18's operators, with their accuracies in ResNet-18. One picture "
        "at a time.",
        ("latency", "accuracy"),
        _network_tables,
        lambda numbers, tables, notes: end_to_end_figure(tables["figure-5"], tables["figure-5-means"], FIVE, notes),
    )
)
PAPER_FIGURES.register("figure-6")(
    PaperFigure(
        SIX,
        "Large hollow marks are the networks as they are; the lines are the Pareto fronts of each network. Operators whose "
        "accuracy on ImageNet is unknown are left out. One picture at a time.",
        ("latency", "accuracy"),
        lambda numbers: {"figure-6": networks.trade_offs(numbers.rows)},
        lambda numbers, tables, notes: imagenet_figure(tables["figure-6"], SIX, notes),
    )
)
PAPER_FIGURES.register("figure-8")(
    PaperFigure(
        EIGHT,
        "Latency of one picture, speedup over the network as it is, and accuracy on ImageNet.",
        ("latency", "accuracy"),
        lambda numbers: {"figure-8": networks.case_study(numbers.rows)},
        lambda numbers, tables, notes: case_study_figure(tables["figure-8"], EIGHT, notes),
    )
)
PAPER_FIGURES.register("figure-9")(
    PaperFigure(
        NINE,
        "Speedups over the convolution; of NAS-PTE's three sequences the fastest in each layer. In the titles: how much faster "
        "our fastest is than theirs, as the geometric mean over the layers. L9, L18 and L31 are 1x1 convolutions, which both "
        "replace by operators with windows of 3.",
        ("latency",),
        _layer_tables,
        lambda numbers, tables, notes: layerwise_figure(tables["figure-9"], tables["figure-9-means"], NINE, notes),
    )
)
PAPER_FIGURES.register("figure-10")(
    PaperFigure(
        TEN,
        "Means of 100 steps; the log of the training with the operator was not published.",
        ("loss",),
        lambda numbers: {"figure-10": numbers.losses},
        lambda numbers, tables, notes: language_figure(numbers.losses, comparisons.scores(numbers.rows), TEN, notes),
    )
)
PAPER_FIGURES.register("alpha-nas")(
    PaperFigure(
        ALPHA,
        "Syno: of each network the operator that leaves it the fewest FLOPs, of those whose accuracy on CIFAR-100 is above the "
        "network's less 0.01; how accuracy changes, in points, and speedups on all devices with both compilers. FLOPs of the "
        "networks as they are were counted here, as the authors counted. αNAS: numbers of its paper's abstract (Jin, "
        "Phothilimthana, Roy, OOPSLA 2022). Its networks and their training differ, so the two are not directly comparable.",
        ("flops", "parameters", "accuracy", "latency"),
        lambda numbers: {"alpha-nas": comparisons.savings(numbers.rows)},
        lambda numbers, tables, notes: savings_figure(tables["alpha-nas"], ALPHA, notes),
    )
)
