"""`syno show` says in words what an operator reads: windows, shifts, exchanged axes."""

from __future__ import annotations

import doctest

import pytest

import syno
from syno.ir.graph import PGraph
from syno.report.operators import words as operator_words
from syno.report.operators.card import card
from syno.report.operators.words import in_words


def picture(*, exchange: bool = False, rows: int = 0, column: bool = False, row: bool = False) -> PGraph:
    """An operator on pictures that shifts rows, reads windows of 3, and exchanges rows and columns, in this order."""
    build = syno.Builder("N, C_in, C_out, H; k=3", name="moves")
    n, o, y, x = build.output("N, C_out, H, H")
    if exchange:
        y, x = x, y
    windows = [name for name, there in (("column", column), ("row", row)) if there]
    sums = build.contract(outer=[o], inner=build.reduce(", ".join(["C_in", *("k" for _ in windows)])))
    channel, window = sums[0], dict(zip(windows, sums[1:], strict=True))
    if "column" in window:
        y = build.unfold(y, window["column"])
    if "row" in window:
        x = build.unfold(x, window["row"])
    if rows:
        y = build.shift(y, rows)
    return build.finish([n, channel, y, x])


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        (picture(), "reads one position, the output's own; nothing is shifted, exchanged or repeated"),
        (picture(exchange=True), "exchanges rows and columns"),
        (picture(column=True), "reads a column of 3"),
        (picture(row=True), "reads a row of 3"),
        (picture(row=True, column=True), "reads 3 x 3 positions"),
        (picture(rows=1), "shifts rows by 1 (row i reads row i + 1, around the border)"),
        (picture(rows=-2), "shifts rows by -2 (row i reads row i - 2, around the border)"),
        (picture(column=True, exchange=True), "reads a column of 3, then exchanges rows and columns"),
        (
            picture(rows=1, row=True, exchange=True),
            "shifts rows by 1 (row i reads row i + 1, around the border), then reads a row of 3, "
            "then exchanges rows and columns",
        ),
    ],
    ids=["nothing", "exchange", "column", "row", "window", "shift", "back", "column, exchange", "all"],
)
def test_operators_on_pictures_in_words(operator: PGraph, words: str) -> None:
    assert in_words(operator).splitlines()[-1] == f"In words: {words}."


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("conv2d", ["C_in         every position, summed", "In words: reads 3 x 3 positions."]),
        (
            "shift_rows_conv1x1",
            [
                "H (rows)     at the output's H (rows), from there to 1 after, around the border",
                "In words: shifts rows by 0 or 1, depending on r1, around the border.",
            ],
        ),
        (
            "pixel_shuffle",
            [
                "s^2*C        at (s**2)*i1 + s*(i2%s) + (i3%s)",
                "H (rows)     at the output's s*H (rows) divided by s, rounded down",
            ],
        ),
        ("sum_pool2d", ["In words: reads 2 x 2 positions, then keeps one of every s rows and columns."]),
        ("operator_1", ["C_in         every position, summed", "In words: reads 3 x 3 positions."]),
        ("matmul", ["M  at the output's M", "K  every position, summed"]),
        ("dilated_conv2d", ["In words: reads 3 x 3 positions (2 apart)."]),
        ("grouped_conv2d", ["In words: reads 3 x 3 positions, then takes one of g groups of C_in."]),
        ("stacked_convolution", ["In words: reads 3 x 3 positions, then reads a row of 3."]),
        (
            "shift_conv1x1",
            ["C_in, H (rows) and H (columns) vary together: they depend on r0"],
        ),
        (
            "nas_pte_sequence_3",
            [
                "counted only where 0 <= (i2%(H//s)) + r1 - k//2 < H // s",
                "In words: reads a row of 3; H (rows): as the index above says.",
            ],
        ),
    ],
)
def test_known_operators_in_words(name: str, lines: list[str]) -> None:
    shown = [line.strip() for line in card(syno.OPERATORS[name]()).splitlines()]
    for line in lines:
        assert line in shown, in_words(syno.OPERATORS[name]())


def test_a_window_in_words_with_and_without_its_size() -> None:
    build = syno.Builder("L; k", name="window")
    (position,) = build.output("L")
    (sum_,) = build.contract(inner=build.reduce("k"))
    operator = build.finish([build.unfold(position, sum_)])
    assert "L  at the output's L, plus r0 - k//2, zero beyond the border" in in_words(operator)
    assert "axis by axis (k=5)" in in_words(operator, {"k": 5})
    assert in_words(operator, {"k": 5}).endswith("In words: reads 5 positions of L.\n")


def test_the_example_of_the_module_runs() -> None:
    assert doctest.testmod(operator_words).failed == 0
