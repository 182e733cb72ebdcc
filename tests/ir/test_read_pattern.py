"""Patterns of reading, in numbers and in words: at the border, in blocks, with exchanged axes, backwards in sequences."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from fractions import Fraction

import pytest

import syno
from syno.base.errors import LoweringError
from syno.ir import read_pattern as patterns
from syno.ir.builder import Builder
from syno.ir.dim import Dim
from syno.ir.graph import PGraph
from syno.ir.read_pattern import AxisPattern, example_values, read_pattern, weights_used
from syno.report.operators.card import card
from syno.report.operators.words import dependence

Axis = Callable[[Builder, Dim], Dim]
COPY = "It exchanges rows and columns, which costs a copy of the data that FLOPs do not count; `syno tune` measures it."


def window(build: Builder, at: Dim, size: str = "k") -> Dim:
    return build.unfold(at, *build.contract(inner=build.reduce(size)))


def in_blocks(build: Builder, at: Dim) -> Dim:
    """A window within each block of b positions."""
    block, inner = build.merge(at, "b")
    return build.split(block, window(build, inner))


def whole_block(build: Builder, at: Dim) -> Dim:
    """The whole block of s positions around each."""
    block, inner = build.merge(at, "s")
    build.expand(inner)
    return build.split(block, *build.reduce("s"))


def strided(build: Builder, at: Dim) -> Dim:
    return build.unfold(at, build.stride(*build.contract(inner=build.reduce("k")), "s"))


def transposed(build: Builder, at: Dim) -> Dim:
    """Positions as a matrix, read column by column."""
    row, column = build.merge(at, "s")
    return build.split(column, row)


def flipped(build: Builder, at: Dim) -> Dim:
    """An axis of two positions, the other way round."""
    return build.shift(at, 1)


def sequence(axis: Axis, **values: int) -> PGraph:
    defaults = {"k": 3, "s": 2, "b": 4, **values}
    build = Builder("N, L, C; " + ", ".join(f"{name}={value}" for name, value in defaults.items()), name="sequence")
    n, l, c = build.output("N, L, C")
    return build.finish([n, axis(build, l), c])


def picture(rows: Axis | None = None, columns: Axis | None = None, *, exchange: bool = False, groups: bool = False) -> PGraph:
    build = Builder("N, C_in, C_out, H; k=3, s=2, b=4, g=4", name="picture")
    n, o, y, x = build.output("N, C_out, H, H")
    if groups:
        group, o = build.merge(o, "g^-1*C_out")
        c = build.split(group, *build.contract(outer=[o], inner=build.reduce("g^-1*C_in")))
    else:
        (c,) = build.contract(outer=[o], inner=build.reduce("C_in"))
    if exchange:
        y, x = x, y
    return build.finish([n, c, rows(build, y) if rows else y, columns(build, x) if columns else x])


def along(axis: Axis, values: dict[str, int] | None = None, applied: int = 1, **defaults: int) -> AxisPattern:
    return read_pattern(sequence(axis, **defaults), values, applied).axes[1]


class TestAxis:
    @pytest.mark.parametrize(
        ("axis", "applied", "offsets", "common", "counts"),
        [
            (lambda build, at: at, 2, (0,), (0,), (1, 1, 1)),
            (window, 1, (-1, 0, 1), (-1, 0, 1), (3, 3, 2)),
            (window, 2, (-2, -1, 0, 1, 2), (-2, -1, 0, 1, 2), (5, 5, 3)),
            (strided, 1, (-3, -1, 1), (-3, -1, 1), (3, 3, 1)),
            (lambda build, at: build.shift(window(build, at), -2), 1, (-3, -2, -1), (-3, -2, -1), (3, 3, 2)),
            (in_blocks, 1, (-1, 0, 1), (0,), (2, 3, 2)),
            (in_blocks, 2, (-2, -1, 0, 1, 2), (0,), (3, 4, 3)),
            (whole_block, 2, (-1, 0, 1), (0,), (2, 2, 2)),
        ],
    )
    def test_offsets(
        self, axis: Axis, applied: int, offsets: tuple[int, ...], common: tuple[int, ...], counts: tuple[int, int, int]
    ) -> None:
        found = along(axis, applied=applied)
        assert (found.follows, found.offsets, found.common) == (1, offsets, common)
        assert (found.least, found.most, found.least_anywhere) == counts

    def test_how_far_backwards(self) -> None:
        causal = along(window, k=2, applied=2)
        assert (causal.offsets, causal.is_centred) == ((-2, -1, 0), False)

    def test_positions_at_no_fixed_distance(self) -> None:
        found = along(transposed, {"L": 16}, s=4)
        assert (found.follows, found.offsets, found.most, found.is_every) == (None, (), 1, False)

    def test_mirrored(self) -> None:
        build = Builder("H; s=2", name="mirrored")
        block, inner = build.merge(*build.output("H"), "s")
        (found,) = read_pattern(build.finish([build.split(block, flipped(build, inner))]), {"H": 2}).axes
        assert found.follows == 0 and found.offsets == (-1,)  # of two positions, a rotation is a mirror image
        (found,) = read_pattern(build_mirror(), {"H": 4}).axes
        assert found.follows == 0 and found.is_mirrored and found.offsets == (0,) and not found.is_centred


def build_mirror() -> PGraph:
    """Four positions, the other way round: two times two, both flipped."""
    build = Builder("H; s=2", name="mirror")
    block, inner = build.merge(*build.output("H"), "s")
    return build.finish([build.split(build.shift(block, 1), build.shift(inner, 1))])


class TestPattern:
    def test_shapes_and_the_orientation(self) -> None:
        assert read_pattern(picture()).shape == "one position"
        line = picture(window, exchange=True)
        once, twice = read_pattern(line), read_pattern(line, applied=2)
        assert (once.shape, once.exchanged, once.is_transposed, once.axes[2].is_centred) == ("a line", ((2, 3),), True, False)
        assert (twice.shape, twice.exchanged, twice.is_transposed, twice.axes[2].is_centred) == ("a square", (), False, True)

    def test_share_of_channels(self) -> None:
        shares = [read_pattern(picture(groups=True), applied=applied).axes[1].share for applied in (1, 2)]
        assert shares == [Fraction(1, 4), Fraction(1, 4)]

    def test_a_diagonal_is_no_square(self) -> None:
        found = read_pattern(syno.OPERATORS["shift_conv1x1"]())
        assert found.position_counts == (2, 2) and found.axes[2].most == found.axes[3].most == 2 and not found.is_full

    def test_unused_elements_of_inputs_and_weights_are_counted(self) -> None:
        before = sequence(strided, k=1)  # a window of the position before: the last one is never read
        assert read_pattern(before, {"L": 8}).used == Fraction(7, 8)
        assert "Only 87.5 % of the input's elements are read." in dependence(before, {"L": 8}).splitlines()
        wide = sequence(window, k=9)  # of nine neighbours, at most three lie in an axis of two
        assert weights_used(wide, {"L": 2}) == (Fraction(1, 3),)
        assert "Only 33.3 % of the elements of w1 are used." in dependence(wide, {"L": 2}).splitlines()

    def test_large_sizes_are_refused_in_time(self) -> None:
        with pytest.raises(LoweringError, match="give smaller sizes"):
            read_pattern(syno.OPERATORS["shift_conv1x1"](), {"N": 1, "C_in": 2048, "C_out": 2048, "H": 512})


def test_example_sizes_divide_and_allow_applying_twice() -> None:
    operator = syno.OPERATORS["operator_1"]()
    values = example_values(operator, {"H": 7})
    assert values["H"] == 7 and values["C_in"] == values["C_out"] == 64  # g=32, s=2
    assert operator.valuation(values)


IN_BLOCKS = "a row of {}: rows its own, columns from {} before to {} after, depending on the position; 4 of 16 channels"
SHUFFLED = "one position: rows at no fixed distance, columns at no fixed distance; 1 of 64 channels"


@pytest.mark.parametrize(
    ("operator", "lines"),
    [
        (picture(), ["one position, its own; every channel"] * 2),
        (picture(window, window), [f"{size} x {size} positions around its own; every channel" for size in (3, 5)]),
        (
            picture(window, exchange=True),
            [
                "a column of 3 around its own, rows and columns exchanged; every channel",
                "3 x 3 positions around its own; every channel",
                COPY,
            ],
        ),
        (picture(None, in_blocks, groups=True), [IN_BLOCKS.format("2 to 3", 1, 1), IN_BLOCKS.format("3 to 4", 2, 2)]),
        (
            sequence(lambda build, at: window(build, at, "s")),
            ["2 positions of L: from 1 before to its own", "3 positions of L: from 2 before to its own"],
        ),
        (sequence(lambda build, at: at), ["its own position"] * 2),
        (syno.OPERATORS["pixel_shuffle"](), [SHUFFLED]),
        (
            syno.OPERATORS["depthwise_conv2d"](),
            [f"{size} x {size} positions around its own; its own channel" for size in (3, 5)],
        ),
    ],
    ids=["point", "square", "exchange", "blocks", "causal", "nothing", "shuffle", "depthwise"],
)
def test_the_pattern_in_words(operator: PGraph, lines: list[str]) -> None:
    heading, *found = dependence(operator).splitlines()
    assert heading.startswith("What an output element depends on")
    assert [line.removeprefix("  applied once   ").removeprefix("  applied twice  ") for line in found] == lines
    assert dependence(operator) in card(operator)


def test_words_where_given_sizes_are_too_large_or_differ() -> None:
    assert dependence(picture(window), {"C_in": 8, "C_out": 16, "H": 8}).splitlines()[1:] == [
        "  applied once   a column of 3 around its own; every channel",
        "  applied twice  a column of 5 around its own; every channel (C_in=16, C_out=16, H=32; k=3)",
    ]
    shifts = syno.OPERATORS["shift_conv1x1"]()
    assert dependence(shifts, {"C_in": 2048, "C_out": 2048, "H": 512}) == dependence(shifts)
    build = Builder("L; k", name="unknown")
    assert dependence(build.finish([window(build, *build.output("L"))])) == ""


def test_the_examples_of_the_module_run() -> None:
    assert doctest.testmod(patterns).failed == 0
