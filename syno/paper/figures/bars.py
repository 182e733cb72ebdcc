"""Drawing of Figures 5 and 9 as vertical bars, whose hatches can be told apart in print without colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, isfinite, nan
from textwrap import fill
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from syno.base.files import ORIGINAL
from syno.base.text_tables import plural
from syno.paper.figures import origins
from syno.paper.figures.mixture import same_place
from syno.paper.figures.networks import BASELINE, NAS_PTE_NAME, OURS
from syno.paper.figures.titles import compiler_title, compilers_of, model_title, models_of, operator_title, panels_of, places_of
from syno.paper.numbers import OF_THE_PAPER, TVM
from syno.paper.places import LAYERS
from syno.report.figures import BLUE, GREEN, GREY, INK, ORANGE, finish, nothing
from syno.report.points import Point, identify

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
CONVOLUTION = "convolution"
PALE = 0.4  # opacity of the bars of original networks
WRONG = "†"  # beside a latency of code that computes something else
OVER_OWN = "‡"  # beside a speedup over the same compiler's original network, where other bars are over that with TVM
SHARE = 4  # entries of a legend in a line
FIRST_PUBLISHED = ("paper", "artifact", "measured")  # origins of the bars of one compiler, from the left


def panels(figure: Figure, count: int, *, share: bool = True) -> list[Axes]:
    """Add `count` axes (panels) to a figure, `ACROSS` in a row, with `share` on a common vertical scale; return them."""
    across = min(count, ACROSS)
    grid = figure.subplots(ceil(count / across), across, squeeze=False, sharey=share)
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    return list(grid.flat[:count])


def size(count: int, height: float, extra: float = 1.2) -> tuple[float, float]:
    """Return the width and height in inches of a figure of `count` panels, each `height` high."""
    return max(LEAST_WIDTH, WIDTH * min(count, ACROSS)), extra + height * ceil(count / ACROSS)


def end_to_end_figure(
    best: pandas.DataFrame, means: pandas.DataFrame, title: str, notes: Sequence[str], *, by_compiler: bool = False
) -> Figure:
    """Draw speedups of networks, and their geometric means: a group of bars for each network.

    As in the paper, speedups are relative to the original network with TVM. Each compiler has a bar for the network with the
    operator, and compilers other than TVM a pale bar for their original network. With `by_compiler`, speedups are relative to
    the same compiler's original network, with one bar for each compiler. Latencies measured here on a device of the paper are
    in the paper's panel, to the right of the published ones.
    """
    if best.empty:
        return nothing(title, "No network's latency is known with an operator that is accurate enough.", notes)
    best, means = (table.assign(place=same_place(table)) for table in (best, means))
    places, compilers, mixed = places_of(best), compilers_of(best["compiler"]), origins.is_mixed(best)
    figure = Figure(figsize=size(len(places), 3.2), layout="constrained")
    every, ones, has_pale = panels(figure, len(places)), list[str | None](), False
    for axes, (place, heading) in zip(every, places.items(), strict=True):
        local, average = best[best["place"] == place], means[means["place"] == place]
        models = models_of(local["model"])
        references = {} if by_compiler else _references(local)
        one = _one(references)
        ones.append(one)
        own = [
            (compiler, origin, is_original)
            for compiler in compilers
            for origin in FIRST_PUBLISHED
            for is_original in ((True, False) if references.get((compiler, origin), compiler) != compiler else (False,))
            if ((local["compiler"] == compiler) & (local["latency_origin"] == origin)).any()
        ]
        for number, (compiler, origin, is_original) in enumerate(own):
            has_pale |= is_original
            reference = references.get((compiler, origin))
            rows, mean = (
                _bars(table[(table["compiler"] == compiler) & (table["latency_origin"] == origin)], reference, is_original)
                for table in (local, average)
            )
            rows = rows.set_index("model")
            heights = [*(float(rows["bar"].get(model, nan)) for model in models), *mean["bar"]]
            is_wrong = rows["is_wrong"] & (not is_original)
            over_own = not by_compiler and one is not None and reference != one
            count = int(mean["models"].sum())
            of_few = f" ({plural(count, 'network')})" if count == 1 or count < len(models) else ""
            marks = [
                *(_marks(bool(is_wrong.get(model, False)), over_own) for model in models),
                _marks(bool(is_wrong.any()), over_own) + of_few,
            ]
            told = [_bar_text(model_title(model), compiler, rows, model, reference, is_original) for model in models]
            beside = [*(float(rows["beside"].get(model, nan)) for model in models), *mean["beside"]]
            look = compilers.index(compiler)
            group(axes, heights, number, len(own), look, marks=marks, told=told, beside=beside, pale=is_original)
            marked = (*rows.iterrows(), *((MEAN, row) for _, row in mean.iterrows())) if mixed and not is_original else ()
            for model, row in marked:
                middle, width = middles([*models, MEAN].index(str(model)), number, len(own))
                origins.mark_bar(axes, middle, width, 0, row["bar"], row)
        axes.axhline(1, color=INK, linewidth=0.8)
        labels = [fill(model_title(model).replace("-", "- "), 12).replace("- ", "-") for model in models]
        axes.set_xticks(range(len(models) + 1), [*labels, MEAN], fontsize=7)
        axes.axvline(len(models) - 0.5, color=GREY, linewidth=0.6, linestyle=":")
        axes.set_title(fill(heading + _unlike_tvm(one, by_compiler), 55), fontsize=9)
        axes.margins(y=0.14 if best["difference"].isna().all() else 0.28)  # room for the values above the bars
    first_of_lines(every, _over("original network", ones))
    legend(every[0], {compiler_title(compiler): place for place, compiler in enumerate(compilers)})
    count = len(compilers) + has_pale + origins.legend_entries(every[0], best)
    if has_pale:
        every[0].bar([0], [0], color=INK, alpha=PALE, linewidth=0, label="pale: the original network")
    finish(figure, every, title, notes, columns=min(count, SHARE))
    no_vertical_grid(every)
    return figure


def _references(local: pandas.DataFrame) -> dict[tuple[str, str], str]:
    """Return, for each (compiler, origin of latencies), the compiler whose original network its speedups are relative to."""
    known = local.dropna(subset=["reference"])
    return dict(zip(zip(known["compiler"], known["latency_origin"], strict=True), known["reference"], strict=True))


def _one(references: Mapping[tuple[str, str], str]) -> str | None:
    """Return the compiler whose original network all speedups of a panel are relative to; None if references differ."""
    shared = [reference for (compiler, _), reference in references.items() if reference == TVM or reference != compiler]
    return next(iter([*shared, *(references.values() if len(set(references.values())) == 1 else ())]), None)


def _marks(is_wrong: bool, is_over_own: bool) -> str:
    return WRONG * is_wrong + OVER_OWN * is_over_own


def _over(quantity: str, references: Sequence[str | None]) -> str:
    """Return the label of an axis of speedups over these compilers' original networks."""
    return f"speedup over the\n{quantity} with TVM" if TVM in references else f"speedup over the {quantity}"


def _unlike_tvm(reference: str | None, by_compiler: bool) -> str:
    """Return the end of a panel's title: the reference of its speedups; "" for the usual reference, the original with TVM."""
    if by_compiler or reference == TVM:
        return ""
    return "; 1: the same compiler's original" if reference is None else f"; 1: the original with {compiler_title(reference)}"


def _bars(table: pandas.DataFrame, reference: str | None, is_original: bool) -> pandas.DataFrame:
    """Return a table with the columns `bar`, the heights of bars, and `beside`, their differences from published speedups.

    An original network's speedup over the original with the compiler `reference` is the speedup with the operator over this
    reference (`relative`), divided by the operator's speedup with its own compiler (`speedup`).
    """
    if reference is None:
        return table.assign(bar=table["speedup"], beside=table["difference"])
    if is_original:
        return table.assign(bar=table["relative"] / table["speedup"], beside=nan)
    return table.assign(bar=table["relative"], beside=table["relative_difference"])


def layerwise_figure(
    table: pandas.DataFrame, means: pandas.DataFrame, title: str, notes: Sequence[str], *, by_compiler: bool = False
) -> Figure:
    """Draw speedups of layers on a logarithmic axis: in the group of each layer, bars for NAS-PTE and for ours.

    As in the paper, speedups are relative to the convolution with TVM, and all three sequences of NAS-PTE have a bar. With
    `by_compiler`, they are relative to the convolution with the same compiler, and only the best sequence has a bar.
    """
    bars = _series(table, by_compiler)
    if bars.empty:
        return nothing(title, "No layer's latency is known.", notes)
    looks = _looks(bars["series"])
    chosen, several = panels_of(bars), bars["model"].nunique() > 1
    figure = Figure(figsize=size(len(chosen), 2.7), layout="constrained")
    every, ones = panels(figure, len(chosen)), list[str | None]()
    for axes, (model, compiler, place) in zip(every, chosen, strict=True):
        here = bars[(bars["model"] == model) & (bars["compiler"] == compiler) & (bars["place"] == place)]
        reference = None if by_compiler else _one(_references(here))
        ones.append(reference)
        labels = [label for label in LAYERS.values() if label in set(here["label"])]
        labels += sorted(set(here["label"]) - set(labels))
        own = [name for name in looks if name in set(here["series"])]
        for number, name in enumerate(own):
            rows = here[here["series"] == name].set_index("label")
            heights = [float(rows["bar"].get(label, nan)) for label in labels]
            told = [_bar_text(label, compiler, rows, label, reference, name == CONVOLUTION) for label in labels]
            group(axes, heights, number, len(own), looks[name], base=1.0, told=told)
            for label, row in rows.iterrows() if origins.is_mixed(bars) else ():
                middle, width = middles(labels.index(str(label)), number, len(own))
                origins.mark_bar(axes, middle, width, 1.0, row["bar"], row)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.axhline(1, color=INK, linewidth=0.8)
        is_long = max(map(len, labels)) > 4
        axes.set_xticks(range(len(labels)), labels, fontsize=6.5 if is_long else 7.5, rotation=45 if is_long else 0)
        for text in axes.get_xticklabels() if is_long else ():
            text.set_horizontalalignment("right")
        mean = means[(means["model"] == model) & (means["place"] == place) & (means["compiler"] == compiler)]
        best = "".join(
            f": {row['speedup']:.2f} over {NAS_PTE_NAME}"
            + (f" in {plural(row['layers'], 'layer')} of {len(labels)}" if row["layers"] < len(labels) else "")
            for row in mean.to_dict("records")
        )
        network = f"{model_title(model)}, " if several else ""
        heading = f"{network}{compiler_title(compiler)}, {place}{best}{_unlike_tvm(reference, by_compiler)}"
        axes.set_title(fill(heading, 60), fontsize=9)
    first_of_lines(every, _over("convolution", ones))
    legend(every[0], looks)
    count = len(looks) + origins.legend_entries(every[0], bars)
    of = "" if several else f" ({model_title(chosen[0][0])})"
    finish(figure, every, f"{title}{of}", notes, columns=min(count, SHARE))
    no_vertical_grid(every)
    return figure


def _bar_text(
    quantity: str, compiler: str, rows: pandas.DataFrame, key: str, reference: str | None, is_original: bool = False
) -> Point:
    """Return a bar's tooltip, from the row with its key; an empty one if there is no such row, and no bar."""
    if key not in rows.index:
        return Point("")
    row = rows.loc[key]
    named = compiler_title(compiler)
    over = "" if reference is None else f"{row['bar']:.2f} times as fast as the original with {compiler_title(reference)}"
    if is_original:
        return Point(f"{quantity}, original with {named}: {over}", ORIGINAL)
    difference: Any = row["difference"]
    speedup = f"{row['speedup']:.2f} times as fast with {named}{beside_published(difference)}"
    operator = str(row["operator"])
    return Point(f"{quantity}, {operator_title(operator)}: {speedup}{over and f'; {over}'}", operator)


def beside_published(difference: float) -> str:
    """Return the difference of a speedup from the published speedup as text; "" without a published one."""
    return f" ({difference:+.0f} %)" if isfinite(difference) else ""


def _series(table: pandas.DataFrame, by_compiler: bool) -> pandas.DataFrame:
    """Return the rows that get a bar, with the name of their series, and the bar's height in the column `bar`.

    Bars are drawn for NAS-PTE, the best of the other baselines, the paper's operators, and the best of all other operators;
    also for the convolution, if speedups are relative to the convolution with another compiler.
    """
    has_one = table["reference"].notna() & (not by_compiler)
    table = table.assign(bar=table["relative"].where(has_one, table["speedup"])).dropna(subset=["bar"])
    is_paper, is_theirs = table["operator"].isin(OF_THE_PAPER), table["family"] == NAS_PTE_NAME
    ours = table[(table["family"] == OURS) & ~is_paper]
    keys = ["model", "place", "compiler", "layer"]
    others = ours.sort_values("latency_ms", kind="stable").drop_duplicates(keys)
    name = BEST_OF_OURS if ours["operator"].nunique() > 1 else ""
    if by_compiler:
        theirs = table[is_theirs & table["is_best"]].assign(series=f"best of {NAS_PTE_NAME}")
    else:
        number = table["operator"].str.split("_").str[-1]
        theirs = table[is_theirs].assign(series=f"{NAS_PTE_NAME} " + number).sort_values("series", kind="stable")
    is_convolution = (table["operator"] == ORIGINAL) & has_one & (table["compiler"] != table["reference"])
    parts = [
        table[is_convolution].assign(series=CONVOLUTION),
        theirs,
        table[is_paper].assign(series=lambda rows: rows["operator"].map(operator_title)),
        others.assign(series=name or others["operator"].map(operator_title)),
        table[(table["family"] == BASELINE) & table["is_best"]].assign(series="best of the other baselines"),
    ]
    return pandas.concat([part for part in parts if len(part)] or [table.assign(series="")], ignore_index=True)


def _looks(series: pandas.Series) -> dict[str, int]:
    """Return the number of the colour and hatch of each series: NAS-PTE's is 1, the paper's operators have 0 and 2."""
    fixed = {f"best of {NAS_PTE_NAME}": 1, "Operator 1": 0, "Operator 2": 2}
    fixed |= {f"{NAS_PTE_NAME} {number}": place for number, place in ((1, 1), (2, 3), (3, 4))}
    taken = [fixed[name] for name in set(series) & set(fixed)]
    free = (place for place in (3, 4, 0, 2, *range(5, 5 + len(series))) if place not in taken)
    return {name: fixed[name] if name in fixed else next(free) for name in dict.fromkeys(series)}


def middles(number: int, place: int, count: int) -> tuple[float, float]:
    """Return the middle and the width of bar `place` of `count` bars in the group `number`, in units of the axis."""
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
    marks: Sequence[str] = (),
    told: Sequence[Point] = (),
    beside: Sequence[float] = (),
    pale: bool = False,
) -> None:
    """Draw bars with one colour and hatch, one in each group, from `base`. `told` are the bars' tooltips.

    The value above a bar is followed by its entry of `marks`, and by its entry of `beside`, the difference from the published
    value in percent. Bars of original networks are pale.
    """
    colour, hatch = LOOKS[look % len(LOOKS)]
    found = [middles(number, place, count) for number in range(len(values))]
    heights = [value - base for value in values]
    bars = axes.bar(
        [middle for middle, _ in found], heights, GROUP / count,
        bottom=base, color=colour, hatch=hatch, edgecolor="white", linewidth=0, zorder=2, alpha=PALE if pale else None,
    )  # fmt: skip
    for bar, value, point in zip(bars, values, told, strict=False):
        if isfinite(value):
            identify(bar, [point])
    if not base:  # from 0 upwards there is room for the values
        for number, ((middle, _), value) in enumerate(zip(found, values, strict=True)):
            if isfinite(value):
                mark = "".join(marks[number : number + 1])
                mark += "".join(map(beside_published, beside[number : number + 1]))
                axes.text(middle, value, f" {value:.2f}{mark}", ha="center", va="bottom", fontsize=6.5, rotation=90)


def legend(axes: Axes, looks: Mapping[str, int]) -> None:
    """Draw a legend with an entry for each series, by its colour and hatch."""
    for label, look in looks.items():
        colour, hatch = LOOKS[look % len(LOOKS)]
        axes.bar([0], [0], color=colour, hatch=hatch, edgecolor="white", linewidth=0, label=label)


def first_of_lines(every: Sequence[Axes], label: str) -> None:
    """Label the vertical axis of the first panel in each row of panels."""
    for axes in every[::ACROSS]:
        axes.set_ylabel(label)


def no_vertical_grid(every: Sequence[Axes]) -> None:
    """Remove the grid's vertical lines from these panels."""
    for axes in every:
        axes.grid(False, axis="x")
