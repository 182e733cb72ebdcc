"""The paper's figures by name, each with its tables, its drawing and its caption."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import exp, isfinite, isnan
from textwrap import fill
from typing import Any, NamedTuple, TypeAlias

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from syno.base.files import ORIGINAL
from syno.base.registry import Registry
from syno.paper.figures import language, left_out, networks, origins
from syno.paper.figures.bars import LOOKS, SHARE, WRONG, end_to_end_figure, layerwise_figure, panels, size
from syno.paper.figures.language import MINUTES, SERIES, Scores, mean_curve
from syno.paper.figures.left_out import LeftOut
from syno.paper.figures.mixture import ready
from syno.paper.figures.networks import OURS
from syno.paper.figures.origins import OUTLINE, is_mixed, note
from syno.paper.figures.titles import (
    ORIGINS,
    SHORT_ORIGINS,
    compiler_title,
    compilers_of,
    device_title,
    model_title,
    models_of,
    operator_title,
    panels_of,
    places_of,
)
from syno.paper.numbers import GUARD, LANGUAGE_MODEL, PERPLEXITIES, PERPLEXITY_STEPS
from syno.report.figures import BLUE, GREEN, INK, ORANGE, finish, nothing
from syno.report.points import Point, identify
from syno.run.measurement import OK

# The drawings of Figure 8 and `alpha-nas`, which have horizontal bars.


THICK = 0.38  # the share of a network's space that each of its two bars takes
SAVINGS = (("fewer_flops", "fewer FLOPs", BLUE, ""), ("fewer_parameters", "fewer parameters", ORANGE, "///"))


def case_study_figure(table: pandas.DataFrame, title: str, notes: Sequence[str]) -> Figure:
    """Draw latencies as horizontal bars, with the speedup and the accuracy of each."""
    if table.empty:
        return nothing(title, "No latency of the case study is known.", notes)
    parts = {
        key: table[(table["model"] == key[0]) & (table["compiler"] == key[1]) & (table["place"] == key[2])]
        for key in panels_of(table)
    }
    candidates = list(dict.fromkeys(table["candidate"]))
    tall = max(len(rows) for rows in parts.values())
    figure = Figure(figsize=size(len(parts), 0.55 * tall + 0.6, 0.8), layout="constrained")
    one = {column: table[column].nunique() == 1 for column in ("model", "compiler")}
    every = panels(figure, len(parts), share=False)
    for axes, ((model, compiler, place), here) in zip(every, parts.items(), strict=True):
        for number, row in enumerate(here.to_dict("records")):
            colour, hatch = LOOKS[candidates.index(row["candidate"]) % len(LOOKS)]
            axes.barh(number, row["latency_ms"], 0.6, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
            if row["latency_origin"] == "measured" and is_mixed(table):
                axes.barh(number, row["latency_ms"], 0.6, facecolor="none", edgecolor=INK, linewidth=OUTLINE)
            difference = f", {row['difference']:+.0f} %" if isfinite(row["difference"]) else ""
            faster = f" ({row['speedup']:.2f}x{difference})" if isfinite(row["speedup"]) else ""
            text = f" {row['latency_ms']:.3g} ms{faster}{WRONG if row['is_wrong'] else ''}"
            axes.text(row["latency_ms"], number, text, va="center", fontsize=7.5)
        axes.set_xlim(0, 1.5 * here["latency_ms"].max())
        axes.set_xlabel("latency/ms")
        heading = [
            *([] if one["model"] else [model_title(model)]),
            *([] if one["compiler"] else [compiler_title(compiler)]),
            device_title(str(here["device"].iloc[0]), place),
        ]
        axes.set_title(fill(", ".join(heading), 50), fontsize=9)
        axes.set_yticks(range(len(here)), [_candidate(row) for row in here.to_dict("records")], fontsize=7.5)
        axes.set_ylim(tall - 0.5, -0.5)
    (model, compiler, _), *_ = parts
    of = [*([model_title(model)] if one["model"] else []), *([compiler_title(compiler)] if one["compiler"] else [])]
    finish(figure, every, f"{title} ({', '.join(of)})" if of else title, notes, columns=0)
    for axes in every:
        axes.grid(False, axis="y")
    return figure


def _candidate(row: Mapping[Any, Any]) -> str:
    if not isfinite(row["accuracy"]):
        return str(row["candidate"])
    return f"{row['candidate']}\naccuracy {row['accuracy']:.4f}\n({SHORT_ORIGINS[row['accuracy_origin']]})"


def savings_figure(table: pandas.DataFrame, title: str, notes: Sequence[str]) -> Figure:
    """Draw two bars for each network, its saved FLOPs and parameters, with accuracy and speedup as text beside them."""
    if not (table["system"] == OURS).any():
        return nothing(title, "No network's FLOPs are known with an operator that is accurate enough.", notes)
    rows = table.to_dict("records")
    figure = Figure(figsize=(12, 1.8 + 0.5 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for number, (column, label, colour, hatch) in enumerate(SAVINGS):
        places = [place + (number - 0.5) * THICK for place in range(len(rows))]
        values = [float(row[column]) for row in rows]
        axes.barh(places, values, THICK, color=colour, hatch=hatch, edgecolor="white", linewidth=0, label=label, zorder=2)
        for place, value in zip(places, values, strict=True):
            axes.text(max(value, 0) if isfinite(value) else 0, place, _share(value), va="center", fontsize=7)
    for place, row in enumerate(rows):
        axes.text(1.02, place, _change(row), va="center", fontsize=7.5, transform=axes.get_yaxis_transform())
    labels = [f"{row['system']}: {row['network']}" + (f"\n{row['operator']}" if row["system"] == OURS else "") for row in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.axhline((table["system"] != OURS).sum() - 0.5, color="#555555", linewidth=0.6, linestyle=":")
    least = [float(row[column]) for row in rows for column, *_ in SAVINGS if isfinite(row[column])]
    axes.set_xlim(left=min(0.0, *least), right=1)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    finish(figure, [axes], title, notes, columns=len(SAVINGS))
    axes.grid(False, axis="y")
    axes.spines.right.set_visible(False)
    return figure


def _share(value: float) -> str:
    return f" {value:.0%}" if isfinite(value) else " unknown"


def _change(row: Mapping[Any, Any]) -> str:
    """Return the text beside a network's bars: change of accuracy, speedups, and the origins of these numbers."""
    if row["system"] != OURS:
        is_told = "and" in row["network"]
        return "within 2 points on ImageNet;\nabout 12 % faster training" if is_told else "no accuracy lost on ImageNet"
    change = [
        f"{-100 * row[column]:+.1f} on the {role} one"
        for column, role in (("lost_proxy", "proxy"), ("lost_final", "final"))
        if isfinite(row[column])
    ]
    faster = f"{row['least_speedup']:.2f}x to {row['largest_speedup']:.2f}x; " if isfinite(row["largest_speedup"]) else ""
    places = {"accuracy": row["accuracy_origin"], "FLOPs": row["cost_origin"], "latency": row["latency_origin"]}
    known = {what: origin for what, origin in places.items() if isinstance(origin, str)}
    if len(set(known.values())) == 1:
        told = next(iter(known.values()))
    else:
        told = ", ".join(f"{what} {origin}" for what, origin in known.items())
    return f"within {row['within']}: accuracy {', '.join(change)}\n{faster}{told}"


# The drawings of Figures 6 and 10, which have points and lines.


LEAST_PANEL = 3.0  # inches of a panel of Figure 6, however many places there are

POINT_LOOKS = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), ("#CC79A7", "v"), ("#E69F00", "P"), ("#56B4E9", "D"))  # of networks
STYLES = {"measured": "-", "artifact": "--", "paper": ":"}  # of lines, by origin
AXES = (("loss", "step"), ("loss", "minutes"), ("perplexity", "step"), ("perplexity", "minutes"))
NAMES = {"loss": "loss/nats per token", "perplexity": "perplexity per token", "step": "steps", "minutes": "minutes of training"}


def imagenet_figure(points: pandas.DataFrame, title: str, notes: Sequence[str]) -> Figure:
    """Draw accuracy against latency on a logarithmic axis: a row of panels for each compiler, a column for each device.

    Large hollow marks are the original networks; a line joins the Pareto front of each network; crosses are baselines.
    """
    if points.empty:
        return nothing(title, "No network has both an accuracy on ImageNet and a latency.", notes)
    models = models_of(points["model"])
    compilers, places, mixed = compilers_of(points["compiler"]), list(places_of(points)), origins.is_mixed(points)
    wide, _ = size(len(places), 0)
    figure = Figure(figsize=(max(wide, LEAST_PANEL * len(places)), 1.2 + 3.0 * len(compilers)), layout="constrained")
    grid, every = figure.subplots(len(compilers), len(places), squeeze=False, sharey=True), list[Axes]()
    for (compiler, place), axes in zip(product(compilers, places), grid.flat, strict=True):
        here = points[(points["compiler"] == compiler) & (points["place"] == place)]
        if here.empty:
            axes.set_axis_off()
            continue
        every.append(axes)
        for number, model in enumerate(models):
            _network(axes, here[here["model"] == model], *POINT_LOOKS[number % len(POINT_LOOKS)], mixed)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_title(fill(f"{compiler_title(compiler)}, {place}", 55), fontsize=9)
        axes.set_xlabel("latency/ms", fontsize=8)
    for line in grid:  # the panels of a line share their axis
        first = next(axes for axes in line if axes in every)
        first.set_ylabel("accuracy on ImageNet" if set(points["data"]) <= {"imagenet"} else "accuracy")
        first.tick_params(labelleft=True)
    for number, model in enumerate(models):
        colour, mark = POINT_LOOKS[number % len(POINT_LOOKS)]
        every[0].plot([], [], mark, color=colour, label=model_title(model))
    count = len(models) + origins.legend_entries(every[0], points)
    if points["is_baseline"].any():
        every[0].plot([], [], "x", color=INK, label="baseline")
        count += 1
    finish(figure, every, title, notes, columns=min(count, SHARE + 1))
    return figure


def _network(axes: Axes, table: pandas.DataFrame, colour: str, mark: str, mixed: bool) -> None:
    is_original, is_baseline = table["operator"] == ORIGINAL, table["is_baseline"].astype(bool)
    operators, originals, baselines = table[~is_original & ~is_baseline], table[is_original], table[is_baseline]
    size = 6.5 if mixed else 4.5
    (filled,) = axes.plot(operators["latency_ms"], operators["accuracy"], mark, color=colour, markersize=size, zorder=3)
    (crosses,) = axes.plot(baselines["latency_ms"], baselines["accuracy"], "x", color=colour, markersize=5, zorder=3)
    (hollow,) = axes.plot(originals["latency_ms"], originals["accuracy"], mark, color=colour, markersize=8, zorder=3)
    hollow.set_markerfacecolor("white")
    for line, rows in ((filled, operators), (crosses, baselines), (hollow, originals)):
        identify(line, [_point(row) for row in rows.to_dict("records")])
    for _, row in table[~is_baseline].iterrows() if mixed else ():
        origins.mark_point(axes, row, mark)
    ahead = table[table["on_front"]].sort_values("latency_ms")
    axes.plot(ahead["latency_ms"], ahead["accuracy"], color=colour, linewidth=1, zorder=2)


def _point(row: dict[Any, Any]) -> Point:
    """Return the tooltip at the mark of a network."""
    network = f"{model_title(row['model'])}, {operator_title(row['operator'])}"
    latency = f"latency {row['latency_ms']:.3g} ms" + (
        "" if isnan(row["difference"]) else f", speedup {row['difference']:+.0f} %"
    )
    return Point(f"{network}: accuracy {row['accuracy']:.4f}, {latency}", str(row["operator"]))


def language_figure(curves: pandas.DataFrame, known: Scores, title: str, notes: Sequence[str]) -> Figure:
    """Draw loss and perplexity over the steps and the minutes of trainings, with operators and without.

    Seeds are thin lines, their mean a thick line. Numbers without a known curve, such as the paper's, are marks.
    """
    if curves.empty:
        return nothing(title, "The log of GPT-2's training is not in the data.", notes)
    models = models_of(curves["model"])
    figure = Figure(figsize=(10.5, 1.6 + 5.6 * len(models)), layout="constrained")
    grid = figure.subplots(2 * len(models), 2, squeeze=False)
    for number, model in enumerate(models):
        own = curves[curves["model"] == model]
        lines = grid[2 * number : 2 * number + 2].flat
        for axes, (quantity, over) in zip(lines, AXES, strict=True):
            _curves(axes, own, quantity, over, is_first=(quantity, over) == AXES[0], model=model if len(models) > 1 else "")
            if model == LANGUAGE_MODEL:
                _marks(axes, known, quantity, over)
            axes.set_xlabel(NAMES[over])
            axes.set_ylabel(NAMES[quantity])
            if quantity == "perplexity":
                axes.set_yscale("log")
                axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axes.yaxis.set_minor_formatter(NullFormatter())
        if len(models) > 1:
            grid[2 * number][0].set_title(model_title(model), fontsize=9, loc="left")
    finish(figure, list(grid.flat), title, notes, columns=2)
    return figure


def _curves(axes: Axes, own: pandas.DataFrame, quantity: str, over: str, *, is_first: bool, model: str) -> None:
    """Draw the curves of one network into a panel; the first panel's curves get entries in the legend."""
    others = [name for name in dict.fromkeys(own["operator"]) if name != ORIGINAL]
    several = own.drop_duplicates(SERIES)[["operator", "origin"]].duplicated(keep=False).any()
    for (_, experiment, operator, origin), series in own.groupby(SERIES, sort=False):
        colour = INK if operator == ORIGINAL else POINT_LOOKS[others.index(operator) % len(POINT_LOOKS)][0]
        style = STYLES.get(str(origin), "-")
        seeds = [one for _, one in series.groupby("seed", dropna=False)]
        for one in seeds if len(seeds) > 1 else ():
            axes.plot(one[over], one[quantity], style, color=colour, linewidth=0.5, alpha=0.6)
        mean = mean_curve(series)
        told = [SHORT_ORIGINS.get(str(origin), str(origin)), *([str(experiment)] if several and experiment else [])]
        told += [f"mean of {len(seeds)} seeds"] if len(seeds) > 1 else []
        label = f"{model_title(model)}: " if model else ""
        label += f"{operator_title(str(operator))} ({', '.join(told)})"
        axes.plot(mean[over], mean[quantity], style, color=colour, linewidth=1.2, label=label if is_first else None)


def _marks(axes: Axes, known: Scores, quantity: str, over: str) -> None:
    """Draw the numbers of GPT-2 that have no curve: losses after the search's minutes, perplexities after the last step."""
    if over == "minutes":
        for value, colour, mark, label in (
            (known.told, ORANGE, "s", f"original, after {MINUTES:g} minutes, as the paper prints it"),
            (known.operator, BLUE, "o", f"with the operator, after {MINUTES:g} minutes (artifact)"),
        ):
            if value is not None:
                text = f"{label}: {value:.4f}" if quantity == "loss" else None
                shown = value if quantity == "loss" else exp(value)
                axes.plot([MINUTES], [shown], mark, color=colour, markersize=6, linestyle="none", label=text, zorder=4)
    elif quantity == "perplexity":
        for (name, shown), colour, mark in zip(PERPLEXITIES.items(), (ORANGE, BLUE), "Dv", strict=True):
            label = "original" if name == ORIGINAL else "with the operator"
            text = f"{label}, after {PERPLEXITY_STEPS:,} steps, as the paper prints it: {shown:g}"
            axes.plot([PERPLEXITY_STEPS], [shown], mark, color=colour, markersize=6, linestyle="none", label=text, zorder=4)


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
        caption: How the figure was made, and how to read it.
        metrics: The quantities in it; the notes name their origins.
        tables: Makes the tables of the figure's numbers, by name.
        draw: Draws the figure from the numbers, the tables, and the notes at its bottom.
        left_out: Lists the networks, operators and layers that it does not show, with the reasons.
        has_marks: Whether latencies of wrong code are marked in it.
    """

    title: str
    caption: str
    metrics: tuple[str, ...]
    tables: Callable[[Numbers], Tables]
    draw: Callable[[Numbers, Tables, tuple[str, ...]], Figure]
    left_out: Callable[[Numbers], Iterable[LeftOut]]
    has_marks: bool = False

    def notes(self, numbers: Numbers, devices_left_out: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the figure's notes: caption, origins of the numbers, a warning if some are wrong, and the items left out.

        `devices_left_out` are optional devices on which experiments do not measure, with the reasons.
        """
        tables = self.tables(numbers)
        devices = devices_left_out if "latency" in self.metrics else ()
        missing = [*devices, *left_out.lines(self.left_out(numbers), SHOWN)]
        parts = (self.caption, note(list(tables.values())), self.sources(numbers), self._marked(tables))
        return (*filter(None, parts), *([f"Left out: {'; '.join(missing)}."] if missing else []))

    def sources(self, numbers: Numbers) -> str:
        """Return a sentence on the origins of the figure's quantities; "" if there are no numbers."""
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
        """Return the warning about wrong code, preceded by the mark that the bars with such latencies have."""
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
    found = networks.layers(numbers.rows)
    return {"figure-9": found, "figure-9-means": networks.best_over_best(found)}


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
_OF_FIVE = (
    "For each network, device and compiler: the fastest operator among those whose accuracy on the proxy data set (CIFAR-100 "
    "in the paper) is less than 0.01 below the network's. ResNet-34 was not searched: it has ResNet-18's operators, with their "
    "accuracies in ResNet-18 where it has none of its own. The batch size is 1 where no other is given."
)
PAPER_FIGURES.register("figure-5")(
    PaperFigure(
        FIVE,
        f"{_OF_FIVE} Bars are speedups over the original network with TVM, or with the compiler in a panel's title where it "
        "was not measured with TVM; those with ‡, over the original network with the same compiler, beside others over that "
        "with TVM. Pale bars are the original network with another compiler. Percentages are differences from the published "
        "speedups, where those are of the same operator.",
        ("latency", "accuracy"),
        _network_tables,
        lambda numbers, tables, notes: end_to_end_figure(tables["figure-5"], tables["figure-5-means"], FIVE, notes),
        lambda numbers: left_out.of_end_to_end(numbers.rows),
        has_marks=True,
    )
)
PAPER_FIGURES.register("figure-5-by-compiler")(
    PaperFigure(
        f"{FIVE}, by compiler",
        f"{_OF_FIVE} Bars are speedups over the original network with the same compiler.",
        ("latency", "accuracy"),
        _network_tables,
        lambda numbers, tables, notes: end_to_end_figure(
            tables["figure-5"], tables["figure-5-means"], f"{FIVE}, by compiler", notes, by_compiler=True
        ),
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
_OF_NINE = (
    "The titles say how many times as fast as NAS-PTE's fastest sequence our fastest operator is, as the geometric mean over "
    "the layers. L1 to L31 are layers of ResNet-34; L9, L18 and L31 are 1x1 convolutions, which both systems replace by "
    "operators with windows of 3."
)
PAPER_FIGURES.register("figure-9")(
    PaperFigure(
        NINE,
        "Speedups over the convolution with TVM, or with the compiler in a panel's title where that was not measured with TVM: "
        f"of the convolution with another compiler, of NAS-PTE's three sequences, and of our operators. {_OF_NINE}",
        ("latency",),
        _layer_tables,
        lambda numbers, tables, notes: layerwise_figure(tables["figure-9"], tables["figure-9-means"], NINE, notes),
        lambda numbers: left_out.of_layers(numbers.rows),
    )
)
PAPER_FIGURES.register("figure-9-by-compiler")(
    PaperFigure(
        f"{NINE}, by compiler",
        "Speedups over the convolution with the same compiler. For each layer, only the fastest of NAS-PTE's three sequences "
        f"is shown. {_OF_NINE}",
        ("latency",),
        _layer_tables,
        lambda numbers, tables, notes: layerwise_figure(
            tables["figure-9"], tables["figure-9-means"], f"{NINE}, by compiler", notes, by_compiler=True
        ),
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
        lambda numbers: {"alpha-nas": networks.savings(numbers.rows)},
        lambda numbers, tables, notes: savings_figure(tables["alpha-nas"], ALPHA, notes),
        lambda numbers: left_out.of_savings(numbers.rows, networks.savings(numbers.rows)),
    )
)
