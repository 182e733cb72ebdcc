"""The paper's figures by name, each with its tables, its drawing and its caption."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

import pandas
from matplotlib.figure import Figure

from syno.base.registry import Registry
from syno.paper.figures import comparisons, language, left_out, networks
from syno.paper.figures.bars import WRONG, end_to_end_figure, layerwise_figure
from syno.paper.figures.left_out import LeftOut
from syno.paper.figures.mixture import ready
from syno.paper.figures.origins import note
from syno.paper.figures.points import imagenet_figure, language_figure
from syno.paper.figures.sideways import case_study_figure, savings_figure
from syno.paper.figures.titles import ORIGINS
from syno.paper.numbers import GUARD
from syno.results.measurement import OK

Tables: TypeAlias = Mapping[str, pandas.DataFrame]
ORIGINS_OF = {  # columns with the origins of a quantity, in the tables of figures
    "latency": ("latency_origin",),
    "accuracy": ("accuracy_origin", "original_origin"),
    "flops": ("cost_origin",),
    "parameters": ("cost_origin",),
}
SHOWN = 3  # of the things left out for one reason, below a figure


class Numbers(NamedTuple):
    """The input of figures.

    Attributes:
        rows: The table of measurements, of one origin or several. It may have the columns `experiment` and `data_role`, as that
            of joined results. Figures use no failed or partial measurements, but list them as left out.
        losses: The loss curves of language models; without rows where there are none.
        ablations: The tables of ablations that lie beside the measurements, by name.
    """

    rows: pandas.DataFrame
    losses: pandas.DataFrame
    ablations: Mapping[str, pandas.DataFrame] = {}


class PaperFigure(NamedTuple):
    """A figure of the paper.

    Attributes:
        title: The title.
        caption: How it was made, and how to read it.
        metrics: The quantities in it; the notes name their origins.
        tables: Makes the tables of its numbers, by name.
        draw: Draws it from the numbers, the tables, and the notes at its bottom.
        left_out: Finds what it does not show, and why.
        has_marks: Whether latencies of wrong code have a mark in it.
    """

    title: str
    caption: str
    metrics: tuple[str, ...]
    tables: Callable[[Numbers], Tables]
    draw: Callable[[Numbers, Tables, tuple[str, ...]], Figure]
    left_out: Callable[[Numbers], Iterable[LeftOut]]
    has_marks: bool = False

    def notes(self, numbers: Numbers) -> tuple[str, ...]:
        """Return the caption, the origins of the numbers, a warning if some of them are wrong, and what is left out."""
        tables = self.tables(numbers)
        missing = left_out.lines(self.left_out(numbers), SHOWN)
        parts = (self.caption, note(list(tables.values())), self.sources(numbers), self._marked(tables))
        return (*filter(None, parts), *([f"Left out: {'; '.join(missing)}."] if missing else []))

    def sources(self, numbers: Numbers) -> str:
        """Return the origins of its quantities as a sentence; "" if there are none."""
        rows, shown = ready(numbers.rows), list(self.tables(numbers).values())
        used = rows[rows["metric"].isin(self.metrics) & (rows["status"] == OK)]
        told = []
        for metric in self.metrics:
            columns = [table[name].dropna() for table in shown for name in ORIGINS_OF.get(metric, ()) if name in table]
            told.append(
                _source(metric, set(pandas.concat(columns) if columns else used.loc[used["metric"] == metric, "origin"]))
            )
        return f"Sources: {text}." if (text := "; ".join(filter(None, told))) else ""

    def _marked(self, tables: Tables) -> str:
        """Return the warning, after the mark that bars with their values have."""
        text = self.warning(tables)
        return f"{WRONG} {text}" if text and self.has_marks else text

    def warning(self, tables: Tables) -> str:
        """Return the warning about latencies of wrong code; "" if its tables have none."""
        is_wrong = any(bool(table["is_wrong"].any()) for table in tables.values() if "is_wrong" in table)
        return GUARD if is_wrong else ""


PAPER_FIGURES: Registry[PaperFigure] = Registry("figure of the paper")


def _source(metric: str, used: set[str]) -> str:
    places = " and ".join(ORIGINS[origin] for origin in ORIGINS if origin in used)
    return f"{metric}: {places}" if places else ""


def _network_tables(numbers: Numbers) -> Tables:
    best = networks.fastest(numbers.rows)
    return {"figure-5": best, "figure-5-means": networks.means(best)}


def _layer_tables(numbers: Numbers) -> Tables:
    found = comparisons.layers(numbers.rows)
    return {"figure-9": found, "figure-9-means": comparisons.best_over_best(found)}


def _curve_tables(numbers: Numbers) -> Tables:
    return {"figure-10": language.curves(numbers.losses, numbers.rows)}


FIVE, SIX, EIGHT, NINE, TEN, ALPHA = (
    "Figure 5: speedups of networks",
    "Figure 6: accuracy against latency",
    "Figure 8: case study, beside INT8 and stacked convolutions",
    "Figure 9: layers beside NAS-PTE",
    "Figure 10: loss and perplexity of GPT-2",
    "Beside αNAS: FLOPs and parameters saved",
)
PAPER_FIGURES.register("figure-5")(
    PaperFigure(
        FIVE,
        "For each network, device and compiler: the speedup of the fastest operator over the original network, among the "
        "operators whose accuracy on the proxy data set (CIFAR-100 in the paper) is less than 0.01 below the network's. "
        "ResNet-34 was not searched: it has ResNet-18's operators, with their accuracies in ResNet-18 where it has none of "
        "its own. The batch size is 1 where no other is given.",
        ("latency", "accuracy"),
        _network_tables,
        lambda numbers, tables, notes: end_to_end_figure(tables["figure-5"], tables["figure-5-means"], FIVE, notes),
        lambda numbers: left_out.of_end_to_end(numbers.rows),
        has_marks=True,
    )
)
PAPER_FIGURES.register("figure-6")(
    PaperFigure(
        SIX,
        "Large hollow marks are the original networks; each line is the Pareto front of one network. Accuracies are on the "
        "final data set (ImageNet in the paper). The batch size is 1 where no other is given.",
        ("latency", "accuracy"),
        lambda numbers: {"figure-6": networks.trade_offs(numbers.rows)},
        lambda numbers, tables, notes: imagenet_figure(tables["figure-6"], SIX, notes),
        lambda numbers: left_out.of_trade_offs(numbers.rows),
    )
)
PAPER_FIGURES.register("figure-8")(
    PaperFigure(
        EIGHT,
        "Latency, speedup over the original network, and accuracy on the final data set (ImageNet in the paper), wherever a"
        " baseline was measured. A network without Operator 1 has its fastest operator in its place. The batch size is 1 "
        "where no other is given.",
        ("latency", "accuracy"),
        lambda numbers: {"figure-8": networks.case_study(numbers.rows)},
        lambda numbers, tables, notes: case_study_figure(tables["figure-8"], EIGHT, notes),
        lambda numbers: left_out.of_case_study(numbers.rows),
        has_marks=True,
    )
)
PAPER_FIGURES.register("figure-9")(
    PaperFigure(
        NINE,
        "Speedups over the convolution. For each layer, only the fastest of NAS-PTE's three sequences is shown. The titles "
        "say how many times as fast as NAS-PTE's fastest our fastest operator is, as the geometric mean over the layers. L1"
        " to L31 are layers of ResNet-34; L9, L18 and L31 are 1x1 convolutions, which both systems replace by operators "
        "with windows of 3.",
        ("latency",),
        _layer_tables,
        lambda numbers, tables, notes: layerwise_figure(tables["figure-9"], tables["figure-9-means"], NINE, notes),
        lambda numbers: left_out.of_layers(numbers.rows),
    )
)
PAPER_FIGURES.register("figure-10")(
    PaperFigure(
        TEN,
        "Loss and perplexity (the exponential of the loss) over the training. Where there are several seeds, they are thin "
        "lines, and their mean is a thick one. The authors' log is drawn as means of 100 steps; that of their training with"
        " the operator was not published.",
        ("loss",),
        _curve_tables,
        lambda numbers, tables, notes: language_figure(tables["figure-10"], language.scores(numbers.rows), TEN, notes),
        lambda numbers: left_out.of_language(numbers.rows, language.curves(numbers.losses, numbers.rows)),
    )
)
PAPER_FIGURES.register("alpha-nas")(
    PaperFigure(
        ALPHA,
        "Syno: for each network, the operator with the fewest FLOPs among those whose accuracy on the proxy data set "
        "(CIFAR-100 in the paper) is less than 0.01 below the network's, and, if that is another one, among those that lose"
        " at most 0.02 on the final data set (ImageNet). Beside the bars are the change of accuracy, in points, and the "
        "smallest and largest speedup over all devices and compilers. Where costs are published, the FLOPs of the original "
        "networks were counted here in the authors' way. αNAS: numbers from the abstract of its paper (Jin, Phothilimthana,"
        " Roy, OOPSLA 2022), and, within 2 points, from Syno's. Its networks and their training differ, so the two systems "
        "are not directly comparable.",
        ("flops", "parameters", "accuracy", "latency"),
        lambda numbers: {"alpha-nas": comparisons.savings(numbers.rows)},
        lambda numbers, tables, notes: savings_figure(tables["alpha-nas"], ALPHA, notes),
        lambda numbers: left_out.of_savings(numbers.rows, comparisons.savings(numbers.rows)),
    )
)
