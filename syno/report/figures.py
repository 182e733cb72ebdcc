"""The parts that all figures share: colours, titles, notes and files. No window system is needed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogFormatterSciNotation

from syno.base.errors import SpecError
from syno.base.files import write_whole
from syno.report.points import labelled, marked

BLUE, ORANGE, GREEN, PURPLE = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
)  # of the palette of Okabe and Ito, which the colour-blind can tell apart
GREY, INK = "#555555", "#1A1A1A"
DOTS_PER_INCH = 150
SHORT = 100  # times the lowest number of a logarithmic axis: below, more than powers of ten are numbered
NOTE_WIDTH = 22  # letters of a note in an inch
AT_THE_BOTTOM = {  # of a figure of trials, those without a reward: marker, colour, height as share of the axis
    "pruned": ("v", ORANGE, 0.085),
    "paused": ("v", ORANGE, 0.085),
    "resumed": ("^", ORANGE, 0.085),  # it paused, and a later trial went on with it
    "screened": ("|", GREY, 0.135),
    "failed": ("x", INK, 0.035),
}
FORMATS = ("svg", "png")
NO_DATE = {
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
    "png": {"Software": None},
}  # so that equal numbers give equal files


@dataclass(frozen=True)
class Picture:
    """A figure of the page.

    Attributes:
        title: The title.
        svg: An SVG document.
        caption: How to read it.
    """

    title: str
    svg: str
    caption: str = ""


def save(figure: Figure, stem: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write a figure in each format ("svg", "png", "pdf") and return the files. Equal figures give equal files."""
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in formats]
    for path, kind in zip(paths, formats, strict=True):
        write_whole(path, drawn(figure, kind), durable=False)
    return paths


def drawn(figure: Figure, kind: str) -> bytes:
    """Return a figure as bytes in one format; in SVG, identified points have titles. SpecError for an unknown format."""
    if kind not in NO_DATE:
        raise SpecError(f'a figure is written as {", ".join(NO_DATE)}; given: "{kind}"')
    stream = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "syno"}), marked(figure):
        figure.savefig(stream, format=kind, dpi=DOTS_PER_INCH, metadata=NO_DATE[kind])
    return labelled(stream.getvalue()) if kind == "svg" else stream.getvalue()


def finish(figure: Figure, panels: Sequence[Axes], title: str, notes: Sequence[str], *, columns: int | None = None) -> None:
    """Add the title, the grid, the legend, and notes at the bottom.

    Args:
        figure: The figure.
        panels: The figure's panels.
        title: The title.
        notes: Paragraphs at the bottom, such as where the numbers come from.
        columns: The number of columns of a legend between the title and the panels; 0 for no legend, None for a legend in the
            first panel.
    """
    for axes in panels:
        style(axes)
    if not columns:
        figure.suptitle(title, fontsize=11)
        if columns is None:
            panels[0].legend(frameon=False, fontsize=9)
    else:  # with its own title: a layout makes room for one of the two only
        figure.legend(loc="outside upper center", ncols=columns, frameon=False, fontsize=8, title=title, title_fontsize=11)
    lines = [line for note in notes for line in wrap(note, int(NOTE_WIDTH * figure.get_figwidth()))]
    figure.supxlabel("\n".join(lines), fontsize=6, color=GREY, x=0.01, ha="left", parse_math=False)


def style(axes: Axes) -> None:
    """Give a panel the grid and the frame that all figures share."""
    axes.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
    axes.spines.top.set_visible(False)
    for axis in (axes.xaxis, axes.yaxis):
        _number_logarithmic(axis)


def _number_logarithmic(axis: Axis) -> None:
    """Label a logarithmic axis with plain numbers: at 1, 2 and 5 if it spans less than two decades, else at powers of ten.

    By default, matplotlib writes powers such as 6 x 10^-1 at every minor tick of a short axis. Ticks that a figure has chosen
    for itself stay.
    """
    if axis.get_scale() != "log":
        return
    low, high = sorted(axis.get_view_interval())
    is_short = high / low < SHORT
    if isinstance(axis.get_major_formatter(), LogFormatterSciNotation):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if isinstance(axis.get_minor_formatter(), LogFormatterSciNotation):
        axis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if is_short and f"{value:e}"[0] in "25" else ""))


def nothing(title: str, why: str, notes: Sequence[str]) -> Figure:
    """Return a figure without data that shows only the title and the reason `why`."""
    figure = Figure(figsize=(7, 2.4), layout="constrained")
    axes = figure.add_subplot()
    finish(figure, [axes], title, notes, columns=0)
    axes.set_axis_off()
    axes.text(0.5, 0.5, why, ha="center", va="center", color=GREY, transform=axes.transAxes)
    return figure
