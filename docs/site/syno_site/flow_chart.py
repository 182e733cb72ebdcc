"""Flow charts: a block in Mermaid's language, which code hosts draw, as a picture without a program of another host.

Of that language, it reads `flowchart LR` with lines such as `a --> b --> c` and `a -. label .-> b`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

_BLOCK = re.compile(r"^```mermaid\nflowchart LR\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ARROW = re.compile(r"\s*(?:-->|-\.\s*(?P<label>.*?)\s*\.->)\s*")
WIDTH, HEIGHT, ACROSS, DOWN, MARGIN = 86, 28, 124, 48, 8  # of a box, between the corners of two, and around all
ABOVE, BEND = 52, (ACROSS - WIDTH) // 2  # for arrows over boxes; how far arrows go straight on
Edge = tuple[str, str, str]  # from, to, label


def completed(text: str) -> str:
    """Return a page's text with pictures in place of flow charts."""
    return _BLOCK.sub(lambda block: f'<div class="flow-chart" tabindex="0">{picture(edges(block[1]))}</div>', text)


def edges(chart: str) -> list[Edge]:
    """Return the arrows of a flow chart."""
    found: list[Edge] = []
    for line in filter(None, map(str.strip, chart.splitlines())):
        names = [name for place, name in enumerate(_ARROW.split(line)) if place % 2 == 0]
        labels = [match["label"] or "" for match in _ARROW.finditer(line)]
        found += zip(names[:-1], names[1:], labels, strict=True)
    return found


def columns(arrows: list[Edge]) -> dict[str, int]:
    """Return the column of each box: one more than the last of those before it."""
    found = dict.fromkeys((name for arrow in arrows for name in arrow[:2]), 0)
    for _ in found:
        for start, end, _label in arrows:
            found[end] = max(found[end], found[start] + 1)
    return found


def picture(arrows: list[Edge]) -> str:
    """Return the flow chart as SVG. Boxes of a column stand below one another, in the order of their first arrow."""
    places, used, rows = columns(arrows), dict[int, int](), dict[str, int]()
    for name, column in places.items():
        rows[name] = used.get(column, 0)
        used[column] = rows[name] + 1
    corners = {name: (MARGIN + ACROSS * places[name], ABOVE + DOWN * rows[name]) for name in places}
    width = 2 * MARGIN + ACROSS * max(places.values()) + WIDTH
    height = ABOVE + MARGIN + DOWN * (max(used.values()) - 1) + HEIGHT
    sizes = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [*_lines(arrows, corners), *_boxes(corners)]
    return f'<svg xmlns="http://www.w3.org/2000/svg" {sizes} role="img" aria-label="flow chart">{"".join(parts)}</svg>'


def _boxes(corners: dict[str, tuple[int, int]]) -> Iterator[str]:
    for name, (x, y) in corners.items():
        yield f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5"/>'
        yield f'<text x="{x + WIDTH / 2}" y="{y + HEIGHT / 2 + 4}">{escape(name)}</text>'


def _lines(arrows: list[Edge], corners: dict[str, tuple[int, int]]) -> Iterator[str]:
    for start, end, label in arrows:
        (left, top), (right, bottom) = corners[start], corners[end]
        if top == bottom and right - left > ACROSS:  # over the boxes between them
            x, tip, over = left + 0.7 * WIDTH, right + 0.3 * WIDTH, top - ABOVE
            yield f'<path d="M{x:g} {top}C{x + 20:g} {over} {tip - 20:g} {over} {tip:g} {top - 6}"/>'
            yield f'<path class="head" d="M{tip:g} {top}l-4 -7h8z"/>'
            continue
        x, y, tip, level = left + WIDTH, top + HEIGHT / 2, right, bottom + HEIGHT / 2
        dashes = ' stroke-dasharray="5 3"' if label else ""
        yield f'<path d="M{x} {y}C{x + BEND} {y} {tip - 2 * BEND} {level} {tip - 6} {level}"{dashes}/>'
        yield f'<path class="head" d="M{tip} {level}l-7 -4v8z"/>'
        if label:
            yield f'<text class="label" x="{(x + tip) / 2}" y="{(y + level) / 2 - HEIGHT / 2 - 4}">{escape(label)}</text>'
