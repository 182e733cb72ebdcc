"""Coordinate expressions: each identity, what none applies to, extents, texts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from syno.algebra import ONE, Expression, Size, VariableTable, half, iterator

TABLE = VariableTable.parse("A, B, C; k, s")


def size(text: str) -> Size:
    return TABLE.size(text)


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
