"""The drawings of Figures 5, 8, 9 and `alpha-nas`, which have bars. Hatches tell the bars apart in print without colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

from syno.report.figures import BLUE, GREEN, GREY, INK, ORANGE, finish, nothing
from syno.report.paper.comparisons import NAS_PTE_NAME, OURS
from syno.results.paper import COMPILERS, DEVICES, LAYERS, MODELS

WIDTH = 4.2  # inches of a panel
GROUP = 0.8  # the share of the space between groups that bars fill
LOOKS = ((BLUE, ""), (ORANGE, "///"), (GREEN, "..."), ("#CC79A7", "xxx"))  # colours and hatches of bars
MEAN = "geometric\nmean"
THICK = 0.38  # the share of a network's space that each of its two bars takes
SAVINGS = (("fewer_flops", "fewer FLOPs", BLUE, ""), ("fewer_parameters", "fewer parameters", ORANGE, "///"))


def panels(figure: Figure, rows: int, columns: int) -> list[list[Axes]]:
    """Return a grid of axes that share the vertical axis."""
    return [list(line) for line in figure.subplots(rows, columns, squeeze=False, sharey=True)]


def present(names: Sequence[str], found: pandas.Series) -> list[str]:
    """Return the names that occur in `found`, in the order of `names`, then all others that occur."""
    there = list(dict.fromkeys(map(str, found)))
    return [name for name in names if name in there] + [name for name in there if name not in names]


def end_to_end_figure(best: pandas.DataFrame, means: pandas.DataFrame, title: str, notes: Sequence[str]) -> Figure:
    """Draw speedups of networks, and their geometric means: a group of bars for each network, a bar for each compiler."""
    if best.empty:
        return nothing(title, "No network's latency is known with an operator that is accurate enough.", notes)
    devices, compilers = present(tuple(DEVICES), best["device"]), present(tuple(COMPILERS), best["compiler"])
    models = present(tuple(MODELS), best["model"])
    figure = Figure(figsize=(WIDTH * len(devices), 4.4), layout="constrained")
    (line,) = panels(figure, 1, len(devices))
    for axes, device in zip(line, devices, strict=True):
        for place, compiler in enumerate(compilers):
            rows = best[(best["device"] == device) & (best["compiler"] == compiler)].set_index("model")["speedup"]
            mean = means[(means["device"] == device) & (means["compiler"] == compiler)]["speedup"]
            heights = [*(float(rows.get(model, float("nan"))) for model in models), *mean]
            _group(axes, heights, place, len(compilers), place)
        axes.axhline(1, color=INK, linewidth=0.8)
        labels = [MODELS.get(model, model).replace("-", "-\n", 1) for model in models]
        axes.set_xticks(range(len(models) + 1), [*labels, MEAN], fontsize=7)
        axes.axvline(len(models) - 0.5, color=GREY, linewidth=0.6, linestyle=":")
        axes.set_title(_device(device), fontsize=9)
        axes.margins(y=0.12)
    line[0].set_ylabel("speedup over the original network")
    _legend(line[0], {COMPILERS.get(compiler, compiler): place for place, compiler in enumerate(compilers)})
    finish(figure, line, title, notes, columns=len(compilers))
    _no_vertical_grid(line)
    return figure


def layerwise_figure(table: pandas.DataFrame, means: pandas.DataFrame, title: str, notes: Sequence[str]) -> Figure:
    """Draw speedups of layers on a logarithmic axis: in the group of each layer, bars for the best of NAS-PTE and for ours."""
    candidates = table[(table["family"] == OURS) | ((table["family"] == NAS_PTE_NAME) & table["is_best"])]
    candidates = candidates.dropna(subset=["speedup"])
    if candidates.empty:
        return nothing(title, "No layer's latency is known.", notes)
    names = candidates["operator"].where(candidates["family"] == OURS, f"best of {NAS_PTE_NAME}")
    candidates = candidates.assign(series=names.str.replace("operator_", "Operator "))
    ours = sorted(set(candidates["series"][candidates["family"] == OURS]))
    looks = {f"best of {NAS_PTE_NAME}": 1, **dict(zip(ours, (0, 2, 3, *range(4, len(ours) + 4)), strict=False))}
    devices, compilers = present(tuple(DEVICES), candidates["device"]), present(tuple(COMPILERS), candidates["compiler"])
    labels = [label for label in LAYERS.values() if label in set(candidates["label"])]
    figure = Figure(figsize=(WIDTH * len(devices), 1.2 + 2.7 * len(compilers)), layout="constrained")
    grid = panels(figure, len(compilers), len(devices))
    for line, compiler in zip(grid, compilers, strict=True):
        for axes, device in zip(line, devices, strict=True):
            here = candidates[(candidates["device"] == device) & (candidates["compiler"] == compiler)]
            for place, (name, look) in enumerate(looks.items()):
                speedups = here[here["series"] == name].set_index("label")["speedup"]
                heights = [float(speedups.get(label, float("nan"))) for label in labels]
                _group(axes, heights, place, len(looks), look, base=1.0)
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.axhline(1, color=INK, linewidth=0.8)
            axes.set_xticks(range(len(labels)), labels, fontsize=7.5)
            mean = means[(means["device"] == device) & (means["compiler"] == compiler)]["speedup"]
            best = f": {mean.iloc[0]:.2f} over {NAS_PTE_NAME}" if len(mean) else ""
            axes.set_title(f"{COMPILERS.get(compiler, compiler)}, {DEVICES.get(device, device)}{best}", fontsize=9)
        line[0].set_ylabel("speedup over the convolution")
    every = [axes for line in grid for axes in line]
    _legend(every[0], looks)
    finish(figure, every, title, notes, columns=len(looks))
    _no_vertical_grid(every)
    return figure


def case_study_figure(table: pandas.DataFrame, title: str, notes: Sequence[str]) -> Figure:
    """Draw latencies as horizontal bars, with the speedup and the accuracy of each."""
    if table.empty:
        return nothing(title, "No latency of the case study is known.", notes)
    devices, candidates = present(tuple(DEVICES), table["device"]), list(dict.fromkeys(table["candidate"]))
    figure = Figure(figsize=(WIDTH * len(devices), 3.0), layout="constrained")
    (line,) = panels(figure, 1, len(devices))
    scores = table.drop_duplicates("candidate").set_index("candidate")["accuracy"]
    for axes, device in zip(line, devices, strict=True):
        here = table[table["device"] == device]
        for row in here.to_dict("records"):
            colour, hatch = LOOKS[candidates.index(row["candidate"]) % len(LOOKS)]
            place = candidates.index(row["candidate"])
            axes.barh(place, row["latency_ms"], 0.6, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
            faster = f" ({row['speedup']:.2f}x)" if isfinite(row["speedup"]) else ""
            text = f" {row['latency_ms']:.3g} ms{faster}"
            axes.text(row["latency_ms"], place, text, va="center", fontsize=7.5)
        axes.set_xlim(0, 1.45 * here["latency_ms"].max())
        axes.set_xlabel("latency/ms")
        axes.set_title(_device(device), fontsize=9)
    known = [f"{name}\naccuracy {scores[name]:.4f}" if isfinite(scores[name]) else name for name in candidates]
    line[0].set_yticks(range(len(candidates)), known, fontsize=8)
    line[0].set_ylim(len(candidates) - 0.5, -0.5)
    finish(figure, line, title, notes, columns=0)
    figure.suptitle(title, fontsize=11)
    for axes in line:
        axes.grid(False, axis="y")
    return figure


def savings_figure(table: pandas.DataFrame, title: str, notes: Sequence[str]) -> Figure:
    """Draw two bars for each network, the FLOPs and parameters that it saves, and beside them accuracy and speedup as text."""
    if not (table["system"] == OURS).any():
        return nothing(title, "No network's FLOPs are known with an operator that is accurate enough.", notes)
    rows = table.to_dict("records")
    figure = Figure(figsize=(9, 1.6 + 0.5 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for number, (column, label, colour, hatch) in enumerate(SAVINGS):
        places = [place + (number - 0.5) * THICK for place in range(len(rows))]
        values = [float(row[column]) for row in rows]
        axes.barh(places, values, THICK, color=colour, hatch=hatch, edgecolor="white", linewidth=0, label=label, zorder=2)
        for place, value in zip(places, values, strict=True):
            axes.text(max(value, 0), place, f" {value:.0%}", va="center", fontsize=7)
    for place, row in enumerate(rows):
        axes.text(1.02, place, _change(row), va="center", fontsize=7.5, transform=axes.get_yaxis_transform())
    axes.set_yticks(range(len(rows)), [f"{row['system']}: {row['network']}" for row in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.axhline((table["system"] != OURS).sum() - 0.5, color="#555555", linewidth=0.6, linestyle=":")
    axes.set_xlim(left=min(0.0, *(float(row[column]) for row in rows for column, *_ in SAVINGS)), right=1)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    finish(figure, [axes], title, notes, columns=len(SAVINGS))
    axes.grid(False, axis="y")
    axes.spines["right"].set_visible(False)
    return figure


def _group(axes: Axes, values: Sequence[float], place: int, count: int, look: int, *, base: float = 0.0) -> None:
    """Draw bars of one look, one in each group, from `base`."""
    colour, hatch = LOOKS[look % len(LOOKS)]
    width = GROUP / count
    middles = [number + (place - (count - 1) / 2) * width for number in range(len(values))]
    heights = [value - base for value in values]
    axes.bar(middles, heights, width, bottom=base, color=colour, hatch=hatch, edgecolor="white", linewidth=0, zorder=2)
    if not base:  # from 0 upwards there is room for the values
        for middle, value in zip(middles, values, strict=True):
            if isfinite(value):
                axes.text(middle, value, f" {value:.2f}", ha="center", va="bottom", fontsize=6.5, rotation=90)


def _change(row: Mapping[Any, Any]) -> str:
    """Return the text beside the bars of a network: how accuracy changes, and how much faster it is."""
    if row["system"] != OURS:
        return "no accuracy lost on ImageNet"
    change = [
        f"{-100 * row[column]:+.1f} on {data}"
        for column, data in (("lost_cifar100", "CIFAR-100"), ("lost_imagenet", "ImageNet"))
        if isfinite(row[column])
    ]
    faster = f"; {row['least_speedup']:.2f}x to {row['largest_speedup']:.2f}x" if isfinite(row["largest_speedup"]) else ""
    return f"{row['operator']}\naccuracy {', '.join(change)}{faster}"


def _legend(axes: Axes, looks: Mapping[str, int]) -> None:
    """Draw an entry of the legend for each look."""
    for label, look in looks.items():
        colour, hatch = LOOKS[look % len(LOOKS)]
        axes.bar([0], [0], color=colour, hatch=hatch, edgecolor="white", linewidth=0, label=label)


def _device(device: str) -> str:
    paper = DEVICES.get(device, device)
    return device if paper == device else f"{paper} ({device})"


def _no_vertical_grid(every: Sequence[Axes]) -> None:
    for axes in every:
        axes.grid(False, axis="x")
