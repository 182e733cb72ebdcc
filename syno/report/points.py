"""Identified points of figures: in SVG, each point has a title with its name and numbers, and a reference to its operator.

Matplotlib writes an artist's id into the SVG. While a figure is drawn, the id contains the descriptions of its points
(`marked`); `labelled` then moves them to `<title>` elements, which browsers and screen readers show, and removes the id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from weakref import WeakKeyDictionary
from xml.etree import ElementTree

from matplotlib.artist import Artist
from matplotlib.figure import Figure

SVG = "http://www.w3.org/2000/svg"
NAMESPACES = {
    "": SVG,
    "xlink": "http://www.w3.org/1999/xlink",
    "dc": "http://purl.org/dc/elements/1.1/",
    "cc": "http://creativecommons.org/ns#",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
}
MARK = "points:"  # the beginning of the id of an artist with points
HEAD = '<?xml version="1.0" encoding="utf-8" standalone="no"?>\n'
CLASS, OPERATOR = "point", "data-operator"


_POINTS: WeakKeyDictionary[Artist, tuple[Point, ...]] = WeakKeyDictionary()


class Point(NamedTuple):
    """A description of a point or a bar of a figure.

    Attributes:
        text: the point's name and numbers, shown as a tooltip.
        operator: the operator that the point stands for, whose card a click opens; "" for none.
    """

    text: str
    operator: str = ""


NO_POINTS: Mapping[int, Point] = {}  # by the number of a trial
MOST_POINTS = 2000  # of one kind in a figure: more hide each other, and make the file large


def shown_points(count: int, first: Sequence[int] = ()) -> list[int]:
    """Return the indices of the points to draw, of `count` in a row: all, or a nearly even selection if there are too many.

    `first` are indices with priority: all are drawn, unless there are too many; the last of them always is.
    """
    if count <= MOST_POINTS:
        return list(range(count))
    evenly = {place * count // MOST_POINTS for place in range(MOST_POINTS)}
    return sorted(evenly | {first[place] for place in shown_points(len(first))} | {*first[-1:]})


def count_text(count: int, shown: int) -> str:
    """Return the number of points for a legend, with the number of drawn ones if not all are drawn."""
    return str(count) if count == shown else f"{count:,}, of which {shown:,} are drawn"


def identify(artist: Artist, points: Sequence[Point]) -> None:
    """Attach descriptions to an artist: one for a bar, or one for each point of a line with markers, in order."""
    _POINTS[artist] = tuple(points)


@contextmanager
def marked(figure: Figure) -> Iterator[None]:
    """Within the block, give the artists described by `identify` an SVG id that contains the descriptions."""
    known = [artist for artist in figure.findobj() if artist in _POINTS]
    try:
        for artist in known:
            artist.set_gid(MARK + json.dumps(_POINTS[artist]))
        yield
    finally:
        for artist in known:
            artist.set_gid(None)


def identify_trials(artist: Artist, numbers: Iterable[int], points: Mapping[int, Point]) -> None:
    """Describe the points of a line as trials with these numbers; do nothing if `points` lacks one of them."""
    chosen = [int(number) for number in numbers]
    if chosen and points.keys() >= set(chosen):
        identify(artist, [points[number] for number in chosen])


def labelled(svg: bytes) -> bytes:
    """Return matplotlib's SVG document with a `<title>`, a class and the operator at each point described by `identify`.

    A document without such points stays as it is.
    """
    if MARK.encode() not in svg:
        return svg
    for prefix, space in NAMESPACES.items():
        ElementTree.register_namespace(prefix, space)
    root = ElementTree.fromstring(svg, ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True)))
    for group in root.iter(f"{{{SVG}}}g"):
        if not (name := group.get("id", "")).startswith(MARK):
            continue
        del group.attrib["id"]
        points = [Point(*one) for one in json.loads(name.removeprefix(MARK))]
        marks = list(group.iter(f"{{{SVG}}}use")) or [group]
        if len(marks) == len(points):  # else some were outside of the panel, and nothing tells which
            for mark, point in zip(marks, points, strict=True):
                label(mark, point)
    return (HEAD + ElementTree.tostring(root, encoding="unicode") + "\n").encode()


def label(mark: ElementTree.Element, point: Point) -> None:
    """Add a point's title and operator to its mark in an SVG document."""
    mark.set("class", CLASS)
    if point.operator:
        mark.set(OPERATOR, point.operator)
    title = ElementTree.Element(f"{mark.tag[: mark.tag.find('}') + 1]}title")  # in the mark's namespace, if it has one
    title.text = point.text
    mark.insert(0, title)
