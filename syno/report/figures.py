"""The pictures of measurements, each as SVG and PNG. No window system is used."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from syno.base.errors import SpecError
from syno.base.files import write_whole
from syno.report.ablations.canonical import Rate
from syno.report.ablations.guided import Run

BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"  # of the palette of Okabe and Ito, which the colour-blind can tell apart
GREY, INK = "#555555", "#1A1A1A"
DOTS_PER_INCH = 150
NOTE_WIDTH = 22  # letters in an inch
FORMATS = ("svg", "png")
NO_DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}  # the same numbers, the same file


def canonical_figure(rates: Sequence[Rate], title: str, notes: Sequence[str]) -> Figure:
    """Shares of random graphs that are canonical, by size, on a logarithmic axis; sizes with none have no mark."""
    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axes = figure.add_subplot()
    found = [rate for rate in rates if rate.canonical]
    for shown, colour, style, label in (
        ([(rate.size, rate.exact / rate.graphs) for rate in rates if rate.exact], GREEN, "s--", "by exact rules alone"),
        ([(rate.size, rate.share) for rate in found], BLUE, "o-", "by all rules"),
        ([(rate.size, rate.in_order / rate.graphs) for rate in rates if rate.in_order], ORANGE, "^:", "in the order drawn"),
    ):
        axes.plot([size for size, _ in shown], [share for _, share in shown], style, color=colour, label=label)
    low, high = zip(*(rate.interval for rate in found), strict=True) if found else ((), ())
    axes.fill_between([rate.size for rate in found], low, high, color=BLUE, alpha=0.15, linewidth=0, label="95 % interval")
    axes.set_yscale("log")
    axes.set_xticks([rate.size for rate in rates])
    axes.set_ylabel("share of canonical graphs")
    axes.secondary_yaxis("right", functions=(_inverse, _inverse)).set_ylabel("graphs per canonical graph")
    axes.set_xlabel("primitives")
    finish(figure, [axes], title, notes)
    return figure


def distance_figure(runs: Sequence[Run], title: str, notes: Sequence[str]) -> Figure:
    """Distinct operators found, by trials and by CPU time, with the distance and without."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    by_trials, by_time = figure.subplots(1, 2, sharey=True)
    for run, colour in zip(runs, (BLUE, ORANGE), strict=True):
        count = len(run.trials)
        found = [0, *range(1, count + 1), count]
        by_trials.step([1, *run.trials, run.walks], found, where="post", color=colour, label=f"{run.name} ({count})")
        by_time.step([0.1, *run.seconds, run.used], found, where="post", color=colour, label=f"{run.name} ({count})")
    for axes, label in ((by_trials, "random walks"), (by_time, "CPU-seconds, start included")):
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(label)
    by_trials.set_ylabel("distinct operators found")
    finish(figure, [by_trials, by_time], title, notes)
    return figure


def save(figure: Figure, stem: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write the picture in each format ("svg", "png", "pdf"); the same numbers give the same files."""
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in formats]
    for path, kind in zip(paths, formats, strict=True):
        write_whole(path, drawn(figure, kind), durable=False)
    return paths


def drawn(figure: Figure, kind: str) -> bytes:
    """The picture in one format. SpecError for a format there is not."""
    if kind not in NO_DATE:
        raise SpecError(f'a figure is written as {", ".join(NO_DATE)}; given: "{kind}"')
    stream = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "syno"}):
        figure.savefig(stream, format=kind, dpi=DOTS_PER_INCH, metadata=NO_DATE[kind])
    return stream.getvalue()


def finish(figure: Figure, panels: Sequence[Axes], title: str, notes: Sequence[str], *, columns: int | None = None) -> None:
    """Title, grid, legend, and where the numbers come from.

    The legend is in the first panel, or in so many columns between the title and the panels; with 0 there is none.
    """
    for axes in panels:
        axes.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
        axes.spines["top"].set_visible(False)
    if not columns:
        figure.suptitle(title, fontsize=11)
        if columns is None:
            panels[0].legend(frameon=False, fontsize=9)
    else:  # with its own title: a layout makes room for one of the two only
        figure.legend(loc="outside upper center", ncols=columns, frameon=False, fontsize=8, title=title, title_fontsize=11)
    lines = [line for note in notes for line in wrap(note, int(NOTE_WIDTH * figure.get_figwidth()))]
    figure.supxlabel("\n".join(lines), fontsize=6, color=GREY, x=0.01, ha="left", parse_math=False)


def nothing(title: str, why: str, notes: Sequence[str]) -> Figure:
    """A picture that says that there is nothing to show."""
    figure = Figure(figsize=(7, 2.4), layout="constrained")
    axes = figure.add_subplot()
    finish(figure, [axes], title, notes, columns=0)
    axes.set_axis_off()
    axes.text(0.5, 0.5, why, ha="center", va="center", color=GREY, transform=axes.transAxes)
    return figure


def _inverse(shares: npt.ArrayLike) -> npt.NDArray[np.float64]:
    values: npt.NDArray[np.float64] = np.asarray(shares, dtype=np.float64)
    inverse = np.full_like(values, np.inf)
    np.divide(1.0, values, out=inverse, where=values != 0)
    return inverse
