"""Pareto fronts of points with a cost and a quality.

>>> front([(3.0, 0.9), (1.0, 0.5), (2.0, 0.4)])
[1, 0]
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite

Point = tuple[float, float]  # cost, quality


def front(points: Sequence[Point]) -> list[int]:
    """Return the indices of the points that no other point dominates, by rising cost.

    One point dominates another if it costs no more and is no worse, and is better in one of the two. Equal points do not
    dominate each other: all of them are on the front or none. Points that are not finite are never on the front.
    """
    finite = [place for place, point in enumerate(points) if all(map(isfinite, point))]
    kept: list[int] = []
    best = (inf, -inf)  # the last point on the front
    for place in sorted(finite, key=lambda place: (points[place][0], -points[place][1], place)):
        if points[place][1] > best[1] or points[place] == best:
            kept.append(place)
            best = points[place]
    return kept


def near_front(points: Sequence[Point], within: Point) -> list[int]:
    """Return the indices of the points that are on the front, or would be if they cost less and were better by `within`."""
    ahead = [points[place] for place in front(points)]
    cheaper, better = within
    return [
        place
        for place, (cost, quality) in enumerate(points)
        if isfinite(cost)
        and isfinite(quality)
        and not any(_dominates(point, (cost - cheaper, quality + better)) for point in ahead)
    ]


def _dominates(one: Point, other: Point) -> bool:
    return one[0] <= other[0] and one[1] >= other[1] and one != other
