"""Reading ahead: found in windows, rotations and rearrangements of positions, and nowhere else."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from pathlib import Path

import pytest

import syno
from syno.base.errors import LoweringError, SpecError, ValuationError
from syno.ir import support
from syno.ir.builder import Builder
from syno.ir.dim import Dim
from syno.lower import causality
from syno.lower.causality import leak
from syno.paper.artifact.published_operator import read_artifact

Positions = Callable[[Builder, Dim], Dim]
GPT2 = {"N": 1, "seq_len": 2048, "H_in": 768}


def made(positions: Positions, **values: int) -> syno.PGraph:
    """An operator on [N, L, C] that does nothing but to its positions."""
    defaults = {"N": 1, "L": 12, "C": 2, "k": 3, "s": 2, **values}
    primaries = ", ".join(f"{name}={defaults.pop(name)}" for name in ("N", "L", "C"))
    coefficients = ", ".join(f"{name}={value}" for name, value in defaults.items())
    build = Builder(f"{primaries}; {coefficients}", name="made")
    n, l, c = build.output("N, L, C")
    return build.finish([n, positions(build, l), c])


def window(build: Builder, at: Dim, size: str = "k") -> Dim:
    return build.unfold(at, *build.contract(inner=build.reduce(size)))


def dilated(build: Builder, at: Dim) -> Dim:
    """Every s-th of s*k neighbours."""
    (j,) = build.contract(inner=build.reduce("k"))
    return build.unfold(at, build.stride(j, "s"))


def in_blocks(build: Builder, at: Dim) -> Dim:
    """A window within each block of s positions."""
    block, inner = build.merge(at, "s")
    return build.split(block, window(build, inner))


def of_blocks(build: Builder, at: Dim) -> Dim:
    """A window over blocks of s positions, the same place in each."""
    block, inner = build.merge(at, "s")
    return build.split(window(build, block), inner)


def transposed(build: Builder, at: Dim) -> Dim:
    """Positions as a matrix, read column by column."""
    row, column = build.merge(at, "s")
    return build.split(column, row)


def repeated(build: Builder, at: Dim) -> Dim:
    """Each position reads its whole block of s."""
    block, inner = build.merge(at, "s")
    build.expand(inner)
    return build.split(block, *build.reduce("s"))


class TestLeak:
    @pytest.mark.parametrize(
        ("positions", "values", "expected"),
        [
            (window, {"k": 3}, (0, 1)),
            (window, {"k": 5}, (0, 2)),
            (window, {"k": 4}, (0, 1)),
            (window, {"k": 2}, None),  # one position back, and itself
            (window, {"k": 3, "L": 1}, None),  # nothing lies ahead
            (lambda build, at: window(build, window(build, at, "s"), "s"), {}, None),
            (lambda build, at: window(build, window(build, at, "s")), {}, (0, 1)),
            (dilated, {"k": 2}, None),  # of 4 neighbours the first and the third: 2 back, and itself
            (dilated, {"k": 3}, (0, 1)),  # of 6: 3 back, 1 back, 1 ahead
            (lambda build, at: build.shift(at, 1), {}, (0, 1)),
            (lambda build, at: build.shift(at, -1), {}, (0, 11)),  # the first position reads the last
            (lambda build, at: build.shift(build.shift(at, 5), -5), {}, None),
            (lambda build, at: build.shift(window(build, at, "s"), 1), {}, (0, 1)),
            (in_blocks, {"k": 3}, (0, 1)),
            (in_blocks, {"k": 2}, None),
            (of_blocks, {"k": 3}, (0, 2)),
            (of_blocks, {"k": 2}, None),
            (of_blocks, {"k": 3, "L": 2}, None),  # there is one block: the others lie beyond the borders
            (transposed, {}, (1, 6)),
            (repeated, {}, (0, 1)),
        ],
    )
    def test_positions_that_are_read_ahead(
        self, positions: Positions, values: dict[str, int], expected: tuple[int, int] | None
    ) -> None:
        found = leak(made(positions, **values), "L")
        assert (found and (found.output, found.input)) == expected

    def test_a_moved_group_reads_ahead(self) -> None:
        found = leak(syno.OPERATORS["shift_conv1x1"](), (2, 2), {"N": 1, "C_in": 4, "C_out": 4, "H": 6})
        assert found is not None and (found.output, found.input) == (0, 1)

    def test_says_what_it_found(self) -> None:
        found = leak(made(window), "L")
        assert str(found) == "output position 0 along L depends on input position 1, which is read at i1 + r0 - k//2"
        assert doctest.testmod(causality).failed == 0


class TestKnownOperators:
    def test_the_paper_s_operator_for_gpt2(self) -> None:
        assert leak(syno.OPERATORS["gpt2_projection"](), "seq_len", GPT2) is None
        assert leak(syno.OPERATORS["mqa_projection"](), "seq_len", GPT2) is None

    def test_the_published_operator_is_causal(self, artifact: Path) -> None:
        (operator,) = read_artifact(artifact / "gpt2")
        assert leak(operator.graph, "seq_len", operator.valuations[0]) is None

    def test_a_symmetric_window_at_full_size(self) -> None:
        build = Builder("N, seq_len, H_in; k_2=5, t=3", name="symmetric")
        n, position, feature = build.output("N, seq_len, t*H_in")
        j, c = build.contract(outer=[feature], inner=build.reduce("k_2, H_in"))
        found = leak(build.finish([n, build.unfold(position, j), c]), "seq_len", GPT2)
        assert found is not None and (found.axis, found.output, found.input) == ("seq_len", 0, 2)

    def test_features_that_decide_where_to_read_are_followed(self) -> None:
        """A third of the output's features reads one position back, a third its own, a third one ahead."""
        build = Builder("N, seq_len, H_in; t=3", name="by_third")
        n, position, feature = build.output("N, seq_len, t*H_in")
        third, c = build.merge(feature, "H_in")
        found = leak(build.finish([n, build.unfold(position, third), c]), "seq_len", GPT2)
        assert found is not None and (found.output, found.input) == (0, 1)


class TestErrors:
    def test_axes(self) -> None:
        conv2d, values = syno.OPERATORS["conv2d"](), {"N": 1, "C_in": 4, "C_out": 4, "H": 6}
        with pytest.raises(SpecError, match=r"2 axes of size H"):
            leak(conv2d, "H", values)
        with pytest.raises(SpecError, match=r"its output has no axis of size seq_len"):
            leak(conv2d, "seq_len", values)
        with pytest.raises(SpecError, match=r"its input has no axis number 4"):
            leak(conv2d, (0, 4), values)
        with pytest.raises(SpecError, match=r"output axis 1 has size C_out, input axis 2 has size H$"):
            leak(conv2d, (1, 2), values)
        found = leak(conv2d, (2, 2), values)
        assert found is not None and found.axis == "axis 2"

    def test_missing_values_are_an_error(self) -> None:
        with pytest.raises(ValuationError, match="no value for"):
            leak(syno.OPERATORS["gpt2_projection"](), "seq_len")

    def test_too_many_coordinates_are_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(support, "MOST_ROWS", 30)
        assert leak(made(window, k=2), "L") is None  # 24 combinations
        with pytest.raises(LoweringError, match="36 combinations .*30"):
            leak(made(window), "L")
