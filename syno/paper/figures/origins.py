"""The marks that show where each number in a figure comes from. They can be read without colour.

A bar or a point whose latency was measured here has a dark outline. Small marks in it show the origins of the operator's
accuracy and, if it differs, of the original network's. If all numbers of a figure have one origin, there are no marks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas
from matplotlib.axes import Axes

from syno.paper.figures.titles import SHORT_ORIGINS
from syno.report.figures import INK

ACCURACY_MARKS = {"measured": "o", "artifact": "^", "paper": "s"}
COLUMNS = ("latency_origin", "accuracy_origin", "original_origin")
OUTLINE = 1.1  # points
EDGE: dict[str, Any] = {"markeredgecolor": INK, "markeredgewidth": 0.7}


def is_mixed(table: pandas.DataFrame) -> bool:
    """Return whether a figure's table mixes numbers measured here with published numbers."""
    found = {origin for column in COLUMNS if column in table for origin in table[column].dropna()}
    return "measured" in found and len(found) > 1


def marks(row: pandas.Series) -> tuple[str, ...]:
    """Return the marks for the origins of a row's accuracies: the operator's, and the original's if it differs."""
    found = [row.get("accuracy_origin"), row.get("original_origin")]
    return tuple(dict.fromkeys(ACCURACY_MARKS[origin] for origin in found if isinstance(origin, str)))


def mark_bar(axes: Axes, middle: float, width: float, bottom: float, top: float, row: pandas.Series) -> None:
    """Mark a bar with the origins of its numbers: an outline, and marks at its foot."""
    if row["latency_origin"] == "measured":
        low, high = min(bottom, top), max(bottom, top)
        axes.bar(middle, high - low, width, bottom=low, facecolor="none", edgecolor=INK, linewidth=OUTLINE, zorder=3)
    found = marks(row)
    for place, mark in enumerate(found):
        x = middle + (place - (len(found) - 1) / 2) * width * 0.42
        (line,) = axes.plot(x, 0.035, mark, color="white", **EDGE, markersize=3.6, zorder=4)
        line.set_transform(axes.get_xaxis_transform())


def mark_point(axes: Axes, row: pandas.Series, mark: str) -> None:
    """Mark a point with the origins of its numbers: an outline, and marks in it."""
    at = (row["latency_ms"], row["accuracy"])
    if row["latency_origin"] == "measured":
        axes.plot(*at, mark, markersize=8.5, markerfacecolor="none", markeredgecolor=INK, markeredgewidth=OUTLINE, zorder=4)
    for inner in marks(row)[:1]:
        axes.plot(*at, inner, color="white", **EDGE, markersize=3, zorder=5)


def legend_entries(axes: Axes, table: pandas.DataFrame) -> int:
    """Add the entries of the legend for the origins that occur in a table; return their number."""
    if not is_mixed(table):
        return 0
    count = 0
    if (table["latency_origin"] == "measured").any():
        outline: dict[str, Any] = {
            "markerfacecolor": "none",
            "markeredgecolor": INK,
            "markeredgewidth": OUTLINE,
            "markersize": 9,
        }
        axes.plot([], [], "s", label="latency measured here", **outline)
        count += 1
    found = {origin for column in COLUMNS[1:] if column in table for origin in table[column].dropna()}
    for origin in [name for name in ACCURACY_MARKS if name in found]:
        label = f"accuracy: {SHORT_ORIGINS[origin]}"
        axes.plot([], [], ACCURACY_MARKS[origin], color="white", **EDGE, markersize=5, label=label)
        count += 1
    return count


def note(tables: Sequence[pandas.DataFrame]) -> str:
    """Return the sentence that explains the marks; "" if the figure has none."""
    if not any(is_mixed(table) for table in tables if "latency_ms" in table):
        return ""
    text = "A dark outline: the latency was measured here; without one, it is the artifact's."
    if any("original_origin" in table for table in tables):
        text += " Small marks: the origin of the accuracy; in bars, two marks where the original network's has another one."
    return text
