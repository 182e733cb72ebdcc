"""The text of an operator: written, and read back."""

from __future__ import annotations

import re

import golden_files
import pytest
from conv1d import CONV1D, conv1d
from hypothesis import given, settings
from strategies import pgraphs

from syno.base.errors import ParseError
from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.text import parse


class TestWriting:
    @pytest.mark.parametrize("name", ["conv2d", "operator_1"])
    def test_the_text_is_that_of_the_golden_file(self, name: str) -> None:
        golden_files.check(f"{name}.txt", str(OPERATORS[name]()))

    def test_a_text_is_as_documented(self) -> None:
        assert str(conv1d()) == f"{CONV1D}id {conv1d().id}\n"

    def test_every_primitive_is_written(self) -> None:
        build = Builder("A, B; k, s", name="all")
        i, j = build.output("A, k*B")
        (r,) = build.reduce("k")
        quotient, remainder = build.merge(j, "k")
        build.expand(quotient)
        (r,) = build.contract(inner=[r])
        axis = build.unfold(build.shift(i, -2), build.stride(r, "s"))
        lines = str(build.finish([build.split(axis, remainder)])).splitlines()
        assert (
            lines[3:-2]
            == [
                "r0:k = Reduce()",
                "d0:A = Shift(i0, -2)",
                "d1:B, d2:k = Merge(i1, k)",
                "d3:k = Share(r0, w1[0])",
                "Expand(d1)",
                "d4:k*s = Stride(d3, s)",
                "d5:A = Unfold(d0, d4)",
                "d6:k*A = Split(d5, d2)",
                "input d6:k*A",
                "weight w1[k]",
            ][:-1]
        )


class TestRoundTrip:
    @pytest.mark.parametrize("name", OPERATORS)
    def test_known_operators_are_parsed_back(self, name: str) -> None:
        graph = OPERATORS[name]()
        again = parse(str(graph))
        assert again.id == graph.id and again == graph
        assert (again.name, again.variables.defaults) == (graph.name, graph.variables.defaults)
        assert str(again) == str(graph)

    @settings(deadline=None, derandomize=True, max_examples=150)
    @given(pgraphs())
    def test_random_operators_are_parsed_back(self, graph: PGraph) -> None:
        again = parse(str(graph))
        assert again.id == graph.id and again == graph
        assert str(again) == str(graph)

    @pytest.mark.parametrize(
        "make",
        [
            lambda build: build.finish(build.reduce("C, H, C")),
            lambda build: build.finish([]),
            lambda build: build.finish(build.contract(inner=build.reduce("C"))),
        ],
        ids=["sum", "number", "dot product"],
    )
    def test_operators_whose_output_is_one_number(self, make) -> None:
        graph = make(Builder("C, H", name="total"))
        assert "\noutput \n" in str(graph)
        assert parse(str(graph)) == graph

    def test_an_operator_whose_input_is_one_number(self) -> None:
        build = Builder("C", name="broadcast")
        build.expand(*build.output("C"))
        graph = build.finish([])
        assert parse(str(graph)) == graph


class TestReading:
    def test_comments_blank_lines_and_spaces_play_no_part(self) -> None:
        loose = "# a convolution\n\n" + CONV1D.replace("\n", "   # why not\n\n").replace(", ", " ,  ").replace(" = ", "=")
        assert parse(loose) == conv1d()
        assert parse("   " + CONV1D.replace("\n", "\n\t")) == conv1d()
        assert parse(CONV1D.replace("\n", "\r\n")) == conv1d()

    def test_dims_may_have_any_names_and_get_theirs_back(self) -> None:
        free = CONV1D
        for label, name in (("i0", "batch"), ("i1", "out_channel"), ("r1", "tap"), ("d2", "_1"), ("d3", "X")):
            free = re.sub(rf"\b{label}\b", name, free)
        assert free != CONV1D and parse(free) == conv1d()
        assert str(parse(free)) == str(conv1d())

    def test_lines_may_come_in_any_order_that_defines_before_use(self) -> None:
        lines = CONV1D.splitlines()
        order = [1, 0, 11, 2, 5, 9, 4, 7, 8, 3, 6, 10]
        assert sorted(order) == list(range(12))
        assert parse("\n".join(lines[number] for number in order)) == conv1d()

    def test_name_id_and_weight_lines_may_be_left_out(self) -> None:
        short = "\n".join(line for line in CONV1D.splitlines() if not line.startswith(("operator", "weight")))
        assert parse(short) == conv1d()
        assert parse(short).name == "operator"

    def test_a_name_may_be_any_text(self) -> None:
        """Any text that can be the name of a file."""
        assert parse(CONV1D.replace("conv1d", "1st-of_3.b")).name == "1st-of_3.b"
        with pytest.raises(
            ParseError, match=r'line 1 "operator the 1st, of <3>!": an operator\'s name is \'the 1st, of <3>!\''
        ):
            parse(CONV1D.replace("conv1d", "the 1st, of <3>!"))

    def test_the_right_id_is_accepted(self) -> None:
        assert parse(f"{CONV1D}id {conv1d().id}") == conv1d()

    def test_several_reductions_may_share_a_line_of_their_own_size(self) -> None:
        text = "variables C\noutput\na:C, b:C = Reduce()\ninput a:C, b:C"
        assert len(parse(text).reduces) == 2

    def test_shifts_may_be_written_with_and_without_sign(self) -> None:
        for amount, text in (("1", "+1"), ("+1", "+1"), ("-2", "-2")):
            graph = parse(f"variables C\noutput i0:C\nd0:C = Shift(i0, {amount})\ninput d0:C")
            assert f"Shift(i0, {text})" in str(graph)

    def test_defaults_of_variables_that_do_not_occur_are_dropped(self) -> None:
        assert str(parse(CONV1D.replace("k=3", "k=3, g=2")).variables) == "C_in, C_out, N, W; k=3"
