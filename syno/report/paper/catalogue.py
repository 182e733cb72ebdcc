"""The paper's figures by name, each with its tables, its drawing and its caption."""

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
        rows: The table of measurements, of one origin or several, without measurements that failed or are partial.
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
        "For each network, device and compiler: the speedup of the fastest operator over the original network, among the "
        "operators whose accuracy on CIFAR-100 is less than 0.01 below the network's. ResNet-34 was not searched: it has "
        "ResNet-18's operators, with their accuracies in ResNet-18. The batch size is 1.",
        ("latency", "accuracy"),
        _network_tables,
        lambda numbers, tables, notes: end_to_end_figure(tables["figure-5"], tables["figure-5-means"], FIVE, notes),
    )
)
PAPER_FIGURES.register("figure-6")(
    PaperFigure(
        SIX,
        "Large hollow marks are the original networks; each line is the Pareto front of one network. Operators whose "
        "accuracy on ImageNet is unknown are left out. The batch size is 1.",
        ("latency", "accuracy"),
        lambda numbers: {"figure-6": networks.trade_offs(numbers.rows)},
        lambda numbers, tables, notes: imagenet_figure(tables["figure-6"], SIX, notes),
    )
)
PAPER_FIGURES.register("figure-8")(
    PaperFigure(
        EIGHT,
        "Latency with a batch size of 1, speedup over the original network, and accuracy on ImageNet.",
        ("latency", "accuracy"),
        lambda numbers: {"figure-8": networks.case_study(numbers.rows)},
        lambda numbers, tables, notes: case_study_figure(tables["figure-8"], EIGHT, notes),
    )
)
PAPER_FIGURES.register("figure-9")(
    PaperFigure(
        NINE,
        "Speedups over the convolution. For each layer, only the fastest of NAS-PTE's three sequences is shown. The titles "
        "say how many times as fast as NAS-PTE's fastest our fastest operator is, as the geometric mean over the layers. "
        "L9, L18 and L31 are 1x1 convolutions, which both systems replace by operators with windows of 3.",
        ("latency",),
        _layer_tables,
        lambda numbers, tables, notes: layerwise_figure(tables["figure-9"], tables["figure-9-means"], NINE, notes),
    )
)
PAPER_FIGURES.register("figure-10")(
    PaperFigure(
        TEN,
        "Each point of the curve is the mean of 100 steps. The log of the training with the operator was not published.",
        ("loss",),
        lambda numbers: {"figure-10": numbers.losses},
        lambda numbers, tables, notes: language_figure(numbers.losses, comparisons.scores(numbers.rows), TEN, notes),
    )
)
PAPER_FIGURES.register("alpha-nas")(
    PaperFigure(
        ALPHA,
        "Syno: for each network, the operator with the fewest FLOPs among those whose accuracy on CIFAR-100 is less than "
        "0.01 below the network's. Beside the bars are the change of accuracy, in points, and the smallest and largest "
        "speedup over all devices and both compilers. The FLOPs of the original networks were counted here in the authors' "
        "way. αNAS: numbers from the abstract of its paper (Jin, Phothilimthana, Roy, OOPSLA 2022). Its networks and their "
        "training differ, so the two systems are not directly comparable.",
        ("flops", "parameters", "accuracy", "latency"),
        lambda numbers: {"alpha-nas": comparisons.savings(numbers.rows)},
        lambda numbers, tables, notes: savings_figure(tables["alpha-nas"], ALPHA, notes),
    )
)
