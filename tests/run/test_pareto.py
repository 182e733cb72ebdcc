"""Pareto fronts, against their definition."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syno.run.metric import Point, front, near_front

FEW = st.integers(0, 5).map(float)  # few values: many ties
POINTS = st.lists(st.tuples(FEW, FEW), max_size=12)


def dominates(one: Point, other: Point) -> bool:
    return one[0] <= other[0] and one[1] >= other[1] and (one[0] < other[0] or one[1] > other[1])


@given(POINTS)
def test_the_front_is_what_nothing_dominates(points: list[Point]) -> None:
    expected = {place for place, point in enumerate(points) if not any(dominates(other, point) for other in points)}
    found = front(points)
    assert set(found) == expected
    assert len(found) == len(expected)
    assert [points[place][0] for place in found] == sorted(points[place][0] for place in expected)


@given(POINTS)
def test_the_front_is_near_the_front(points: list[Point]) -> None:
    assert sorted(front(points)) == near_front(points, (0.0, 0.0))
    assert set(front(points)) <= set(near_front(points, (1.0, 1.0)))


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([], []),
        ([(1, 1)], [0]),
        ([(1, 1), (1, 1)], [0, 1]),  # equals do not dominate each other
        ([(1, 1), (1, 2)], [1]),
        ([(1, 1), (2, 1)], [0]),
        ([(2, 3), (1, 1), (3, 2)], [1, 0]),
        ([(nan, 9), (1, nan), (2, 1), (-inf, 1), (1, inf)], [2]),
    ],
)
def test_the_front_of_small_sets_by_hand(points: list[Point], expected: list[int]) -> None:
    assert front(points) == expected


def test_points_within_the_margins_are_near_the_front() -> None:
    points = [(1.0, 0.5), (2.0, 0.9), (2.1, 0.89), (3.0, 0.6), (nan, 1.0)]
    assert near_front(points, (0.2, 0.02)) == [0, 1, 2]
