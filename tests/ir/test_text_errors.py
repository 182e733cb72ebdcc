"""What is said about text that is no operator."""

from __future__ import annotations

import re

import pytest
from conv1d import CONV1D, conv1d

from syno.base.errors import ParseError
from syno.ir.text import parse

LINE = {line: number for number, line in enumerate(CONV1D.splitlines(), 1)}

BROKEN = [  # a line, what it is replaced by, and what must be said
    ("d3:W = Unfold(i2, d2)", "d3:W = Unfodl(i2, d2)", 'unknown primitive "Unfodl"; there are: Split, Merge, Shift, Expand,'),
    ("d3:W = Unfold(i2, d2)", "d3:W = Unfodl(i2, d2)", 'Did you mean "Unfold"?'),
    (
        "d3:W = Unfold(i2, d2)",
        "d3:W = Unfold(i2, e2)",
        '"e2" is not defined above; defined are: i0, i1, i2, r0, r1, d0, d1, d2.',
    ),
    ("d3:W = Unfold(i2, d2)", "d3:W = Unfold(i2, dd2)", 'Did you mean "d2"?'),
    ("d3:W = Unfold(i2, d2)", "d3:W = Unfold(i2, d3)", '"d3" is not defined above'),
    ("d3:W = Unfold(i2, d2)", "d3:W = Unfold(i2, w1[2])", '"w1[2]" is not defined above'),
    ("d3:W = Unfold(i2, d2)", "d3:k = Unfold(i2, d2)", '"d3" is declared with size k, but its size is W'),
    ("d3:W = Unfold(i2, d2)", "d3:W = Unfold(i2)", "Unfold takes position, window; given: i2"),
    ("d3:W = Unfold(i2, d2)", "d3:W = Unfold()", "Unfold takes position, window; given: nothing"),
    ("d3:W = Unfold(i2, d2)", "d3:W = Unfold(i2, d2, k)", "Unfold takes position, window; given: i2, d2, k"),
    ("d3:W = Unfold(i2, d2)", "d3:W, d4:k = Unfold(i2, d2)", "Unfold gives 1 dims (axis); named: 2"),
    ("d3:W = Unfold(i2, d2)", "Unfold(i2, d2)", "Unfold gives 1 dims (axis); named: 0"),
    ("d3:W = Unfold(i2, d2)", "d3:W = Unfold(i2, i2)", "Unfold was given the same dim twice: output axis 2:W"),
    ("d3:W = Unfold(i2, d2)", "d2:W = Unfold(i2, d2)", '"d2" is defined twice'),
    ("d3:W = Unfold(i2, d2)", "d3 = Unfold(i2, d2)", '"d3" is not "name:size", as in "i0:C_out"'),
    ("d3:W = Unfold(i2, d2)", "d3:W = Merge(i2)", "Merge takes whole, a block size; given: i2"),
    ("d3:W = Unfold(i2, d2)", "d3:W = Merge(i2, k)", "Merge gives 2 dims (quotient, remainder); named: 1"),
    ("d3:W = Unfold(i2, d2)", "d3:W, d4:k = Merge(i2, k)", '"d3" is declared with size W, but its size is k^-1*W'),
    ("d3:W = Unfold(i2, d2)", "d3:W, d4:k = Merge(i2, 2)", '"2" is not a size'),
    ("d3:W = Unfold(i2, d2)", "d3:W, d4:k = Merge(i2, 1)", "Merge carries a block size; given: 1"),
    ("d3:W = Unfold(i2, d2)", "d3:W, d4:k = Merge(i2, N)", "has size N^-1*W: a primary variable may not be in a denominator"),
    ("d3:W = Unfold(i2, d2)", "d3:W = Shift(i2)", "Shift takes from, a number of positions, not 0; given: i2"),
    ("d3:W = Unfold(i2, d2)", "d3:W = Shift(i2, k)", '"k" is not a number of positions, as in "+1" or "-2"'),
    ("d3:W = Unfold(i2, d2)", "d3:W = Shift(i2, 1.5)", '"1.5" is not a number of positions, as in "+1" or "-2"'),
    ("d3:W = Unfold(i2, d2)", "d3:W = Shift(i2, +0)", "Shift carries a number of positions, not 0; given: 0"),
    ("d3:W = Unfold(i2, d2)", "d3:W Unfold(i2, d2)", "this is neither"),
    (
        "d3:W = Unfold(i2, d2)",
        "hello world",
        'this is neither "name:size = Primitive(...)" nor a line that starts with one of: operator,',
    ),
    ("r1:k = Reduce()", "r1:k = Reduce(k)", "Reduce takes nothing; given: k"),
    ("r1:k = Reduce()", "r1:K = Reduce()", 'unknown variable "K" in size "K"; declared are: C_in, C_out, N, W, k.'),
    ("r1:k = Reduce()", "r1:k^-1 = Reduce()", "coefficients may be in a denominator only beside a primary variable"),
    ("r1:k = Reduce()", "r1:k+1 = Reduce()", '"k+1" is not a size'),
    ("r1:k = Reduce()", "r0:k = Reduce()", '"r0" is defined twice'),
    ("d1:C_in = Share(r0, w1[1])", "d1:C_in = Share(r0, w1)", '"w1" is not an axis of a weight, as in "w1[0]"'),
    ("d1:C_in = Share(r0, w1[1])", "d1:C_in = Share(r0, x[1])", '"x[1]" is not an axis of a weight, as in "w1[0]"'),
    ("d1:C_in = Share(r0, w1[1])", "d1:C_in = Share(r0)", "Share takes shared, the number of a weight, from 1; given: r0"),
    ("d1:C_in = Share(r0, w1[1])", "d1:C_in = Share(r0, w1[0])", "axis 0 of weight w1 is given twice"),
    ("d1:C_in = Share(r0, w1[1])", "d1:C_in = Share(r0, w0[1])", "Share carries the number of a weight, from 1; given: 0"),
    ("Expand(d0)", "d9:C_out = Expand(d0)", "Expand gives 0 dims (none); named: 1"),
    ("output i0:N, i1:C_out, i2:W", "output i0, i1:C_out, i2:W", '"i0" is not "name:size", as in "i0:C_out"'),
    ("output i0:N, i1:C_out, i2:W", "output i0:N, i0:C_out, i2:W", '"i0" is defined twice'),
    (
        "output i0:N, i1:C_out, i2:W",
        "output i0:N, i1:C_in^-1, i2:W",
        "output axis 1 has size C_in^-1: a primary variable may not",
    ),
    ("input i0:N, d1:C_in, d3:W", "input i0:N, d1:C_in, d4:W", '"d4" is not defined above'),
    ("input i0:N, d1:C_in, d3:W", "input i0:N, d1:C_in, d3:k", '"d3" is declared with size k, but its size is W'),
    ("weight w1[C_out, C_in, k]", "weight w1[C_in, C_out, k]", "the Shares of w1 give [C_out, C_in, k]"),
    ("weight w1[C_out, C_in, k]", "weight w1[C_out, C_in]", "the Shares of w1 give [C_out, C_in, k]"),
    ("weight w1[C_out, C_in, k]", "weight w2[C_out, C_in, k]", "the Shares of w2 give []"),
    ("weight w1[C_out, C_in, k]", "weight w2[]", "the Shares of w2 give []"),
    ("weight w1[C_out, C_in, k]", "weight C_out, C_in, k", 'a weight is declared as "weight w1[size, size, ...]"'),
    ("variables C_in, C_out, N, W; k=3", "variables C_in, C_in; k=3", 'variable "C_in" is declared twice'),
    ("variables C_in, C_out, N, W; k=3", "variables C_in; C_out; k", 'has more than one ";"'),
    ("variables C_in, C_out, N, W; k=3", "variables C_in, if; k=0", '"if" cannot name a variable'),
    ("variables C_in, C_out, N, W; k=3", "variables N; k=0", "k = 0: the value of a variable is a positive integer"),
]


class TestErrors:
    @pytest.mark.parametrize(("line", "broken", "message"), BROKEN, ids=[row[1] + " # " + row[2][:20] for row in BROKEN])
    def test_a_wrong_line_is_quoted_with_its_number_and_what_is_allowed(self, line: str, broken: str, message: str) -> None:
        with pytest.raises(ParseError) as error:
            parse(CONV1D.replace(line, broken), source="my.txt")
        said = str(error.value)
        assert said.startswith(f'my.txt, line {LINE[line]} "{broken}": ')
        assert message in said
        assert said.count("my.txt") == 1

    def test_numbers_of_lines_count_comments_and_blank_lines(self) -> None:
        with pytest.raises(ParseError, match=r'^operator text, line 4 "nonsense": this is neither'):
            parse("# one\n\n# three\n  nonsense  # here\n")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "my.txt: no line that starts with variables or output or input"),
            ("# nothing", "my.txt: no line that starts with variables or output or input"),
            (CONV1D.replace("input", "# input"), "my.txt: no line that starts with input"),
            ("variables C\ninput", "my.txt: no line that starts with output"),
            ("variables C\noutput i0:C", "my.txt: no line that starts with input"),
        ],
    )
    def test_missing_lines_are_named(self, text: str, message: str) -> None:
        with pytest.raises(ParseError) as error:
            parse(text, source="my.txt")
        assert str(error.value) == message

    @pytest.mark.parametrize("line", ["output i0:N", "r0:k = Reduce()", "weight w1[k]", "input i0:N"])
    def test_variables_come_first(self, line: str) -> None:
        message = 'no variables declared yet: the line "variables primaries; coefficients" comes first'
        with pytest.raises(ParseError, match=re.escape(f'my.txt, line 1 "{line}"') + ".*" + message):
            parse(line, source="my.txt")

    @pytest.mark.parametrize("line", ["output i0:N, i1:C_out, i2:W", "output a:N", "input i0:N, d1:C_in, d3:W", "input i0:N"])
    def test_output_and_input_are_declared_once(self, line: str) -> None:
        word = line.split()[0]
        with pytest.raises(ParseError, match=f'line 13 "{line}": the {word} is declared already'):
            parse(CONV1D + line)

    def test_a_wrong_id_is_an_error_that_says_what_to_do(self) -> None:
        wrong = "0" * 32
        with pytest.raises(ParseError) as error:
            parse(f"{CONV1D}id {wrong}", source="my.txt")
        assert str(error.value) == (
            f'my.txt: the id line says {wrong}, the text has {conv1d().id}; if you edited it, remove the "id" line'
        )

    @pytest.mark.parametrize(
        ("axes", "message"),
        [
            ({"w1[2]": "w1[3]"}, "weight w1 has axes [0, 1, 3]; they must count 0, 1, 2 ... without a gap"),
            ({"w1[0]": "w1[5]"}, "weight w1 has axes [1, 2, 5]; they must count 0, 1, 2 ... without a gap"),
            ({"w1[2]": "w3[0]"}, "weight w2 has axes []; they must count 0, 1, 2 ... without a gap"),
            ({"w1[2]": "w2[1]"}, "weight w2 has axes [1]; they must count 0, 1, 2 ... without a gap"),
        ],
    )
    def test_axes_of_weights_have_no_gap(self, axes: dict[str, str], message: str) -> None:
        text = CONV1D.replace("weight", "# weight")
        for old, new in axes.items():
            text = text.replace(old, new)
        with pytest.raises(ParseError) as error:
            parse(text, source="my.txt")
        assert str(error.value) == f"my.txt: {message}"

    @pytest.mark.parametrize(
        ("line", "broken", "message"),
        [
            ("input i0:N, d1:C_in, d3:W", "input i0:N, i0:N, d1:C_in, d3:W", "output axis 0:N is used 2 times"),
            (
                "input i0:N, d1:C_in, d3:W",
                "d4:W = Shift(d3, +1)\ninput i0:N, d1:C_in, d3:W, d4:W",
                "axis of Unfold:W is used 2 times",
            ),
        ],
    )
    def test_broken_rules_of_the_language_name_the_source(self, line: str, broken: str, message: str) -> None:
        with pytest.raises(ParseError) as error:
            parse(CONV1D.replace(line, broken), source="my.txt")
        assert str(error.value).startswith(f"my.txt: {message}")

    def test_a_stride_without_a_window_is_an_error(self) -> None:
        with pytest.raises(ParseError, match="^my.txt: axis of Stride:s\\*H indexes the input through a Stride"):
            parse("variables H; s\noutput i0:H\nd0:s*H = Stride(i0, s)\ninput d0:s*H", source="my.txt")

    @pytest.mark.parametrize(
        ("line", "broken", "where"),
        [
            ("Expand(d0)", "", 'line 6 "d0:C_out = Share(i1, w1[0])": "d0"'),
            ("input i0:N, d1:C_in, d3:W", "input i0:N, d1:C_in", 'line 9 "d3:W = Unfold(i2, d2)": "d3"'),
            ("input i0:N, d1:C_in, d3:W", "input d1:C_in, d3:W", 'line 3 "output i0:N, i1:C_out, i2:W": "i0"'),
            ("r1:k = Reduce()", "r1:k = Reduce()\nr2:k = Reduce()", 'line 6 "r2:k = Reduce()": "r2"'),
            ("Expand(d0)", "Expand(d0)\nd4:W = Shift(d3, +1)", 'line 11 "d4:W = Shift(d3, +1)": "d4"'),
        ],
    )
    def test_unused_definitions_are_errors(self, line: str, broken: str, where: str) -> None:
        """Also a reduction or a view that leads nowhere: to leave it out would give another operator than is written."""
        with pytest.raises(ParseError) as error:
            parse(CONV1D.replace(line, broken), source="my.txt")
        assert str(error.value) == (
            f"my.txt, {where} is used by nothing: make it an axis of the input, expand it, or use it above"
        )
