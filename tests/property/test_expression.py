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

from syno.algebra import ONE, Expression, Size, Valuation, VariableTable, half, iterator

Array = NDArray[np.int64]

TABLE = VariableTable.parse("A, B, C; k, s")
SIZES = [TABLE.size(text) for text in ("A", "B", "C", "k", "s", "A*B", "k*s", "A*k", "k^-1*A", "s^-1*A", "k^-1*s^-1*A", "B^2")]
EXTENTS = [TABLE.size(text) for text in ("A", "B", "k", "s", "k^-1*A", "k*s")]  # of up to three iterators


def size(text: str) -> Size:
    return TABLE.size(text)


# ---- the value of what was written, computed without the simplifier --------------------------------------------------


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

    def __rmul__(self, other: int) -> CInteger:
        return CInteger(other) * self

    def __rtruediv__(self, other: int) -> CInteger:
        return CInteger(other) / self


def floor_mod(a: CInteger, b: CInteger) -> CInteger:
    return CInteger(a.value % b.value)


def floor_div(a: CInteger, b: CInteger) -> CInteger:
    return CInteger(a.value // b.value)


class TestRandomExpressions:
    examples = settings(
        deadline=None,
        derandomize=True,
        max_examples=400,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )

    @settings(parent=examples, max_examples=1000)
    @given(written())
    def test_simplifying_never_changes_the_value(self, made: tuple[Grid, Written]) -> None:
        grid, what = made
        value = np.broadcast_to(what.expression.evaluate(grid.iterators, grid.valuation), what.value.shape)
        assert np.array_equal(value[what.holds], what.value[what.holds])

    @examples
    @given(written())
    def test_the_value_stays_below_the_extent(self, made: tuple[Grid, Written]) -> None:
        _, what = made
        extent = what.expression.extent
        if extent is not None:
            value = what.value[what.holds]
            assert ((value >= 0) & (value < made[0].valuation.integer(extent))).all()

    @examples
    @given(written())
    def test_python_text_has_the_value(self, made: tuple[Grid, Written]) -> None:
        grid, what = made
        text = what.expression.text(lambda size: size.integer_text())
        value = np.broadcast_to(eval(text, {}, {**grid.iterators, **grid.valuation}), what.value.shape)
        assert np.array_equal(value[what.holds], what.value[what.holds])

    @examples
    @given(written())
    def test_c_text_has_the_value(self, made: tuple[Grid, Written]) -> None:
        grid, what = made
        text = what.expression.text(lambda size: size.integer_text("/"), "/")
        names = {name: CInteger(value) for name, value in {**grid.iterators, **grid.valuation}.items()}
        result = eval(text, {"floor_mod": floor_mod, "floor_div": floor_div}, names)
        value = np.broadcast_to(result.value if isinstance(result, CInteger) else result, what.value.shape)
        assert np.array_equal(value[what.holds], what.value[what.holds])

    @examples
    @given(written())
    def test_adding_up_its_terms_gives_it_back(self, made: tuple[Grid, Written]) -> None:
        expression = made[1].expression
        again = sum((Expression((term,)) for term in expression.terms), Expression())
        assert again == expression and hash(again) == hash(expression)


# ---- identities ------------------------------------------------------------------------------------------------------

I, J, R, X = (iterator(name, size(extent)) for name, extent in (("i", "A"), ("j", "B"), ("r", "k"), ("x", "A*B")))
A, B, C, K, S = (size(name) for name in ("A", "B", "C", "k", "s"))
N = size("A*B*C")
LONG = iterator("n", N)

IDENTITIES: list[tuple[str, Callable[[], Expression], str]] = [
    ("a radix is taken apart", lambda: (I * B + J) // B, "i"),
    ("a radix is taken apart", lambda: (I * B + J) % B, "j"),
    ("in any order of terms", lambda: (J + I * B) // B, "i"),
    ("in any order of terms", lambda: (J + I * B) % B, "j"),
    ("with two digits above", lambda: (LONG * (A * B) + I * B + J) // B, "A*n + i"),
    ("with two digits below", lambda: (LONG * (A * B) + I * B + J) // (A * B), "n"),
    ("with two digits below", lambda: (LONG * (A * B) + I * B + J) % (A * B), "B*i + j"),
    ("a common factor leaves a quotient", lambda: (I * C + iterator("j", C)) // (B * C), "i//B"),
    ("a common factor leaves a remainder", lambda: (I * C + iterator("j", C)) % (B * C), "C*(i%B) + j"),
    ("a quotient of a quotient", lambda: (X // A) // B, "0"),
    ("a quotient of a quotient", lambda: (LONG // A) // B, "n//(A*B)"),
    ("a quotient of a remainder", lambda: (LONG % (A * B)) // A, "(n//A)%B"),
    ("a remainder of a remainder", lambda: (LONG % (A * B)) % A, "n%A"),
    ("a remainder of a quotient stays", lambda: (LONG // A) % B, "(n//A)%B"),
    ("what is below the divisor has no quotient", lambda: J // B, "0"),
    ("what is below the divisor is its remainder", lambda: J % B, "j"),
    ("what is below a factor of the divisor too", lambda: J // (B * K), "0"),
    ("what is below a factor of the divisor too", lambda: J % (B * K), "j"),
    ("recombination", lambda: (LONG // A) * A + LONG % A, "n"),
    ("recombination, remainder first", lambda: LONG % A + (LONG // A) * A, "n"),
    ("recombination, scaled", lambda: ((LONG // A) * A + LONG % A) * C, "C*n"),
    ("recombination of scaled terms", lambda: (LONG // A) * (A * C) + (LONG % A) * C, "C*n"),
    ("recombination of as much as there is", lambda: (LONG // A) * A + LONG % A + LONG % A, "n + (n%A)"),
    ("recombination of what is left over", lambda: (LONG // A) * A + (LONG % A - LONG), "0"),
    ("shifts merge", lambda: ((I + 1) % A + 2) % A, "(i + 3)%A"),
    ("shifts merge with those of the other direction", lambda: ((I + 1) % A + -1) % A, "i"),
    ("shifts merge below a factor", lambda: (((I + 1) % A) * B + J) // B, "(i + 1)%A"),
    ("shifts of different axes do not", lambda: ((X + 1) % (A * B) + 2) % A, "(x + 3)%A"),
    ("a multiple of the divisor has no remainder", lambda: (I * B) % B, "0"),
    ("a multiple of the divisor is dropped beside others", lambda: (I * B + R) % B, "r%B"),
    ("a multiple of the divisor divides", lambda: (I * (B * C)) // C, "B*i"),
    ("like terms are collected", lambda: I + J + I, "2*i + j"),
    ("like terms cancel", lambda: I * B + J - I * B, "j"),
    ("nothing is left", lambda: I - I, "0"),
    ("dividing by 1", lambda: X // ONE, "x"),
    ("the remainder by 1", lambda: X % ONE, "0"),
    ("fractional sizes divide too", lambda: (I * size("k^-1*C") + iterator("j", size("k^-1*C"))) // size("k^-1*C"), "i"),
    ("fractional sizes divide too", lambda: (R * size("k^-1*C") + iterator("j", size("k^-1*C"))) % C, "(k^-1*C)*r + j"),
    ("a guard on what is in range is dropped", lambda: (I * B + J).guarded(A * B), "B*i + j"),
    ("a guard on a window stays", lambda: (I + R - half(K)).guarded(A) // B, "(i + r - k//2)//B"),
    ("a guard on what may be out of range stays", lambda: (I * B + X.guarded(A)) % B, "x%B"),
    ("a guard on what may be out of range has its extent", lambda: X.guarded(A) // A, "0"),
    ("a guard has its extent", lambda: (I + R - half(K)).guarded(A) // A, "0"),
]


@pytest.mark.parametrize(("make", "text"), [row[1:] for row in IDENTITIES], ids=[f"{row[0]}: {row[2]}" for row in IDENTITIES])
def test_identities(make: Callable[[], Expression], text: str) -> None:
    assert str(make()) == text


UNKNOWN = [
    ("it cannot be shown that A is below B", lambda: (I * B + iterator("j", A)) // B, "(B*i + j)//B"),
    ("a sum may carry", lambda: (X + 1) // A, "(x + 1)//A"),
    ("a sum may carry", lambda: (I + iterator("j", A)) % A, "(i + j)%A"),
    ("a difference may be negative", lambda: (I * B - J) // B, "(B*i - j)//B"),
    ("C need not divide B", lambda: (I * B + J) // C, "(B*i + j)//C"),
    ("a window may lie outside", lambda: (I + R - half(K)) % A, "(i + r - k//2)%A"),
    ("no divisor in common", lambda: (LONG % B) // C, "(n%B)//C"),
    ("no recombination of different counts", lambda: (LONG // A) * A + (LONG // A) * A + LONG % A, "2*A*(n//A) + (n%A)"),
    ("no recombination of different directions", lambda: LONG % A - (LONG // A) * A, "(n%A) - A*(n//A)"),
    ("a gap between digits", lambda: (I * C + R) // B, "(C*i + r)//B"),
]


@pytest.mark.parametrize(("make", "text"), [row[1:] for row in UNKNOWN], ids=[f"{row[0]}: {row[2]}" for row in UNKNOWN])
def test_what_cannot_be_shown_from_exponents_is_left_alone(make: Callable[[], Expression], text: str) -> None:
    assert str(make()) == text


@pytest.mark.parametrize(
    ("make", "extent"),
    [
        (lambda: I, "A"),
        (lambda: I * B + J, "A*B"),
        (lambda: J + I * B, "A*B"),
        (lambda: LONG * (A * B) + I * B + J, "A^2*B^2*C"),
        (lambda: LONG // A, "B*C"),
        (lambda: LONG % A, "A"),
        (lambda: LONG // K, None),  # k need not divide it
        (lambda: I + 1, None),
        (lambda: (I + 1) % A, "A"),
        (lambda: I + J, None),
        (lambda: I * B, None),
        (lambda: I * B - J, None),
        (lambda: I + I, None),
        (lambda: half(K), None),
        (lambda: (I - half(K)).guarded(C), "C"),
        (lambda: Expression(), "1"),
    ],
)
def test_extents(make: Callable[[], Expression], extent: str | None) -> None:
    assert make().extent is (None if extent is None else size(extent))


@pytest.mark.parametrize(
    ("make", "python", "c_source"),
    [
        (lambda: I * B + J, "B*i + j", "B*i + j"),
        (lambda: I * size("k^-1*A"), "(A // k)*i", "(A / k)*i"),
        (lambda: (LONG // A) % B, "(n//A)%B", "(n/A)%B"),
        (lambda: LONG // size("k^-1*A"), "n//(A // k)", "n/(A / k)"),
        (lambda: (I + 1) % A, "(i + 1)%A", "(i + 1)%A"),
        (lambda: (I + -1) % A, "(i - 1)%A", "floor_mod(i - 1, A)"),
        (lambda: ((X + -1) % (A * B)) // A, "((x - 1)//A)%B", "floor_mod(floor_div(x - 1, A), B)"),
        (lambda: ((I + -1) % A) * B + J, "B*((i - 1)%A) + j", "B*floor_mod(i - 1, A) + j"),
        (lambda: (I + R - half(K)).guarded(A) // B, "(i + r - k//2)//B", "(i + r - k/2)/B"),
        (lambda: (I - half(K * S)) * C, "C*i - C*((k * s)//2)", "C*i - C*((k * s)/2)"),
        (lambda: half(K * S), "(k * s)//2", "(k * s)/2"),
        (lambda: I - half(K) - half(K), "i - 2*(k//2)", "i - 2*(k/2)"),
        (lambda: Expression() - half(K) + I, "-(k//2) + i", "-(k/2) + i"),
        (lambda: Expression() - I, "-i", "-i"),
        (lambda: Expression() + 3 - I, "3 - i", "3 - i"),
        (lambda: Expression(), "0", "0"),
    ],
)
def test_texts(make: Callable[[], Expression], python: str, c_source: str) -> None:
    assert make().text(lambda size: size.integer_text()) == python
    assert make().text(lambda size: size.integer_text("/"), "/") == c_source


def test_arrays_and_integers_are_evaluated_alike() -> None:
    expression = (I * B + J + 5) % C
    valuation = TABLE.valuation(A=3, B=2, C=4, k=1, s=1)
    values = expression.evaluate({"i": np.arange(3)[:, None], "j": np.arange(2)}, valuation)
    assert values.tolist() == [[expression.evaluate({"i": i, "j": j}, valuation) for j in range(2)] for i in range(3)]
