"""Coordinate expressions: what they simplify to has the value of what was written, everywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from syno.algebra import Expression, Size, Valuation, VariableTable, half, iterator

Array = NDArray[np.int64]

TABLE = VariableTable.parse("A, B, C; k, s")
SIZES = [TABLE.size(text) for text in ("A", "B", "C", "k", "s", "A*B", "k*s", "A*k", "k^-1*A", "s^-1*A", "k^-1*s^-1*A", "B^2")]
EXTENTS = [TABLE.size(text) for text in ("A", "B", "k", "s", "k^-1*A", "k*s")]  # of up to three iterators


@dataclass
class Written:
    """An expression beside its value on the grid of all iterators; `holds` says where the conditions of guards do."""

    expression: Expression
    value: Array
    holds: Array

    def with_operation(self, expression: Expression, value: Array) -> Written:
        return Written(expression, value, self.holds)


class Grid:
    """Three iterators, each with all of its values, under one valuation."""

    def __init__(self, extents: list[Size], valuation: Valuation) -> None:
        self.valuation = valuation
        ranges = [np.arange(valuation.integer(extent)) for extent in extents]
        self.names = [f"i{axis}" for axis in range(len(extents))]
        self.iterators = dict(zip(self.names, np.meshgrid(*ranges, indexing="ij"), strict=True))
        self.everywhere = np.full([len(values) for values in ranges], True)
        self.leaves = [
            Written(iterator(name, extent), self.iterators[name], self.everywhere)
            for name, extent in zip(self.names, extents, strict=True)
        ]

    def apply(self, operation: str, one: Written, other: Written, by: Size, number: int) -> Written:
        n = self.valuation.integer(by)
        match operation:
            case "add":
                return Written(one.expression + other.expression, one.value + other.value, one.holds & other.holds)
            case "subtract":
                return Written(one.expression - other.expression, one.value - other.value, one.holds & other.holds)
            case "add number":
                return one.with_operation(one.expression + number, one.value + number)
            case "subtract half":
                return one.with_operation(one.expression - half(by), one.value - n // 2)
            case "multiply":
                return one.with_operation(one.expression * by, one.value * n)
            case "divide":
                return one.with_operation(one.expression // by, one.value // n)
            case "remainder":
                return one.with_operation(one.expression % by, one.value % n)
            case "radix":  # what Split makes, and what most identities are about
                return Written(
                    one.expression * by + other.expression % by, one.value * n + other.value % n, one.holds & other.holds
                )
            case "guard":
                return Written(one.expression.guarded(by), one.value, one.holds & (one.value >= 0) & (one.value < n))
        raise AssertionError(operation)


OPERATIONS = ["add", "subtract", "add number", "subtract half", "multiply", "divide", "remainder", "radix", "guard"]
OPERATIONS += ["divide", "remainder", "radix", "divide", "remainder"]


@st.composite
def valuations(draw: st.DrawFn) -> Valuation:
    """Small values, ones among them, so that every size of the pool is a whole number."""
    k, s = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return TABLE.valuation(k=k, s=s, A=k * s * draw(st.integers(1, 2)), B=draw(st.integers(1, 4)), C=draw(st.integers(1, 5)))


@st.composite
def written(draw: st.DrawFn) -> tuple[Grid, Written]:
    """A random expression over up to three iterators."""
    grid = Grid(draw(st.lists(st.sampled_from(EXTENTS), min_size=1, max_size=3)), draw(valuations()))
    pool = list(grid.leaves)
    for _ in range(draw(st.integers(1, 7))):
        one, other = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
        pool.append(
            grid.apply(draw(st.sampled_from(OPERATIONS)), one, other, draw(st.sampled_from(SIZES)), draw(st.integers(-3, 3)))
        )
        if len(pool) > 3 and draw(st.booleans()):
            pool.pop(draw(st.integers(0, len(pool) - 2)))  # so that later steps build on the last one more often
    return grid, pool[-1]


class CInteger:
    """An array with the arithmetic of C's int: division rounds towards zero, a remainder has the dividend's sign."""

    def __init__(self, value: Any) -> None:
        self.value = np.asarray(value)

    @staticmethod
    def _of(value: CInteger | int) -> Array:
        return value.value if isinstance(value, CInteger) else np.asarray(value)

    def __add__(self, other: CInteger | int) -> CInteger:
        return CInteger(self.value + self._of(other))

    def __sub__(self, other: CInteger | int) -> CInteger:
        return CInteger(self.value - self._of(other))

    def __mul__(self, other: CInteger | int) -> CInteger:
        return CInteger(self.value * self._of(other))

    def __neg__(self) -> CInteger:
        return CInteger(-self.value)

    def __truediv__(self, other: CInteger | int) -> CInteger:
        return CInteger(np.sign(self.value) * (np.abs(self.value) // self._of(other)))

    def __mod__(self, other: CInteger | int) -> CInteger:
        return CInteger(np.fmod(self.value, self._of(other)))

    def __radd__(self, other: int) -> CInteger:
        return CInteger(other) + self

    def __rsub__(self, other: int) -> CInteger:
        return CInteger(other) - self

    def __rmul__(self, other: int) -> CInteger:
        return CInteger(other) * self

    def __rtruediv__(self, other: int) -> CInteger:
        return CInteger(other) / self

    def __rmod__(self, other: int) -> CInteger:
        return CInteger(other) % self


def floor_mod(a: CInteger | int, b: CInteger | int) -> CInteger:
    return CInteger(CInteger._of(a) % CInteger._of(b))


def floor_div(a: CInteger | int, b: CInteger | int) -> CInteger:
    return CInteger(CInteger._of(a) // CInteger._of(b))


def simplifying_never_changes_the_value(made: tuple[Grid, Written]) -> None:
    grid, what = made
    value = np.broadcast_to(what.expression.evaluate(grid.iterators, grid.valuation), what.value.shape)
    assert np.array_equal(value[what.holds], what.value[what.holds])


def the_value_stays_below_the_extent(made: tuple[Grid, Written]) -> None:
    _, what = made
    extent = what.expression.extent
    if extent is not None:
        value = what.value[what.holds]
        assert ((value >= 0) & (value < made[0].valuation.integer(extent))).all()


def python_text_has_the_value(made: tuple[Grid, Written]) -> None:
    grid, what = made
    text = what.expression.text(lambda size: size.integer_text())
    value = np.broadcast_to(eval(text, {}, {**grid.iterators, **grid.valuation}), what.value.shape)
    assert np.array_equal(value[what.holds], what.value[what.holds])


def c_text_has_the_value(made: tuple[Grid, Written]) -> None:
    grid, what = made
    text = what.expression.text(lambda size: size.integer_text("/"), "/")
    names = {name: CInteger(value) for name, value in {**grid.iterators, **grid.valuation}.items()}
    result = eval(text, {"floor_mod": floor_mod, "floor_div": floor_div}, names)
    value = np.broadcast_to(result.value if isinstance(result, CInteger) else result, what.value.shape)
    assert np.array_equal(value[what.holds], what.value[what.holds])


def adding_up_its_terms_gives_it_back(made: tuple[Grid, Written]) -> None:
    expression = made[1].expression
    again = sum((Expression((term,)) for term in expression.terms), Expression())
    assert again == expression and hash(again) == hash(expression)


CHECKS = [
    simplifying_never_changes_the_value,
    the_value_stays_below_the_extent,
    python_text_has_the_value,
    c_text_has_the_value,
    adding_up_its_terms_gives_it_back,
]
QUICK = settings(
    deadline=None,
    derandomize=True,
    max_examples=15,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@QUICK
@given(made=written())
def test_random_expressions(check: Callable[[tuple[Grid, Written]], None], made: tuple[Grid, Written]) -> None:
    check(made)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@settings(QUICK, max_examples=500)
@given(made=written())
def test_many_random_expressions(check: Callable[[tuple[Grid, Written]], None], made: tuple[Grid, Written]) -> None:
    check(made)
