"""Labels beside points, placed so that they cover neither each other nor the points.

With a fixed offset, names cannot be read where operators have nearly equal costs, which is usual near a Pareto front. Here,
each label takes the best of 40 places around its point. The choice is deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import dist, hypot

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from syno.report.figures import GREY

FONT_SIZE = 7.5
LONGEST = 26  # letters of a label
DIRECTIONS = ((1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
GAPS = (5.0, 12.0, 22.0, 34.0, 48.0)  # points between a mark and its label; beyond the first a line leads to it
MARK = 4.5  # half the width of a mark, in points
ROUNDS = 3


@dataclass(frozen=True)
class Label:
    """A text, and the coordinates of the point that it names, in the units of the axes."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class _Place:
    box: Bbox  # in pixels
    offset: tuple[float, float]  # from the point to the middle of the text, in points
    gap: float
    doubtful: bool  # whether another point is about as near, so that a line must lead to the right one


def place_labels(axes: Axes, labels: Sequence[Label], marks: Sequence[tuple[float, float]], lines: Sequence[Bbox] = ()) -> None:
    """Write labels at the places where they cover points, lines and each other the least.

    Call it after the figure's layout (`draw_without_rendering`), which labels do not change.

    Args:
        axes: The axes.
        labels: The labels.
        marks: All points of the panel as (x, y), in the units of the axes.
        lines: The panel's lines as thin boxes, in the units of the axes.
    """
    figure = axes.get_figure(root=True)
    if figure is None or not labels:
        return
    FigureCanvasAgg(figure)
    scale = figure.dpi / 72
    points = axes.transData.transform(np.asarray(marks, dtype=float)).tolist()
    seen = [Bbox.from_extents(*point, *point).padded(MARK * scale) for point in points]
    seen += [box.transformed(axes.transData).padded(1.0) for box in lines]
    texts = [_written(axes, label) for label in labels]
    options = [_options(axes, label, text, points, scale) for label, text in zip(labels, texts, strict=True)]
    for text, place in zip(texts, _chosen(options, seen, axes.bbox), strict=True):
        text.xyann = place.offset
        if text.arrow_patch is not None:
            text.arrow_patch.set_visible(place.gap > GAPS[0])


def _written(axes: Axes, label: Label) -> Annotation:
    text = label.text if len(label.text) <= LONGEST else label.text[: LONGEST - 1] + "…"
    leader = {"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3.5}
    written = axes.annotate(
        text, (label.x, label.y), (0, 0), textcoords="offset points", ha="center", va="center",
        fontsize=FONT_SIZE, arrowprops=leader, zorder=5, annotation_clip=False, parse_math=False,
    )  # fmt: skip
    written.set_path_effects([withStroke(linewidth=2, foreground="white")])
    written.set_in_layout(False)
    return written


def _options(axes: Axes, label: Label, text: Annotation, points: Sequence[Sequence[float]], scale: float) -> list[_Place]:
    size = text.get_window_extent()
    here = axes.transData.transform((label.x, label.y)).tolist()
    others = [point for point in points if dist(point, here) > 1]
    places = []
    for gap in GAPS:
        for right, up in DIRECTIONS:
            away = (gap + MARK) * scale * (0.7 if right and up else 1.0)  # as far as the others, along the diagonal
            across, along = right * (away + size.width / 2), up * (away + size.height / 2)
            corner = here[0] + across - size.width / 2, here[1] + along - size.height / 2
            box = Bbox.from_bounds(*corner, size.width, size.height)
            doubtful = any(_distance(box, point) < _distance(box, here) + 3 * scale for point in others)
            places.append(_Place(box, (across / scale, along / scale), gap, doubtful))
    return places


def _chosen(options: Sequence[Sequence[_Place]], seen: Sequence[Bbox], frame: Bbox) -> list[_Place]:
    """Return a place for each label, chosen greedily one after another, then once more with all other labels placed."""
    chosen: dict[int, _Place] = {}
    for _ in range(ROUNDS):
        for number, places in enumerate(options):
            others = [place.box for other, place in chosen.items() if other != number]
            chosen[number] = min(places, key=lambda place: _harm(place, seen, others, frame))
    return list(chosen.values())


def _harm(place: _Place, seen: Sequence[Bbox], others: Sequence[Bbox], frame: Bbox) -> float:
    area = place.box.width * place.box.height
    outside = area - _shared(place.box, frame)
    covered = sum(_shared(place.box, box) for box in seen) + 3 * sum(_shared(place.box, box.padded(1.0)) for box in others)
    return 10 * outside + covered + 0.01 * area * place.gap + (0.3 * area if place.doubtful else 0.0)


def _distance(box: Bbox, point: Sequence[float]) -> float:
    across = max(box.x0 - point[0], 0.0, point[0] - box.x1)
    return hypot(across, max(box.y0 - point[1], 0.0, point[1] - box.y1))


def _shared(first: Bbox, second: Bbox) -> float:
    width, height = min(first.x1, second.x1) - max(first.x0, second.x0), min(first.y1, second.y1) - max(first.y0, second.y0)
    return float(width * height) if width > 0 and height > 0 else 0.0
