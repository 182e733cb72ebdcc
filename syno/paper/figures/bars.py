"""The drawings of Figures 5 and 9, which have upright bars. Hatches tell the bars apart in print without colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, isfinite
from textwrap import fill
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from syno.paper.figures import origins
from syno.paper.figures.networks import BASELINE, NAS_PTE_NAME, OURS
from syno.paper.figures.titles import compiler_title, compilers_of, model_title, models_of, operator_title, panels_of, places_of
from syno.paper.numbers import OF_THE_PAPER
from syno.report.figures import BLUE, GREEN, GREY, INK, ORANGE, finish, nothing
from syno.report.points import Point, identify
from syno.results.speedups import LAYERS

WIDTH, LEAST_WIDTH = 4.2, 9.0  # inches of a panel, and of a figure, whose title and legend need room
ACROSS = 3  # panels in a line
GROUP = 0.8  # the share of the space between groups that bars fill
LOOKS = (
    (BLUE, ""),
    (ORANGE, "///"),
    (GREEN, "..."),
    ("#CC79A7", "xxx"),
    ("#E69F00", "\\\\\\"),
    ("#56B4E9", "++"),
)  # colours and hatches of bars
MEAN = "geometric\nmean"
BEST_OF_OURS = "best of the other operators"
WRONG = "†"  # beside a latency of code that computes something else
SHARE = 4  # entries of a legend in a line
FIRST_PUBLISHED = ("paper", "artifact", "measured")  # origins of the bars of one compiler, from the left


def panels(figure: Figure, count: int, *, share: bool = True) -> list[Axes]:
    """Return so many axes, `ACROSS` in a line, that share the vertical axis."""
    across = min(count, ACROSS)
    grid = figure.subplots(ceil(count / across), across, squeeze=False, sharey=share)
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    return list(grid.flat[:count])


def size(count: int, height: float, extra: float = 1.2) -> tuple[float, float]:
    """Return the size of a figure with so many panels, in inches."""
    return max(LEAST_WIDTH, WIDTH * min(count, ACROSS)), extra + height * ceil(count / ACROSS)


def end_to_end_figure(best: pandas.DataFrame, means: pandas.DataFrame, title: str, notes: Sequence[str]) -> Figure:
    """Draw speedups of networks, and their geometric means: a group of bars for each network, a bar for each compiler.

    What was measured here on a device of the paper is in the paper's panel, a bar to the right of the published one.
    """
    if best.empty:
        return nothing(title, "No network's latency is known with an operator that is accurate enough.", notes)
    best, means = (_without_origins(table) for table in (best, means))
    places, compilers, mixed = places_of(best), compilers_of(best["compiler"]), origins.is_mixed(best)
    figure = Figure(figsize=size(len(places), 3.2), layout="constrained")
    every = panels(figure, len(places))
    for axes, (place, heading) in zip(every, places.items(), strict=True):
        local = best[best["place"] == place]
        models, found = models_of(local["model"]), set(zip(local["compiler"], local["latency_origin"], strict=True))
        own = [(compiler, origin) for compiler in compilers for origin in FIRST_PUBLISHED if (compiler, origin) in found]
        for number, (compiler, origin) in enumerate(own):
            rows = local[(local["compiler"] == compiler) & (local["latency_origin"] == origin)].set_index("model")
            average = means[(means["place"] == place) & (means["compiler"] == compiler) & (means["latency_origin"] == origin)]
            heights = [*(float(rows["speedup"].get(model, float("nan"))) for model in models), *average["speedup"]]
            wrong = [*(bool(rows["is_wrong"].get(model, False)) for model in models), bool(rows["is_wrong"].any())]
            told = [_bar_text(model_title(model), compiler, rows, model) for model in models]
            beside = [*(float(rows["difference"].get(model, float("nan"))) for model in models), *average["difference"]]
            group(axes, heights, number, len(own), compilers.index(compiler), wrong=wrong, told=told, beside=beside)
            for model, row in (*rows.iterrows(), *((MEAN, row) for _, row in average.iterrows())) if mixed else ():
                middle, width = middles([*models, MEAN].index(str(model)), number, len(own))
                origins.mark_bar(axes, middle, width, 0, row["speedup"], row)
        axes.axhline(1, color=INK, linewidth=0.8)
        labels = [fill(model_title(model).replace("-", "- "), 12).replace("- ", "-") for model in models]
        axes.set_xticks(range(len(models) + 1), [*labels, MEAN], fontsize=7)
        axes.axvline(len(models) - 0.5, color=GREY, linewidth=0.6, linestyle=":")
        axes.set_title(fill(heading, 55), fontsize=9)
        axes.margins(y=0.14 if best["difference"].isna().all() else 0.28)  # room for the values above the bars
    first_of_lines(every, "speedup over the original network")
    legend(every[0], {compiler_title(compiler): place for place, compiler in enumerate(compilers)})
    count = len(compilers) + origins.legend_entries(every[0], best)
    finish(figure, every, title, notes, columns=min(count, SHARE))
    no_vertical_grid(every)
    return figure


def _without_origins(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return a table whose places are the same for measurements of all origins there."""
    columns = (table["place"], table["latency_origin"])
    return table.assign(place=[place.removesuffix(f", {origin}") for place, origin in zip(*columns, strict=True)])


def layerwise_figure(table: pandas.DataFrame, means: pandas.DataFrame, title: str, notes: Sequence[str]) -> Figure:
    """Draw speedups of layers on a logarithmic axis: in the group of each layer, bars for the best of NAS-PTE and for ours."""
    bars = _series(table)
    if bars.empty:
        return nothing(title, "No layer's latency is known.", notes)
    looks = _looks(bars["series"])
    chosen, several = panels_of(bars), bars["model"].nunique() > 1
    figure = Figure(figsize=size(len(chosen), 2.7), layout="constrained")
    every = panels(figure, len(chosen))
    for axes, (model, compiler, place) in zip(every, chosen, strict=True):
        here = bars[(bars["model"] == model) & (bars["compiler"] == compiler) & (bars["place"] == place)]
        labels = [label for label in LAYERS.values() if label in set(here["label"])]
        labels += sorted(set(here["label"]) - set(labels))
        own = [name for name in looks if name in set(here["series"])]
        for number, name in enumerate(own):
            rows = here[here["series"] == name].set_index("label")
            heights = [float(rows["speedup"].get(label, float("nan"))) for label in labels]
            told = [_bar_text(label, compiler, rows, label) for label in labels]
            group(axes, heights, number, len(own), looks[name], base=1.0, told=told)
            for label, row in rows.iterrows() if origins.is_mixed(bars) else ():
                middle, width = middles(labels.index(str(label)), number, len(own))
                origins.mark_bar(axes, middle, width, 1.0, row["speedup"], row)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.axhline(1, color=INK, linewidth=0.8)
        is_long = max(map(len, labels)) > 4
        axes.set_xticks(range(len(labels)), labels, fontsize=6.5 if is_long else 7.5, rotation=45 if is_long else 0)
        for text in axes.get_xticklabels() if is_long else ():
            text.set_horizontalalignment("right")
        mean = means[(means["model"] == model) & (means["place"] == place) & (means["compiler"] == compiler)]["speedup"]
        best = f": {mean.iloc[0]:.2f} over {NAS_PTE_NAME}" if len(mean) else ""
        network = f"{model_title(model)}, " if several else ""
        axes.set_title(fill(f"{network}{compiler_title(compiler)}, {place}{best}", 60), fontsize=9)
    first_of_lines(every, "speedup over the convolution")
    legend(every[0], looks)
    count = len(looks) + origins.legend_entries(every[0], bars)
    of = "" if several else f" ({model_title(chosen[0][0])})"
    finish(figure, every, f"{title}{of}", notes, columns=min(count, SHARE))
    no_vertical_grid(every)
    return figure


def _bar_text(what: str, compiler: str, rows: pandas.DataFrame, key: str) -> Point:
    """Return the text at a bar, from the row of its key; empty where there is no such row, and no bar."""
    if key not in rows.index:
        return Point("")
    row = rows.loc[key]
    difference: Any = row["difference"]
    speedup = f"{row['speedup']:.2f} times as fast with {compiler_title(compiler)}{beside_published(difference)}"
    return Point(f"{what}, {operator_title(str(row['operator']))}: {speedup}", str(row["operator"]))


def beside_published(difference: float) -> str:
    """Return the difference of a speedup from the published one as text; "" where there is none."""
    return f" ({difference:+.0f} %)" if isfinite(difference) else ""


def _series(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows that get a bar, with the name of their series.

    They are the best of NAS-PTE, the best of the other baselines, the paper's operators, and the best of all other operators.
    """
    table = table.dropna(subset=["speedup"])
    is_paper = table["operator"].isin(OF_THE_PAPER)
    ours = table[(table["family"] == OURS) & ~is_paper]
    keys = ["model", "place", "compiler", "layer"]
    others = ours.sort_values("latency_ms", kind="stable").drop_duplicates(keys)
    name = BEST_OF_OURS if ours["operator"].nunique() > 1 else ""
    parts = [
        table[(table["family"] == NAS_PTE_NAME) & table["is_best"]].assign(series=f"best of {NAS_PTE_NAME}"),
        table[is_paper].assign(series=lambda rows: rows["operator"].map(operator_title)),
        others.assign(series=name or others["operator"].map(operator_title)),
        table[(table["family"] == BASELINE) & table["is_best"]].assign(series="best of the other baselines"),
    ]
    return pandas.concat([part for part in parts if len(part)] or [table.assign(series="")], ignore_index=True)


def _looks(series: pandas.Series) -> dict[str, int]:
    """Return the look of each series. NAS-PTE's is the second, the paper's operators have the first and the third."""
    fixed = {f"best of {NAS_PTE_NAME}": 1, "Operator 1": 0, "Operator 2": 2}
    taken = [fixed[name] for name in set(series) & set(fixed)]
    free = (place for place in (3, 4, 0, 2, *range(5, 5 + len(series))) if place not in taken)
    return {name: fixed[name] if name in fixed else next(free) for name in dict.fromkeys(series)}


# ---- parts that the figures share -----------------------------------------------------------------------------------


def middles(number: int, place: int, count: int) -> tuple[float, float]:
    """Return the middle and the width of a bar: of the group `number`, the bar `place` of `count`."""
    width = GROUP / count
    return number + (place - (count - 1) / 2) * width, width


def group(
    axes: Axes,
    values: Sequence[float],
    place: int,
    count: int,
    look: int,
    *,
    base: float = 0.0,
    wrong: Sequence[bool] = (),
    told: Sequence[Point] = (),
    beside: Sequence[float] = (),
) -> None:
    """Draw bars of one look, one in each group, from `base`; those of wrong code are marked. `told` is what each bar says.

    `beside` are the differences from published values, in percent.
    """
    colour, hatch = LOOKS[look % len(LOOKS)]
    found = [middles(number, place, count) for number in range(len(values))]
    heights = [value - base for value in values]
    bars = axes.bar(
        [middle for middle, _ in found], heights, GROUP / count,
        bottom=base, color=colour, hatch=hatch, edgecolor="white", linewidth=0, zorder=2,
    )  # fmt: skip
    for bar, value, point in zip(bars, values, told, strict=False):
        if isfinite(value):
            identify(bar, [point])
    if not base:  # from 0 upwards there is room for the values
        for number, ((middle, _), value) in enumerate(zip(found, values, strict=True)):
            if isfinite(value):
                mark = WRONG if any(wrong[number : number + 1]) else ""
                mark += "".join(map(beside_published, beside[number : number + 1]))
                axes.text(middle, value, f" {value:.2f}{mark}", ha="center", va="bottom", fontsize=6.5, rotation=90)


def legend(axes: Axes, looks: Mapping[str, int]) -> None:
    """Draw an entry of the legend for each look."""
    for label, look in looks.items():
        colour, hatch = LOOKS[look % len(LOOKS)]
        axes.bar([0], [0], color=colour, hatch=hatch, edgecolor="white", linewidth=0, label=label)


def first_of_lines(every: Sequence[Axes], label: str) -> None:
    """Label the vertical axis of the first panel of each line."""
    for axes in every[::ACROSS]:
        axes.set_ylabel(label)


def no_vertical_grid(every: Sequence[Axes]) -> None:
    """Draw no vertical lines behind bars."""
    for axes in every:
        axes.grid(False, axis="x")
