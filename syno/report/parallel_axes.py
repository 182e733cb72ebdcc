"""Operators as lines over parallel axes, one axis for each number that describes them."""

from __future__ import annotations

from collections.abc import Collection

import pandas
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from syno.report.figures import GREY, INK

COLOURS = "viridis"


def draw_parallel(axes: Axes, table: pandas.DataFrame, colour: str, logarithms: Collection[str] = ()) -> None:
    """Draw a line for each row of a table into a panel. Each column has an axis of its own, from its minimum to its maximum.

    Lines have the colour of their value in one of the columns; lines of higher values are drawn on top.

    Args:
        axes: the panel.
        table: finite numbers, with at least one row and two columns.
        colour: the column whose values give the lines' colours.
        logarithms: columns of logarithms to base 2, whose ends are written as the numbers themselves.
    """
    columns = list(table.columns)
    low, high = table.min(), table.max()
    span = (high - low).where(high > low, 1.0)
    heights = (table - low) / span
    heights.loc[:, high <= low] = 0.5  # all are equal
    scale, colours = Normalize(float(low[colour]), float(high[colour])), colormaps[COLOURS]
    for place in table[colour].sort_values(kind="stable").index:
        shade = colours(scale(float(table.loc[place, colour])))
        axes.plot(range(len(columns)), heights.loc[place], color=shade, linewidth=1.1, alpha=0.85)
    for place, name in enumerate(columns):
        axes.axvline(place, color=GREY, linewidth=0.7, zorder=1)
        for end, height, side in ((low[name], -0.02, "top"), (high[name], 1.02, "bottom")):
            if end == low[name] or high[name] > low[name]:
                text = f"{2**end if name in logarithms else end:.4g}"
                axes.text(place, height, text, ha="center", va=side, fontsize=7, color=INK)
    axes.set_xticks(
        range(len(columns)),
        [name.replace(": ", ":\n") for name in columns],
        fontsize=7.5,
        rotation=30,
        ha="right",
        rotation_mode="anchor",
    )
    axes.tick_params(axis="x", length=0, pad=12)
    axes.set_yticks([])
    axes.set_ylim(-0.06, 1.06)
    axes.margins(x=0.04)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.figure.colorbar(ScalarMappable(scale, colours), ax=axes, label=colour, pad=0.02)
